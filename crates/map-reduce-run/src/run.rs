//! The run of a job: the loop that serves the machine's requests.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kvorum_coordinator::{Coordinator, RequestError};
use kvorum_map_reduce::{Execution, Gathered, JOB_BYTES_MAX, Next, Output, Reducing, Wanted};
use kvorum_runtime::{Moment, Taken};

use crate::admission::AdmittedJob;
use crate::job_count::JobCount;
use crate::key_source::{KeySource, Page};
use crate::objects::{Read, read};
use crate::run_error::{RunError, is_passing};

/// Steps after which other tasks of the thread run.
const STEPS_AT_A_TIME: u32 = 64;

/// The size of the pieces in which room for a job's memory is taken.
const ROOM_PIECE_BYTES: usize = 1 << 20;

/// Longer results are encoded on another thread.
const WRITTEN_IN_PLACE_BYTES_MAX: usize = 256 << 10;

type Reading = Pin<Box<dyn Future<Output = Read> + Send>>;

/// Runs a job; returns the JSON of all results.
///
/// # Errors
///
/// The job failed, or the node has no room for its memory.
pub async fn answer(
    coordinator: &Arc<Coordinator>,
    admitted: AdmittedJob,
) -> Result<String, RunError> {
    let mut gathered = Gathered::new(&admitted.job, JOB_BYTES_MAX);
    let mut run = JobRun::begin(coordinator, admitted);
    while let Some(output) = run.next().await {
        gathered.add(&output?)?;
        run.held_elsewhere_bytes = gathered.bytes();
        run.take_room()?;
    }
    let bytes = gathered.bytes();
    if bytes <= WRITTEN_IN_PLACE_BYTES_MAX {
        return Ok(gathered.json()?);
    }
    let written = coordinator.runtime().blocking(move || gathered.json());
    Ok(written.await?)
}

/// A job in progress.
pub(crate) struct JobRun {
    coordinator: Arc<Coordinator>,
    execution: Execution,
    keys: KeySource,
    /// Objects that are being read.
    reading: FuturesUnordered<Reading>,
    deadline: Moment,
    room: Taken,
    /// The part of this room for the job's text.
    text_bytes: u64,
    held_elsewhere_bytes: usize,
    steps: u32,
    has_ended: bool,
    _counted: JobCount,
}

/// The result of a wait.
enum Arrival {
    Page(Page),
    Object(Read),
}

impl JobRun {
    /// Begins a job. Its time limit starts now.
    pub(crate) fn begin(coordinator: &Arc<Coordinator>, admitted: AdmittedJob) -> Self {
        let AdmittedJob { job, room } = admitted;
        let timeout = job.timeout;
        let execution = Execution::new(job, JOB_BYTES_MAX);
        Self {
            keys: KeySource::new(coordinator, execution.inputs(), timeout),
            deadline: coordinator.runtime().now().plus(timeout),
            coordinator: coordinator.clone(),
            execution,
            reading: FuturesUnordered::new(),
            text_bytes: room.bytes(),
            room,
            held_elsewhere_bytes: 0,
            steps: 0,
            has_ended: false,
            _counted: JobCount::begin(coordinator),
        }
    }

    /// The next results; `None` after the last ones, and after an error.
    pub(crate) async fn next(&mut self) -> Option<Result<Output, RunError>> {
        if self.has_ended {
            return None;
        }
        let output = self.run_on().await.transpose();
        self.has_ended = !matches!(output, Some(Ok(_)));
        output
    }

    async fn run_on(&mut self) -> Result<Option<Output>, RunError> {
        loop {
            self.pause_between_steps().await?;
            match self.execution.step()? {
                Next::Emit(output) => return Ok(Some(output)),
                Next::Done => return Ok(None),
                Next::ReadInputs => self.keys.want(),
                Next::ReadObject(wanted) => self.begin_to_read(wanted).await?,
                Next::Reduce(reducing) => self.reduce(reducing).await?,
                Next::Wait => self.wait().await?,
            }
        }
    }

    /// Checks the limits, and lets other tasks run after some steps.
    async fn pause_between_steps(&mut self) -> Result<(), RunError> {
        self.take_room()?;
        self.steps += 1;
        if self.steps < STEPS_AT_A_TIME {
            return Ok(());
        }
        self.steps = 0;
        if self.remaining().is_zero() {
            return Err(self.execution.time_out().into());
        }
        self.coordinator.runtime().yield_now().await;
        Ok(())
    }

    /// Takes room for the job's present memory.
    fn take_room(&mut self) -> Result<(), RunError> {
        let held = self.execution.bytes() + self.held_elsewhere_bytes;
        let wanted = self.text_bytes.saturating_add(held as u64);
        let missing = wanted.saturating_sub(self.room.bytes());
        if missing == 0 {
            return Ok(());
        }
        let missing = usize::try_from(missing).unwrap_or(usize::MAX);
        let pieces = missing.div_ceil(ROOM_PIECE_BYTES);
        match self.room.grow(pieces * ROOM_PIECE_BYTES) {
            true => Ok(()),
            false => Err(RunError::RetryLater(RequestError::Overload)),
        }
    }

    /// The time that is left.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.since(self.coordinator.runtime().now())
    }

    /// Begins to read an object; one in memory is ready at once.
    async fn begin_to_read(&mut self, wanted: Wanted) -> Result<(), RunError> {
        let coordinator = self.coordinator.clone();
        let mut reading: Reading = Box::pin(read(coordinator, wanted, self.remaining()));
        match poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await {
            Poll::Ready(read) => self.take_object(read),
            Poll::Pending => {
                self.reading.push(reading);
                Ok(())
            }
        }
    }

    /// Applies a reduce function to many terms on another thread, until the deadline.
    async fn reduce(&mut self, reducing: Reducing) -> Result<(), RunError> {
        let runtime = self.coordinator.runtime();
        let reduced = runtime.blocking(move || reducing.run());
        match runtime.timeout(self.remaining(), reduced).await {
            Ok(reduced) => Ok(self.execution.take_reduced(reduced)?),
            Err(_) => Err(self.execution.time_out().into()),
        }
    }

    /// Waits for a page or an object, until the deadline.
    async fn wait(&mut self) -> Result<(), RunError> {
        let remaining = self.remaining();
        let runtime = self.coordinator.runtime().clone();
        let arrival = poll_fn(|context| self.poll_arrival(context));
        match runtime.timeout(remaining, arrival).await {
            Ok(Arrival::Page(page)) => self.take_page(page),
            Ok(Arrival::Object(read)) => self.take_object(read),
            Err(_) => Err(self.execution.time_out().into()),
        }
    }

    fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        if let Poll::Ready(Some(read)) = self.reading.poll_next_unpin(context) {
            return Poll::Ready(Arrival::Object(read));
        }
        self.keys.poll_page(context).map(Arrival::Page)
    }

    fn take_page(&mut self, page: Page) -> Result<(), RunError> {
        match page {
            Ok(Some(keys)) => self.execution.take_keys(keys, false)?,
            Ok(None) => self.execution.take_keys(Vec::new(), true)?,
            Err(RequestError::Timeout) => return Err(self.execution.time_out().into()),
            Err(error) if is_passing(&error) => return Err(RunError::RetryLater(error)),
            Err(error) => return Err(self.execution.inputs_failed(error.to_string()).into()),
        }
        Ok(())
    }

    fn take_object(&mut self, read: Read) -> Result<(), RunError> {
        let Read { ticket, object } = read;
        match object {
            Ok(object) => self.execution.take_object(ticket, object)?,
            Err(RequestError::Timeout) => return Err(self.execution.time_out().into()),
            Err(error) if is_passing(&error) => return Err(RunError::RetryLater(error)),
            Err(error) => {
                let error = error.to_string();
                return Err(self.execution.object_failed(ticket, error).into());
            }
        }
        Ok(())
    }
}

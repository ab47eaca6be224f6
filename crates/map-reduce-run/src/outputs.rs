//! The results of a job for a client that takes them one by one, at any speed.
//!
//! The job is a task of its own, one output ahead of the client. For a client that takes nothing
//! until the job's deadline, the job ends with its time-out; the deadline frees its memory even if
//! the client does not read.

use std::sync::Arc;

use kvorum_coordinator::Coordinator;
use kvorum_map_reduce::{Failure, Output};
use kvorum_runtime::{Runtime, TaskGuard};
use tokio::sync::mpsc;

use crate::admission::AdmittedJob;
use crate::run::JobRun;
use crate::run_error::RunError;

/// The task's items: results, or none after the last ones.
type Item = Result<Option<Output>, RunError>;

/// The results of a job that runs.
pub struct JobOutputs {
    items: mpsc::Receiver<Item>,
    has_ended: bool,
    _task: TaskGuard<()>,
}

impl JobOutputs {
    /// Begins a job. Its time limit starts now; it ends when this is dropped.
    pub fn begin(coordinator: &Arc<Coordinator>, admitted: AdmittedJob) -> Self {
        let (sender, items) = mpsc::channel(1);
        let run = JobRun::begin(coordinator, admitted);
        let runtime = coordinator.runtime();
        let task = runtime.spawn("map_reduce_job", send_all(runtime.clone(), run, sender));
        Self {
            items,
            has_ended: false,
            _task: task.abort_on_drop(),
        }
    }

    /// The next results; `None` after the last ones, and after an error.
    pub async fn next(&mut self) -> Option<Result<Output, RunError>> {
        if self.has_ended {
            return None;
        }
        let output = match self.items.recv().await {
            Some(item) => item.transpose(),
            // The task has ended at the deadline.
            None => Some(Err(Failure::Timeout.into())),
        };
        self.has_ended = !matches!(output, Some(Ok(_)));
        output
    }
}

async fn send_all(runtime: Runtime, mut run: JobRun, sender: mpsc::Sender<Item>) {
    loop {
        let item = run.next().await.transpose();
        let is_last = !matches!(item, Ok(Some(_)));
        let is_taken = runtime.timeout(run.remaining(), sender.send(item)).await;
        if is_last || !matches!(is_taken, Ok(Ok(()))) {
            return;
        }
    }
}

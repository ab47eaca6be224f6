//! A whole run: threads of workers, the clock, reports at every interval, the end.
//!
//! Workers are dealt out to threads once, and each thread runs its share on a runtime of its own.
//! A work-stealing runtime would move connections between cores and lock where nothing is shared.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::LocalSet;

use crate::configuration::Settings;
use crate::driver::{Draws, Driver, Plan};
use crate::output::{ResultFiles, Totals};
use crate::process::ProcessUsage;
use crate::progress::{Progress, counts};
use crate::recorder::Record;
use crate::worker::{Control, Mix, SharedRecords, Worker};

/// How often the progress line is renewed and the end of a run is looked for.
const TICK: Duration = Duration::from_millis(500);

/// How long operations under way may take once the run has ended.
const GRACE: Duration = Duration::from_secs(5);

/// A run that could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A worker could not connect; nothing was measured.
    #[error("{0}")]
    Connect(String),
    /// A thread or its runtime could not be started.
    #[error("cannot start a thread of workers: {0}")]
    Thread(io::Error),
    /// Results cannot be written.
    #[error("cannot write results: {0}")]
    Results(#[from] io::Error),
    /// A histogram cannot be made.
    #[error("cannot make a histogram: {0}")]
    Histogram(#[from] hdrhistogram::CreationError),
}

/// How a run is to be made, beyond its configuration.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Threads that share the workers.
    pub threads: usize,
    /// A process on this machine whose usage is reported.
    pub server_pid: Option<u32>,
}

/// Tells the thread that reports about the workers' threads.
enum Event {
    /// All workers of a thread have ended; this many had to be given up in an operation.
    Ended { abandoned: usize },
    /// Somebody asks for the end.
    Interrupted,
}

/// Runs all workers to the end; one element of `draws` per worker.
pub fn run<P: Plan>(
    plan: &P,
    settings: &Settings,
    draws: Vec<Draws>,
    options: RunOptions,
    files: &mut ResultFiles,
) -> Result<Totals, RunError> {
    let control = Arc::new(Control::new(settings.shutdown_on_error));
    let (events, received) = channel();
    let (threads, barrier) = start(plan, settings, draws, options.threads, &control, &events)?;
    stop_on_signal(&events);
    drop(events);
    let report = Report {
        settings,
        control: &control,
        records: threads
            .iter()
            .map(|thread| Arc::clone(&thread.records))
            .collect(),
        scratch: empty_records(settings.operations.len())?,
        totals: empty_records(settings.operations.len())?,
        progress: Progress::new(settings.duration),
        threads_left: threads.len(),
        abandoned: 0,
    };
    let before = usages(options);
    let start = Instant::now();
    barrier.wait();
    let result = report.until_the_end(start, &received, files);
    let after = usages(options);
    // The report may have ended on an error of its own.
    control.request_stop();
    for thread in threads {
        // A thread of workers that panicked has said so on standard error.
        let _ = thread.handle.join();
    }
    let mut totals = result?;
    // The workers' buffers are gone by now, so that the tool's own memory would say nothing.
    totals.own_usage = difference(before.0, after.0).map(|usage| ProcessUsage {
        resident_bytes: None,
        ..usage
    });
    totals.server_usage = difference(before.1, after.1);
    Ok(totals)
}

struct WorkerThread {
    handle: std::thread::JoinHandle<()>,
    records: SharedRecords,
}

/// Starts the threads and lets every worker connect; they begin when the barrier is passed.
fn start<P: Plan>(
    plan: &P,
    settings: &Settings,
    draws: Vec<Draws>,
    threads: usize,
    control: &Arc<Control>,
    events: &Sender<Event>,
) -> Result<(Vec<WorkerThread>, Arc<Barrier>), RunError> {
    let threads = threads.clamp(1, draws.len().max(1));
    let mut shares: Vec<Vec<Worker<P::Worker>>> = (0..threads).map(|_| Vec::new()).collect();
    let mut records = Vec::new();
    for _ in 0..threads {
        records.push(Arc::new(Mutex::new(empty_records(
            settings.operations.len(),
        )?)));
    }
    let mix = Mix::new(&settings.operations);
    for (index, (id, draws)) in (1..).zip(draws).enumerate() {
        let slot = index % threads;
        let (Some(share), Some(records)) = (shares.get_mut(slot), records.get(slot)) else {
            continue;
        };
        share.push(Worker {
            driver: plan.worker(id),
            draws,
            mix: mix.clone(),
            mode: settings.mode,
            records: Arc::clone(records),
            control: Arc::clone(control),
        });
    }
    launch(shares, &records, control, events)
}

fn launch<D: Driver>(
    shares: Vec<Vec<Worker<D>>>,
    records: &[SharedRecords],
    control: &Arc<Control>,
    events: &Sender<Event>,
) -> Result<(Vec<WorkerThread>, Arc<Barrier>), RunError> {
    let barrier = Arc::new(Barrier::new(shares.len() + 1));
    let (connected, connections) = channel();
    let mut threads = Vec::new();
    for (share, records) in shares.into_iter().zip(records) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(RunError::Thread)?;
        let (barrier, connected) = (Arc::clone(&barrier), connected.clone());
        let (control, events) = (Arc::clone(control), events.clone());
        let handle = std::thread::Builder::new()
            .name("bench-workers".to_owned())
            .spawn(move || work(&runtime, share, &barrier, &connected, &control, &events))
            .map_err(RunError::Thread)?;
        threads.push(WorkerThread {
            handle,
            records: Arc::clone(records),
        });
    }
    drop(connected);
    // One message per thread; a thread that panics instead drops its sender.
    let failure = connections.iter().take(threads.len()).find_map(Result::err);
    let Some(reason) = failure else {
        return Ok((threads, barrier));
    };
    control.request_stop();
    barrier.wait();
    for thread in threads {
        let _ = thread.handle.join();
    }
    Err(RunError::Connect(reason))
}

/// The life of one thread of workers.
fn work<D: Driver>(
    runtime: &tokio::runtime::Runtime,
    mut workers: Vec<Worker<D>>,
    barrier: &Barrier,
    connected: &Sender<Result<(), String>>,
    control: &Control,
    events: &Sender<Event>,
) {
    let local = LocalSet::new();
    let connecting = workers
        .iter_mut()
        .try_for_each(|worker| local.block_on(runtime, worker.driver.connect()));
    // Without a receiver nobody is interested any more.
    let _ = connected.send(connecting);
    barrier.wait();
    let abandoned = local.block_on(runtime, async {
        let mut running = tokio::task::JoinSet::new();
        for worker in workers {
            running.spawn_local(worker.work());
        }
        let mut stopped = control.stopped.subscribe();
        let too_late = async {
            // The sender lives as long as the run.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::pin!(too_late);
        loop {
            tokio::select! {
                ended = running.join_next() => if ended.is_none() { return 0 },
                () = &mut too_late => return running.len(),
            }
        }
    });
    let _ = events.send(Event::Ended { abandoned });
}

/// Ends the run early, but in order, when the person or the system asks for it.
fn stop_on_signal(events: &Sender<Event>) {
    use tokio::signal::unix::{SignalKind, signal};

    let events = events.clone();
    // Without signals the run still ends by itself; they are a convenience.
    let _ = std::thread::Builder::new()
        .name("bench-signals".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let (Ok(mut interrupt), Ok(mut terminate)) = (
                    signal(SignalKind::interrupt()),
                    signal(SignalKind::terminate()),
                ) else {
                    return;
                };
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                let _ = events.send(Event::Interrupted);
            });
        });
}

/// Collects what the threads recorded, and writes it out.
struct Report<'run> {
    settings: &'run Settings,
    control: &'run Control,
    records: Vec<SharedRecords>,
    /// Empty records that change places with those of a thread.
    scratch: Vec<Record>,
    totals: Vec<Record>,
    progress: Progress,
    threads_left: usize,
    abandoned: usize,
}

impl Report<'_> {
    fn until_the_end(
        mut self,
        start: Instant,
        events: &Receiver<Event>,
        files: &mut ResultFiles,
    ) -> Result<Totals, RunError> {
        let mut reported = Duration::ZERO;
        let mut next_report = self.settings.report_interval;
        while self.threads_left > 0 {
            let elapsed = start.elapsed();
            let end = self.settings.duration.unwrap_or(Duration::MAX);
            if elapsed >= end {
                self.control.request_stop();
            }
            if elapsed >= next_report {
                self.write_rows(elapsed, elapsed - reported, files)?;
                reported = elapsed;
                next_report += self.settings.report_interval;
                let (units, errors) = counts(&self.totals);
                self.progress.interval(elapsed, units + errors, errors);
            } else {
                let (units, errors) = self.present_counts();
                self.progress.tick(elapsed, units + errors, errors);
            }
            let wake = next_report.min(if elapsed < end { end } else { Duration::MAX });
            self.wait(events, wake.saturating_sub(start.elapsed()).min(TICK));
        }
        let elapsed = start.elapsed();
        self.write_rows(elapsed, elapsed - reported, files)?;
        self.progress.end();
        Ok(Totals {
            elapsed,
            records: self.totals,
            abandoned: self.abandoned,
            own_usage: None,
            server_usage: None,
        })
    }

    fn wait(&mut self, events: &Receiver<Event>, timeout: Duration) {
        match events.recv_timeout(timeout) {
            Ok(Event::Ended { abandoned }) => {
                self.threads_left -= 1;
                self.abandoned += abandoned;
            }
            Ok(Event::Interrupted) => self.control.request_stop(),
            Err(RecvTimeoutError::Timeout) => {}
            // The threads are gone without a word: they panicked.
            Err(RecvTimeoutError::Disconnected) => self.threads_left = 0,
        }
    }

    /// Takes what was recorded since the last time, and writes it.
    fn write_rows(
        &mut self,
        elapsed: Duration,
        window: Duration,
        files: &mut ResultFiles,
    ) -> Result<(), RunError> {
        let mut interval = empty_records(self.settings.operations.len())?;
        for shared in &self.records {
            for record in &mut self.scratch {
                record.clear();
            }
            std::mem::swap(
                &mut *shared.lock().unwrap_or_else(PoisonError::into_inner),
                &mut self.scratch,
            );
            merge(&mut interval, &self.scratch);
        }
        merge(&mut self.totals, &interval);
        Ok(files.write_rows(elapsed, window, &interval)?)
    }

    fn present_counts(&self) -> (u64, u64) {
        let (mut units, mut errors) = counts(&self.totals);
        for shared in &self.records {
            let records = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let (more_units, more_errors) = counts(&records);
            units += more_units;
            errors += more_errors;
        }
        (units, errors)
    }
}

fn merge(into: &mut [Record], from: &[Record]) {
    for (sum, part) in into.iter_mut().zip(from) {
        sum.merge(part);
    }
}

fn empty_records(count: usize) -> Result<Vec<Record>, hdrhistogram::CreationError> {
    (0..count).map(|_| Record::new()).collect()
}

fn usages(options: RunOptions) -> (Option<ProcessUsage>, Option<ProcessUsage>) {
    (
        ProcessUsage::of(std::process::id()),
        options.server_pid.and_then(ProcessUsage::of),
    )
}

/// What was used in between; resident memory is that of the end.
fn difference(before: Option<ProcessUsage>, after: Option<ProcessUsage>) -> Option<ProcessUsage> {
    let (before, after) = before.zip(after)?;
    let minus = |late: Option<u64>, early: Option<u64>| {
        late.zip(early)
            .map(|(late, early)| late.saturating_sub(early))
    };
    Some(ProcessUsage {
        cpu: after.cpu.saturating_sub(before.cpu),
        resident_bytes: after.resident_bytes,
        written_bytes: minus(after.written_bytes, before.written_bytes),
        read_bytes: minus(after.read_bytes, before.read_bytes),
    })
}

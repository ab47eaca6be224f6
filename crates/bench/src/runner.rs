//! A whole run: threads of workers, the clock, reports at every interval, and the end.
//!
//! Workers are assigned to threads once, and each thread runs its workers on its own runtime. A
//! work-stealing runtime would move connections between cores and take locks although nothing is
//! shared.

mod event;
mod options;
mod report;
mod run_error;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, SystemTime};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::task::LocalSet;

use crate::activity::Activity;
use crate::driver::{Draws, Driver, Plan};
use crate::output::{ResultFiles, Totals};
use crate::schedule::Schedule;
use crate::settings::{Mode, Settings};
use crate::worker::{Control, Mix, Pace, Worker};

use event::Event;
pub use options::RunOptions;
use report::Report;
pub use run_error::RunError;

/// Time for operations that are under way at the end of the run.
const GRACE: Duration = Duration::from_secs(5);

/// Runs all workers to the end; one element of `draws` per worker.
pub fn run<P: Plan>(
    plan: &P,
    settings: &Settings,
    draws: Vec<Draws>,
    options: &RunOptions,
    files: &mut ResultFiles,
) -> Result<Totals, RunError> {
    let control = Arc::new(Control::new(settings.shutdown_on_error));
    let (events, received) = channel();
    let schedule = options.open_rate.map(|rate| Arc::new(Schedule::new(rate)));
    let pace = match (&schedule, settings.mode) {
        (Some(schedule), _) => Pace::Open(Arc::clone(schedule)),
        (None, Mode::Max) => Pace::Closed,
        (None, Mode::Rate(rate)) => Pace::Sleeping(rate),
    };
    let workers = Workers {
        plan,
        settings,
        options,
        control: &control,
        pace,
    };
    let (threads, barrier) = workers.start(draws, &events)?;
    stop_on_signal(&events);
    drop(events);
    let activities = threads
        .iter()
        .map(|thread| Arc::clone(&thread.activity))
        .collect();
    let report = Report::new(settings, options, &control, activities)?;
    wait_until(options.start_at);
    barrier.wait();
    let result = report.until_the_end(&received, files);
    // The report may have ended with an error.
    control.request_stop();
    for thread in threads {
        // A thread of workers that panicked has reported it on standard error.
        let _ = thread.handle.join();
    }
    let (mut totals, stopped) = result?;
    if let Some((schedule, stopped)) = schedule.zip(stopped) {
        totals.overdue = schedule.overdue(stopped);
    }
    Ok(totals)
}

/// Waits for a time of the wall clock, if it is not past.
fn wait_until(time: Option<SystemTime>) {
    let wait = time.and_then(|time| time.duration_since(SystemTime::now()).ok());
    if let Some(wait) = wait {
        std::thread::sleep(wait);
    }
}

struct WorkerThread {
    handle: std::thread::JoinHandle<()>,
    activity: Arc<Activity>,
}

/// The parts from which workers are made.
struct Workers<'run, P> {
    plan: &'run P,
    settings: &'run Settings,
    options: &'run RunOptions,
    control: &'run Arc<Control>,
    pace: Pace,
}

impl<P: Plan> Workers<'_, P> {
    /// Starts the threads and connects every worker; workers begin when the barrier opens.
    fn start(
        &self,
        draws: Vec<Draws>,
        events: &Sender<Event>,
    ) -> Result<(Vec<WorkerThread>, Arc<Barrier>), RunError> {
        let threads = self.options.threads.clamp(1, draws.len().max(1));
        let mut shares: Vec<Vec<Worker<P::Worker>>> = (0..threads).map(|_| Vec::new()).collect();
        let operations = self.settings.operations.len();
        let activities = (0..threads)
            .map(|_| Activity::new(operations).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let mix = Mix::new(&self.settings.operations);
        let ids = self.options.first_worker..;
        for (index, (id, draws)) in ids.zip(draws).enumerate() {
            let slot = index % threads;
            let (Some(share), Some(activity)) = (shares.get_mut(slot), activities.get(slot)) else {
                continue;
            };
            share.push(Worker {
                driver: self.plan.worker(id),
                draws,
                mix: mix.clone(),
                pace: self.pace.clone(),
                activity: Arc::clone(activity),
                control: Arc::clone(self.control),
            });
        }
        launch(shares, &activities, self.control, events)
    }
}

fn launch<D: Driver>(
    shares: Vec<Vec<Worker<D>>>,
    activities: &[Arc<Activity>],
    control: &Arc<Control>,
    events: &Sender<Event>,
) -> Result<(Vec<WorkerThread>, Arc<Barrier>), RunError> {
    let barrier = Arc::new(Barrier::new(shares.len() + 1));
    let (connected, connections) = channel();
    let mut threads = Vec::new();
    for (share, activity) in shares.into_iter().zip(activities) {
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
            activity: Arc::clone(activity),
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

/// Runs one thread of workers.
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
    // Without a receiver the run is already over.
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

/// Ends the run early, but in order, on SIGINT or SIGTERM.
fn stop_on_signal(events: &Sender<Event>) {
    // Without signals the run still ends by itself.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else {
        return;
    };
    let events = events.clone();
    let _ = std::thread::Builder::new()
        .name("bench-signals".to_owned())
        .spawn(move || {
            signals.forever().next();
            let _ = events.send(Event::Interrupted);
        });
}

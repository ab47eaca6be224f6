//! One worker: draws operations, runs them through its driver, records their outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::activity::Activity;
use crate::driver::{Draws, Driver, Outcome};
use crate::random::WorkerRandom;
use crate::schedule::{Schedule, counts_from};
use crate::settings::Operation;

/// The number of operations after which a worker lets others run, since a driver that never waits
/// would occupy its thread.
const OPERATIONS_PER_TURN: u32 = 64;

/// The timer's resolution: the worker waits actively for an operation of an open loop that is due
/// sooner.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// The pace of a worker's operations.
#[derive(Debug, Clone)]
pub enum Pace {
    /// The next operation begins when the last one has ended.
    Closed,
    /// Before each operation the worker sleeps, exponentially distributed, so that with no
    /// latency it would run this many operations per second.
    Sleeping(f64),
    /// Operations are due at the times of a schedule, independent of earlier ones.
    Open(Arc<Schedule>),
}

/// State that all workers of a run share.
#[derive(Debug)]
pub struct Control {
    /// Set once: no worker begins another operation.
    pub stop: AtomicBool,
    /// The first failed operation ends the run.
    pub stop_on_error: bool,
    /// Ends sleeps when the run stops.
    pub stopped: watch::Sender<bool>,
}

impl Control {
    /// The state of a run that has not begun.
    pub fn new(stop_on_error: bool) -> Self {
        Self {
            stop: AtomicBool::new(false),
            stop_on_error,
            stopped: watch::Sender::new(false),
        }
    }

    /// Asks all workers to end after their present operation.
    pub fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.stopped.send_replace(true);
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Draws operations by weight.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Sum of the weights up to and including each operation.
    bounds: Vec<u64>,
}

impl Mix {
    /// The mix of a configuration's operations.
    pub fn new(operations: &[Operation]) -> Self {
        let sums = operations.iter().scan(0, |sum, operation| {
            *sum += u64::from(operation.weight);
            Some(*sum)
        });
        Self {
            bounds: sums.collect(),
        }
    }

    /// The index of the next operation.
    pub fn draw(&self, random: &mut WorkerRandom) -> usize {
        let total = self.bounds.last().copied().unwrap_or(1);
        let drawn = random.uniform(total);
        self.bounds
            .iter()
            .position(|bound| drawn <= *bound)
            .unwrap_or(0)
    }
}

/// One worker of a run.
#[derive(Debug)]
pub struct Worker<D> {
    /// Its driver, connected.
    pub driver: D,
    /// Its generators.
    pub draws: Draws,
    /// The operations that it draws.
    pub mix: Mix,
    /// Its pace.
    pub pace: Pace,
    /// Its records.
    pub activity: Arc<Activity>,
    /// The signal to end.
    pub control: Arc<Control>,
}

impl<D: Driver> Worker<D> {
    /// Runs operations until the run stops or a generator is exhausted.
    pub async fn work(mut self) {
        let mut stopped = self.control.stopped.subscribe();
        let mut turn = 0;
        while !self.control.is_stopping() {
            let mut due = None;
            let until = match &self.pace {
                Pace::Closed => None,
                Pace::Sleeping(rate) => Some(Instant::now() + pause(*rate, &mut self.draws.random)),
                Pace::Open(schedule) => {
                    let taken = Instant::now();
                    let at = schedule.take();
                    due = Some((at, taken));
                    Some(at).filter(|at| *at > taken)
                }
            };
            if let Some(until) = until {
                if due.is_some() && until.saturating_duration_since(Instant::now()) < TIMER_STEP {
                    // With the timer, this worker would sleep past many later due times.
                    while Instant::now() < until && !self.control.is_stopping() {
                        tokio::task::yield_now().await;
                    }
                } else {
                    tokio::select! {
                        () = tokio::time::sleep_until(until.into()) => {}
                        _ = stopped.wait_for(|stopped| *stopped) => return,
                    }
                }
            }
            if !self.operate(due).await {
                return;
            }
            turn += 1;
            if turn == OPERATIONS_PER_TURN {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Runs and records one operation; false when the worker has to end. In an open loop, `due` has
    /// the due time, and the time when the worker took it from the schedule.
    async fn operate(&mut self, due: Option<(Instant, Instant)>) -> bool {
        let operation = self.mix.draw(&mut self.draws.random);
        self.draws.payload_bytes = 0;
        self.activity.begin();
        let begun = Instant::now();
        let ran = self.driver.run(operation, &mut self.draws).await;
        let outcome = ran.unwrap_or_else(|ended_early| ended_early);
        let ended = Instant::now();
        self.activity.end();
        self.draws.settle(outcome.is_success());
        if outcome == Outcome::Exhausted {
            return false;
        }
        if self.control.stop_on_error && matches!(outcome, Outcome::Failed(_)) {
            self.control.request_stop();
        }
        let from = due.map_or(begun, |(due, taken)| counts_from(due, taken, begun));
        let mut records = self.activity.records();
        if let Some(record) = records.operations.get_mut(operation) {
            record.add(&outcome, ended.saturating_duration_since(from));
            if outcome.is_success() {
                record.payload_bytes += self.draws.payload_bytes;
            }
        }
        if let Some((due, _)) = due {
            let late = begun.saturating_duration_since(due);
            records.lateness.add(&Outcome::Done, late);
        }
        true
    }
}

/// A pause of whole milliseconds whose mean before truncation is the inverse of the rate.
fn pause(rate: f64, random: &mut WorkerRandom) -> Duration {
    const LONGEST_SECONDS: f64 = 86_400.0;
    let milliseconds = random.exponential(1000.0 / rate).trunc();
    Duration::from_secs_f64((milliseconds / 1000.0).clamp(0.0, LONGEST_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;
    use kvorum_erlang_terms::Term;

    #[test]
    fn operations_are_drawn_by_weight() {
        let operation = |weight| Operation {
            label: Term::atom("a"),
            operation: Term::atom("a"),
            weight,
        };
        let mix = Mix::new(&[operation(1), operation(0), operation(3)]);
        let mut random = WorkerRandom::new(Seed([42, 23, 12]));
        let mut drawn = [0_u32; 3];
        for _ in 0..100_000 {
            drawn[mix.draw(&mut random)] += 1;
        }
        assert_eq!(drawn[1], 0);
        let counts = [u64::from(drawn[0]), u64::from(drawn[2])];
        crate::goodness_of_fit::assert_fits("weights", &counts, &[0.25, 0.75]);
    }

    #[test]
    fn pauses_have_the_published_means() {
        let mut random = WorkerRandom::new(Seed([42, 23, 12]));
        for (rate, expected) in [(10.0, 99.5), (1000.0, 0.582)] {
            let total: Duration = (0..200_000).map(|_| pause(rate, &mut random)).sum();
            let mean = total.as_secs_f64() * 1000.0 / 200_000.0;
            assert!((mean / expected - 1.0).abs() < 0.02, "{mean} ms at {rate}");
        }
    }
}

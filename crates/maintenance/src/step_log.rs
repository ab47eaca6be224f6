//! Records of maintenance for requests and operators (steps with their times, the delay of puts),
//! and of puts for maintenance.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kvorum_coordinator::MaintenanceWitness;
use kvorum_runtime::Moment;
use kvorum_stats::Histogram;
use parking_lot::Mutex;

/// The number of recorded steps, for queries about a slow request.
const STEPS_REMEMBERED: usize = 512;
/// The shortest step that can delay a request.
const NOTABLE_STEP: Duration = Duration::from_millis(1);

/// A step that was done.
#[derive(Clone, Debug)]
pub(crate) struct DoneStep {
    pub(crate) what: String,
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    pub(crate) cost_bytes: u64,
}

/// The latest steps, and the times and delay of puts.
#[derive(Default)]
pub struct StepLog {
    steps: Mutex<VecDeque<DoneStep>>,
    put_delay_us: AtomicU64,
    refuses_puts: AtomicBool,
    /// The times of puts without their delay, which is due to the backlog and not to present work.
    put_times: Histogram,
}

impl StepLog {
    pub(crate) fn recent(&self, count: usize) -> Vec<DoneStep> {
        let steps = self.steps.lock();
        steps.iter().rev().take(count).cloned().collect()
    }

    /// Sets the delay of puts from now on.
    pub(crate) fn set_put_delay(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.put_delay_us.store(micros, Ordering::Relaxed);
    }

    pub(crate) fn put_times(&self) -> &Histogram {
        &self.put_times
    }

    /// Sets whether puts are refused from now on.
    pub(crate) fn set_refuses_puts(&self, refuses: bool) {
        self.refuses_puts.store(refuses, Ordering::Relaxed);
    }

    /// Records a step that was long enough to delay a request.
    pub(crate) fn note_if_long(&self, took: Duration, step: impl FnOnce() -> DoneStep) {
        if took < NOTABLE_STEP {
            return;
        }
        let step = step();
        let mut steps = self.steps.lock();
        if steps.len() == STEPS_REMEMBERED {
            steps.pop_front();
        }
        steps.push_back(step);
    }
}

impl MaintenanceWitness for StepLog {
    fn put_delay(&self) -> Duration {
        Duration::from_micros(self.put_delay_us.load(Ordering::Relaxed))
    }

    fn refuses_puts(&self) -> bool {
        self.refuses_puts.load(Ordering::Relaxed)
    }

    fn put_finished(&self, took: Duration, now: Moment) {
        self.put_times.record_time(now.elapsed(), took);
    }

    fn step_between(&self, from: Moment, to: Moment) -> Option<String> {
        let steps = self.steps.lock();
        let overlapping = steps.iter().filter(|step| step.from < to && step.to > from);
        let longest = overlapping.max_by_key(|step| step.to.since(step.from))?;
        let took = longest.to.since(longest.from);
        Some(format!("{} for {} us", longest.what, took.as_micros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_request_has_the_longest_step_that_it_met() {
        let at = |millis| Moment::from_start(Duration::from_millis(millis));
        let log = StepLog::default();
        let step = |what: &str, from: u64, to: u64| {
            log.note_if_long(Duration::from_millis(to - from), || DoneStep {
                what: what.to_owned(),
                from: at(from),
                to: at(to),
                cost_bytes: 1,
            });
        };
        step("merge of partition 1", 10, 15);
        step("hint of partition 2", 15, 17);
        step("scrub of partition 3", 40, 80);
        let met = log.step_between(at(14), at(30));
        assert_eq!(met.as_deref(), Some("merge of partition 1 for 5000 us"));
        assert_eq!(log.step_between(at(17), at(40)), None);
    }
}

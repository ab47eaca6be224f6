//! Times at which the operations of an open loop are due: at a fixed rate, whatever the speed of
//! the server.
//!
//! All workers take the next time from one schedule, so that a waiting worker delays no other: the
//! load is constant while any worker is free. An operation without a free worker begins late, and
//! its latency counts from its due time. Otherwise a stall of the server would appear as one slow
//! operation instead of the many that it delayed.
//!
//! A free worker waits for a timer with a resolution of one millisecond. This tool, and not the
//! server, causes the timer's lateness. So such an operation counts from its beginning if its delay
//! is at most [`TIMER_SLACK`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The most lateness of the timer that wakes a free worker.
pub(crate) const TIMER_SLACK: Duration = Duration::from_millis(2);

/// Longer than any run.
const NEVER: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Due times at a fixed rate.
#[derive(Debug)]
pub struct Schedule {
    /// Operations per second of all workers together.
    rate: f64,
    taken: AtomicU64,
    start: OnceLock<Instant>,
}

impl Schedule {
    /// A schedule of this many operations per second; it begins when the first time is taken.
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            taken: AtomicU64::new(0),
            start: OnceLock::new(),
        }
    }

    /// The due time of the next operation.
    pub fn take(&self) -> Instant {
        let start = *self.start.get_or_init(Instant::now);
        let offset = self.offset(self.taken.fetch_add(1, Ordering::Relaxed));
        // A time beyond the clock's range counts as never.
        start.checked_add(offset).unwrap_or(start + NEVER)
    }

    /// Number of operations that were due by a time and that no worker has taken.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of operations, and floats saturate"
    )]
    pub fn overdue(&self, by: Instant) -> u64 {
        let Some(start) = self.start.get() else {
            return 0;
        };
        let passed = by.saturating_duration_since(*start).as_secs_f64();
        let due = (passed * self.rate).floor() as u64;
        due.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "the number of operations of a run is far below 2^53"
    )]
    fn offset(&self, number: u64) -> Duration {
        Duration::try_from_secs_f64(number as f64 / self.rate).unwrap_or(Duration::MAX)
    }
}

/// The time from which an operation's latency counts, given its due time, the time when a worker
/// took it from the schedule, and its beginning.
pub(crate) fn counts_from(due: Instant, taken: Instant, begun: Instant) -> Instant {
    let worker_was_free = taken <= due;
    if worker_was_free && begun.saturating_duration_since(due) <= TIMER_SLACK {
        begun
    } else {
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spaced_evenly_over_all_that_take_them() {
        let schedule = Schedule::new(250.0);
        let first = schedule.take();
        let times: Vec<Duration> = (0..4).map(|_| schedule.take() - first).collect();
        assert_eq!(times, [4, 8, 12, 16].map(Duration::from_millis));
        assert_eq!(schedule.overdue(first + Duration::from_millis(401)), 95);
        assert_eq!(schedule.overdue(first), 0);
    }

    #[test]
    fn only_the_timer_is_forgiven() {
        let due = Instant::now() + Duration::from_secs(10);
        let early = due - Duration::from_millis(5);
        let after = |milliseconds| due + Duration::from_millis(milliseconds);
        assert_eq!(counts_from(due, early, after(1)), after(1));
        assert_eq!(counts_from(due, early, after(40)), due);
        assert_eq!(counts_from(due, after(1), after(1)), due);
        assert_eq!(counts_from(due, after(500), after(500)), due);
    }
}

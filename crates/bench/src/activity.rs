//! State that a thread of workers shares with the report: records, and the number of operations under
//! way.
//!
//! Records are behind a lock that is almost always free. The two counters have no lock; the report
//! reads them ten times a second to find stalls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::recorder::Record;

/// State that one thread of workers writes and the report reads.
#[derive(Debug)]
pub struct Activity {
    records: Mutex<Records>,
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Records of one interval, or of a whole run.
#[derive(Debug, Clone)]
pub struct Records {
    /// One record for each operation of the configuration.
    pub operations: Vec<Record>,
    /// Lateness of operations of an open loop, each from its due time to its beginning.
    pub lateness: Record,
}

impl Records {
    /// Empty records of this many operations. Fails only if a histogram's bounds are invalid.
    pub fn new(operations: usize) -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            operations: (0..operations)
                .map(|_| Record::new())
                .collect::<Result<_, _>>()?,
            lateness: Record::new()?,
        })
    }

    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: &Self) {
        for (sum, part) in self.operations.iter_mut().zip(&other.operations) {
            sum.merge(part);
        }
        self.lateness.merge(&other.lateness);
    }

    /// Clears everything, and keeps the memory.
    pub fn clear(&mut self) {
        for record in &mut self.operations {
            record.clear();
        }
        self.lateness.clear();
    }

    /// Successful and failed operations.
    pub fn counts(&self) -> (u64, u64) {
        self.operations.iter().fold((0, 0), |(units, errors), one| {
            (units + one.units, errors + one.errors)
        })
    }
}

impl Activity {
    /// The state of a thread that has not begun.
    pub fn new(operations: usize) -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            records: Mutex::new(Records::new(operations)?),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        })
    }

    /// Locks the records for a short access.
    pub fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the beginning of an operation.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of an operation, whatever its outcome.
    pub fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A time in which operations were under way and none ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stall {
    /// Its beginning, since the run's start.
    pub at: Duration,
    /// Its length.
    pub length: Duration,
}

/// The most stalls that are kept; a server with more stalls needs no list.
const STALLS_MAX: usize = 10_000;

/// Finds stalls, from looks at all threads every [`StallWatch::WINDOW`].
#[derive(Debug, Default)]
pub(crate) struct StallWatch {
    stalls: Vec<Stall>,
    /// The last look: its time, the operations that had ended, and true if others were under way.
    before: Option<(Duration, u64, bool)>,
    /// The time since which operations have been under way and none has ended.
    stalled_since: Option<Duration>,
}

impl StallWatch {
    /// Time between two looks.
    pub(crate) const WINDOW: Duration = Duration::from_millis(100);

    /// The shortest stall: a window, less the time that a look may come early.
    const SHORTEST: Duration = Duration::from_millis(95);

    /// Looks at all threads.
    pub(crate) fn look(&mut self, elapsed: Duration, threads: &[std::sync::Arc<Activity>]) {
        let sum = |count: fn(&Activity) -> &AtomicU64| -> u64 {
            let counts = threads.iter().map(|it| count(it).load(Ordering::Relaxed));
            counts.sum()
        };
        // Read in this order, the second is never smaller.
        let ended = sum(|thread| &thread.ended);
        let begun = sum(|thread| &thread.begun);
        self.note(elapsed, ended, begun > ended);
    }

    fn note(&mut self, elapsed: Duration, ended: u64, under_way: bool) {
        let before = self.before.replace((elapsed, ended, under_way));
        let Some((since, ended_before, was_under_way)) = before else {
            return;
        };
        if ended == ended_before && was_under_way {
            self.stalled_since.get_or_insert(since);
        } else {
            self.close(since);
        }
    }

    /// Ends a stall at this look.
    fn close(&mut self, at: Duration) {
        let Some(since) = self.stalled_since.take() else {
            return;
        };
        let length = at.saturating_sub(since);
        if length >= Self::SHORTEST && self.stalls.len() < STALLS_MAX {
            self.stalls.push(Stall { at: since, length });
        }
    }

    /// The stalls in order.
    pub(crate) fn into_stalls(mut self) -> Vec<Stall> {
        if let Some((last, ..)) = self.before {
            self.close(last);
        }
        self.stalls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenths(count: u64) -> Duration {
        Duration::from_millis(100 * count)
    }

    #[test]
    fn windows_without_an_end_join_to_one_stall() {
        let mut watch = StallWatch::default();
        for (at, ended) in [(0, 5), (1, 9), (2, 9), (3, 9), (4, 10), (5, 10), (6, 11)] {
            watch.note(tenths(at), ended, true);
        }
        let stall = |at, length| Stall {
            at: tenths(at),
            length: tenths(length),
        };
        assert_eq!(watch.into_stalls(), [stall(1, 2), stall(4, 1)]);
    }

    #[test]
    fn a_look_that_comes_early_or_late_breaks_no_stall() {
        let mut watch = StallWatch::default();
        for at in [0, 101, 200, 299, 405, 500] {
            watch.note(Duration::from_millis(at), 7, true);
        }
        let stalls = watch.into_stalls();
        assert_eq!(stalls.len(), 1);
        assert_eq!(stalls[0].length, tenths(5));
    }

    #[test]
    fn nothing_to_do_is_no_stall() {
        let mut watch = StallWatch::default();
        for at in 0..5 {
            watch.note(tenths(at), 7, false);
        }
        watch.note(tenths(5), 7, true);
        assert_eq!(watch.into_stalls(), []);
    }

    #[test]
    fn a_thread_counts_what_is_under_way() {
        let activity = std::sync::Arc::new(Activity::new(1).unwrap());
        activity.begin();
        let threads = [activity];
        let mut watch = StallWatch::default();
        for at in 0..3 {
            watch.look(tenths(at), &threads);
        }
        threads[0].end();
        watch.look(tenths(3), &threads);
        watch.look(tenths(4), &threads);
        assert_eq!(
            watch.into_stalls(),
            [Stall {
                at: Duration::ZERO,
                length: tenths(2)
            }]
        );
    }
}

//! Records that the device persistently fails to read.
//!
//! A device may fail for a while, and the records are readable again afterwards: until then reads
//! return an error, and no record is overwritten. A permanently lost sector would block its key for
//! ever, since a write reads the entry that it replaces. So a record whose reads have failed often,
//! over minutes, counts as damaged: reads report damage, so that replicas repair the key, and a
//! write replaces it. The list of losses reports the record once.
//!
//! Only failed records are kept here, until the next opening, after which the device is tried
//! again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvorum_backend::Timestamp;
use parking_lot::Mutex;

use crate::read_cache::CachedSegment;

/// The time for which reads have to fail: four minutes, as long as upkeep retries.
const FAILING_MICROS_MIN: u64 = 240_000_000;
/// The most that the time between two failures counts: at least nine reads have to fail, so that a
/// clock set ahead gives no readable record up.
const PASSED_MICROS_MAX: u64 = 30_000_000;
/// The most failed records at a time: with more, the device as a whole has failed.
const RECORDS_MAX: usize = 10_000;

/// The start of a record.
pub(crate) type RecordPlace = (CachedSegment, u64);

/// The consequence of a failed read for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The next read may succeed.
    MayPass,
    /// The record counts as damaged from this read on.
    GivenUpNow,
    /// The record has counted as damaged before.
    GivenUp,
}

/// See the module's description.
#[derive(Default)]
pub(crate) struct UnreadRecords {
    failing: Mutex<BTreeMap<RecordPlace, Failing>>,
    /// The number of failed records, so that successful reads need not take the lock.
    count: AtomicUsize,
}

struct Failing {
    /// The time of its last failed read.
    last: Timestamp,
    failing_micros: u64,
    is_given_up: bool,
}

impl UnreadRecords {
    /// Notes that the device failed to read this record.
    pub(crate) fn failed(&self, record: RecordPlace, now: Timestamp) -> Verdict {
        let mut failing = self.failing.lock();
        if failing.len() >= RECORDS_MAX && !failing.contains_key(&record) {
            return Verdict::MayPass;
        }
        let it = failing.entry(record).or_insert(Failing {
            last: now,
            failing_micros: 0,
            is_given_up: false,
        });
        // A clock that was set back counts as no time passed.
        let passed_micros = now.0.saturating_sub(it.last.0).min(PASSED_MICROS_MAX);
        it.failing_micros += passed_micros;
        it.last = now;
        let verdict = match it.is_given_up {
            true => Verdict::GivenUp,
            false if it.failing_micros < FAILING_MICROS_MIN => Verdict::MayPass,
            false => Verdict::GivenUpNow,
        };
        it.is_given_up = verdict != Verdict::MayPass;
        self.count.store(failing.len(), Ordering::Release);
        verdict
    }

    /// Notes that this record was read.
    pub(crate) fn given(&self, record: RecordPlace) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut failing = self.failing.lock();
            failing.remove(&record);
            self.count.store(failing.len(), Ordering::Release);
        }
    }

    /// True for a record that counts as damaged.
    pub(crate) fn is_given_up(&self, record: RecordPlace) -> bool {
        let failing = self.failing.lock();
        failing.get(&record).is_some_and(|it| it.is_given_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn fail(unread: &UnreadRecords, record: RecordPlace, seconds: u64) -> Verdict {
        unread.failed(record, Timestamp(seconds * SECOND))
    }

    #[test]
    fn a_record_is_given_up_after_failures_over_minutes_and_reported_once() {
        let (unread, record) = (UnreadRecords::default(), (CachedSegment::new(), 8));
        for _ in 0..100 {
            assert_eq!(fail(&unread, record, 600), Verdict::MayPass);
        }
        for seconds in (610..840).step_by(10) {
            assert_eq!(fail(&unread, record, seconds), Verdict::MayPass);
        }
        assert!(!unread.is_given_up(record));
        assert_eq!(fail(&unread, record, 840), Verdict::GivenUpNow);
        assert_eq!(fail(&unread, record, 840), Verdict::GivenUp);
        assert!(unread.is_given_up(record));
    }

    #[test]
    fn one_that_is_asked_for_rarely_is_given_up_at_the_ninth_failure() {
        let (unread, record) = (UnreadRecords::default(), (CachedSegment::new(), 8));
        for hour in 0..8 {
            assert_eq!(fail(&unread, record, hour * 3600), Verdict::MayPass);
        }
        assert_eq!(fail(&unread, record, 8 * 3600), Verdict::GivenUpNow);
    }

    #[test]
    fn what_is_given_once_has_passed() {
        let (unread, record) = (UnreadRecords::default(), (CachedSegment::new(), 8));
        for hour in 0..8 {
            fail(&unread, record, hour * 3600);
        }
        unread.given(record);
        assert_eq!(fail(&unread, record, 8 * 3600), Verdict::MayPass);
    }

    #[test]
    fn a_clock_that_is_set_gives_nothing_up() {
        let (unread, record) = (UnreadRecords::default(), (CachedSegment::new(), 8));
        for seconds in [600, 100_000, 600, 0, 660] {
            for _ in 0..100 {
                assert_eq!(fail(&unread, record, seconds), Verdict::MayPass);
            }
        }
    }
}

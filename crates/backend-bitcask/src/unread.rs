//! Records that the device does not give, however often they are asked for.
//!
//! A device may fail for a while, and what it failed to read then is whole afterwards: an error, and
//! nothing is written over it. A sector that is gone for good would leave its key beyond help for ever,
//! for a write looks at what it replaces. So a record that was asked for often, over minutes, and was
//! never given counts as damaged from then on: reads say so, so that replicas mend it, and a write goes
//! over it. That is told once, in the list of what was lost.
//!
//! Only records that failed are known here, and only until the store is opened again: then the device is
//! asked anew.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvorum_backend::Timestamp;
use parking_lot::Mutex;

use crate::read_cache::CachedSegment;

/// So many reads have to fail, as of a file that upkeep gives up.
const FAILURES_MIN: u32 = 8;
/// And for so long, four minutes: as long as upkeep tries.
const FAILING_MICROS_MIN: u64 = 240_000_000;
/// A device that fails more records at a time has failed itself.
const RECORDS_MAX: usize = 10_000;

/// Where a record begins.
pub(crate) type RecordPlace = (CachedSegment, u64);

/// What a failed read says of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be given the next time.
    MayPass,
    /// It is given up, from this read on.
    GivenUpNow,
    /// It was given up before.
    GivenUp,
}

/// See the module's description.
#[derive(Default)]
pub(crate) struct UnreadRecords {
    failing: Mutex<BTreeMap<RecordPlace, Failing>>,
    /// How many there are, so that reads that go well need not take the lock.
    count: AtomicUsize,
}

struct Failing {
    since: Timestamp,
    failures: u32,
    is_given_up: bool,
}

impl UnreadRecords {
    /// The device failed to read this record.
    pub(crate) fn failed(&self, record: RecordPlace, now: Timestamp) -> Verdict {
        let mut failing = self.failing.lock();
        if failing.len() >= RECORDS_MAX && !failing.contains_key(&record) {
            return Verdict::MayPass;
        }
        let it = failing.entry(record).or_insert(Failing {
            since: now,
            failures: 0,
            is_given_up: false,
        });
        // A clock that was set back says nothing of how long it has been.
        it.since = it.since.min(now);
        it.failures = it.failures.saturating_add(1);
        let verdict = match it.is_given_up {
            true => Verdict::GivenUp,
            false if it.failures < FAILURES_MIN => Verdict::MayPass,
            false if now.0 - it.since.0 < FAILING_MICROS_MIN => Verdict::MayPass,
            false => Verdict::GivenUpNow,
        };
        it.is_given_up = verdict != Verdict::MayPass;
        self.count.store(failing.len(), Ordering::Release);
        verdict
    }

    /// It was read.
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

    const MINUTE: u64 = 60_000_000;

    fn fail(unread: &UnreadRecords, record: RecordPlace, minutes: u64) -> Verdict {
        unread.failed(record, Timestamp(minutes * MINUTE))
    }

    #[test]
    fn a_record_is_given_up_after_many_failures_over_minutes_and_told_once() {
        let (unread, record) = (UnreadRecords::default(), (CachedSegment::new(), 8));
        for _ in 0..100 {
            assert_eq!(fail(&unread, record, 10), Verdict::MayPass);
        }
        assert_eq!(fail(&unread, record, 13), Verdict::MayPass);
        assert!(!unread.is_given_up(record));
        assert_eq!(fail(&unread, record, 14), Verdict::GivenUpNow);
        assert_eq!(fail(&unread, record, 14), Verdict::GivenUp);
        assert!(unread.is_given_up(record));

        let other = (record.0, 16);
        for minutes in 0..7 {
            assert_eq!(fail(&unread, other, 10 + minutes), Verdict::MayPass);
        }
        assert_eq!(fail(&unread, other, 20), Verdict::GivenUpNow);
    }

    #[test]
    fn what_is_given_once_has_passed_and_a_clock_that_is_set_back_gives_nothing_up() {
        let (unread, record) = (UnreadRecords::default(), (CachedSegment::new(), 8));
        for _ in 0..100 {
            fail(&unread, record, 10);
        }
        unread.given(record);
        assert_eq!(fail(&unread, record, 20), Verdict::MayPass);
        for _ in 0..100 {
            assert_eq!(fail(&unread, record, 5), Verdict::MayPass);
        }
        assert_eq!(fail(&unread, record, 8), Verdict::MayPass);
    }
}

//! The ledger of writes, key by key: it decides which values a read may return.
//!
//! The rule is that of a regular register. A read may return any write that overlaps it, and any
//! write that was not replaced when the read began. An acknowledged write replaces all writes that
//! were acknowledged before it began. One counter orders all events: it ticks at every beginning
//! and every end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: u64 = 64;

/// The most writes without an answer that are kept for a key; with more, its reads are not checked.
const PENDING_MAX: usize = 64;

/// All keys of a run and their writes.
#[derive(Debug)]
pub struct Ledger {
    run: u32,
    /// True if no other process writes to these keys.
    is_alone: bool,
    clock: AtomicU64,
    shards: Vec<Mutex<HashMap<u64, History>>>,
}

/// The writes of a key that may still be read.
#[derive(Debug, Default)]
struct History {
    writes: Vec<Write>,
    /// The beginning of the newest removal.
    removal_begun: u64,
    is_unchecked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Write {
    begun: u64,
    acknowledged: Option<u64>,
    is_removal: bool,
}

/// A read under way, and the values that it may return.
#[derive(Debug)]
pub struct Reading {
    key: u64,
    begun: u64,
    /// The times at which the writes of all readable values began.
    readable: Vec<u64>,
    /// True if the read may find nothing, or a value from before the run.
    may_be_untouched: bool,
    may_be_removed: bool,
    is_unchecked: bool,
}

impl Reading {
    /// True if this is a read of the key with this hash.
    pub fn is_of(&self, key: u64) -> bool {
        self.key == key
    }
}

impl Ledger {
    /// A ledger of a run; the number distinguishes its values from those of earlier runs.
    pub fn new(run: u32, is_alone: bool) -> Self {
        Self {
            run,
            is_alone,
            clock: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// The run's number.
    pub fn run(&self) -> u32 {
        self.run
    }

    /// Records the beginning of a write; returns its number.
    pub fn write_begins(&self, key: u64, is_removal: bool) -> u64 {
        let mut shard = self.shard(key);
        let begun = self.tick();
        let history = shard.entry(key).or_default();
        history.writes.push(Write {
            begun,
            acknowledged: None,
            is_removal,
        });
        if is_removal {
            history.removal_begun = begun;
        }
        let pending = history.writes.iter().filter(|it| it.acknowledged.is_none());
        if pending.count() > PENDING_MAX {
            history.is_unchecked = true;
            history.writes.clear();
        }
        begun
    }

    /// Records the acknowledgement of a write; drops the writes that it replaces.
    pub fn write_ended(&self, key: u64, sequence: u64) {
        let mut shard = self.shard(key);
        let now = self.tick();
        let Some(history) = shard.get_mut(&key) else {
            return;
        };
        for write in &mut history.writes {
            if write.begun == sequence {
                write.acknowledged = Some(now);
            }
        }
        let newest = history.newest_acknowledged();
        history
            .writes
            .retain(|write| write.acknowledged.is_none_or(|end| end >= newest));
    }

    /// Records the beginning of a read.
    pub fn read_begins(&self, key: u64) -> Reading {
        let shard = self.shard(key);
        let begun = self.tick();
        let history = shard.get(&key);
        let writes = history.map_or(&[][..], |history| &history.writes);
        Reading {
            key,
            begun,
            readable: writes
                .iter()
                .filter(|write| !write.is_removal)
                .map(|write| write.begun)
                .collect(),
            may_be_untouched: writes.iter().all(|write| write.acknowledged.is_none()),
            may_be_removed: writes.iter().any(|write| write.is_removal),
            is_unchecked: history.is_some_and(|history| history.is_unchecked),
        }
    }

    /// True if the read may return the value of this write.
    pub fn may_be_read(&self, reading: &Reading, run: u32, sequence: u64) -> bool {
        if reading.is_unchecked {
            return true;
        }
        if run != self.run {
            return reading.may_be_untouched || !self.is_alone;
        }
        sequence > reading.begun || reading.readable.contains(&sequence)
    }

    /// True if the read may find nothing.
    pub fn may_be_absent(&self, reading: &Reading) -> bool {
        let removed_since = || {
            self.shard(reading.key)
                .get(&reading.key)
                .is_some_and(|history| history.removal_begun > reading.begun)
        };
        reading.is_unchecked
            || reading.may_be_untouched
            || reading.may_be_removed
            || !self.is_alone
            || removed_since()
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, History>> {
        let index = usize::try_from(key % SHARDS).unwrap_or(0);
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    /// The beginning of the newest acknowledged write.
    fn newest_acknowledged(&self) -> u64 {
        let acknowledged = self.writes.iter().filter(|it| it.acknowledged.is_some());
        acknowledged.map(|write| write.begun).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 77;

    #[test]
    fn writes_that_overlap_replace_each_other_in_either_order() {
        let ledger = Ledger::new(1, true);
        let first = ledger.write_begins(KEY, false);
        let second = ledger.write_begins(KEY, false);
        ledger.write_ended(KEY, second);
        ledger.write_ended(KEY, first);
        let reading = ledger.read_begins(KEY);
        assert!(ledger.may_be_read(&reading, 1, first));
        assert!(ledger.may_be_read(&reading, 1, second));
        let third = ledger.write_begins(KEY, false);
        assert!(ledger.may_be_read(&reading, 1, third), "it overlaps");
        ledger.write_ended(KEY, third);
        assert!(
            ledger.may_be_read(&reading, 1, first),
            "what was acknowledged during the read does not bind it"
        );
        let later = ledger.read_begins(KEY);
        assert!(!ledger.may_be_read(&later, 1, first));
        assert!(ledger.may_be_read(&later, 1, third));
    }

    #[test]
    fn a_write_without_an_answer_may_appear_at_any_time() {
        let ledger = Ledger::new(1, true);
        let lost = ledger.write_begins(KEY, false);
        let acknowledged = ledger.write_begins(KEY, false);
        ledger.write_ended(KEY, acknowledged);
        let reading = ledger.read_begins(KEY);
        assert!(ledger.may_be_read(&reading, 1, lost));
        assert!(ledger.may_be_read(&reading, 1, acknowledged));
        assert!(!ledger.may_be_absent(&reading));
    }

    #[test]
    fn values_of_earlier_runs_end_with_the_first_acknowledged_write() {
        let ledger = Ledger::new(2, true);
        let reading = ledger.read_begins(KEY);
        assert!(ledger.may_be_read(&reading, 1, 5));
        assert!(ledger.may_be_absent(&reading));
        let sequence = ledger.write_begins(KEY, false);
        ledger.write_ended(KEY, sequence);
        let reading = ledger.read_begins(KEY);
        assert!(!ledger.may_be_read(&reading, 1, 5));
        assert!(!ledger.may_be_absent(&reading));
        let shared = Ledger::new(2, false);
        let sequence = shared.write_begins(KEY, false);
        shared.write_ended(KEY, sequence);
        let reading = shared.read_begins(KEY);
        assert!(shared.may_be_read(&reading, 1, 5), "others write too");
    }

    #[test]
    fn a_removal_during_the_read_may_be_seen() {
        let ledger = Ledger::new(1, true);
        let sequence = ledger.write_begins(KEY, false);
        ledger.write_ended(KEY, sequence);
        let reading = ledger.read_begins(KEY);
        assert!(!ledger.may_be_absent(&reading));
        let removal = ledger.write_begins(KEY, true);
        assert!(ledger.may_be_absent(&reading));
        ledger.write_ended(KEY, removal);
        let reading = ledger.read_begins(KEY);
        assert!(ledger.may_be_absent(&reading));
        assert!(!ledger.may_be_read(&reading, 1, sequence));
    }

    #[test]
    fn keys_with_too_many_unanswered_writes_are_not_checked() {
        let ledger = Ledger::new(1, true);
        for _ in 0..=PENDING_MAX {
            ledger.write_begins(KEY, false);
        }
        let reading = ledger.read_begins(KEY);
        assert!(ledger.may_be_read(&reading, 1, 999_999) && ledger.may_be_absent(&reading));
        assert_eq!(
            ledger.shard(KEY).get(&KEY).map(|it| it.writes.len()),
            Some(0)
        );
    }
}

//! Tombstones that wait to be removed.
//!
//! A tombstone may be removed once every replica of its key holds it: then no older value can come
//! back. The queue has tombstones of deletes that have just reached all replicas; after a restart
//! it is empty, and the tombstones stay. Counters of dots never restart, so a later write to the
//! key never counts as older than the removed tombstone.

use std::collections::VecDeque;
use std::time::Duration;

use kvorum_backend::SyncTicket;
use kvorum_encoding::StorageKey;
use kvorum_object::Clock;
use kvorum_ring::PreferenceList;
use kvorum_runtime::Moment;
use parking_lot::Mutex;

/// The most tombstones that wait; further ones stay, which only costs space.
const WAITING_MAX: usize = 100_000;

/// The fate of tombstones that every replica holds (`delete_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TombstoneKeeping {
    /// They stay.
    Keep,
    /// They go with the delete.
    Immediate,
    /// They go after this time.
    For(Duration),
}

/// A tombstone to be removed.
pub(crate) struct Tombstone {
    pub(crate) due: Moment,
    pub(crate) key: StorageKey,
    pub(crate) clock: Clock,
    pub(crate) replicas: PreferenceList,
    /// The syncs that must be done before it may go.
    pub(crate) unsynced: Vec<SyncTicket>,
}

/// The queue. All tombstones wait equally long, so it is in order of time.
#[derive(Default)]
pub(crate) struct Reaper {
    waiting: Mutex<VecDeque<Tombstone>>,
}

impl Reaper {
    pub(crate) fn add(&self, tombstone: Tombstone) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push_back(tombstone);
        }
    }

    pub(crate) fn put_back(&self, tombstone: Tombstone) {
        self.waiting.lock().push_front(tombstone);
    }

    pub(crate) fn take_due(&self, now: Moment) -> Option<Tombstone> {
        let mut waiting = self.waiting.lock();
        if waiting.front()?.due > now {
            return None;
        }
        waiting.pop_front()
    }
}

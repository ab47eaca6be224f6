//! The shared parts of a store and its snapshots: the contents, the open snapshots, and the state
//! of opening.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_backend::{BackendError, ErrorKind, Lease, Result, Sequence, StepBudget, Timestamp};
use kvorum_planted_defects::is_planted;
use parking_lot::{Mutex, RwLock};

use crate::Settings;
use crate::contents::Contents;
use crate::open_snapshots::{OpenSnapshots, Released, SnapshotId};

/// The number of entries that upkeep frees before it releases the lock.
const FREED_AT_ONCE: usize = 64;

pub(crate) struct Store {
    pub(crate) settings: Settings,
    pub(crate) contents: RwLock<Contents>,
    /// Locked after `contents` if both are locked.
    pub(crate) open_snapshots: Mutex<OpenSnapshots>,
    pub(crate) identity: AtomicU64,
    pub(crate) is_closed: AtomicBool,
}

impl Store {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(BackendError::new(
                ErrorKind::Closed,
                "memory store was closed",
            ));
        }
        Ok(())
    }

    /// Registers a snapshot of the present contents.
    pub(crate) fn open_snapshot(&self, lease: Lease) -> (SnapshotId, Released) {
        let contents = self.contents.read();
        self.open_snapshots
            .lock()
            .open(contents.last_sequence, lease)
    }

    /// The sequence at which a snapshot looks.
    pub(crate) fn looked_at(&self, sequence: Sequence) -> Sequence {
        if is_planted!(SnapshotSeesLaterWrites) {
            return Sequence(u64::MAX);
        }
        sequence
    }

    /// Frees expired entries, within the budget; returns the cost and true if nothing is left.
    pub(crate) fn collect_expired(&self, budget: StepBudget, now: Timestamp) -> (u64, bool) {
        self.free(budget, |contents| contents.collect_one_expired(now))
    }

    /// Releases snapshots with ended leases, and frees old versions that no snapshot needs.
    pub(crate) fn reclaim(&self, budget: StepBudget, now: Timestamp) -> (u64, bool) {
        self.open_snapshots.lock().release_over(now);
        self.free(budget, |contents| {
            let oldest = self.open_snapshots.lock().oldest();
            contents
                .has_superseded(oldest)
                .then(|| contents.drop_one_superseded(oldest))
        })
    }

    /// Frees entries one by one until the budget is used up; `free_one` returns the freed bytes.
    fn free(
        &self,
        budget: StepBudget,
        free_one: impl Fn(&mut Contents) -> Option<u64>,
    ) -> (u64, bool) {
        let mut cost_bytes = 0;
        loop {
            let mut contents = self.contents.write();
            for _ in 0..FREED_AT_ONCE {
                match free_one(&mut contents) {
                    Some(freed_bytes) => cost_bytes += freed_bytes,
                    None => return (cost_bytes, true),
                }
                if cost_bytes >= budget.bytes {
                    return (cost_bytes, false);
                }
            }
        }
    }
}

//! The open snapshots, and the versions that they need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_backend::{Lease, Sequence, Timestamp};

/// A flag for a snapshot: the store has released its versions.
pub(crate) type Released = Arc<AtomicBool>;

/// The identity of an open snapshot: its sequence, and a number that makes it unique.
pub(crate) type SnapshotId = (Sequence, u64);

#[derive(Default)]
pub(crate) struct OpenSnapshots {
    open: BTreeMap<SnapshotId, (Lease, Released)>,
    taken: u64,
}

impl OpenSnapshots {
    pub(crate) fn open(&mut self, sequence: Sequence, lease: Lease) -> (SnapshotId, Released) {
        self.taken += 1;
        let id = (sequence, self.taken);
        let released = Released::default();
        self.open.insert(id, (lease, Arc::clone(&released)));
        (id, released)
    }

    pub(crate) fn close(&mut self, id: SnapshotId) {
        self.open.remove(&id);
    }

    /// Releases the snapshots with ended leases.
    pub(crate) fn release_over(&mut self, now: Timestamp) {
        self.open.retain(|_, (lease, released)| {
            let is_over = lease.is_over(now);
            if is_over {
                released.store(true, Ordering::Release);
            }
            !is_over
        });
    }

    pub(crate) fn release_all(&mut self) {
        for (_, released) in std::mem::take(&mut self.open).into_values() {
            released.store(true, Ordering::Release);
        }
    }

    /// The lowest sequence that a snapshot sees, without snapshots whose leases have ended at
    /// `now`.
    pub(crate) fn oldest_at(&self, now: Timestamp) -> Option<Sequence> {
        let mut open = self
            .open
            .iter()
            .filter(|(_, (lease, _))| !lease.is_over(now));
        open.next().map(|((sequence, _), _)| *sequence)
    }

    pub(crate) fn oldest(&self) -> Option<Sequence> {
        self.open.keys().next().map(|(sequence, _)| *sequence)
    }

    pub(crate) fn newest(&self) -> Option<Sequence> {
        self.open.keys().next_back().map(|(sequence, _)| *sequence)
    }
}

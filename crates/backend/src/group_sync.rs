//! Group commit by leader and followers, for a store that syncs its own files.
//!
//! The first waiting thread becomes the leader, syncs all writes before the start of its sync, and
//! wakes the rest. This needs no extra thread, so it suits engines that are opened outside a node:
//! in tests, and in the load generator's embedded drivers.

use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{BackendError, ErrorKind, Result, SyncPoint};

/// Syncs everything written so far and returns the position that is durable.
type SyncAll = Box<dyn Fn() -> Result<u64> + Send + Sync>;

/// A sync point that its waiters drive.
pub struct GroupSync {
    sync_all: SyncAll,
    is_full_final: bool,
    state: Mutex<GroupState>,
    synced: Condvar,
}

#[derive(Default)]
struct GroupState {
    synced_to: u64,
    has_leader: bool,
    failure: Option<BackendError>,
    /// The number of rounds that found the disk full, and the last one's error.
    full: (u64, Option<BackendError>),
}

impl GroupSync {
    /// `sync_all` syncs all writes so far and returns the position that it reached.
    pub fn new(sync_all: impl Fn() -> Result<u64> + Send + Sync + 'static) -> Arc<Self> {
        Self::of(Box::new(sync_all), true)
    }

    /// The sync of a store, without a reference that keeps it open.
    pub fn of_store<S: Send + Sync + 'static>(
        store: Weak<S>,
        sync_all: fn(&S) -> Result<u64>,
    ) -> impl Fn() -> Result<u64> + Send + Sync + 'static {
        move || match store.upgrade() {
            Some(store) => sync_all(&store),
            None => Err(BackendError::new(
                ErrorKind::Closed,
                "the store was dropped before its sync",
            )),
        }
    }

    /// Like [`GroupSync::new`], but a full disk is not final. For a store whose sync is a flush,
    /// which needs space, while unflushed data are still in memory. Waiting callers get the error,
    /// and a later call tries again.
    pub fn retrying_when_full(
        sync_all: impl Fn() -> Result<u64> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::of(Box::new(sync_all), false)
    }

    fn of(sync_all: SyncAll, is_full_final: bool) -> Arc<Self> {
        Arc::new(Self {
            sync_all,
            is_full_final,
            state: Mutex::new(GroupState::default()),
            synced: Condvar::new(),
        })
    }

    fn lead(&self) {
        let outcome = (self.sync_all)();
        let mut state = self.state.lock();
        state.has_leader = false;
        match outcome {
            Ok(position) => state.synced_to = state.synced_to.max(position),
            Err(error) if error.kind() == ErrorKind::Full && !self.is_full_final => {
                state.full = (state.full.0 + 1, Some(error));
            }
            Err(error) => {
                // A failed sync is final: its data may be lost, and a retry would report a false
                // success.
                state.failure.get_or_insert(error);
            }
        }
        self.synced.notify_all();
    }
}

impl GroupState {
    fn outcome(&self, position: u64) -> Option<Result<()>> {
        if self.synced_to >= position {
            return Some(Ok(()));
        }
        self.failure.clone().map(Err)
    }
}

impl SyncPoint for GroupSync {
    fn poll_synced(&self, position: u64, _waker: &Waker) -> Poll<Result<()>> {
        match self.state.lock().outcome(position) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Ready(Err(BackendError::new(
                ErrorKind::Misuse,
                "a ticket of an undriven sync point was awaited; wait for it on a thread",
            ))),
        }
    }

    fn wait_synced(&self, position: u64) -> Result<()> {
        let mut state = self.state.lock();
        let full_before = state.full.0;
        loop {
            if let Some(outcome) = state.outcome(position) {
                return outcome;
            }
            if let (rounds, Some(error)) = &state.full
                && *rounds > full_before
            {
                return Err(error.clone());
            }
            if state.has_leader {
                self.synced.wait(&mut state);
                continue;
            }
            state.has_leader = true;
            MutexGuard::unlocked(&mut state, || self.lead());
        }
    }

    fn is_driven(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::SyncTicket;

    #[test]
    fn one_sync_serves_every_earlier_position() {
        let syncs = Arc::new(AtomicU64::new(0));
        let counted = syncs.clone();
        let group = GroupSync::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(5)
        });
        for position in 1..=5 {
            SyncTicket::new(group.clone(), position).wait().unwrap();
        }
        assert_eq!(syncs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_failed_sync_fails_everything_not_yet_synced_for_good() {
        let calls = AtomicU64::new(0);
        let group = GroupSync::new(move || match calls.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(1),
            1 => Err(BackendError::new(ErrorKind::Failed, "sync data")),
            _ => Ok(9),
        });
        assert!(group.wait_synced(1).is_ok());
        assert!(group.wait_synced(2).is_err());
        assert!(group.wait_synced(3).is_err());
        assert!(group.wait_synced(1).is_ok());
    }

    #[test]
    fn a_full_disk_is_reported_and_a_failed_sync_is_final() {
        let calls = AtomicU64::new(0);
        let group =
            GroupSync::retrying_when_full(move || match calls.fetch_add(1, Ordering::Relaxed) {
                0 => Err(BackendError::new(ErrorKind::Full, "no space")),
                1 => Ok(3),
                2 => Err(BackendError::new(ErrorKind::Failed, "sync data")),
                _ => Ok(9),
            });
        let kind = |position| group.wait_synced(position).err().map(|it| it.kind());
        assert_eq!(kind(2), Some(ErrorKind::Full));
        assert_eq!(kind(2), None);
        assert_eq!(kind(4), Some(ErrorKind::Failed));
        assert_eq!(kind(4), Some(ErrorKind::Failed));
        assert_eq!(kind(3), None);
    }
}

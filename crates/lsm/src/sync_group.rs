//! Group commit by leader and followers, for a store whose sync may find the disk full.
//!
//! As `kvorum_backend::GroupSync`, but a full disk is not final: without a log a sync is a flush, which
//! needs space, and what was not flushed is still in memory. Those who waited are told, and whoever
//! asks later tries again.

use std::sync::Arc;
use std::task::{Poll, Waker};

use kvorum_backend::{BackendError, ErrorKind, Result, SyncPoint};
use parking_lot::{Condvar, Mutex};

type SyncAll = Box<dyn Fn() -> Result<u64> + Send + Sync>;

/// A sync point that its waiters drive.
pub(crate) struct SyncGroup {
    sync_all: SyncAll,
    state: Mutex<State>,
    synced: Condvar,
}

#[derive(Default)]
struct State {
    synced_to: u64,
    has_leader: bool,
    failure: Option<BackendError>,
    /// Counts rounds that found the disk full, and what the last one said.
    full: (u64, Option<BackendError>),
}

impl SyncGroup {
    /// `sync_all` makes everything written so far durable and returns up to which sequence.
    pub(crate) fn new(sync_all: impl Fn() -> Result<u64> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            sync_all: Box::new(sync_all),
            state: Mutex::default(),
            synced: Condvar::new(),
        })
    }

    fn lead(&self) {
        let outcome = (self.sync_all)();
        let mut state = self.state.lock();
        state.has_leader = false;
        match outcome {
            Ok(position) => state.synced_to = state.synced_to.max(position),
            Err(error) if error.kind() == ErrorKind::Full => {
                state.full = (state.full.0 + 1, Some(error));
            }
            Err(error) => {
                state.failure.get_or_insert(error);
            }
        }
        self.synced.notify_all();
    }
}

impl State {
    fn outcome(&self, position: u64) -> Option<Result<()>> {
        if self.synced_to >= position {
            return Some(Ok(()));
        }
        self.failure.clone().map(Err)
    }
}

impl SyncPoint for SyncGroup {
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
        let full_before = self.state.lock().full.0;
        loop {
            let mut state = self.state.lock();
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
            drop(state);
            self.lead();
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

    #[test]
    fn a_full_disk_is_told_and_a_failed_sync_is_final() {
        let calls = AtomicU64::new(0);
        let group = SyncGroup::new(move || match calls.fetch_add(1, Ordering::Relaxed) {
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

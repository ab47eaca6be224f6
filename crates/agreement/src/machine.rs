//! The machine that the log drives, in the library's interface.

use std::io::Cursor;
use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageIOError};
use parking_lot::Mutex;

use crate::persistence::Persistence;
use crate::raft_types::{
    Entry, LogId, Outcome, SnapshotMeta, StorageError, StoredMembership, Types,
};
use crate::snapshot_file::{SnapshotFiles, Stored};

/// The machine that the log's commands drive. The same commands in the same order have to give the same
/// state and the same outcomes on every node.
pub trait Machine: Send + Sync {
    /// Applies an agreed command and returns its outcome.
    fn apply(&self, command: &str) -> String;

    /// The whole state.
    fn state(&self) -> Vec<u8>;

    /// Replaces the whole state with one that [`Machine::state`] returned, on this or another node.
    ///
    /// # Errors
    /// The error in the new state; the present state is kept.
    fn restore(&self, state: &[u8]) -> Result<(), String>;
}

/// The machine and its progress.
#[derive(Clone)]
pub(crate) struct Driven {
    persistence: Persistence,
    machine: Arc<dyn Machine>,
    files: SnapshotFiles,
    progress: Arc<Mutex<Progress>>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<Stored>,
    snapshots: u64,
}

impl Driven {
    /// The machine in the state of its last snapshot, if there is one.
    pub(crate) fn new(
        persistence: Persistence,
        machine: Arc<dyn Machine>,
        files: SnapshotFiles,
        snapshot: Option<Stored>,
    ) -> Result<Self, String> {
        let mut progress = Progress::default();
        if let Some(snapshot) = snapshot {
            machine.restore(&snapshot.state)?;
            progress.applied = snapshot.meta.last_log_id;
            progress.membership = snapshot.meta.last_membership.clone();
            progress.snapshot = Some(snapshot);
        }
        Ok(Self {
            persistence,
            machine,
            files,
            progress: Arc::new(Mutex::new(progress)),
        })
    }

    async fn keep(&self, stored: Stored) -> std::io::Result<()> {
        let files = self.files.clone();
        let kept = stored.clone();
        let store = move || files.store(&kept);
        self.persistence.keep_writing(store).await?;
        let mut progress = self.progress.lock();
        let known = progress.snapshot.as_ref();
        if known.is_none_or(|known| known.meta.last_log_id <= stored.meta.last_log_id) {
            progress.snapshot = Some(stored);
        }
        Ok(())
    }
}

impl RaftSnapshotBuilder<Types> for Driven {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let stored = {
            let mut progress = self.progress.lock();
            progress.snapshots += 1;
            let index = progress.applied.map_or(0, |applied| applied.index);
            Stored {
                meta: SnapshotMeta {
                    last_log_id: progress.applied,
                    last_membership: progress.membership.clone(),
                    snapshot_id: format!("{index}-{}", progress.snapshots),
                },
                // Under the lock that `apply` holds, so that state and progress match.
                state: self.machine.state(),
            }
        };
        let kept = self.keep(stored.clone()).await;
        kept.map_err(|error| {
            StorageIOError::write_snapshot(Some(stored.meta.signature()), &error)
        })?;
        Ok(snapshot(stored))
    }
}

fn snapshot(stored: Stored) -> Snapshot<Types> {
    Snapshot {
        meta: stored.meta,
        snapshot: Box::new(Cursor::new(stored.state)),
    }
}

impl RaftStateMachine<Types> for Driven {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let progress = self.progress.lock();
        Ok((progress.applied, progress.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Outcome>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut progress = self.progress.lock();
        let apply = |entry: Entry| {
            progress.applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => Outcome::default(),
                EntryPayload::Normal(proposal) => Outcome(self.machine.apply(&proposal.0)),
                EntryPayload::Membership(membership) => {
                    progress.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Outcome::default()
                }
            }
        };
        Ok(entries.into_iter().map(apply).collect())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::new(Cursor::new(Vec::new())))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let stored = Stored {
            meta: meta.clone(),
            state: snapshot.into_inner(),
        };
        let unreadable = |error: String| {
            let error = std::io::Error::other(error);
            StorageIOError::read_snapshot(Some(meta.signature()), &error)
        };
        let kept = self.keep(stored.clone()).await;
        kept.map_err(|error| StorageIOError::write_snapshot(Some(meta.signature()), &error))?;
        let mut progress = self.progress.lock();
        self.machine.restore(&stored.state).map_err(unreadable)?;
        progress.applied = meta.last_log_id;
        progress.membership = meta.last_membership.clone();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        Ok(self.progress.lock().snapshot.clone().map(snapshot))
    }
}

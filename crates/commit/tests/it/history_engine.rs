//! An engine that is nothing but the history of its batches, so that a test can compare whole orders.
//!
//! What it has synced outlives it in a [`Kept`], which stands for its files; a crash keeps at least
//! that, and as many of the later batches as the test says.

use std::sync::Arc;

use kvorum_backend::{
    Backend, BackendError, Batch, Capabilities, Durability, Durable, ErrorKind, Lease, Lookup,
    ReadAt, Receipt, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreId,
    StoredEntry, StoredHead, Task, Timestamp,
};
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_disk::MemoryDisk;
use kvorum_encoding::StorageKey;
use parking_lot::Mutex;

/// What is on the engine's part of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) identity: u64,
    pub(crate) batches: Vec<Batch>,
}

pub(crate) struct HistoryEngine {
    state: Mutex<State>,
    /// No sync succeeds once its power is cut.
    disk: MemoryDisk,
    /// Answers what this engine is not about.
    unused: MemoryBackend,
}

struct State {
    identity: u64,
    batches: Vec<Batch>,
    synced: usize,
    /// Fails an erasure after it has changed the identity.
    fails_late: bool,
}

impl HistoryEngine {
    pub(crate) fn open(kept: &Kept, disk: &MemoryDisk) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                identity: kept.identity,
                batches: kept.batches.clone(),
                synced: kept.batches.len(),
                fails_late: false,
            }),
            disk: disk.clone(),
            unused: MemoryBackend::new(Settings::default(), || 1),
        })
    }

    /// What a crash leaves: what was synced, and at most `more` of what came after.
    pub(crate) fn crash(&self, more: usize) -> Kept {
        let state = self.state.lock();
        let len = state.batches.len().min(state.synced + more);
        Kept {
            identity: state.identity,
            batches: state.batches[..len].to_vec(),
        }
    }

    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.state.lock().batches.clone()
    }

    pub(crate) fn fail_erasures_late(&self) {
        self.state.lock().fails_late = true;
    }

    fn check_power(&self) -> Result<()> {
        if self.disk.is_cut() {
            return Err(BackendError::new(ErrorKind::Failed, "power lost"));
        }
        Ok(())
    }
}

impl Backend for HistoryEngine {
    fn capabilities(&self) -> Capabilities {
        self.unused.capabilities()
    }

    fn identity(&self) -> StoreId {
        StoreId(self.state.lock().identity)
    }

    fn put(&self, batch: &Batch, _durability: Durability) -> Result<Receipt> {
        let mut state = self.state.lock();
        state.batches.push(batch.clone());
        Ok(Receipt {
            sequence: Sequence(state.batches.len() as u64),
            durable: Durable::Already,
        })
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        self.unused.get(key, at)
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        self.unused.head(key, at)
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        self.unused.snapshot(lease)
    }

    fn sync(&self) -> Result<Sequence> {
        self.check_power()?;
        let mut state = self.state.lock();
        state.synced = state.batches.len();
        Ok(Sequence(state.synced as u64))
    }

    fn durable(&self) -> Sequence {
        Sequence(self.state.lock().synced as u64)
    }

    fn is_empty(&self, _now: Timestamp) -> Result<bool> {
        Ok(self.state.lock().batches.is_empty())
    }

    fn status(&self) -> Status {
        self.unused.status()
    }

    fn maintenance_due(&self, _now: Timestamp) -> Vec<Task> {
        Vec::new()
    }

    fn maintenance_step(
        &self,
        _task: &Task,
        _budget: StepBudget,
        _now: Timestamp,
    ) -> Result<StepOutcome> {
        Ok(StepOutcome::nothing_left())
    }

    fn erase(&self) -> Result<()> {
        self.check_power()?;
        let mut state = self.state.lock();
        state.identity += 1000;
        state.batches.clear();
        state.synced = 0;
        if state.fails_late {
            return Err(BackendError::new(ErrorKind::Failed, "removing old files"));
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.sync().map(drop)
    }
}

//! The suite that every engine passes, over engines behind a commit log.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{
    Backend, Backups, Batch, Capabilities, Durability, IndexFolds, Lease, Lookup, ReadAt, Receipt,
    Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreId, StoredEntry, StoredHead,
    Task, Timestamp,
};
use kvorum_backend_conformance::{EngineUnderTest, Opening, conformance_suite};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed, recover};
use kvorum_encoding::StorageKey;
use parking_lot::RwLock;

use crate::engine::{Synced, VolatileEngine};

const DIRECTORY: &str = "commit_log";

/// A store behind a log of its own, whose upkeep is done along with the engine's.
pub(crate) struct Logged {
    engine: Arc<dyn Backend>,
    opening: Opening,
    inner: RwLock<(Committed, CommitLog)>,
}

impl Logged {
    /// Recovers an engine that was just opened, and starts its log.
    pub(crate) fn open(engine: Arc<dyn Backend>, opening: &Opening) -> Result<Box<dyn Backend>> {
        recover(
            &*opening.disk,
            Path::new(DIRECTORY),
            std::slice::from_ref(&engine),
        )?;
        let inner = start(&engine, opening)?;
        Ok(Box::new(Self {
            engine,
            opening: opening.clone(),
            inner: RwLock::new(inner),
        }))
    }
}

fn start(engine: &Arc<dyn Backend>, opening: &Opening) -> Result<(Committed, CommitLog)> {
    let settings = CommitLogSettings {
        segment_bytes: 5_000,
        bytes_max: 15_000,
    };
    let (disk, log_id) = (opening.disk.clone(), (opening.draw)());
    let log = CommitLog::create(disk, Path::new(DIRECTORY), log_id, settings)?;
    let store = Committed::new(engine.clone(), log.clone(), Durability::Grouped);
    Ok((store, log))
}

impl Backend for Logged {
    fn capabilities(&self) -> Capabilities {
        self.inner.read().0.capabilities()
    }

    fn identity(&self) -> StoreId {
        self.inner.read().0.identity()
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        self.inner.read().0.put(batch, durability)
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        self.inner.read().0.get(key, at)
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        self.inner.read().0.head(key, at)
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        self.inner.read().0.snapshot(lease)
    }

    fn sync(&self) -> Result<Sequence> {
        self.inner.read().0.sync()
    }

    fn durable(&self) -> Sequence {
        self.inner.read().0.durable()
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        self.inner.read().0.is_empty(now)
    }

    fn status(&self) -> Status {
        self.inner.read().0.status()
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        self.inner.read().0.maintenance_due(now)
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let (store, log) = &*self.inner.read();
        if log.is_upkeep_due() {
            log.upkeep_step()?;
        }
        store.maintenance_step(task, budget, now)
    }

    fn erase(&self) -> Result<()> {
        let mut inner = self.inner.write();
        inner.0.erase()?;
        // A log is trimmed in time; the suite looks at the disk at once.
        inner.1.remove()?;
        *inner = start(&self.engine, &self.opening)?;
        Ok(())
    }

    fn close(&self) -> Result<()> {
        let (store, log) = &*self.inner.read();
        store.close()?;
        log.remove()
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        self.engine.indexes()
    }

    fn backups(&self) -> Option<&dyn Backups> {
        self.engine.backups()
    }
}

/// The volatile engine behind a log.
struct Volatile {
    synced: Synced,
}

impl EngineUnderTest for Volatile {
    fn name(&self) -> &str {
        "volatile engine behind the commit log"
    }

    fn names_its_files(&self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let draw = opening.draw.clone();
        let synced = self.synced.clone();
        let directory = &opening.directory;
        let engine = VolatileEngine::open(opening.disk.clone(), directory, synced, move || draw())?;
        Logged::open(Arc::new(engine), opening)
    }

    /// It takes puts in memory that the full log then refuses.
    fn works_on_a_full_disk(&self) -> bool {
        false
    }

    /// An earlier number is as good as the last one.
    fn reports_truncation(&self) -> bool {
        false
    }

    /// Its one file is a number.
    fn keys_lost_per_flip_max(&self) -> usize {
        usize::MAX
    }
}

conformance_suite!(Volatile {
    synced: Synced::default()
});

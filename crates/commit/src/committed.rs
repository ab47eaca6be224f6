//! A backend whose grouped puts go through the node's commit log.

use std::sync::Arc;

use kvorum_backend::{
    Backend, Backups, Batch, Capabilities, Durability, Durable, IndexFolds, Lease, Lookup, ReadAt,
    Receipt, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreId, StoredEntry,
    StoredHead, Task, Timestamp,
};
use kvorum_encoding::StorageKey;
use parking_lot::Mutex;

use crate::CommitLog;

/// An engine together with a commit log.
///
/// Every put is logged, whatever durability it asks for: replay must know the whole order. What is
/// asked decides only whether the caller waits.
pub struct Committed {
    engine: Arc<dyn Backend>,
    log: CommitLog,
    default: Durability,
    /// Held over apply and append, so that the log has the store's order; guards the identity.
    order: Mutex<StoreId>,
}

impl Committed {
    /// Wraps an engine; [`crate::recover`] must have been over it. `default` is what
    /// [`Durability::BackendDefault`] means.
    pub fn new(engine: Arc<dyn Backend>, log: CommitLog, default: Durability) -> Self {
        let store = engine.identity();
        log.register(store, engine.clone());
        Self {
            engine,
            log,
            default,
            order: Mutex::new(store),
        }
    }
}

impl Backend for Committed {
    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn identity(&self) -> StoreId {
        self.engine.identity()
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        let store = self.order.lock();
        let sequence = self.engine.put(batch, Durability::Buffered)?.sequence;
        let ticket = self.log.append(*store, sequence, batch);
        drop(store);
        let asked = match durability {
            Durability::BackendDefault => self.default,
            asked => asked,
        };
        let durable = match asked {
            Durability::Grouped => Durable::After(ticket),
            Durability::Buffered | Durability::BackendDefault => Durable::Already,
        };
        Ok(Receipt { sequence, durable })
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        self.engine.get(key, at)
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        self.engine.head(key, at)
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        self.engine.snapshot(lease)
    }

    fn sync(&self) -> Result<Sequence> {
        self.engine.sync()
    }

    fn durable(&self) -> Sequence {
        self.engine.durable()
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        self.engine.is_empty(now)
    }

    fn status(&self) -> Status {
        self.engine.status()
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        self.engine.maintenance_due(now)
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        self.engine.maintenance_step(task, budget, now)
    }

    fn erase(&self) -> Result<()> {
        let mut store = self.order.lock();
        self.engine.erase()?;
        self.log.forget(*store);
        *store = self.engine.identity();
        self.log.register(*store, self.engine.clone());
        Ok(())
    }

    fn close(&self) -> Result<()> {
        let store = self.order.lock();
        self.engine.close()?;
        self.log.forget(*store);
        Ok(())
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        self.engine.indexes()
    }

    fn backups(&self) -> Option<&dyn Backups> {
        self.engine.backups()
    }
}

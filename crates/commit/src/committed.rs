//! A backend whose grouped puts go through the node's commit log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{
    Backend, Backups, Batch, Capabilities, Durability, Durable, IndexFolds, Lease, Lookup, ReadAt,
    Receipt, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreId, StoredEntry,
    StoredHead, Task, TaskKind, Timestamp, Urgency,
};
use kvorum_encoding::StorageKey;
use kvorum_runtime::{PlantedDefect, is_planted};
use parking_lot::Mutex;

use crate::CommitLog;
use crate::log_record::LogRecord;

/// The subject of the task that makes durable what the log failed to take; engines number what they have.
const FILLS_GAPS: u64 = u64::MAX;

/// An engine together with a commit log.
///
/// Every put is logged, whatever durability it asks for: replay must know the whole order. What is
/// asked decides only whether the caller waits, unless the device is too slow for all that comes in:
/// then everybody does (see the bounds in [`CommitLog`]'s module).
///
/// A put whose ticket fails may be visible, and may be there after a crash or not: it was not
/// acknowledged. Upkeep makes it durable as soon as that is possible, so that what was read of it stays.
pub struct Committed {
    engine: Arc<dyn Backend>,
    log: CommitLog,
    default: Durability,
    /// Gaps of the log since which the engine was synced.
    gaps_filled: AtomicU64,
    /// Held over apply and append, so that the log has the store's order; guards the identity.
    order: Mutex<StoreId>,
}

impl Committed {
    /// Wraps an engine; [`crate::recover`] must have been over it. `default` is what
    /// [`Durability::BackendDefault`] means.
    pub fn new(engine: Arc<dyn Backend>, log: CommitLog, default: Durability) -> Self {
        let store = engine.identity();
        log.register(store, &engine);
        Self {
            engine,
            log,
            default,
            gaps_filled: AtomicU64::new(0),
            order: Mutex::new(store),
        }
    }

    /// Makes durable without the log what it failed to take before: a batch that changes nothing,
    /// because all of it is there already, would be acknowledged for what a crash takes away.
    fn fill_gaps(&self, gaps: u64) -> Result<()> {
        if self.gaps_filled.load(Ordering::Acquire) < gaps {
            self.engine.sync()?;
            self.gaps_filled.fetch_max(gaps, Ordering::AcqRel);
        }
        Ok(())
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
        let record = LogRecord::encode(batch)?;
        self.log.wait_for_room()?;
        let (sequence, pushed) = {
            let store = self.order.lock();
            let sequence = self.engine.put(batch, Durability::Buffered)?.sequence;
            (sequence, self.log.push(record.placed(*store, sequence)))
        };
        let asked = match durability {
            Durability::BackendDefault => self.default,
            asked => asked,
        };
        if asked == Durability::Grouped {
            self.fill_gaps(pushed.gaps)?;
        }
        let durable = match asked {
            Durability::Grouped if is_planted(PlantedDefect::AcknowledgedBeforeSync) => {
                Durable::Already
            }
            Durability::Grouped => Durable::After(pushed.ticket),
            _ if pushed.is_crowded => Durable::After(pushed.ticket),
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
        let mut due = self.engine.maintenance_due(now);
        if self.gaps_filled.load(Ordering::Acquire) < self.log.gaps() {
            due.push(Task {
                kind: TaskKind::Sync,
                subject: FILLS_GAPS,
                urgency: Urgency::Normal,
                cost_bytes: 0,
            });
        }
        due
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        if task.kind == TaskKind::Sync && task.subject == FILLS_GAPS {
            self.fill_gaps(self.log.gaps())?;
            return Ok(StepOutcome::nothing_left());
        }
        self.engine.maintenance_step(task, budget, now)
    }

    /// The log is told first, so that no recovery keeps what was logged of the old contents.
    fn erase(&self) -> Result<()> {
        let mut store = self.order.lock();
        let told = self.log.push(LogRecord::erasure(*store)).ticket;
        // A failed or full log must not keep the store from making room: recovery then keeps a little
        // more than anyone needs.
        let _told_or_not = told.wait();
        let erased = self.engine.erase();
        // An erasure that failed half way may have changed the identity all the same: what is put from
        // now on belongs to the contents that the engine has.
        let identity = self.engine.identity();
        if identity != *store {
            self.log.register(identity, &self.engine);
            self.log.forget(*store);
            *store = identity;
        }
        erased
    }

    fn close(&self) -> Result<()> {
        let store = self.order.lock();
        // Should the engine fail to close, the next recovery finds everything in the log.
        let _flushed_or_failed = self.log.flush();
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

//! The memory engine behind the backend trait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_backend::{
    Backend, BackendError, Batch, Capabilities, Durability, Durable, ErrorKind, FoldEnd,
    IndexCounts, IndexFolds, IndexRange, IndexVisitor, Lease, Lookup, ReadAt, Receipt, Result,
    Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreId, StoredEntry, StoredHead, Task,
    TaskKind, Timestamp, Urgency,
};
use kvorum_encoding::StorageKey;
use kvorum_planted_defects::is_planted;
use parking_lot::{Mutex, RwLock};

use crate::Settings;
use crate::contents::{Contents, OwnedWrite, memory_bytes_of};
use crate::entry::Entry;
use crate::open_snapshots::OpenSnapshots;
use crate::snapshot::MemorySnapshot;
use crate::store::Store;

/// Old versions that each put drops, before the next upkeep does.
const DROPPED_BY_A_PUT: usize = 4;
/// The most expired entries that are counted under the read lock when upkeep is listed.
const EXPIRED_COUNTED_MAX: usize = 10_000;

/// A store in memory.
pub struct MemoryBackend {
    store: Arc<Store>,
    draw: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl MemoryBackend {
    /// An empty store. `draw` gives random numbers for the identities of its contents.
    pub fn new(settings: Settings, draw: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let store = Store {
            settings,
            contents: RwLock::new(Contents::new(draw())),
            open_snapshots: Mutex::new(OpenSnapshots::default()),
            identity: AtomicU64::new(draw()),
            is_closed: AtomicBool::new(false),
        };
        Self {
            store: Arc::new(store),
            draw: Box::new(draw),
        }
    }

    fn lookup<T>(
        &self,
        key: &StorageKey,
        now: Timestamp,
        answer: impl FnOnce(&Entry) -> T,
    ) -> Lookup<T> {
        let contents = self.store.contents.read();
        match contents.by_key.get(key.as_bytes()) {
            Some(entry) if is_planted!(ExpiredEntryReturned) || !entry.is_expired(now) => {
                Lookup::Found(answer(entry))
            }
            _ => Lookup::Absent,
        }
    }

    fn check_size(&self, batch: &Batch) -> Result<()> {
        let Some(memory_bytes_max) = self.store.settings.memory_bytes_max else {
            return Ok(());
        };
        let memory_bytes = memory_bytes_of(batch);
        if memory_bytes <= memory_bytes_max {
            return Ok(());
        }
        Err(BackendError::new(
            ErrorKind::TooLarge,
            format!("{memory_bytes} bytes in memory where the bound is {memory_bytes_max}"),
        ))
    }

    fn task(kind: TaskKind, cost_bytes: u64) -> Task {
        Task {
            kind,
            subject: 0,
            urgency: Urgency::Normal,
            cost_bytes,
        }
    }
}

impl Backend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: false,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: false,
            drops_entries: self.store.settings.drops_entries(),
        }
    }

    fn identity(&self) -> StoreId {
        StoreId(self.store.identity.load(Ordering::Acquire))
    }

    /// There is no device to wait for, so every promise holds at once. A batch that alone exceeds
    /// the memory bound is refused as too large.
    fn put(&self, batch: &Batch, _durability: Durability) -> Result<Receipt> {
        self.store.check_open()?;
        self.check_size(batch)?;
        let writes: Vec<OwnedWrite> = batch.writes.iter().map(OwnedWrite::of).collect();
        let mut contents = self.store.contents.write();
        let (oldest, newest) = {
            let open = self.store.open_snapshots.lock();
            (open.oldest(), open.newest())
        };
        let sequence = contents.apply(writes, batch, &self.store.settings, newest);
        for _ in 0..DROPPED_BY_A_PUT {
            contents.drop_one_superseded(oldest);
        }
        Ok(Receipt {
            sequence,
            durable: Durable::Already,
        })
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        Ok(self.lookup(key, at.now, Entry::to_stored))
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        Ok(self.lookup(key, at.now, Entry::to_head))
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(MemorySnapshot::open(&self.store, lease)))
    }

    fn sync(&self) -> Result<Sequence> {
        Ok(self.durable())
    }

    fn durable(&self) -> Sequence {
        self.store.contents.read().last_sequence
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        Ok(self.store.contents.read().all_expired(now))
    }

    fn status(&self) -> Status {
        let contents = self.store.contents.read();
        Status {
            engine: "memory",
            keys: contents.entries.len() as u64,
            memory_bytes: contents.memory_bytes + contents.pinned_bytes,
            pinned_bytes: contents.pinned_bytes,
            put_bytes: contents.put_bytes,
            details: vec![
                ("evicted", contents.evicted.to_string()),
                ("expired", contents.expired.to_string()),
                ("index_entries", contents.index.len().to_string()),
            ],
            ..Status::default()
        }
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        let contents = self.store.contents.read();
        let oldest = self.store.open_snapshots.lock().oldest_at(now);
        let mut due = Vec::new();
        if contents.has_superseded(oldest) {
            due.push(Self::task(TaskKind::Reclaim, contents.pinned_bytes));
        }
        let expired = contents.expired_count(now, EXPIRED_COUNTED_MAX) as u64;
        if expired > 0 {
            let keys = (contents.entries.len() as u64).max(1);
            let cost_bytes = expired.saturating_mul(contents.memory_bytes) / keys;
            due.push(Self::task(TaskKind::Expire, cost_bytes));
        }
        due
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let (cost_bytes, is_done) = match task.kind {
            TaskKind::Expire => self.store.collect_expired(budget, now),
            TaskKind::Reclaim => self.store.reclaim(budget, now),
            _ => (0, true),
        };
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    /// Open snapshots end as if their leases had run out.
    fn erase(&self) -> Result<()> {
        self.store.check_open()?;
        let mut contents = self.store.contents.write();
        self.store.open_snapshots.lock().release_all();
        contents.erase();
        self.store.identity.store((self.draw)(), Ordering::Release);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.store.is_closed.store(true, Ordering::Release);
        Ok(())
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        Some(self)
    }
}

impl IndexFolds for MemoryBackend {
    fn fold_index(
        &self,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        Ok(MemorySnapshot::open(&self.store, lease).fold_index(range, now, visitor))
    }

    fn counts(&self) -> IndexCounts {
        self.store.contents.read().index_counts
    }
}

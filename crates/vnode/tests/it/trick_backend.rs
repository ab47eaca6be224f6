//! A store in memory that behaves on demand like a device: waits, fails, fills up, damages, and syncs
//! late.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use kvorum_backend::{
    Backend, BackendError, Batch, Capabilities, Durability, Durable, ErrorKind, FoldDetail,
    FoldEnd, FoldFilter, FoldRange, IndexCounts, IndexFolds, IndexRange, IndexVisitor, Lease,
    Lookup, ReadAt, Reading, Receipt, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome,
    StoreId, StoredEntry, StoredHead, SyncPoint, SyncTicket, Task, Timestamp, Visitor, Write,
};
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_encoding::StorageKey;
use parking_lot::Mutex;

pub(crate) struct TrickBackend {
    inner: MemoryBackend,
    /// The store has no indexes.
    pub(crate) is_plain: AtomicBool,
    /// Reads that must not block return "would block".
    pub(crate) would_block: AtomicBool,
    /// Every put fails like this.
    refuses_puts: Mutex<Option<ErrorKind>>,
    /// Every read fails like this.
    refuses_reads: Mutex<Option<ErrorKind>>,
    /// The durabilities of the puts so far.
    pub(crate) asked: Mutex<Vec<Durability>>,
    /// Puts are durable only when the test makes them so, unless they are buffered.
    pub(crate) syncs: Option<Arc<LateSync>>,
    damaged_heads: Mutex<BTreeSet<StorageKey>>,
    damaged_bodies: Mutex<BTreeSet<StorageKey>>,
    /// Damage has taken keys and index entries: folds report it, and show none.
    pub(crate) has_lost_keys: AtomicBool,
    pub(crate) gets: AtomicU64,
    pub(crate) puts: AtomicU64,
}

impl TrickBackend {
    /// The store's identity is this number at first; each erasure adds a hundred.
    pub(crate) fn new(identity: u64) -> Self {
        let identity = AtomicU64::new(identity);
        let draw = move || identity.fetch_add(100, Ordering::Relaxed);
        Self {
            inner: MemoryBackend::new(Settings::default(), draw),
            is_plain: AtomicBool::new(false),
            would_block: AtomicBool::new(false),
            refuses_puts: Mutex::default(),
            refuses_reads: Mutex::default(),
            asked: Mutex::default(),
            syncs: None,
            damaged_heads: Mutex::default(),
            damaged_bodies: Mutex::default(),
            has_lost_keys: AtomicBool::new(false),
            gets: AtomicU64::new(0),
            puts: AtomicU64::new(0),
        }
    }

    pub(crate) fn syncing_late(identity: u64, syncs: &Arc<LateSync>) -> Self {
        Self {
            syncs: Some(syncs.clone()),
            ..Self::new(identity)
        }
    }

    pub(crate) fn damage_head(&self, key: &StorageKey) {
        self.damaged_heads.lock().insert(key.clone());
    }

    pub(crate) fn damage_body(&self, key: &StorageKey) {
        self.damaged_bodies.lock().insert(key.clone());
    }

    pub(crate) fn refuse_puts(&self, kind: Option<ErrorKind>) {
        *self.refuses_puts.lock() = kind;
    }

    pub(crate) fn refuse_reads(&self, kind: Option<ErrorKind>) {
        *self.refuses_reads.lock() = kind;
    }

    fn check_readable(&self) -> Result<()> {
        match *self.refuses_reads.lock() {
            Some(kind) => Err(BackendError::new(kind, "refused for the test")),
            None => Ok(()),
        }
    }

    fn must_wait(&self, at: ReadAt) -> bool {
        at.reading == Reading::CachedOnly && self.would_block.load(Ordering::Relaxed)
    }
}

fn damaged() -> BackendError {
    BackendError::new(ErrorKind::Corrupt, "flipped for the test")
}

impl Backend for TrickBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            indexes: !self.is_plain.load(Ordering::Relaxed),
            ..self.inner.capabilities()
        }
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        let is_plain = self.is_plain.load(Ordering::Relaxed);
        (!is_plain).then_some(self as &dyn IndexFolds)
    }

    fn identity(&self) -> StoreId {
        self.inner.identity()
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        if let Some(kind) = *self.refuses_puts.lock() {
            return Err(BackendError::new(kind, "refused for the test"));
        }
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.asked.lock().push(durability);
        for key in batch.writes.iter().map(Write::key) {
            self.damaged_heads.lock().remove(key);
            self.damaged_bodies.lock().remove(key);
        }
        let receipt = self.inner.put(batch, durability)?;
        match &self.syncs {
            Some(syncs) if durability != Durability::Buffered => Ok(Receipt {
                durable: Durable::After(syncs.ticket()),
                ..receipt
            }),
            _ => Ok(receipt),
        }
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        if self.must_wait(at) {
            return Ok(Lookup::WouldBlock);
        }
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.check_readable()?;
        if self.damaged_heads.lock().contains(key) || self.damaged_bodies.lock().contains(key) {
            return Err(damaged());
        }
        self.inner.get(key, at)
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        if self.must_wait(at) {
            return Ok(Lookup::WouldBlock);
        }
        self.check_readable()?;
        if self.damaged_heads.lock().contains(key) {
            return Err(damaged());
        }
        self.inner.head(key, at)
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(TrickSnapshot {
            inner: self.inner.snapshot(lease)?,
            has_lost_keys: self.has_lost_keys.load(Ordering::Relaxed),
        }))
    }

    fn sync(&self) -> Result<Sequence> {
        self.inner.sync()
    }

    fn durable(&self) -> Sequence {
        self.inner.durable()
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        self.inner.is_empty(now)
    }

    fn status(&self) -> Status {
        self.inner.status()
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        self.inner.maintenance_due(now)
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        self.inner.maintenance_step(task, budget, now)
    }

    fn erase(&self) -> Result<()> {
        self.inner.erase()
    }

    fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

impl IndexFolds for TrickBackend {
    fn fold_index(
        &self,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        match self.inner.indexes() {
            Some(_) if self.has_lost_keys.load(Ordering::Relaxed) => Err(damaged()),
            Some(indexes) => indexes.fold_index(range, lease, now, visitor),
            None => Ok(FoldEnd::Complete),
        }
    }

    fn counts(&self) -> IndexCounts {
        let indexes = self.inner.indexes();
        indexes.map_or_else(IndexCounts::default, IndexFolds::counts)
    }
}

struct TrickSnapshot {
    inner: Box<dyn Snapshot>,
    has_lost_keys: bool,
}

impl Snapshot for TrickSnapshot {
    fn sequence(&self) -> Sequence {
        self.inner.sequence()
    }

    fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        match self.has_lost_keys {
            true => Ok(FoldEnd::Complete),
            false => self.inner.fold(detail, range, filter, visitor),
        }
    }

    fn fold_buckets(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        match self.has_lost_keys {
            true => Ok(FoldEnd::Complete),
            false => self.inner.fold_buckets(range, filter, visitor),
        }
    }

    fn has_met_damage(&self) -> bool {
        self.has_lost_keys
    }
}

/// A sync point at which everything waits until it is released, or failed.
#[derive(Default)]
pub(crate) struct LateSync {
    state: Mutex<LateState>,
}

#[derive(Default)]
struct LateState {
    given: u64,
    synced: u64,
    failure: Option<ErrorKind>,
    wakers: Vec<Waker>,
}

impl LateSync {
    fn ticket(self: &Arc<Self>) -> SyncTicket {
        let mut state = self.state.lock();
        state.given += 1;
        SyncTicket::new(self.clone(), state.given)
    }

    /// Tickets given so far.
    pub(crate) fn given(&self) -> u64 {
        self.state.lock().given
    }

    /// Makes everything durable up to the ticket of this number.
    pub(crate) fn release(&self, synced: u64) {
        let mut state = self.state.lock();
        state.synced = synced;
        state.wakers.drain(..).for_each(Waker::wake);
    }

    /// Makes all pending syncs fail.
    pub(crate) fn fail(&self, kind: ErrorKind) {
        let mut state = self.state.lock();
        state.failure = Some(kind);
        state.wakers.drain(..).for_each(Waker::wake);
    }
}

impl SyncPoint for LateSync {
    fn poll_synced(&self, position: u64, waker: &Waker) -> Poll<Result<()>> {
        let mut state = self.state.lock();
        if position <= state.synced {
            return Poll::Ready(Ok(()));
        }
        if let Some(kind) = state.failure {
            return Poll::Ready(Err(BackendError::new(kind, "sync failed for the test")));
        }
        state.wakers.push(waker.clone());
        Poll::Pending
    }

    fn wait_synced(&self, position: u64) -> Result<()> {
        match self.poll_synced(position, Waker::noop()) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Err(BackendError::new(ErrorKind::Failed, "nobody releases it")),
        }
    }

    fn is_driven(&self) -> bool {
        true
    }
}

//! The vnode: one partition's identity, and the dispatch of requests to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use kvorum_backend::{
    Backend, IndexCounts, IndexFolds, ReadAt, Reading, Status, StoreId, Timestamp,
};
use kvorum_object::Limits;
use kvorum_planted_defects::is_planted;
use kvorum_ring::{Epoch, Partition};
use kvorum_runtime::{Clock, Moment};

use crate::change_observer::{Change, ChangeObserver};
use crate::dot_source::DotSource;
use crate::hash_trees::HashTrees;
use crate::hidden::Hidden;
use crate::key_locks::KeyLocks;
use crate::lease_table::LeaseTable;
use crate::metering::{SAMPLED_EVERY, Stopwatch, VnodeMeter, VnodeWork, work_of};
use crate::replica_request::{Handled, Operation, ReplicaFailure, ReplicaReply, ReplicaRequest};
use crate::round_state::Rounds;
use crate::stored_form::Incoming;

/// Settings of a vnode.
#[derive(Clone, Copy, Debug)]
pub struct VnodeSettings {
    /// Sizes and sibling counts above which a write is warned about or refused.
    pub limits: Limits,
}

/// One partition of the ring on this node.
pub struct Vnode {
    pub(crate) partition: Partition,
    epoch: AtomicU64,
    /// It lacks data that it has promised to hold: see [`Vnode::mark_incomplete`].
    is_incomplete: AtomicBool,
    pub(crate) backend: Arc<dyn Backend>,
    /// The store keeps indexes.
    pub(crate) has_indexes: bool,
    /// The store's counts when it began.
    index_counts_before: IndexCounts,
    /// The entries that count as absent.
    pub(crate) hidden: Hidden,
    pub(crate) key_locks: KeyLocks,
    pub(crate) leases: Arc<LeaseTable>,
    pub(crate) dots: Arc<DotSource>,
    pub(crate) settings: VnodeSettings,
    /// Length of a key's prefix that names the replica's place of the entry.
    pub(crate) place_bytes: usize,
    /// Large sets are stored in pages.
    pub(crate) keeps_pages: bool,
    pub(crate) counts: Counts,
    pub(crate) observers: Vec<Arc<dyn ChangeObserver>>,
    /// The trees that anti-entropy compares; `None` where it is off.
    pub(crate) trees: Option<Arc<HashTrees>>,
    pub(crate) stopwatch: Option<Stopwatch>,
    /// The reason why the store takes no more writes, kept from its first failure.
    pub(crate) unwritable: OnceLock<String>,
    /// Shared with tasks while tombstones must stay.
    tombstones_kept: Arc<()>,
    /// Its part in rounds; `None` where none are run.
    pub(crate) rounds: Option<Rounds>,
}

/// While a value of this type exists, its vnode removes no tombstones.
#[derive(Debug)]
#[must_use = "tombstones are kept for as long as this is"]
pub struct TombstonesKept(#[expect(dead_code, reason = "counted, not read")] Arc<()>);

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) gets: AtomicU64,
    pub(crate) heads: AtomicU64,
    pub(crate) puts: AtomicU64,
    pub(crate) index_reads: AtomicU64,
    pub(crate) damaged_reads: AtomicU64,
    pub(crate) size_warnings: AtomicU64,
    pub(crate) sibling_warnings: AtomicU64,
    pub(crate) disk_full_refusals: AtomicU64,
    pub(crate) objects_stored: AtomicU64,
    pub(crate) tombstones_stored: AtomicU64,
    pub(crate) merges: AtomicU64,
}

impl Counts {
    /// The amount of work of a kind. Each kind is sampled by its own count: with a common counter,
    /// clients that read and write in turn would leave one kind unsampled.
    fn of(&self, work: VnodeWork) -> u64 {
        let count = match work {
            VnodeWork::Get => &self.gets,
            VnodeWork::Head => &self.heads,
            VnodeWork::Put => &self.puts,
            // All of these are measured.
            VnodeWork::Merge | VnodeWork::MergeOfType(_) => return 0,
        };
        count.load(Ordering::Relaxed)
    }
}

/// The first observer of every vnode; not among the registered observers, since calls through a table would
/// slow each write.
impl ChangeObserver for Counts {
    fn changed(&self, change: &Change<'_>) {
        let Some(object) = change.new else {
            return;
        };
        self.puts.fetch_add(1, Ordering::Relaxed);
        let count = match object.is_tombstone() {
            true => &self.tombstones_stored,
            false => &self.objects_stored,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn counts_of(backend: &dyn Backend) -> IndexCounts {
    backend
        .indexes()
        .map(IndexFolds::counts)
        .unwrap_or_default()
}

/// The part of `vnode-status` besides the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VnodeStatus {
    /// The vnode's partition.
    pub partition: Partition,
    /// Its epoch.
    pub epoch: Epoch,
    /// The actor that its dots carry.
    pub actor: kvorum_object::ActorId,
    /// The last counter that it issued.
    pub counter: u64,
    /// Whole objects read since the start.
    pub gets: u64,
    /// Heads read since the start.
    pub heads: u64,
    /// Writes applied since the start.
    pub puts: u64,
    /// Index queries begun since the start.
    pub index_reads: u64,
    /// Operations on the store's indexes since the start; zero where it has none.
    pub index_counts: IndexCounts,
    /// Reads that met damaged bytes since the start.
    pub damaged_reads: u64,
    /// It holds all that it has promised to hold.
    pub is_complete: bool,
    /// Writes above the warning threshold for an object's size, since the start.
    pub size_warnings: u64,
    /// Writes above the warning threshold for the number of siblings, since the start.
    pub sibling_warnings: u64,
    /// Writes of plain objects that met a concurrent object, since the start.
    pub merges: u64,
}

/// The reason why an attempt under the key's lock ended without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Interrupted {
    #[error("memory has no answer")]
    WouldBlock,
    #[error(transparent)]
    Failed(ReplicaFailure),
}

impl Interrupted {
    /// The failure of an attempt that was allowed to block.
    pub(crate) fn into_failure(self) -> ReplicaFailure {
        match self {
            Self::Failed(failure) => failure,
            Self::WouldBlock => {
                ReplicaFailure::Internal("a read that may block said it would".into())
            }
        }
    }
}

impl From<ReplicaFailure> for Interrupted {
    fn from(failure: ReplicaFailure) -> Self {
        Self::Failed(failure)
    }
}

impl Vnode {
    /// A vnode over a store that was not written to since it was opened. `leases` decide its actor;
    /// they must be renewed before the first write. All vnodes of a node share the sync for that; a
    /// write that comes earlier renews them itself.
    pub fn new(
        partition: Partition,
        epoch: Epoch,
        backend: Arc<dyn Backend>,
        leases: Arc<LeaseTable>,
        settings: VnodeSettings,
    ) -> Self {
        let dots = leases.source(partition, backend.identity(), backend.durable());
        Self {
            partition,
            epoch: AtomicU64::new(epoch.get()),
            is_incomplete: AtomicBool::new(false),
            has_indexes: backend.capabilities().indexes,
            index_counts_before: counts_of(&*backend),
            keeps_pages: !backend.capabilities().drops_entries,
            backend,
            hidden: Hidden::default(),
            key_locks: KeyLocks::new(),
            leases,
            dots,
            settings,
            place_bytes: 0,
            counts: Counts::default(),
            observers: Vec::new(),
            trees: None,
            stopwatch: None,
            unwritable: OnceLock::new(),
            tombstones_kept: Arc::new(()),
            rounds: None,
        }
    }

    /// Turns this into a vnode that keeps entries for others: the first `place_bytes` bytes of each key
    /// name the replica's place, so that one key may have several independent entries.
    #[must_use]
    pub fn keeping_for_others(mut self, place_bytes: usize) -> Self {
        self.place_bytes = place_bytes;
        // Keys of pages do not begin with a place.
        self.keeps_pages = false;
        self
    }

    /// Lets the vnode report the times of its work.
    #[must_use]
    pub fn metered(mut self, clock: Arc<dyn Clock>, meter: Arc<dyn VnodeMeter>) -> Self {
        self.stopwatch = Some(Stopwatch { clock, meter });
        self
    }

    /// Shows an observer each change from now on, after the observers registered before.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn ChangeObserver>) -> Self {
        self.observers.push(observer);
        self
    }

    /// The start of an operation to measure, and its kind.
    fn sample(&self, operation: &Operation) -> Option<(&Stopwatch, VnodeWork, Moment)> {
        let stopwatch = self.stopwatch.as_ref()?;
        let work = work_of(operation)?;
        let is_sampled = self.counts.of(work).is_multiple_of(SAMPLED_EVERY);
        is_sampled.then(|| (stopwatch, work, stopwatch.clock.now()))
    }

    /// The start of work of a kind that is always measured.
    pub(crate) fn work_begins(&self) -> Option<(&Stopwatch, Moment)> {
        let stopwatch = self.stopwatch.as_ref()?;
        Some((stopwatch, stopwatch.clock.now()))
    }

    /// The vnode's partition.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// The store, for its upkeep: steps of maintenance, backups, and its end. Entries are read and
    /// written through the vnode.
    pub fn store_for_upkeep(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The identity of the store.
    pub fn store_id(&self) -> StoreId {
        self.backend.identity()
    }

    /// The store's own counts and sizes. Belongs on the blocking pool.
    pub fn store_status(&self) -> Status {
        self.backend.status()
    }

    /// True when nothing is stored, tombstones included, that has not expired by now. Blocks.
    pub fn is_empty(&self, now: Timestamp) -> Result<bool, ReplicaFailure> {
        Ok(self.backend.is_empty(now)?)
    }

    /// Makes all durable that was written so far. Blocks.
    pub fn sync(&self) -> Result<(), ReplicaFailure> {
        self.backend.sync()?;
        Ok(())
    }

    /// The reason why the store takes no more writes, once a write has failed for it.
    pub fn unwritable(&self) -> Option<&str> {
        self.unwritable.get().map(String::as_str)
    }

    /// Notes that a full disk refused a write, if that was found only when the write was made durable.
    pub fn note_disk_full(&self) {
        self.counts
            .disk_full_refusals
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Writes that a full disk has refused since the vnode was opened.
    pub fn disk_full_refusals(&self) -> u64 {
        self.counts.disk_full_refusals.load(Ordering::Relaxed)
    }

    /// Writes that took room, since the vnode was opened: not tombstones and their removal.
    pub fn objects_stored(&self) -> u64 {
        self.counts.objects_stored.load(Ordering::Relaxed)
    }

    /// Tombstones that were stored since the vnode was opened.
    pub fn tombstones_stored(&self) -> u64 {
        self.counts.tombstones_stored.load(Ordering::Relaxed)
    }

    /// Counts and identity, for `vnode-status`.
    pub fn status(&self) -> VnodeStatus {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        VnodeStatus {
            partition: self.partition,
            epoch: Epoch::new(read(&self.epoch)),
            actor: self.dots.actor(),
            counter: self.dots.counter(),
            gets: read(&self.counts.gets),
            heads: read(&self.counts.heads),
            puts: read(&self.counts.puts),
            index_reads: read(&self.counts.index_reads),
            index_counts: counts_of(&*self.backend).since(&self.index_counts_before),
            damaged_reads: read(&self.counts.damaged_reads),
            is_complete: self.is_complete(),
            size_warnings: read(&self.counts.size_warnings),
            sibling_warnings: read(&self.counts.sibling_warnings),
            merges: read(&self.counts.merges),
        }
    }

    /// Keeps tombstones while older objects arrive from other replicas: one that arrives after its
    /// tombstone was removed would come back to life.
    pub fn keep_tombstones(&self) -> TombstonesKept {
        TombstonesKept(self.tombstones_kept.clone())
    }

    pub(crate) fn keeps_tombstones(&self) -> bool {
        Arc::strong_count(&self.tombstones_kept) > 1 || !self.is_complete()
    }

    /// Adopts a newer epoch; an older one is ignored.
    pub fn advance_epoch(&self, epoch: Epoch) {
        self.epoch.fetch_max(epoch.get(), Ordering::AcqRel);
    }

    /// Notes that the store lacks acknowledged writes of this replica: another store has replaced
    /// it, or its partition came here without a transfer. Until [`Vnode::mark_complete`] it takes
    /// writes and answers no reads: a missing key has no meaning there, and a present object may be
    /// older than the lost one.
    pub fn mark_incomplete(&self) {
        self.is_incomplete.store(true, Ordering::Release);
    }

    /// Notes that the store has everything that the other replicas have.
    pub fn mark_complete(&self) {
        self.is_incomplete.store(false, Ordering::Release);
    }

    /// True unless it lacks data that it has promised to hold.
    pub fn is_complete(&self) -> bool {
        !self.is_incomplete.load(Ordering::Acquire)
    }

    pub(crate) fn check_complete(&self) -> Result<(), ReplicaFailure> {
        if self.is_complete() {
            Ok(())
        } else {
            Err(ReplicaFailure::Incomplete)
        }
    }

    /// Carries out a request, or returns that it would have to wait for a device.
    pub fn handle(&self, request: &ReplicaRequest, now: Timestamp, reading: Reading) -> Handled {
        if !self.is_complete() && request.operation.depends_on_present_object() {
            return Handled::Done(ReplicaReply::Failed(ReplicaFailure::Incomplete));
        }
        self.handle_filling(request, now, reading)
    }

    /// Like [`Vnode::handle`], for callers that fill the store: returns present entries even if the
    /// vnode is incomplete.
    pub fn handle_filling(
        &self,
        request: &ReplicaRequest,
        now: Timestamp,
        reading: Reading,
    ) -> Handled {
        let sampled = self.sample(&request.operation);
        let handled = match self.carry_out(request, ReadAt { reading, now }) {
            Ok(reply) => Handled::Done(reply),
            Err(Interrupted::Failed(failure)) => Handled::Done(ReplicaReply::Failed(failure)),
            Err(Interrupted::WouldBlock) => return Handled::WouldBlock,
        };
        if let Some((stopwatch, work, began)) = sampled {
            stopwatch.stop(work, began);
        }
        handled
    }

    fn carry_out(&self, request: &ReplicaRequest, at: ReadAt) -> Result<ReplicaReply, Interrupted> {
        self.check_epoch(request.epoch)?;
        match &request.operation {
            Operation::Get { key, detail } => self.get(key, *detail, at),
            Operation::Coordinate {
                key,
                update,
                durability,
            } => self.coordinate(key, update, *durability, request.epoch, at),
            Operation::Apply {
                key,
                update,
                durability,
            } => self.update_data_type(key, update, *durability, request.epoch, at),
            Operation::Follow {
                key,
                update,
                resolution,
                tag,
                durability,
            } => {
                let update = (&**update, *resolution, *tag);
                self.follow(key, update, *durability, request.epoch, at)
            }
            Operation::Store {
                key,
                object,
                resolution,
                tag,
                durability,
            } => {
                let incoming = Incoming {
                    object,
                    resolution: *resolution,
                    tag: *tag,
                };
                self.store(key, &incoming, *durability, request.epoch, at)
            }
            Operation::Mend {
                key,
                object,
                resolution,
                tag,
            } => {
                let incoming = Incoming {
                    object,
                    resolution: *resolution,
                    tag: *tag,
                };
                self.mend(key, &incoming, request.epoch, at)
            }
            Operation::Reap { key, clock } => self.reap(key, clock, request.epoch, at),
        }
    }

    /// Refuses a request that was planned with an older ring.
    pub(crate) fn check_epoch(&self, got: Epoch) -> Result<(), ReplicaFailure> {
        let expected = Epoch::new(self.epoch.load(Ordering::Acquire));
        if got < expected && !is_planted!(EpochRuleSkippedOnReceiver) {
            return Err(ReplicaFailure::StaleEpoch { got, expected });
        }
        Ok(())
    }
}

//! The vnode: one partition's reads and writes over its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, BackendError, Batch, Durability, ErrorKind, Fields, FoldDetail, FoldEnd, FoldFilter,
    FoldRange, Lease, Lookup, ReadAt, Reading, Receipt, Snapshot, StoredEntry, StoredHead, Tag,
    Timestamp, Visitor, Write,
};
use kvorum_encoding::{StorageKey, checksum};
use kvorum_object::{
    Clock, Dot, Head, LimitExceeded, LimitLevel, Limits, Object, ObjectSize, Resolution, Stored,
    UpdateError,
};
use kvorum_ring::{Epoch, Partition};

use crate::key_locks::KeyLocks;
use crate::lease_table::{DotSource, LeaseTable};
use crate::replica_request::{
    ClientUpdate, Condition, Detail, Handled, Operation, ReplicaFailure, ReplicaReply,
    ReplicaRequest,
};

/// Marks entries that are tombstones, so that listings leave them out without reading heads.
pub const TOMBSTONE_TAG: Tag = Tag(1);
const OBJECT_TAG: Tag = Tag(0);

/// How a vnode treats objects.
#[derive(Clone, Copy, Debug)]
pub struct VnodeSettings {
    /// Sizes and sibling counts that are warned about or refused.
    pub limits: Limits,
}

/// One partition of the ring on this node.
pub struct Vnode {
    partition: Partition,
    epoch: AtomicU64,
    backend: Arc<dyn Backend>,
    key_locks: KeyLocks,
    leases: Arc<LeaseTable>,
    dots: Arc<DotSource>,
    settings: VnodeSettings,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    gets: AtomicU64,
    heads: AtomicU64,
    puts: AtomicU64,
    damaged_reads: AtomicU64,
    size_warnings: AtomicU64,
    sibling_warnings: AtomicU64,
}

/// What `vnode-status` shows of a vnode besides its store.
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
    /// Reads that met damaged bytes since the start.
    pub damaged_reads: u64,
    /// Writes above the warning threshold for an object's size, since the start.
    pub size_warnings: u64,
    /// Writes above the warning threshold for the number of siblings, since the start.
    pub sibling_warnings: u64,
}

/// Why an attempt under the key's lock ended without an answer.
enum Interrupted {
    WouldBlock,
    Failed(ReplicaFailure),
}

impl From<ReplicaFailure> for Interrupted {
    fn from(failure: ReplicaFailure) -> Self {
        Self::Failed(failure)
    }
}

impl Vnode {
    /// A vnode over an open store. Its dots come from `leases`, which must be renewed once before the
    /// first write (all vnodes of a node share that one sync).
    pub fn new(
        partition: Partition,
        epoch: Epoch,
        backend: Arc<dyn Backend>,
        leases: Arc<LeaseTable>,
        settings: VnodeSettings,
    ) -> Self {
        let dots = leases.source(partition, backend.identity());
        Self {
            partition,
            epoch: AtomicU64::new(epoch.get()),
            backend,
            key_locks: KeyLocks::new(),
            leases,
            dots,
            settings,
            counts: Counts::default(),
        }
    }

    /// The vnode's partition.
    pub fn partition(&self) -> Partition {
        self.partition
    }

    /// The store, for maintenance and status.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
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
            damaged_reads: read(&self.counts.damaged_reads),
            size_warnings: read(&self.counts.size_warnings),
            sibling_warnings: read(&self.counts.sibling_warnings),
        }
    }

    /// Takes over a newer epoch; an older one is ignored.
    pub fn advance_epoch(&self, epoch: Epoch) {
        self.epoch.fetch_max(epoch.get(), Ordering::AcqRel);
    }

    /// Carries out a request, or says that it would have to wait for a device.
    pub fn handle(&self, request: &ReplicaRequest, now: Timestamp, reading: Reading) -> Handled {
        let expected = Epoch::new(self.epoch.load(Ordering::Acquire));
        if request.epoch < expected {
            let failure = ReplicaFailure::StaleEpoch {
                got: request.epoch,
                expected,
            };
            return Handled::Done(ReplicaReply::Failed(failure));
        }
        let at = ReadAt { reading, now };
        let outcome = match &request.operation {
            Operation::Get { key, detail } => self.get(key, *detail, at),
            Operation::Coordinate {
                key,
                update,
                durability,
            } => self.coordinate(key, update, *durability, at),
            Operation::Store {
                key,
                object,
                resolution,
                durability,
            } => self.store(key, object, *resolution, *durability, at),
            Operation::Reap { key, clock } => self.reap(key, clock, at),
        };
        match outcome {
            Ok(reply) => Handled::Done(reply),
            Err(Interrupted::Failed(failure)) => Handled::Done(ReplicaReply::Failed(failure)),
            Err(Interrupted::WouldBlock) => Handled::WouldBlock,
        }
    }

    /// Visits the keys of a range in order, tombstones left out. Blocks.
    pub fn fold_keys(
        &self,
        range: &FoldRange,
        now: Timestamp,
        lease: Lease,
        visitor: &mut dyn FnMut(&StorageKey) -> kvorum_backend::Flow,
    ) -> Result<FoldEnd, ReplicaFailure> {
        self.fold(
            range,
            now,
            lease,
            visitor,
            |snapshot, range, filter, visit| snapshot.fold(FoldDetail::Keys, range, filter, visit),
        )
    }

    /// Visits one key of each bucket in the range, in order. Blocks. A bucket that holds nothing but
    /// tombstones may be visited.
    pub fn fold_buckets(
        &self,
        range: &FoldRange,
        now: Timestamp,
        lease: Lease,
        visitor: &mut dyn FnMut(&StorageKey) -> kvorum_backend::Flow,
    ) -> Result<FoldEnd, ReplicaFailure> {
        self.fold(
            range,
            now,
            lease,
            visitor,
            |snapshot, range, filter, visit| snapshot.fold_buckets(range, filter, visit),
        )
    }

    fn fold(
        &self,
        range: &FoldRange,
        now: Timestamp,
        lease: Lease,
        visitor: &mut dyn FnMut(&StorageKey) -> kvorum_backend::Flow,
        run: impl Fn(
            &dyn Snapshot,
            &FoldRange,
            &FoldFilter,
            &mut Visitor<'_>,
        ) -> kvorum_backend::Result<FoldEnd>,
    ) -> Result<FoldEnd, ReplicaFailure> {
        let snapshot = self
            .backend
            .snapshot(lease)
            .map_err(|error| failure_of(&error))?;
        let filter = FoldFilter::unexpired(now);
        run(&*snapshot, range, &filter, &mut |visited| {
            if visited.fields.tag == TOMBSTONE_TAG {
                return kvorum_backend::Flow::Continue;
            }
            visitor(visited.key)
        })
        .map_err(|error| failure_of(&error))
    }

    fn get(
        &self,
        key: &StorageKey,
        detail: Detail,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        let found = match detail {
            Detail::Head => {
                self.counts.heads.fetch_add(1, Ordering::Relaxed);
                self.read_head(key, at)?
                    .map(Head::into_object_without_values)
            }
            Detail::Whole => {
                self.counts.gets.fetch_add(1, Ordering::Relaxed);
                self.read_object(key, at)?
            }
        };
        Ok(match found {
            Some(object) => ReplicaReply::Found(Arc::new(object)),
            None => ReplicaReply::NotFound,
        })
    }

    fn coordinate(
        &self,
        key: &StorageKey,
        update: &ClientUpdate,
        durability: Durability,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        let _turn = self.take_turn(key, at.reading)?;
        let stored = self.read_head(key, at)?;
        check_condition(&update.condition, stored.as_ref())?;
        self.leave_overtaken_actor(&update.context, stored.as_ref(), at.reading)?;
        let dot = self.next_dot(at.reading)?;
        let stored_size = stored.as_ref().map(Head::size);
        let write = kvorum_object::Write {
            context: &update.context,
            content: update.content.clone(),
            dot,
            now: object_time(at.now),
            resolution: update.resolution,
        };
        let needs_body = |head: &Head| {
            kvorum_object::update_needs_body(head, &update.context, update.resolution)
        };
        let object = match &stored {
            None => kvorum_object::update(Stored::Absent, write),
            Some(head) if !needs_body(head) => kvorum_object::update(Stored::Head(head), write),
            Some(_) => match self.read_object(key, at)? {
                Some(object) => kvorum_object::update(Stored::Object(object), write),
                None => kvorum_object::update(Stored::Absent, write),
            },
        }
        .map_err(update_failure)?;
        self.check_limits(&object, stored_size)?;
        self.write(key, object, durability)
    }

    fn store(
        &self,
        key: &StorageKey,
        incoming: &Arc<Object>,
        resolution: Resolution,
        durability: Durability,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        let _turn = self.take_turn(key, at.reading)?;
        let stored = self.read_head(key, at)?;
        self.leave_overtaken_actor(incoming.clock(), stored.as_ref(), at.reading)?;
        let incoming = Object::clone(incoming);
        let merged = match &stored {
            None => kvorum_object::merge_into_stored(Stored::Absent, incoming, resolution),
            Some(head) if !kvorum_object::merge_needs_body(head, &incoming, resolution) => {
                kvorum_object::merge_into_stored(Stored::Head(head), incoming, resolution)
            }
            Some(_) => {
                let whole = self.read_object(key, at)?;
                let stored = whole.map_or(Stored::Absent, Stored::Object);
                kvorum_object::merge_into_stored(stored, incoming, resolution)
            }
        }
        .map_err(update_failure)?;
        match merged {
            kvorum_object::Merged::Changed(object) => self.write(key, object, durability),
            // What is stored may not be durable yet; an empty batch takes a place behind it.
            kvorum_object::Merged::Unchanged => {
                let receipt = self.put(&Batch::default(), durability)?;
                let object = self.read_object(key, at)?.map(Arc::new);
                let object = object.ok_or(ReplicaFailure::Internal(
                    "entry vanished under its lock".into(),
                ))?;
                Ok(ReplicaReply::Stored {
                    object,
                    durable: receipt.durable,
                })
            }
        }
    }

    fn reap(
        &self,
        key: &StorageKey,
        clock: &Clock,
        at: ReadAt,
    ) -> Result<ReplicaReply, Interrupted> {
        let _turn = self.take_turn(key, at.reading)?;
        let stored = self.read_head(key, at)?;
        if stored.is_some_and(|head| head.is_tombstone() && head.clock() == clock) {
            // A removal that a crash undoes leaves the tombstone, which is as good.
            let batch = Batch::of(Write::remove(key.clone()));
            let _receipt = self.put(&batch, Durability::Buffered)?;
        }
        Ok(ReplicaReply::Reaped)
    }

    fn take_turn(
        &self,
        key: &StorageKey,
        reading: Reading,
    ) -> Result<parking_lot::MutexGuard<'_, ()>, Interrupted> {
        match reading {
            // The holder may be waiting for a device.
            Reading::CachedOnly => self.key_locks.try_lock(key).ok_or(Interrupted::WouldBlock),
            Reading::MayBlock => Ok(self.key_locks.lock(key)),
        }
    }

    /// Moves to a fresh actor when somebody has seen dots of ours that we do not know we issued.
    fn leave_overtaken_actor(
        &self,
        incoming: &Clock,
        stored: Option<&Head>,
        reading: Reading,
    ) -> Result<(), Interrupted> {
        let overtaken = self.dots.is_overtaken_by(incoming)
            || stored.is_some_and(|head| self.dots.is_overtaken_by(head.clock()));
        if !overtaken {
            return Ok(());
        }
        if reading == Reading::CachedOnly {
            return Err(Interrupted::WouldBlock);
        }
        self.leases
            .renounce(&self.dots, self.backend.identity())
            .map_err(|error| ReplicaFailure::Storage(error.to_string()).into())
    }

    fn next_dot(&self, reading: Reading) -> Result<Dot, Interrupted> {
        if let Ok(dot) = self.dots.next() {
            return Ok(dot);
        }
        if reading == Reading::CachedOnly {
            return Err(Interrupted::WouldBlock);
        }
        self.leases
            .renew()
            .map_err(|error| ReplicaFailure::Storage(error.to_string()))?;
        let used_up = || ReplicaFailure::Internal("a renewed lease has no dots".into());
        self.dots.next().map_err(|_| used_up().into())
    }

    fn check_limits(
        &self,
        object: &Object,
        stored: Option<ObjectSize>,
    ) -> Result<(), ReplicaFailure> {
        let verdict = self.settings.limits.judge_write(object.size(), stored);
        if verdict.size != LimitLevel::Within {
            self.counts.size_warnings.fetch_add(1, Ordering::Relaxed);
        }
        if verdict.siblings != LimitLevel::Within {
            self.counts.sibling_warnings.fetch_add(1, Ordering::Relaxed);
        }
        match verdict.refusal {
            None => Ok(()),
            Some(LimitExceeded::TooLarge { got, allowed }) => Err(ReplicaFailure::ObjectTooLarge {
                bytes: got,
                bytes_max: allowed,
            }),
            Some(LimitExceeded::TooManySiblings { got, allowed }) => {
                Err(ReplicaFailure::TooManySiblings {
                    siblings: got,
                    siblings_max: allowed,
                })
            }
        }
    }

    fn write(
        &self,
        key: &StorageKey,
        object: Object,
        durability: Durability,
    ) -> Result<ReplicaReply, Interrupted> {
        self.counts.puts.fetch_add(1, Ordering::Relaxed);
        let encoded = object.encode();
        let write = Write::put(
            key.clone(),
            fields_of(key, &object),
            encoded.head,
            encoded.body,
        );
        let receipt = self.put(&Batch::of(write), durability)?;
        Ok(ReplicaReply::Stored {
            object: Arc::new(object),
            durable: receipt.durable,
        })
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt, ReplicaFailure> {
        self.backend
            .put(batch, durability)
            .map_err(|error| failure_of(&error))
    }

    fn read_head(&self, key: &StorageKey, at: ReadAt) -> Result<Option<Head>, Interrupted> {
        let looked_up = self.backend.head(key, at);
        let Some(StoredHead { head, .. }) = self.looked_up(looked_up)? else {
            return Ok(None);
        };
        Ok(Some(self.decode_head(key, &head)?))
    }

    fn read_object(&self, key: &StorageKey, at: ReadAt) -> Result<Option<Object>, Interrupted> {
        let looked_up = self.backend.get(key, at);
        let Some(StoredEntry { head, body, .. }) = self.looked_up(looked_up)? else {
            return Ok(None);
        };
        let head = self.decode_head(key, &head)?;
        let object = Object::from_parts(head, &body).map_err(|error| self.damaged(key, &error))?;
        Ok(Some(object))
    }

    fn looked_up<T>(
        &self,
        looked_up: kvorum_backend::Result<Lookup<T>>,
    ) -> Result<Option<T>, Interrupted> {
        match looked_up {
            Ok(Lookup::Found(found)) => Ok(Some(found)),
            Ok(Lookup::Absent) => Ok(None),
            Ok(Lookup::WouldBlock) => Err(Interrupted::WouldBlock),
            Err(error) => {
                if error.kind() == ErrorKind::Corrupt {
                    self.counts.damaged_reads.fetch_add(1, Ordering::Relaxed);
                }
                Err(failure_of(&error).into())
            }
        }
    }

    fn decode_head(&self, key: &StorageKey, head: &Bytes) -> Result<Head, ReplicaFailure> {
        Head::decode(head).map_err(|error| self.damaged(key, &error))
    }

    fn damaged(&self, key: &StorageKey, error: &kvorum_object::DecodeError) -> ReplicaFailure {
        self.counts.damaged_reads.fetch_add(1, Ordering::Relaxed);
        ReplicaFailure::Damaged(format!(
            "partition {} {key:?}: {error}",
            self.partition.number()
        ))
    }
}

fn check_condition(condition: &Condition, stored: Option<&Head>) -> Result<(), ReplicaFailure> {
    let live = stored.filter(|head| !head.is_tombstone());
    match (condition, live) {
        (Condition::Always, _) | (Condition::Absent, None) => Ok(()),
        (Condition::Absent, Some(_)) => Err(ReplicaFailure::ConditionFound),
        (Condition::Version(_), None) => Err(ReplicaFailure::ConditionAbsent),
        (Condition::Version(expected), Some(head)) if head.clock() == expected => Ok(()),
        (Condition::Version(_), Some(_)) => Err(ReplicaFailure::ConditionModified),
    }
}

fn fields_of(key: &StorageKey, object: &Object) -> Fields {
    Fields {
        segment: checksum(key.as_bytes()),
        last_modified: store_time(object.last_modified()),
        expiry: object.expires_at().map(store_time),
        tag: if object.is_tombstone() {
            TOMBSTONE_TAG
        } else {
            OBJECT_TAG
        },
    }
}

fn object_time(time: Timestamp) -> kvorum_object::Timestamp {
    kvorum_object::Timestamp::from_micros(time.0)
}

fn store_time(time: kvorum_object::Timestamp) -> Timestamp {
    Timestamp(time.as_micros())
}

fn update_failure(error: UpdateError) -> ReplicaFailure {
    ReplicaFailure::Internal(error.to_string())
}

fn failure_of(error: &BackendError) -> ReplicaFailure {
    let detail = error.to_string();
    match error.kind() {
        ErrorKind::Full => ReplicaFailure::Full(detail),
        ErrorKind::Corrupt => ReplicaFailure::Damaged(detail),
        ErrorKind::Misuse => ReplicaFailure::Internal(detail),
        ErrorKind::TooLarge
        | ErrorKind::Failed
        | ErrorKind::Closed
        | ErrorKind::NewerFormat
        | ErrorKind::Locked
        | ErrorKind::Denied => ReplicaFailure::Storage(detail),
    }
}

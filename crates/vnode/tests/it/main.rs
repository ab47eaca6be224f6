//! A vnode over a store that plays tricks.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the tests set up must work"
)]

#[expect(dead_code, reason = "shared with the coordinator's tests")]
mod trick_backend;

mod data_types;
mod hiding;
mod index_queries;
mod kept_trees;
mod key_folds;
mod kinds;
mod listings;
mod metering;
mod observers;
mod old_heads;
mod paged_sets;
mod reads_and_writes;
mod reaps;
mod scans;
mod set_stores;
mod trees;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Durability, Reading, Timestamp};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_object::{
    ActorId, Clock, Content, Dot, Limits, Object, ObjectTag, Resolution, Stored, Write,
};
use kvorum_ring::{Epoch, Partition, RingSize};
use kvorum_runtime::SeededRandomness;
use kvorum_vnode::{
    ClientUpdate, Condition, Detail, Handled, LeaseTable, Operation, ReplicaFailure, ReplicaReply,
    ReplicaRequest, Vnode, VnodeSettings,
};

use crate::trick_backend::TrickBackend;

pub(crate) const NOW: Timestamp = Timestamp(1_000_000);

/// A vnode and the parts below it.
pub(crate) struct Bench {
    pub(crate) vnode: Vnode,
    pub(crate) backend: Arc<TrickBackend>,
    pub(crate) disk: MemoryDisk,
    pub(crate) leases: Arc<LeaseTable>,
    /// Set if requests may wait.
    pub(crate) reading: Reading,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        let disk = MemoryDisk::new();
        disk.create_directory(Path::new("data")).unwrap();
        let bench = Self::on(disk, limits, 1);
        bench.leases.renew().unwrap();
        bench
    }

    /// One that has another actor than those of other seeds.
    pub(crate) fn seeded(seed: u64) -> Self {
        let disk = MemoryDisk::new();
        disk.create_directory(Path::new("data")).unwrap();
        let bench = Self::on(disk, Limits::default(), seed);
        bench.leases.renew().unwrap();
        bench
    }

    /// A vnode over an empty store and a disk that may hold a lease.
    pub(crate) fn on(disk: MemoryDisk, limits: Limits, seed: u64) -> Self {
        let randomness = Arc::new(SeededRandomness::new(seed));
        let opened = LeaseTable::open(Arc::new(disk.clone()), Path::new("data"), randomness);
        let leases = Arc::new(opened.unwrap().0);
        let backend = Arc::new(TrickBackend::new(1));
        let settings = VnodeSettings { limits };
        let epoch = Epoch::new(3);
        let vnode = Vnode::new(
            partition(),
            epoch,
            backend.clone(),
            leases.clone(),
            settings,
        );
        Self {
            vnode,
            backend,
            disk,
            leases,
            reading: Reading::CachedOnly,
        }
    }

    pub(crate) fn handle(&self, operation: Operation) -> Handled {
        self.handle_at(Epoch::new(3), operation)
    }

    pub(crate) fn handle_at(&self, epoch: Epoch, operation: Operation) -> Handled {
        let request = ReplicaRequest {
            partition: partition(),
            epoch,
            operation,
        };
        self.vnode.handle(&request, NOW, self.reading)
    }

    pub(crate) fn done(&self, operation: Operation) -> ReplicaReply {
        match self.handle(operation) {
            Handled::Done(reply) => reply,
            Handled::WouldBlock => panic!("it would block"),
        }
    }

    pub(crate) fn put(&self, key: &str, value: &str, context: &Clock) -> Arc<Object> {
        self.try_put(key, value, context, Condition::Always)
            .unwrap()
    }

    pub(crate) fn try_put(
        &self,
        key: &str,
        value: &str,
        context: &Clock,
        condition: Condition,
    ) -> Result<Arc<Object>, ReplicaFailure> {
        match self.done(coordinate(key, content(value), context, condition)) {
            ReplicaReply::Stored { object, .. } => Ok(object),
            ReplicaReply::Failed(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.try_get(key).unwrap()
    }

    pub(crate) fn try_get(&self, key: &str) -> Result<Option<Arc<Object>>, ReplicaFailure> {
        let key = storage_key(key);
        let detail = Detail::Whole;
        match self.done(Operation::Get { key, detail }) {
            ReplicaReply::Found(object) => Ok(Some(object)),
            ReplicaReply::NotFound => Ok(None),
            ReplicaReply::Failed(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn delete(&self, key: &str) -> Arc<Object> {
        let context = self.get(key).unwrap().clock().clone();
        let tombstone = Content::tombstone();
        match self.done(coordinate(key, tombstone, &context, Condition::Always)) {
            ReplicaReply::Stored { object, .. } => object,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn partition() -> Partition {
    RingSize::new(8).unwrap().partition(2).unwrap()
}

pub(crate) fn storage_key(key: &str) -> StorageKey {
    let key = Key::new(key.as_bytes().to_vec());
    StorageKey::new(&BucketType::default_type(), &Bucket::from("bucket"), &key)
}

pub(crate) fn content(value: &str) -> Content {
    Content {
        value: Bytes::copy_from_slice(value.as_bytes()),
        ..Content::default()
    }
}

pub(crate) fn coordinate(
    key: &str,
    content: Content,
    context: &Clock,
    condition: Condition,
) -> Operation {
    Operation::Coordinate {
        key: storage_key(key),
        update: Arc::new(ClientUpdate {
            context: context.clone(),
            condition,
            content,
            resolution: Resolution::KeepSiblings,
            tag: ObjectTag::default(),
        }),
        durability: Durability::Grouped,
    }
}

pub(crate) fn store(key: &str, object: &Object) -> Operation {
    Operation::Store {
        key: storage_key(key),
        object: Arc::new(object.clone()),
        resolution: Resolution::KeepSiblings,
        tag: ObjectTag::default(),
        durability: Durability::Grouped,
    }
}

/// An object as another vnode makes it.
pub(crate) fn made_elsewhere(value: &str, context: &Clock, counter: u64) -> Object {
    let write = Write {
        context,
        content: content(value),
        dot: Dot {
            actor: ActorId(77),
            counter,
        },
        now: kvorum_object::Timestamp::from_micros(NOW.0),
        resolution: Resolution::KeepSiblings,
    };
    kvorum_object::update(Stored::Absent, write).unwrap()
}

pub(crate) fn values(object: &Object) -> Vec<String> {
    let value =
        |sibling: &kvorum_object::Sibling| String::from_utf8_lossy(&sibling.value).into_owned();
    let mut values: Vec<_> = object.siblings().iter().map(value).collect();
    values.sort();
    values
}

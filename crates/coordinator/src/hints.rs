//! What a node keeps in place of others that are down.
//!
//! A stand-in merges, reads and gives dots as the replica would whose place it takes. So the store of
//! hints is a vnode of its own, on a store of its own, in which each key is preceded by the partition
//! that it is kept for: one path for reads and writes, and hints are as durable as everything else.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Durability, Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease, Reading, Timestamp,
};
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Object};
use kvorum_ring::{Partition, RING_SIZE_MAX, RingSize};
use kvorum_vnode::{Handled, Operation, ReplicaFailure, ReplicaRequest, Vnode};

/// What precedes a key: the partition that it is kept for.
const PARTITION_BYTES: usize = 2;

/// A hint: an object that another node is to have.
#[derive(Clone, Debug)]
pub struct Hint {
    /// The partition that it is kept for.
    pub partition: Partition,
    /// Its key.
    pub key: StorageKey,
    /// What is kept.
    pub object: Arc<Object>,
}

/// Some hints, in order.
#[derive(Clone, Debug, Default)]
pub struct HintPage {
    /// The hints.
    pub hints: Vec<Hint>,
    /// Where the next page begins; `None` when this was the last.
    pub next: Option<HintCursor>,
}

/// A place among the hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintCursor(StorageKey);

/// Keeps objects for nodes that are down.
pub trait HintStore: Send + Sync {
    /// Carries out what is asked of a stand-in, or says that it would have to wait for a device.
    fn handle(&self, request: &ReplicaRequest, now: Timestamp, reading: Reading) -> Handled;

    /// Up to `count` hints from a place on. Blocks.
    fn page(
        &self,
        from: Option<&HintCursor>,
        count: usize,
        now: Timestamp,
    ) -> Result<HintPage, ReplicaFailure>;

    /// Removes a hint whose object is still of this version; true when it is gone. Blocks.
    fn forget(
        &self,
        partition: Partition,
        key: &StorageKey,
        clock: &Clock,
        now: Timestamp,
    ) -> Result<bool, ReplicaFailure>;
}

/// Hints on a store of their own.
pub struct VnodeHints {
    vnode: Vnode,
}

impl VnodeHints {
    /// Keeps hints under a vnode that nobody else uses. Its partition only names it in the table of
    /// leases: it must differ from all that the node has vnodes of.
    pub fn new(vnode: Vnode) -> Self {
        Self {
            vnode: vnode.keeping_for_others(PARTITION_BYTES),
        }
    }

    /// The vnode, for maintenance.
    pub fn vnode(&self) -> &Vnode {
        &self.vnode
    }
}

impl HintStore for VnodeHints {
    fn handle(&self, request: &ReplicaRequest, now: Timestamp, reading: Reading) -> Handled {
        let partition = request.partition;
        let own = ReplicaRequest {
            partition: self.vnode.partition(),
            // Who is too old is found out before.
            epoch: self.vnode.status().epoch,
            operation: under(partition, request.operation.clone()),
        };
        self.vnode.handle(&own, now, reading)
    }

    fn page(
        &self,
        from: Option<&HintCursor>,
        count: usize,
        now: Timestamp,
    ) -> Result<HintPage, ReplicaFailure> {
        let range = match from {
            Some(HintCursor(key)) => FoldRange::all().resumed_at(key),
            None => FoldRange::all(),
        };
        let storage =
            |error: kvorum_backend::BackendError| ReplicaFailure::Storage(error.to_string());
        let snapshot = self
            .vnode
            .backend()
            .snapshot(Lease::Unlimited)
            .map_err(storage)?;
        let mut hints = Vec::new();
        let visitor = &mut |visited: kvorum_backend::Visited<'_>| {
            // What is damaged stays where it is: the node's scrub names it.
            if let Some((partition, key)) = split(visited.key)
                && let Ok(object) = Object::from_engine(&visited.head, visited.body.clone())
            {
                hints.push(Hint {
                    partition,
                    key,
                    object,
                });
            }
            if hints.len() < count {
                Flow::Continue
            } else {
                Flow::Stop
            }
        };
        let filter = FoldFilter::unexpired(now);
        let end = snapshot.fold(FoldDetail::Entries, &range, &filter, visitor);
        let next = match end.map_err(storage)? {
            FoldEnd::Complete => None,
            FoldEnd::Stopped(next) | FoldEnd::LeaseExpired(next) => Some(HintCursor(next)),
        };
        Ok(HintPage { hints, next })
    }

    fn forget(
        &self,
        partition: Partition,
        key: &StorageKey,
        clock: &Clock,
        now: Timestamp,
    ) -> Result<bool, ReplicaFailure> {
        self.vnode
            .forget(&prefixed(partition, key), clock, Durability::Buffered, now)
    }
}

/// The operation on the key as it stands among the hints.
fn under(partition: Partition, mut operation: Operation) -> Operation {
    match &mut operation {
        Operation::Get { key, .. }
        | Operation::Coordinate { key, .. }
        | Operation::Store { key, .. }
        | Operation::Mend { key, .. }
        | Operation::Reap { key, .. } => *key = prefixed(partition, key),
    }
    operation
}

fn prefixed(partition: Partition, key: &StorageKey) -> StorageKey {
    let key = key.as_bytes();
    let mut bytes = Vec::with_capacity(PARTITION_BYTES + key.len());
    bytes.extend_from_slice(&partition.number().to_be_bytes());
    bytes.extend_from_slice(key);
    StorageKey::from_encoded(Bytes::from(bytes))
}

fn split(key: &StorageKey) -> Option<(Partition, StorageKey)> {
    let (number, _) = key.as_bytes().split_first_chunk::<PARTITION_BYTES>()?;
    let size = RingSize::new(u64::from(RING_SIZE_MAX)).ok()?;
    let partition = size.partition(u16::from_be_bytes(*number))?;
    Some((
        partition,
        StorageKey::from_encoded(key.to_bytes().slice(PARTITION_BYTES..)),
    ))
}

//! Hints: objects that a node keeps in place of others that are down.
//!
//! A stand-in merges, reads and gives dots like the replica whose place it takes. So the hints have
//! a vnode and a store of their own, in which the partition precedes each key. Reads and writes
//! take one path, and hints are as durable as other objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Durability, Flow, FoldClock, FoldRange, Lease, Reading, Timestamp};
use kvorum_cluster::AgreedState;
use kvorum_encoding::{BucketType, StorageKey, type_prefix};
use kvorum_object::{Clock, Object};
use kvorum_ring::{Partition, RingSize};
use kvorum_vnode::{
    FoldRequest, Handled, Operation, PageFailure, ReplicaFailure, ReplicaReply, ReplicaRequest,
    ScanLimits, ScanRequest, Vnode,
};
use parking_lot::RwLock;

use crate::hint_notes::HintRounds;

/// Length of the prefix of a key: the partition of the hint.
const PARTITION_BYTES: usize = 2;

/// A hint: an object that has to be handed over to another node.
#[derive(Clone, Debug)]
pub struct Hint {
    /// The partition that the object belongs to.
    pub partition: Partition,
    /// Its key.
    pub key: StorageKey,
    /// The object.
    pub object: Arc<Object>,
}

/// Some hints, in order.
#[derive(Clone, Debug, Default)]
pub struct HintPage {
    /// The hints.
    pub hints: Vec<Hint>,
    /// Number of hints that were passed over.
    pub passed_over: u64,
    /// The beginning of the next page; `None` when this was the last.
    pub next: Option<HintCursor>,
}

/// Limits of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintPageLimits {
    /// The most hints.
    pub hints_max: usize,
    /// The most bytes of their objects. The last hint of a page may exceed it.
    pub bytes_max: usize,
    /// Hints of these partitions are only counted, by their keys.
    pub passed_over: BTreeSet<Partition>,
}

impl Default for HintPageLimits {
    /// Everything.
    fn default() -> Self {
        Self {
            hints_max: usize::MAX,
            bytes_max: usize::MAX,
            passed_over: BTreeSet::new(),
        }
    }
}

/// A place among the hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintCursor(StorageKey);

/// Keeps objects for nodes that are down.
pub trait HintStore: Send + Sync {
    /// Carries out a request to a stand-in, or returns that it would have to wait for a device.
    fn handle(&self, request: &ReplicaRequest, now: Timestamp, reading: Reading) -> Handled;

    /// Hints from a place on, within limits. Blocks.
    fn page(
        &self,
        from: Option<&HintCursor>,
        limits: &HintPageLimits,
        now: Timestamp,
    ) -> Result<HintPage, ReplicaFailure>;

    /// Removes a hint if its object still has this version; true when the hint is gone. Blocks.
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
    /// True when no more hints are accepted. Its read lock is held while a request is handled.
    is_closed: RwLock<bool>,
    /// The state by whose epochs requests are checked.
    cluster: Option<Arc<dyn AgreedState>>,
    /// Its part in rounds.
    pub(crate) rounds: Option<HintRounds>,
}

impl VnodeHints {
    /// Keeps hints under a vnode of their own. Its partition only names it in the table of leases, and
    /// must differ from those of the node's other vnodes.
    pub fn new(vnode: Vnode) -> Self {
        Self {
            vnode: vnode.keeping_for_others(PARTITION_BYTES),
            is_closed: RwLock::new(false),
            cluster: None,
            rounds: None,
        }
    }

    /// The same, and refuses requests planned with an older ring than that of the present state.
    #[must_use]
    pub fn following(self, cluster: Arc<dyn AgreedState>) -> Self {
        Self {
            cluster: Some(cluster),
            ..self
        }
    }

    /// True if no request is being handled at this moment: later hints are checked by a state at
    /// least as new as the present one. If false, the caller repeats the call.
    pub fn is_idle(&self) -> bool {
        self.is_closed.try_write().is_some()
    }

    /// Runs `work` while no request is handled: earlier hints are stored, or have failed. Blocks.
    pub(crate) fn while_idle<T>(&self, work: impl FnOnce() -> T) -> T {
        let _idle = self.is_closed.write();
        work()
    }

    /// True when there is a hint of this bucket type that is not a tombstone. Blocks.
    pub fn holds_any_of(
        &self,
        bucket_type: &BucketType,
        size: RingSize,
        clock: &FoldClock,
    ) -> Result<bool, ReplicaFailure> {
        let of_type = StorageKey::from_encoded(Bytes::from(type_prefix(bucket_type)));
        for partition in size.partitions() {
            let request = FoldRequest {
                epoch: self.vnode.status().epoch,
                range: FoldRange::prefix(prefixed(partition, &of_type).as_bytes()),
                clock: clock.clone(),
                lease: Lease::Unlimited,
            };
            let mut is_any = false;
            let visitor = &mut |_: &StorageKey| {
                is_any = true;
                Flow::Stop
            };
            let _end = self.vnode.fold_keys(&request, visitor)?;
            if is_any {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses a request with an older ring than the state's.
    fn check_epoch(&self, request: &ReplicaRequest) -> Result<(), ReplicaFailure> {
        let Some(cluster) = &self.cluster else {
            return Ok(());
        };
        let expected = cluster.look().ring().epoch(request.partition);
        let got = request.epoch;
        if got < expected {
            return Err(ReplicaFailure::StaleEpoch { got, expected });
        }
        Ok(())
    }

    /// Refuses all requests from now on, or accepts them again. Without effect, and false, while a
    /// request is being handled.
    pub fn close(&self, is_closed: bool) -> bool {
        let closing = self.is_closed.try_write();
        closing.map(|mut it| *it = is_closed).is_some()
    }

    /// True when no more hints are accepted.
    pub fn is_closed(&self) -> bool {
        *self.is_closed.read()
    }

    /// The first hint, if there is any that can be handed over. Blocks.
    pub fn first(&self, now: Timestamp) -> Result<Option<Hint>, ReplicaFailure> {
        let limits = HintPageLimits {
            hints_max: 1,
            ..HintPageLimits::default()
        };
        let mut from = None;
        loop {
            let mut page = self.page(from.as_ref(), &limits, now)?;
            let first = page.hints.pop();
            if first.is_some() || page.next.is_none() {
                return Ok(first);
            }
            from = page.next;
        }
    }

    /// The vnode, for maintenance.
    pub fn vnode(&self) -> &Vnode {
        &self.vnode
    }
}

impl HintStore for VnodeHints {
    fn handle(&self, request: &ReplicaRequest, now: Timestamp, reading: Reading) -> Handled {
        let is_closed = self.is_closed.read();
        if *is_closed {
            return Handled::Done(ReplicaReply::Failed(ReplicaFailure::NotServing));
        }
        if let Err(failure) = self.check_epoch(request) {
            return Handled::Done(ReplicaReply::Failed(failure));
        }
        if let (Some(rounds), Some(key)) = (&self.rounds, stored_key(&request.operation)) {
            rounds.adds(key);
        }
        let partition = request.partition;
        let own = ReplicaRequest {
            partition: self.vnode.partition(),
            // An old epoch has been refused above.
            epoch: self.vnode.status().epoch,
            operation: under(partition, request.operation.clone()),
        };
        self.vnode.handle(&own, now, reading)
    }

    fn page(
        &self,
        from: Option<&HintCursor>,
        limits: &HintPageLimits,
        now: Timestamp,
    ) -> Result<HintPage, ReplicaFailure> {
        let (keys, mut page) = self.keys(from, limits, now)?;
        let mut bytes = 0;
        for (key, passed_over) in keys {
            if bytes >= limits.bytes_max && !page.hints.is_empty() {
                (page.next, page.passed_over) = (Some(HintCursor(key)), passed_over);
                break;
            }
            if let Some((hint, len)) = self.hint(&key, now)? {
                bytes += len;
                page.hints.push(hint);
            }
        }
        Ok(page)
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

impl VnodeHints {
    /// The stored keys of a page, each with the number of hints passed over before it, and the page
    /// without its hints.
    fn keys(
        &self,
        from: Option<&HintCursor>,
        limits: &HintPageLimits,
        now: Timestamp,
    ) -> Result<(Vec<(StorageKey, u64)>, HintPage), ReplicaFailure> {
        let range = match from {
            Some(HintCursor(key)) => FoldRange::all().resumed_at(key),
            None => FoldRange::all(),
        };
        let request = ScanRequest {
            range,
            clock: FoldClock::stopped_at(now),
            lease: Lease::Unlimited,
            limits: ScanLimits {
                entries_max: limits.hints_max,
                ..ScanLimits::NONE
            },
        };
        let (mut passed_over, mut passed_over_before) = (0, Vec::new());
        let is_wanted = &mut |key: &StorageKey| match split(key) {
            Some((partition, _)) if limits.passed_over.contains(&partition) => {
                passed_over += 1;
                false
            }
            Some(_) => {
                passed_over_before.push(passed_over);
                true
            }
            None => false,
        };
        let scanned = match self.vnode.scan::<StorageKey>(&request, is_wanted) {
            Ok(scanned) => scanned,
            Err(PageFailure::Failed(failure)) => return Err(storage(&failure)),
            Err(PageFailure::OutOfTime) => {
                let detail = "a scan without a deadline ran out of time".to_owned();
                return Err(ReplicaFailure::Internal(detail));
            }
        };
        let page = HintPage {
            passed_over,
            next: scanned.next.map(HintCursor),
            ..HintPage::default()
        };
        let keys = scanned.entries.into_iter().zip(passed_over_before);
        Ok((keys.collect(), page))
    }

    /// The object under a key of the store, and its bytes; `None` if it was removed meanwhile.
    fn hint(
        &self,
        key: &StorageKey,
        now: Timestamp,
    ) -> Result<Option<(Hint, usize)>, ReplicaFailure> {
        let stored = self.vnode.stored_object(key, now);
        let Some(stored) = stored.map_err(|failure| storage(&failure))? else {
            return Ok(None);
        };
        let bytes = stored.head_bytes.len() + stored.body_bytes.len();
        let object = stored.decode().ok();
        let found = split(key).zip(object).map(|((partition, key), object)| {
            let hint = Hint {
                partition,
                key,
                object,
            };
            (hint, bytes)
        });
        Ok(found)
    }
}

fn storage(failure: &ReplicaFailure) -> ReplicaFailure {
    ReplicaFailure::Storage(failure.to_string())
}

/// The key under which an operation may store something.
fn stored_key(operation: &Operation) -> Option<&StorageKey> {
    match operation {
        Operation::Coordinate { key, .. }
        | Operation::Apply { key, .. }
        | Operation::Follow { key, .. }
        | Operation::Store { key, .. }
        | Operation::Mend { key, .. } => Some(key),
        Operation::Get { .. } | Operation::Reap { .. } => None,
    }
}

/// The operation on the key as the store of hints has it.
fn under(partition: Partition, mut operation: Operation) -> Operation {
    match &mut operation {
        Operation::Get { key, .. }
        | Operation::Coordinate { key, .. }
        | Operation::Apply { key, .. }
        | Operation::Follow { key, .. }
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

pub(crate) fn split(key: &StorageKey) -> Option<(Partition, StorageKey)> {
    let (number, _) = key.as_bytes().split_first_chunk::<PARTITION_BYTES>()?;
    let partition = Partition::of_number(u16::from_be_bytes(*number))?;
    Some((
        partition,
        StorageKey::from_encoded(key.to_bytes().slice(PARTITION_BYTES..)),
    ))
}

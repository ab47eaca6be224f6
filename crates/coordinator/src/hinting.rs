//! Handing hints over to the nodes that they are for.
//!
//! A hint goes to the owner of its partition in the ring of the moment, and while the partition moves
//! to the receiver as well. It is dropped when all of them have confirmed that they stored it, and
//! only if nothing was written over it meanwhile: a later write is another hint.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvorum_backend::{Durability, Durable};
use kvorum_object::{ObjectTag, Resolution};
use kvorum_planted_defects::is_planted;
use kvorum_ring::{Epoch, KeyHash, NodeId, Partition, Position, Ring, Role, position};
use kvorum_runtime::Moment;
use kvorum_vnode::wire::PeerRequest;
use kvorum_vnode::{Operation, ReplicaReply, ReplicaRequest};
use smallvec::SmallVec;

use crate::hints::{Hint, HintPageLimits, HintStore};
use crate::plan::{key_hash, tag_of};
use crate::replicas::Replicas;
use crate::waiting::Waiting;

/// Hints read, sent and confirmed together.
const HINTS_PER_PAGE: usize = 32;
/// Bytes of their objects, beyond which one more is not read.
const HINT_BYTES_PER_PAGE: usize = 4 << 20;

/// The results for the hints that were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedOff {
    /// Confirmed by all nodes that they are for, and dropped.
    pub handed: u64,
    /// Kept: a node that is to have them is down, refused, or they have changed meanwhile.
    pub kept: u64,
}

/// Hands over the present hints of nodes that are up, until `deadline`.
pub(crate) async fn hand_off(replicas: &Arc<Replicas>, deadline: Moment) -> HandedOff {
    let mut outcome = HandedOff::default();
    let Some(remote) = &replicas.remote else {
        return outcome;
    };
    let runtime = &replicas.parts.runtime;
    let mut from = None;
    while runtime.now() < deadline {
        let (store, now) = (remote.hints.clone(), replicas.parts.wall_time());
        let limits = HintPageLimits {
            hints_max: HINTS_PER_PAGE,
            bytes_max: HINT_BYTES_PER_PAGE,
            passed_over: unreachable_partitions(replicas),
        };
        let page = runtime.blocking(move || store.page(from.as_ref(), &limits, now));
        let page = match page.await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(event = "hints_unreadable", error = %error);
                break;
            }
        };
        outcome.kept += page.passed_over;
        let mut waiting = Waiting::new();
        for hint in page.hints {
            let (replicas, store) = (replicas.clone(), remote.hints.clone());
            waiting.push(async move { hand_over(&replicas, &*store, hint, deadline).await });
        }
        while let Some(is_handed) = waiting.next().await {
            if is_handed {
                outcome.handed += 1;
            } else {
                outcome.kept += 1;
            }
        }
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    outcome
}

/// Partitions for which no hint can be handed over now, since their owner or receiver is down.
fn unreachable_partitions(replicas: &Replicas) -> BTreeSet<Partition> {
    if is_planted!(HintDeletedBeforeConfirmation) {
        return BTreeSet::new();
    }
    let state = replicas.parts.cluster.current();
    let ring = state.ring();
    let is_down = |(partition, owner, _): &(Partition, NodeId, Epoch)| {
        let receiver = ring.moves().get(partition).map(|moving| moving.to);
        !replicas.is_up(*owner) || receiver.is_some_and(|node| !replicas.is_up(node))
    };
    let unreachable = ring.partitions().filter(is_down);
    unreachable.map(|(partition, ..)| partition).collect()
}

/// True when all its target nodes have stored the hint, and it was dropped.
async fn hand_over(
    replicas: &Replicas,
    store: &dyn HintStore,
    hint: Hint,
    deadline: Moment,
) -> bool {
    let state = replicas.parts.cluster.current();
    let Ok(address) = hint.key.decode() else {
        return false;
    };
    if state.is_leaving(&address.bucket_type) {
        // Its owner may have said that it has nothing of the type: here it is found.
        return false;
    }
    let properties = state.properties(&address.bucket_type, &address.bucket);
    // The properties of a type that is gone are unknown: no sibling is dropped.
    let properties = properties.ok();
    let resolution = properties.map_or(Resolution::KeepSiblings, |it| {
        Resolution::keeping_siblings(it.keeps_siblings())
    });
    let tag = properties.map_or_else(ObjectTag::default, |it| tag_of(it));
    let n_val = properties.map_or(u32::MAX, |it| it.n_val);
    let hash = properties.map_or(KeyHash::Standard, |it| key_hash(&it.chash_keyfun));
    let place = position(&address.bucket_type, &address.bucket, &address.key, hash);
    for (partition, node, epoch) in targets(state.ring(), hint.partition, place, n_val) {
        let operation = Operation::Store {
            key: hint.key.clone(),
            object: hint.object.clone(),
            resolution,
            tag,
            durability: Durability::Grouped,
        };
        let request = ReplicaRequest {
            partition,
            epoch,
            operation,
        };
        let is_up = replicas.is_up(node);
        let is_stored = is_up && is_stored_at(replicas, node, request, deadline).await;
        if !is_stored && !is_planted!(HintDeletedBeforeConfirmation) {
            return false;
        }
    }
    let (runtime, now) = (&replicas.parts.runtime, replicas.parts.wall_time());
    // A few bytes of one batch: not worth a thread.
    match store.forget(hint.partition, &hint.key, hint.object.clock(), now) {
        Ok(is_gone) => is_gone,
        Err(error) => {
            if let Some(left_out) = replicas.hint_log.take(runtime.now().elapsed()) {
                tracing::warn!(event = "hint_not_forgotten", error = %error, left_out);
            }
            false
        }
    }
}

async fn is_stored_at(
    replicas: &Replicas,
    node: NodeId,
    request: ReplicaRequest,
    deadline: Moment,
) -> bool {
    if node != replicas.parts.node {
        let role = Role::Primary;
        let request = PeerRequest::Replica { role, request };
        let asked = replicas.ask_peer(node, request, deadline).await;
        return matches!(asked, Ok(ReplicaReply::Received { .. }));
    }
    let Some(replica) = replicas.local(Role::Primary, request.partition) else {
        return false;
    };
    let now = replicas.parts.wall_time();
    let under_way = replicas.parts.under_way.begin_owned();
    let work = move || {
        let _under_way = under_way;
        match replica.handle_blocking(&request, now) {
            ReplicaReply::Received { durable } => match durable {
                Durable::Already => true,
                Durable::After(ticket) => ticket.wait().is_ok(),
            },
            _ => false,
        }
    };
    replicas.parts.runtime.blocking(work).await
}

/// The nodes that a hint of a partition is for: its owner, and while it moves its receiver too. If
/// lists have changed and the partition holds no replica of the key any more, the nodes of all its
/// replicas are added.
fn targets(
    ring: &Ring,
    partition: Partition,
    place: Position,
    n_val: u32,
) -> SmallVec<[(Partition, NodeId, Epoch); 3]> {
    let owner = place.owner(ring.size());
    let n = u16::try_from(n_val).unwrap_or(u16::MAX);
    let mut partitions = SmallVec::<[Partition; 4]>::new();
    partitions.push(partition);
    if !ring.is_replica(owner, n, partition) {
        let list = ring.primaries(place, n_val, false);
        partitions.extend(list.iter().map(|replica| replica.partition));
    }
    let mut targets = SmallVec::new();
    for partition in partitions {
        let epoch = ring.epoch(partition);
        targets.push((partition, ring.owner(partition), epoch));
        if let Some(moving) = ring.moves().get(&partition) {
            targets.push((partition, moving.to, epoch));
        }
    }
    targets
}

//! The preference lists that a node compares, and their replicas.

use kvorum_anti_entropy::Target;
use kvorum_cluster::ClusterState;
use kvorum_reaping::ListName;
use kvorum_ring::{NodeId, Position, PreferenceList, Ring, RingSize};
use kvorum_vnode::TreeName;

use crate::places::name_of_n;

/// The targets of a node: one for each preference list whose first available replica it has.
pub(crate) fn targets_of(
    state: &ClusterState,
    node: NodeId,
    colocated: bool,
    is_up: impl Fn(NodeId) -> bool,
) -> Vec<Target> {
    let size = state.ring().size();
    let n_vals: Vec<u8> = state.n_vals().into_iter().map(name_of_n).collect();
    let all = size.partitions().flat_map(|owner| {
        n_vals.iter().map(move |n_val| Target {
            partition: owner.number(),
            n: *n_val,
        })
    });
    let is_here = |target: &Target| {
        let replicas = replicas_of(state, *target, colocated);
        let first = replicas.iter().find(|it| is_up(it.node));
        replicas.len() > 1 && first.is_some_and(|it| it.node == node)
    };
    all.filter(is_here).collect()
}

/// The replicas of a target, up or down.
pub(crate) fn replicas_of(state: &ClusterState, target: Target, colocated: bool) -> PreferenceList {
    let ring = state.ring();
    let Some(name) = tree_of(ring.size(), target) else {
        return PreferenceList::new();
    };
    let position = Position::before(ring.size(), name.owner);
    ring.primaries(position, u32::from(name.n_val), colocated)
}

/// The name of a target's preference list in rounds.
pub(crate) fn list_of(target: Target) -> ListName {
    ListName {
        partition: target.partition,
        n_val: target.n,
    }
}

/// The tree that the replicas of a target compare.
pub(crate) fn tree_of(size: RingSize, target: Target) -> Option<TreeName> {
    let owner = size.partition(target.partition)?;
    let n_val = target.n;
    Some(TreeName { owner, n_val })
}

/// A number that changes whenever a replica may have come to another place.
pub(crate) fn epoch_of(ring: &Ring) -> u64 {
    let epochs: u64 = ring.partitions().map(|(.., epoch)| epoch.get()).sum();
    let growth = u64::from(ring.replicas_max()) * 2 + u64::from(ring.growth().is_some());
    epochs << 16 | growth
}

//! The state of a cluster that is not known yet.

use kvorum_cluster::{ClusterId, ClusterState, Member};
use kvorum_ring::{NodeId, Ring, RingSize};

/// No node: the cluster of a node that belongs to none yet, the owner of a ring that is not known yet.
pub(crate) const NO_NODE: NodeId = NodeId::from_bytes([0; 16]);

/// The placeholder until the state of a cluster is known: this node alone, owning nothing.
pub(crate) fn unknown_state(cluster: ClusterId, node: NodeId, name: &str) -> ClusterState {
    let ring = Ring::single(RingSize::SMALLEST, NO_NODE);
    ClusterState::found(cluster, name, node, Member::new(name), ring)
}

/// True for the result of [`unknown_state`].
pub(crate) fn is_unknown(state: &ClusterState) -> bool {
    state.ring().members() == [NO_NODE]
}

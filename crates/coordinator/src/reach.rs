//! Partitions that refuse requests at the default quorums, because too few of their nodes are up.
//!
//! They are part of a node's health. Each partition is planned like a request for its keys, so that the
//! report agrees with clients' results.

use kvorum_cluster::ClusterState;
use kvorum_encoding::{BucketType, StorageKey};
use kvorum_properties::BucketProperties;
use kvorum_ring::{NodeId, Partition, Position};

use crate::plan::{Plan, Purpose, Target};
use crate::request::{GetOptions, PutOptions};

/// The partitions whose keys are out of reach. A key counts to the first partition of its preference list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutOfReach {
    /// Gets are refused.
    pub reads: Vec<Partition>,
    /// Puts are refused.
    pub writes: Vec<Partition>,
}

/// The partitions out of reach for requests with default quorums to buckets without a type.
pub(crate) fn out_of_reach(
    state: &ClusterState,
    colocated: bool,
    is_up: impl Fn(NodeId) -> bool,
) -> OutOfReach {
    let mut out_of_reach = OutOfReach::default();
    // Nearly always all nodes are up, and no partition is out of reach.
    if state.members().keys().all(|node| is_up(*node)) {
        return out_of_reach;
    }
    let Ok(properties) = state.type_properties(&BucketType::default()) else {
        return out_of_reach;
    };
    for first in state.ring().size().partitions() {
        let plan = |purpose| plan(state, properties, first, colocated, purpose, &is_up);
        if plan(Purpose::Read)
            .read_quorum(&GetOptions::default())
            .is_err()
        {
            out_of_reach.reads.push(first);
        }
        if plan(Purpose::Write)
            .write_quorums(&PutOptions::default())
            .is_err()
        {
            out_of_reach.writes.push(first);
        }
    }
    out_of_reach
}

/// The plan for keys whose replicas begin with this partition.
fn plan(
    state: &ClusterState,
    properties: &BucketProperties,
    first: Partition,
    colocated: bool,
    purpose: Purpose,
    is_up: impl Fn(NodeId) -> bool,
) -> Plan {
    let target = Target {
        key: StorageKey::from_encoded(Vec::new()),
        place: Position::before(state.ring().size(), first),
        properties,
        n_val: properties.n_val,
    };
    let is_sloppy = true;
    Plan::at(state, target, colocated, is_sloppy, purpose, is_up)
}

#[cfg(test)]
mod tests {
    use kvorum_cluster::{ClusterId, Command, Member, apply};
    use kvorum_properties::{PropertyOverlay, Quorum};
    use kvorum_ring::{Epoch, Ring, RingSize};

    use super::*;

    fn node(byte: u8) -> NodeId {
        NodeId::from_bytes([byte; 16])
    }

    /// Four nodes that own partitions in turn, so that the replicas of each key are on three of them.
    fn four_nodes() -> ClusterState {
        let size = RingSize::SMALLEST;
        let owners = (0..size.get()).map(|at| node(u8::try_from(at % 4).unwrap() + 1));
        let owners: Vec<NodeId> = owners.collect();
        let epochs = vec![Epoch::FIRST; owners.len()];
        let ring = Ring::new(size, owners, epochs).unwrap();
        let cluster = ClusterId::from_random([7; 16]);
        let mut state = ClusterState::found(cluster, "c", node(1), Member::new("1@h"), ring);
        for byte in [2, 3, 4] {
            let member = Member::new(&format!("{byte}@h"));
            let node = node(byte);
            state = apply(&state, Command::AddMember { node, member }).unwrap();
        }
        state
    }

    fn counts(state: &ClusterState, down: &[u8]) -> (usize, usize) {
        let is_up = |it| !down.iter().any(|byte| node(*byte) == it);
        let out_of_reach = out_of_reach(state, false, is_up);
        (out_of_reach.reads.len(), out_of_reach.writes.len())
    }

    /// Regression: a node whose companions were killed refused every put, and reported its health
    /// as "ready".
    #[test]
    fn a_quorum_of_two_is_out_of_reach_of_the_last_node() {
        let state = four_nodes();
        let all = usize::from(state.ring().size().get());
        assert_eq!(counts(&state, &[]), (0, 0));
        assert_eq!(counts(&state, &[3]), (0, 0));
        assert_eq!(counts(&state, &[3, 4]), (0, 0));
        assert_eq!(counts(&state, &[2, 3, 4]), (all, all));
    }

    #[test]
    fn agreed_defaults_decide() {
        let overlay = PropertyOverlay {
            r: Some(Quorum::One),
            ..PropertyOverlay::default()
        };
        let state = apply(&four_nodes(), Command::SetDefaultProperties(overlay)).unwrap();
        let all = usize::from(state.ring().size().get());
        assert_eq!(counts(&state, &[2, 3, 4]), (0, all));
    }
}

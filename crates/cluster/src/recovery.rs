//! Recovery of a cluster whose log has lost its majority for good: the same state under a new
//! identity.
//!
//! The remaining members continue with their last state. The lost voters may come back, and may
//! have agreed commands that are missing here. So the cluster gets a new identity, and its
//! connections refuse the lost voters from then on. Remaining members adopt the identity one by
//! one. A member may do so only if its state is not newer than the state of the recovery: newer
//! changes would be undone.

use kvorum_ring::NodeId;

use crate::cluster_id::ClusterId;
use crate::content::{MemberStatus, Recovery};
use crate::state::ClusterState;

impl ClusterState {
    /// This state as the first state of a recovered cluster with `survivor` as the only voter. All
    /// other members count as down until they adopt the identity: they do not vote, and keep their
    /// partitions.
    #[must_use]
    pub fn recovered(&self, id: ClusterId, survivor: NodeId) -> Self {
        let mut content = self.content.clone();
        content.recovery = Some(Recovery {
            from: content.id,
            version: content.version,
        });
        content.id = id;
        content.version += 1;
        if let Some(rounds) = &mut content.rounds {
            rounds.epoch = content.version;
        }
        for (node, member) in &mut content.members {
            if *node == survivor {
                member.status = MemberStatus::Valid;
            } else if member.status == MemberStatus::Valid {
                member.status = MemberStatus::Down;
            }
        }
        Self::from_content(content)
    }

    /// The recovery of this cluster after a loss of its log's majority, if there was one.
    pub fn recovery(&self) -> Option<Recovery> {
        self.content.recovery
    }
}

#[cfg(test)]
mod tests {
    use kvorum_ring::{Ring, RingSize};

    use super::*;
    use crate::content::Member;
    use crate::{Command, apply};

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 16])
    }

    #[test]
    fn a_recovered_cluster_has_its_state_and_another_identity() {
        let before = ClusterId::from_random([1; 16]);
        let ring = Ring::single(RingSize::new(8).unwrap(), node(1));
        let state = ClusterState::found(before, "test", node(1), Member::new("a@1"), ring);
        let (node_2, member) = (node(2), Member::new("b@2"));
        let joins = Command::AddMember {
            node: node_2,
            member,
        };
        let state = apply(&state, joins).unwrap();
        let after = ClusterId::from_random([2; 16]);
        let recovered = state.recovered(after, node(2));
        assert_eq!(recovered.id(), after);
        assert_eq!(recovered.ring(), state.ring());
        let version = state.version();
        let from = before;
        assert_eq!(recovered.recovery(), Some(Recovery { from, version }));
        let status = |number| recovered.member(node(number)).unwrap().status;
        assert_eq!(status(1), MemberStatus::Down);
        assert_eq!(status(2), MemberStatus::Valid);
        let json = recovered.to_json().unwrap();
        assert_eq!(ClusterState::from_json(&json).unwrap(), recovered);
        assert!(!state.to_json().unwrap().contains("recovered_from"));
    }
}

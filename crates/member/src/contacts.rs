//! Names and addresses of the other members, from the agreed state.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use kvorum_claimant::ShownState;
use kvorum_cluster::ClusterId;
use kvorum_peer::{Admission, Directory, Introduction, Refusal};
use kvorum_ring::NodeId;

use crate::peer_service::PEER_SERVICE;
use crate::unknown_state::{NO_NODE, is_unknown};
use crate::vouching::Vouching;

/// See the module's description.
pub(crate) struct Contacts {
    pub(crate) node: NodeId,
    pub(crate) cluster: ArcSwap<ClusterId>,
    /// The configured name of the cluster, which counts until the agreed name is known.
    pub(crate) cluster_name: String,
    pub(crate) shown: Arc<ShownState>,
    pub(crate) vouching: Arc<Vouching>,
}

impl Contacts {
    fn cluster(&self) -> NodeId {
        self.cluster.load().as_node_id()
    }

    /// The name that a caller from outside the cluster has to give.
    fn cluster_name(&self) -> String {
        let state = self.shown.look();
        let agreed = Some(&state).filter(|state| !is_unknown(state));
        agreed.map_or_else(|| self.cluster_name.clone(), |it| it.name().to_owned())
    }
}

impl Directory for Contacts {
    fn introduction(&self) -> Introduction {
        Introduction {
            cluster: self.cluster(),
            cluster_name: self.cluster_name(),
            node: self.node,
        }
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        let state = self.shown.look();
        state
            .member(node)?
            .addresses
            .get(PEER_SERVICE)?
            .parse()
            .ok()
    }

    fn name(&self, node: NodeId) -> Option<String> {
        let state = self.shown.look();
        let known = Some(&state).filter(|state| !is_unknown(state));
        Some(known?.member(node)?.name.clone())
    }

    fn admit(&self, caller: &Introduction) -> Admission {
        if caller.cluster == NO_NODE {
            return if caller.cluster_name == self.cluster_name() {
                Admission::Stranger
            } else {
                Admission::Refused(Refusal::OtherName)
            };
        }
        if caller.cluster != self.cluster() {
            return Admission::Refused(Refusal::OtherCluster);
        }
        if self.is_still_member(caller.node) {
            return Admission::Member;
        }
        // Or the caller is not yet a member in this node's state: it tries again.
        Admission::Refused(Refusal::Removed)
    }

    fn is_still_member(&self, node: NodeId) -> bool {
        let state = self.shown.look();
        is_unknown(&state)
            || state.member(node).is_some()
            || self.vouching.is_vouched(node, state.version())
    }
}

//! The table of services that answer other nodes' requests.

use kvorum_agreement::Agreement;
use kvorum_claimant::ReplicatedState;
use kvorum_coordinator::ReplicaService;
use kvorum_handoff::Transfers;
use kvorum_liveness::Liveness;
use kvorum_peer::{Caller, Message, PeerService, Served};
use kvorum_runtime::Moment;

use crate::doorkeeper::Doorkeeper;
use crate::operations::Operations;

/// Every service of this node for other nodes.
pub(crate) struct Dispatch {
    pub(crate) state: ReplicatedState,
    pub(crate) liveness: Liveness,
    pub(crate) replicas: ReplicaService,
    pub(crate) transfers: Transfers,
    pub(crate) doorkeeper: Doorkeeper,
    pub(crate) operations: Operations,
}

impl PeerService for Dispatch {
    fn handle(&self, caller: Caller, message: Message, deadline: Moment) -> Served {
        if Doorkeeper::serves(&message) {
            return self.doorkeeper.answer(caller, message);
        }
        if !caller.is_member {
            // A caller from outside the cluster may only ask to join.
            return Served::Now(Message::default());
        }
        if Agreement::serves(&message) {
            let agreement = self.state.agreement();
            return Served::Later(Box::pin(async move { agreement.answer(message).await }));
        }
        if Liveness::serves(&message) {
            self.liveness.hear(&message);
            return Served::Now(Message::default());
        }
        if Transfers::serves(&message) {
            return self.transfers.handle(caller, &message, deadline);
        }
        if Operations::serves(&message) {
            return self.operations.handle(caller, &message);
        }
        self.replicas.handle(caller, message, deadline)
    }
}

/// Gives the coordinator the nodes that are up.
pub(crate) struct Up(pub(crate) Liveness);

impl kvorum_coordinator::Liveness for Up {
    fn is_up(&self, node: kvorum_ring::NodeId) -> bool {
        self.0.is_up(node)
    }
}

//! Operations that a member is asked for, on this node or another.

use kvorum_ring::NodeId;

use crate::member::Member;
use crate::operations::{Operation, Outcome, ask};

impl Member {
    /// Notes the plan that this node showed an operator last, so that every member may commit it;
    /// `None` when it was committed.
    pub fn note_shown_plan(&self, plan: Option<u32>) {
        *self.operations.shown_plan.lock() = plan;
    }

    /// Asks a node, which may be this one; returns its answer, or the reason why there is none.
    pub async fn operate(&self, node: NodeId, operation: Operation) -> Result<Outcome, String> {
        if node == self.node {
            return Ok(self.operations.carry_out(operation).await);
        }
        ask(&self.runtime, &self.peers, node, &operation).await
    }
}

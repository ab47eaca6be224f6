//! The newest agreed state, for verbs that must not show an older one, and the warning if they have to.
//!
//! Every node shows its own state, which follows the agreed log a moment later. An operator may join nodes
//! and read the plan on another node: the plan has to include all of them. So the plan is read through the
//! leader of the agreed log. If no majority answers, this node's state is shown, with its age.

use std::sync::Arc;
use std::time::Duration;

use kvorum_cluster::{AgreedState as _, ClusterState, Command, ProposeError};
use kvorum_member::MayBeBehind;
use serde_json::{Value, json};

use super::cluster_admin::ClusterAdmin;
use super::transfers_view::duration;

/// Longer than it takes the voters to find another leader.
const LEADER_WAIT: Duration = Duration::from_secs(5);

impl ClusterAdmin {
    /// The state with all that was agreed until now; otherwise this node's state and the reason why it
    /// may be behind. Blocks, for [`LEADER_WAIT`] at most.
    pub(super) fn newest(&self) -> (Arc<ClusterState>, Option<MayBeBehind>) {
        let state = self.member.state().clone();
        let newest = async move { state.newest(LEADER_WAIT).await };
        match self.wait_for("newest state", newest) {
            Ok(Ok(state)) => (state, None),
            Ok(Err(behind)) => (self.state(), Some(behind)),
            Err(_) => (self.state(), None),
        }
    }

    /// Proposes a change, and repeats it if it was refused only because this node was behind.
    /// Blocks.
    pub(super) fn propose_to_newest(
        &self,
        command: Command,
    ) -> Result<Arc<ClusterState>, ProposeError> {
        let before = self.state().version();
        match self.member.state().propose(command.clone()) {
            Err(ProposeError::Refused(_)) if self.newest().0.version() != before => {
                self.member.state().propose(command)
            }
            proposed => proposed,
        }
    }
}

/// The warning above a state that may be behind.
pub(super) fn warning(behind: &MayBeBehind) -> String {
    let since = match behind.heard_ago {
        Some(ago) => format!(
            "the state of this node {} ago",
            duration(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))
        ),
        None => "the state of this node at its start".to_owned(),
    };
    format!(
        "WARNING: no leader answers for a majority of the voters ({behind}).\n\
         Shown is {since}, version {} of the cluster's state; later decisions may be missing, and \
         nothing can be committed until a majority is back.\n\n",
        behind.version
    )
}

/// The same for programs.
pub(super) fn json(behind: Option<&MayBeBehind>) -> Value {
    behind.map_or(Value::Null, |behind| {
        json!({
            "version": behind.version,
            "seconds": behind.heard_ago.map(|ago| ago.as_secs()),
            "reason": behind.to_string(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_behind_says_from_when_it_is() {
        let mut behind = MayBeBehind {
            version: 17,
            heard_ago: Some(Duration::from_secs(35)),
            detail: "no agreement within 5000 ms".to_owned(),
        };
        let text = warning(&behind);
        assert!(
            text.contains("the state of this node 35.00 s ago, version 17"),
            "{text}"
        );
        assert_eq!(json(Some(&behind))["seconds"], 35);
        behind.heard_ago = None;
        assert!(warning(&behind).contains("the state of this node at its start"));
        assert_eq!(json(None), Value::Null);
    }
}

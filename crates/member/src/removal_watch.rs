//! Detects this node's removal from its cluster.
//!
//! A node that was removed from its cluster, or whose join was cleared, does not receive the decision: the
//! log no longer replicates to it. It only sees that all others refuse it. So a node that reaches no other
//! member asks them now and then about its removal, and reports it in its health.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_cluster::AgreedState as _;

use crate::contacts::is_unknown;
use crate::member::Member;

/// Time between the questions of a node that reaches no other.
const ASK_PERIOD: Duration = Duration::from_secs(5);

/// Asks for as long as the member lives.
pub(crate) async fn watch(member: Weak<Member>) {
    loop {
        let Some(runtime) = member.upgrade().map(|member| member.runtime.clone()) else {
            return;
        };
        runtime.sleep(ASK_PERIOD).await;
        let Some(member) = member.upgrade() else {
            return;
        };
        let is_removed = member.looks_removed() && member.was_removed().await;
        let was = member.health.is_removed.swap(is_removed, Ordering::Relaxed);
        if is_removed && !was {
            tracing::warn!(
                event = "removed_from_cluster",
                node = %member.settings.name,
                "this node is no member any more and serves nothing; stop it, or let it join again",
            );
        }
    }
}

impl Member {
    /// True for a member that reaches none of the others, or that is missing in its own state.
    fn looks_removed(&self) -> bool {
        let state = self.state.current();
        if is_unknown(&state) {
            return false;
        }
        let is_member = state.member(self.node).is_some();
        !is_member || state.members().len() > 1 && self.liveness().up().len() < 2
    }
}

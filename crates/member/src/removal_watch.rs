//! Learning of a removal.
//!
//! A node that was removed from its cluster, or whose join was cleared, is not sent the decision: the log
//! has let go of it by then. It only sees that all others refuse it. So a node that reaches no other member
//! asks them now and then whether it was removed, and its health says so.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_cluster::AgreedState as _;

use crate::contacts::is_unknown;
use crate::member::Member;

/// The time between the questions of a node that reaches no other.
const ASK_PERIOD: Duration = Duration::from_secs(5);

/// Asks for as long as the member is there.
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
    /// True for a member that has others around it and reaches none, or that its own state does not know.
    fn looks_removed(&self) -> bool {
        let state = self.state.current();
        if is_unknown(&state) {
            return false;
        }
        let is_member = state.member(self.node).is_some();
        !is_member || state.members().len() > 1 && self.liveness().up().len() < 2
    }
}

//! The leader of the log carries out committed plans.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kvorum_cluster::{AgreedState, ClusterState, Command, MemberStatus, ProposeError};
use kvorum_ring::NodeId;
use kvorum_runtime::Runtime;

use crate::pacing::Pacing;
use crate::replicated_state::ReplicatedState;

/// Settings of the claimant.
#[derive(Clone, Copy, Debug)]
pub struct ClaimantSettings {
    /// The period at which the leader looks for work.
    pub period: Duration,
    /// The most partitions that move at once, without moves that make no progress.
    pub moves_max: usize,
    /// A move whose source or receiver is away makes no progress. If it delays other moves, it is
    /// given up after this long and started again later.
    pub patience: Duration,
}

impl Default for ClaimantSettings {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(500),
            moves_max: 8,
            patience: Duration::from_secs(60),
        }
    }
}

/// The claimant's task on one node; it does nothing while another node leads.
pub struct Claimant {
    runtime: Runtime,
    state: ReplicatedState,
    this_node: NodeId,
    is_up: IsUp,
    kept_back: KeptBack,
    settings: ClaimantSettings,
}

/// True if a node counts as up.
type IsUp = Arc<dyn Fn(NodeId) -> bool + Send + Sync>;
/// The reason why a node that has handed over its partitions may not be removed yet.
type KeptBack = Arc<dyn Fn(NodeId) -> Reason + Send + Sync>;
type Reason = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

impl Claimant {
    /// The claimant's task on `this_node`, for which all nodes count as up.
    pub fn new(
        runtime: Runtime,
        state: ReplicatedState,
        this_node: NodeId,
        settings: ClaimantSettings,
    ) -> Self {
        Self {
            runtime,
            state,
            this_node,
            is_up: Arc::new(|_| true),
            kept_back: Arc::new(|_| Box::pin(std::future::ready(None))),
            settings,
        }
    }

    /// Sets the check for nodes that are up: the claimant begins nothing with other nodes.
    #[must_use]
    pub fn heeding(mut self, is_up: impl Fn(NodeId) -> bool + Send + Sync + 'static) -> Self {
        self.is_up = Arc::new(is_up);
        self
    }

    /// Keeps a node that has left as a member for as long as `reason` returns a reason.
    #[must_use]
    pub fn keeping_back<R>(mut self, reason: impl Fn(NodeId) -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = Option<String>> + Send + 'static,
    {
        self.kept_back = Arc::new(move |node| Box::pin(reason(node)));
        self
    }

    /// Works for as long as it is polled.
    pub async fn run(&self) {
        let (mut pacing, mut logged) = (Pacing::new(self.settings.patience), BTreeMap::new());
        loop {
            self.runtime.sleep(self.settings.period).await;
            if self.state.agreement().status().leader == Some(self.this_node) {
                self.lead(&mut pacing, &mut logged).await;
            } else {
                (pacing, logged) = (Pacing::new(self.settings.patience), BTreeMap::new());
            }
        }
    }

    /// One look at the state; `logged` has the reasons for keeping nodes that were logged already.
    async fn lead(&self, pacing: &mut Pacing, logged: &mut BTreeMap<NodeId, String>) {
        let state = self.state.current();
        let members: BTreeSet<NodeId> = state.members().keys().copied().collect();
        let unfit = unfit(&state);
        if let Err(error) = self
            .state
            .agreement()
            .follow_members(&members, &unfit)
            .await
        {
            tracing::warn!(event = "log_membership_failed", error = %error);
        }
        let (now, moves_max) = (self.runtime.now(), self.settings.moves_max);
        let is_up = |node| node == self.this_node || (self.is_up)(node);
        for command in pacing.next_commands(&state, moves_max, now, is_up) {
            self.propose(command).await;
        }
        // A node that still votes has to stop voting first.
        let voters = self.state.agreement().status().voters;
        let gone: Vec<NodeId> = state.exited().filter(|it| !voters.contains(it)).collect();
        logged.retain(|node, _| gone.contains(node));
        for node in gone {
            let Some(reason) = self.reason_to_keep(node).await else {
                self.propose(Command::RemoveMember { node }).await;
                continue;
            };
            if logged.get(&node) != Some(&reason) {
                // Every leaving node is kept for a moment, until it has applied its departure.
                tracing::info!(event = "leaver_kept_back", node = %node, reason = %reason);
                logged.insert(node, reason);
            }
        }
    }

    async fn reason_to_keep(&self, node: NodeId) -> Option<String> {
        if (self.is_up)(node) {
            (self.kept_back)(node).await
        } else {
            Some("it is down, and may keep objects for other nodes".to_owned())
        }
    }

    async fn propose(&self, command: Command) {
        match self.state.agree(command).await {
            Ok(_) => {}
            // Another command came first; the next look proposes the rest.
            Err(ProposeError::Refused(refusal)) => {
                tracing::debug!(event = "claimant_step_refused", reason = %refusal);
            }
            Err(error) => tracing::warn!(event = "claimant_step_failed", error = error.in_full()),
        }
    }
}

/// Members that should not vote.
fn unfit(state: &ClusterState) -> BTreeSet<NodeId> {
    let is_unfit = |status| !matches!(status, MemberStatus::Valid);
    let members = state.members().iter();
    members
        .filter(|(_, member)| is_unfit(member.status))
        .map(|(node, _)| *node)
        .collect()
}

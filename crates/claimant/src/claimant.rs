//! Whoever leads the log carries out what was committed.

use std::collections::BTreeSet;
use std::time::Duration;

use kvorum_cluster::{
    AgreedState, ClusterState, Command, GrowthStep, MemberStatus, MoveStep, ProposeError,
};
use kvorum_ring::NodeId;
use kvorum_runtime::Runtime;

use crate::replicated_state::ReplicatedState;

/// How a plan is carried out.
#[derive(Clone, Copy, Debug)]
pub struct ClaimantSettings {
    /// The leader looks this often at what is to be done.
    pub period: Duration,
    /// Partitions that move at once.
    pub moves_max: usize,
}

impl Default for ClaimantSettings {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(500),
            moves_max: 8,
        }
    }
}

/// The claimant's part of one node; it does nothing while another node leads.
pub struct Claimant {
    runtime: Runtime,
    state: ReplicatedState,
    this_node: NodeId,
    settings: ClaimantSettings,
}

impl Claimant {
    /// The claimant's part of `this_node`.
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
            settings,
        }
    }

    /// Works for as long as it is polled.
    pub async fn run(&self) {
        loop {
            self.runtime.sleep(self.settings.period).await;
            if self.state.agreement().status().leader == Some(self.this_node) {
                self.lead().await;
            }
        }
    }

    async fn lead(&self) {
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
        for command in next_commands(&state, self.settings.moves_max) {
            self.propose(command).await;
        }
        // Whoever still votes is asked to stop first.
        let voters = self.state.agreement().status().voters;
        let gone: Vec<NodeId> = state.exited().filter(|it| !voters.contains(it)).collect();
        for node in gone {
            self.propose(Command::RemoveMember { node }).await;
        }
    }

    async fn propose(&self, command: Command) {
        match self.state.agree(command).await {
            Ok(_) => {}
            // Somebody was quicker: the next look shows what is left.
            Err(ProposeError::Refused(refusal)) => {
                tracing::debug!(event = "claimant_step_refused", reason = %refusal);
            }
            Err(error) => tracing::warn!(event = "claimant_step_failed", error = %error),
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

/// What a leader proposes in this state: moves that may begin, or a change of the number of replicas.
/// Pure.
fn next_commands(state: &ClusterState, moves_max: usize) -> Vec<Command> {
    let begin = |(partition, at)| Command::Move {
        partition,
        at,
        step: MoveStep::Begin,
    };
    let mut commands: Vec<Command> = state.next_moves(moves_max).into_iter().map(begin).collect();
    let from = state.ring().replicas_max();
    commands.extend(state.next_growth().map(|to| Command::Grow {
        from,
        step: GrowthStep::Begin(to),
    }));
    commands
}

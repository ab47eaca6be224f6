//! A start behind the agreed log: the vnodes and the hints of a node serve when the node has learned what
//! was agreed by the time of its start.
//!
//! A node whose disk was rolled back may have a log that is older than a watermark. Its replicas would
//! take themselves for sources until the log arrives, and show values of before a delete whose tombstone
//! is gone everywhere else (decision 37). So a node of a cluster with rounds waits for a majority of the
//! members. A cluster without rounds serves at once.

use std::sync::Arc;
use std::time::Duration;

use kvorum_claimant::ReplicatedState;
use kvorum_cluster::ClusterState;
use kvorum_runtime::{Runtime, Watched, Watcher};

use crate::settings::MemberSettings;

/// The time for one question to the members.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// The pause behind a question that no majority has answered.
const PAUSE: Duration = Duration::from_millis(200);

/// True once the node may serve.
pub(crate) struct CatchingUp {
    is_done: Watched<bool>,
}

impl CatchingUp {
    pub(crate) fn new(state: &ClusterState, settings: &MemberSettings) -> Arc<Self> {
        let is_done = Watched::new(!must_catch_up(state, settings));
        Arc::new(Self { is_done })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done.get()
    }

    pub(crate) fn watch(&self) -> Watcher<bool> {
        self.is_done.watch()
    }

    /// The node serves from here on.
    pub(crate) fn done(&self) {
        self.is_done.set(true);
    }
}

/// True if tombstones may have gone while the node was down.
fn must_catch_up(state: &ClusterState, settings: &MemberSettings) -> bool {
    let has_rounds = settings.reaping || state.rounds().next().is_some();
    has_rounds && state.members().len() > 1
}

/// Waits until this node has all that was agreed before the call.
pub(crate) async fn learn_all(runtime: &Runtime, state: &ReplicatedState) {
    let mut is_logged = false;
    while let Err(behind) = state.newest(ANSWER_WAIT).await {
        if !is_logged {
            is_logged = true;
            tracing::warn!(
                event = "vnodes_wait_for_majority",
                reason = %behind,
                "tombstones may have gone while this node was down: its vnodes and hints serve when a \
                 majority of the members is up",
            );
        }
        runtime.sleep(PAUSE).await;
    }
}

//! The agreed state as transfers use it: changes are awaited, and watchers are notified.

use std::sync::Arc;

use kvorum_claimant::ReplicatedState;
use kvorum_cluster::{AgreedState, ClusterState, Command};
use kvorum_handoff::{AgreedCluster, Agreeing, Changing};

/// See the module's description.
pub(crate) struct AgreedLog(pub(crate) ReplicatedState);

impl AgreedCluster for AgreedLog {
    /// Entries are durable before they are agreed, and are marked as agreed before they are
    /// applied: a crash takes back no state that was returned here.
    fn current(&self) -> Arc<ClusterState> {
        self.0.current()
    }

    fn agree(&self, command: Command) -> Agreeing {
        let state = self.0.clone();
        Box::pin(async move { state.agree(command).await.map(|_| ()) })
    }

    fn changed(&self, version: u64) -> Changing {
        let mut versions = self.0.versions();
        Box::pin(async move {
            // The wait also ends when the node stops.
            let _changed_or_gone = versions.until(|known| *known > version).await;
        })
    }
}

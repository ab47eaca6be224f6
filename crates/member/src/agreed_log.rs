//! The agreed state as transfers use it: changes are awaited, and watchers are notified.

use std::sync::Arc;

use kvorum_claimant::ReplicatedState;
use kvorum_cluster::{AgreedState, ClusterState, Command};
use kvorum_handoff::{AgreedCluster, Agreeing, Changing};

/// See the module's description.
pub(crate) struct AgreedLog(pub(crate) ReplicatedState);

impl AgreedCluster for AgreedLog {
    /// Entries are durable before they are agreed, and that they are agreed is noted before they are
    /// applied: a crash takes back nothing that was shown.
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
            // Ends with the node as well.
            let _changed_or_gone = versions.until(|known| *known > version).await;
        })
    }
}

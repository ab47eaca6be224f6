//! The parts of a node that the verbs about the cluster use, and their way to wait.

use std::sync::Arc;

use kvorum_cluster::{AgreedState as _, ClusterState};
use kvorum_maintenance::Maintenance;
use kvorum_member::Member;

use crate::request::AdminReply;

/// The member and the background work of this node, for the verbs.
pub(crate) struct ClusterAdmin {
    pub(crate) member: Arc<Member>,
    pub(crate) maintenance: Arc<Maintenance>,
}

impl ClusterAdmin {
    pub(crate) fn new(member: Arc<Member>, maintenance: Arc<Maintenance>) -> Self {
        Self {
            member,
            maintenance,
        }
    }

    pub(super) fn state(&self) -> Arc<ClusterState> {
        self.member.state().current()
    }

    /// Waits on this thread for work on the runtime's threads; a refusal when the node is stopping.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, AdminReply> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let runtime = self.member.coordinator().runtime();
        runtime.spawn(name, async move {
            // The waiting thread may be gone.
            let _waits_or_not = sender.send(work.await);
        });
        let done = receiver.recv();
        done.map_err(|_| AdminReply::refused("Failed: the node is stopping"))
    }
}

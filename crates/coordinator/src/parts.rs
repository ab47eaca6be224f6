//! What a coordinator is put together from.

use std::sync::Arc;

use kvorum_backend::Timestamp;
use kvorum_cluster::AgreedState;
use kvorum_ring::NodeId;
use kvorum_runtime::Runtime;

use crate::hints::HintStore;
use crate::local_vnodes::LocalVnodes;
use crate::peers::ReplicaPeers;
use crate::trace::{MaintenanceWitness, Meter};

/// What a coordinator works with.
#[derive(Clone)]
pub struct Parts {
    /// This node.
    pub node: NodeId,
    /// Clock, tasks and the blocking pool.
    pub runtime: Runtime,
    /// The agreed cluster state.
    pub cluster: Arc<dyn AgreedState>,
    /// This node's vnodes.
    pub vnodes: Arc<dyn LocalVnodes>,
    /// Where figures go.
    pub meter: Arc<dyn Meter>,
    /// Who knows what maintenance ran when.
    pub maintenance: Arc<dyn MaintenanceWitness>,
}

/// What a coordinator works with where there are other nodes.
#[derive(Clone)]
pub struct Remote {
    /// The way to them.
    pub peers: Arc<dyn ReplicaPeers>,
    /// What this node keeps in place of others.
    pub hints: Arc<dyn HintStore>,
    /// Replicas on other nodes are asked for the head of an object before its values, but for one.
    /// The value then crosses the network once at most; a value that none of those asked had whole
    /// takes one more round.
    pub heads_first: bool,
}

impl Parts {
    /// The time on the wall, as stores take it.
    pub(crate) fn wall_time(&self) -> Timestamp {
        Timestamp(self.runtime.wall_time().micros())
    }
}

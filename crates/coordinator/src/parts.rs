//! The parts of a coordinator, and its settings.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Timestamp;
use kvorum_cluster::AgreedState;
use kvorum_ring::NodeId;
use kvorum_runtime::Runtime;

use crate::hints::HintStore;
use crate::local_vnodes::LocalVnodes;
use crate::peers::ReplicaPeers;
use crate::reaper::TombstoneKeeping;
use crate::trace::{MaintenanceWitness, Meter};
use crate::under_way::UnderWay;

/// The parts of a coordinator.
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
    /// The receiver of figures.
    pub meter: Arc<dyn Meter>,
    /// The record of maintenance steps and their times.
    pub maintenance: Arc<dyn MaintenanceWitness>,
    /// This node's work that may write, in its own requests and in those of other nodes.
    pub under_way: Arc<UnderWay>,
}

impl Parts {
    /// The wall-clock time, in the form for stores.
    pub(crate) fn wall_time(&self) -> Timestamp {
        Timestamp(self.runtime.wall_time().micros())
    }
}

/// The parts of a coordinator that has other nodes.
#[derive(Clone)]
pub struct Remote {
    /// The way to them.
    pub peers: Arc<dyn ReplicaPeers>,
    /// The hints that this node keeps for other nodes.
    pub hints: Arc<dyn HintStore>,
    /// All but one of the replicas on other nodes are asked for the head of an object before its values. So
    /// the values cross the network at most once; values that no asked replica sent take one more round.
    pub heads_first: bool,
}

/// The names of the storage backends of a node.
#[derive(Clone, Copy, Debug)]
pub enum BackendNames {
    /// The only backend.
    One(&'static str),
    /// Several backends, which live as long as the process.
    Several(&'static [&'static str]),
}

impl BackendNames {
    pub(crate) fn all(&self) -> &[&'static str] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }

    pub(crate) fn are_several(self) -> bool {
        matches!(self, Self::Several(_))
    }
}

/// Settings for requests to any bucket.
#[derive(Clone, Copy, Debug)]
pub struct CoordinatorSettings {
    /// Several replicas of a key may live on one node, as in Riak.
    pub colocated_replicas: bool,
    /// The time-out of a request that names none.
    pub request_timeout: Duration,
    /// Requests that take at least this long are logged.
    pub slow_request_threshold: Duration,
    /// The most gets, puts and deletes in progress; further ones are refused with `overload`.
    pub requests_max: usize,
    /// Each get asks all replicas of its key, after its reply those that its quorum does not need.
    /// Otherwise one get in sixteen does.
    pub compares_all_on_get: bool,
    /// The fate of tombstones that every replica holds.
    pub tombstones: TombstoneKeeping,
    /// The names of the storage backends of a node, one of which a bucket may name as its own.
    pub backend_names: BackendNames,
}

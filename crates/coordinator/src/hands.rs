//! What carries requests out: this node's vnodes, its stand-in store, and the way to other nodes.
//!
//! Shared with what outlives a request: the replicas that the client did not wait for are still to be
//! written, and those that were behind are still to be repaired.

use std::sync::Arc;

use kvorum_backend::{Reading, Timestamp};
use kvorum_cluster::AgreedState;
use kvorum_ring::{NodeId, Role};
use kvorum_runtime::Runtime;
use kvorum_vnode::{Handled, ReplicaFailure, ReplicaReply, ReplicaRequest, Vnode};

use crate::coordinator::{LocalVnodes, Parts};
use crate::gate::Gate;
use crate::hints::HintStore;
use crate::peers::ReplicaPeers;
use crate::trace::{MaintenanceWitness, Meter};

/// Read repairs in progress beyond which further ones are left to later reads.
const REPAIRS_MAX: usize = 1_000;

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

/// See the module's description.
pub(crate) struct Hands {
    pub(crate) node: NodeId,
    pub(crate) runtime: Runtime,
    pub(crate) cluster: Arc<dyn AgreedState>,
    pub(crate) vnodes: Arc<dyn LocalVnodes>,
    pub(crate) meter: Arc<dyn Meter>,
    pub(crate) maintenance: Arc<dyn MaintenanceWitness>,
    pub(crate) remote: Option<Remote>,
    pub(crate) repairs: Gate,
}

/// Who carries out what is asked of this node.
pub(crate) enum LocalReplica {
    Vnode(Arc<Vnode>),
    Hints(Arc<dyn HintStore>),
}

impl LocalReplica {
    pub(crate) fn handle(
        &self,
        request: &ReplicaRequest,
        now: Timestamp,
        reading: Reading,
    ) -> Handled {
        match self {
            Self::Vnode(vnode) => vnode.handle(request, now, reading),
            Self::Hints(hints) => hints.handle(request, now, reading),
        }
    }

    /// As [`LocalReplica::handle`], where blocking is allowed.
    pub(crate) fn handle_blocking(&self, request: &ReplicaRequest, now: Timestamp) -> ReplicaReply {
        match self.handle(request, now, Reading::MayBlock) {
            Handled::Done(reply) => reply,
            Handled::WouldBlock => ReplicaReply::Failed(ReplicaFailure::Internal(
                "a read that may block said it would".into(),
            )),
        }
    }
}

impl Hands {
    pub(crate) fn new(parts: Parts, remote: Option<Remote>) -> Self {
        let Parts {
            node,
            runtime,
            cluster,
            vnodes,
            meter,
            maintenance,
        } = parts;
        Self {
            node,
            runtime,
            cluster,
            vnodes,
            meter,
            maintenance,
            remote,
            repairs: Gate::new(REPAIRS_MAX),
        }
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        let is_up = |remote: &Remote| remote.peers.is_up(node);
        node == self.node || self.remote.as_ref().is_some_and(is_up)
    }

    pub(crate) fn wall_time(&self) -> Timestamp {
        Timestamp(self.runtime.wall_time().micros())
    }

    /// Who answers for a partition on this node.
    pub(crate) fn local(
        &self,
        role: Role,
        partition: kvorum_ring::Partition,
    ) -> Option<LocalReplica> {
        match role {
            Role::Primary => self.vnodes.vnode(partition).map(LocalReplica::Vnode),
            Role::Fallback => {
                // Replicas that share a node on purpose have their stand-ins among the node's own.
                let hints = self.remote.as_ref().map(|remote| remote.hints.clone());
                let own = || self.vnodes.vnode(partition).map(LocalReplica::Vnode);
                hints.map(LocalReplica::Hints).or_else(own)
            }
        }
    }
}

//! What carries requests out: this node's vnodes, its stand-in store, and the way to other nodes.
//!
//! Shared with what outlives a request: the replicas that the client did not wait for are still to be
//! written, and those that were behind are still to be repaired.

use std::sync::Arc;

use kvorum_backend::{Reading, Timestamp};
use kvorum_cluster::AgreedState;
use kvorum_ring::{NodeId, Partition, Replica, Ring, Role};
use kvorum_runtime::{LogQuota, Runtime};
use kvorum_vnode::{Handled, ReplicaFailure, ReplicaReply, ReplicaRequest, Vnode};
use smallvec::SmallVec;

use crate::coordinator::{Absence, LocalVnodes, Parts};
use crate::error::RequestError;
use crate::failure_log::FailureLog;
use crate::gate::Gate;
use crate::hints::HintStore;
use crate::peers::ReplicaPeers;
use crate::plan::Plan;
use crate::trace::{MaintenanceWitness, Meter};
use crate::unopened::Unopened;

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
    /// Bounds the lines about single replicas that failed.
    pub(crate) replica_log: FailureLog,
    /// Bounds the lines about read repairs that failed.
    pub(crate) repair_log: LogQuota,
    /// Bounds the lines about hints that stay.
    pub(crate) hint_log: LogQuota,
    unopened: Unopened,
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
            replica_log: FailureLog::default(),
            repair_log: LogQuota::new(),
            hint_log: LogQuota::new(),
            unopened: Unopened::default(),
        }
    }

    /// Why this node has no vnode of a partition.
    pub(crate) fn absent(&self, partition: Partition) -> RequestError {
        match self.vnodes.absence(partition) {
            Absence::NotHere => RequestError::VnodeNotReady,
            Absence::Opening => RequestError::VnodeOpening,
            Absence::Failed => RequestError::VnodeFailed,
        }
    }

    /// A replica of another node said that its store is not open. True when that is news, by which
    /// another plan may be better.
    pub(crate) fn note_unopened(&self, plan: &Plan, slot: usize) -> bool {
        let replica = plan.replicas.get(slot);
        replica.is_some_and(|it| self.pass_over(it.node, it.partition))
    }

    /// A vnode is not open: others are asked for a moment. False when that was known.
    pub(crate) fn pass_over(&self, node: NodeId, partition: Partition) -> bool {
        let now = self.runtime.now();
        self.unopened.note(node, partition, now)
    }

    pub(crate) fn is_any_unopened(&self) -> bool {
        self.remote.is_some() && (self.vnodes.is_any_unopened() || self.unopened.is_any())
    }

    /// The nodes whose vnodes of a plan are not open, as far as is known.
    pub(crate) fn unopened_of(&self, plan: &Plan) -> SmallVec<[NodeId; 3]> {
        let now = self.runtime.now();
        let is_unopened = |replica: &&Replica| {
            let (node, partition) = (replica.node, replica.partition);
            let is_here = node == self.node;
            let is_absent = || self.vnodes.absence(partition) != Absence::NotHere;
            replica.role == Role::Primary
                && (is_here && is_absent() || self.unopened.has(node, partition, now))
        };
        let unopened = plan.replicas.iter().filter(is_unopened);
        unopened.map(|replica| replica.node).collect()
    }

    /// True when a vnode is known not to be open, and others may be asked instead.
    pub(crate) fn is_unopened(&self, node: NodeId, partition: Partition) -> bool {
        let is_absent = || node == self.node && self.vnodes.absence(partition) != Absence::NotHere;
        let is_noted = || self.unopened.has(node, partition, self.runtime.now());
        self.is_any_unopened() && (is_absent() || is_noted())
    }

    /// Why what vnodes that are not open would have is to be had nowhere: they are being opened, as far as
    /// this node knows, unless its own cannot be.
    pub(crate) fn unopened_error(&self, ring: &Ring) -> RequestError {
        let partitions = ring.size().partitions();
        let own = partitions.filter(|partition| ring.reader(*partition) == self.node);
        let absences = own.map(|partition| self.vnodes.absence(partition));
        let (mut has_failed, mut is_opening) = (false, false);
        for absence in absences {
            has_failed |= absence == Absence::Failed;
            is_opening |= absence == Absence::Opening;
        }
        match has_failed && !is_opening {
            true => RequestError::VnodeFailed,
            false => RequestError::VnodeOpening,
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
    pub(crate) fn local(&self, role: Role, partition: Partition) -> Option<LocalReplica> {
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

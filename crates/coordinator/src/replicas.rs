//! The replicas of this node and of others. A replica is asked inline, on the blocking pool or over
//! the network. Requests wait for its sync; repairs run without the client.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Durability, Durable, ErrorKind, Reading, SyncTicket};
use kvorum_data_types::Kind;
use kvorum_object::Object;
use kvorum_ring::{NodeId, Partition, Replica, Role};
use kvorum_runtime::{LogQuota, Moment, Runtime};
use kvorum_vnode::wire::PeerRequest;
use kvorum_vnode::{Handled, Operation, ReplicaFailure, ReplicaReply, ReplicaRequest};

use crate::error::RequestError;
use crate::failure_log::FailureLog;
use crate::gate::Gate;
use crate::local_vnodes::{LocalReplica, synced};
use crate::parts::{Parts, Remote};
use crate::peers::PeerFailure;
use crate::plan::Plan;
use crate::trace::Repaired;
use crate::unopened::Unopened;

/// Time limit of a repair; after it, a later read repairs the replica.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(30);

/// Read repairs in progress beyond which further ones are left to later reads.
const REPAIRS_MAX: usize = 1_000;

/// See the module's description. Shared with work that outlives a request: writes to further
/// replicas, and repairs.
pub(crate) struct Replicas {
    pub(crate) parts: Parts,
    pub(crate) remote: Option<Remote>,
    repairs: Arc<Gate>,
    /// Bounds the lines about single replicas that failed.
    replica_log: FailureLog,
    /// Bounds the lines about failed read repairs.
    repair_log: LogQuota,
    /// Bounds the lines about hints that are kept.
    pub(crate) hint_log: LogQuota,
    pub(crate) unopened: Unopened,
}

/// A replica's reply; its own refusals count as replies.
pub(crate) type Replied = Result<ReplicaReply, RequestError>;

/// The outcome of a request to a replica, on the calling thread.
pub(crate) enum Asked {
    /// It answered.
    Answered(Replied),
    /// It would have to wait for a device.
    WouldBlock(ReplicaWork),
}

/// A request to a replica that has to wait: carried out where blocking is allowed, or by another node.
#[derive(Clone)]
pub(crate) struct ReplicaWork {
    place: Place,
    request: ReplicaRequest,
}

#[derive(Clone)]
enum Place {
    Here(LocalReplica),
    There { node: NodeId, role: Role },
}

/// The result of a replica's work.
pub(crate) struct WorkDone {
    pub(crate) slot: usize,
    pub(crate) replied: Replied,
    /// Time that the work waited for a thread.
    pub(crate) queued: Duration,
    /// The work failed, and certainly had no effect.
    pub(crate) is_without_effect: bool,
}

impl ReplicaWork {
    /// The same replica, for another operation.
    pub(crate) fn with(self, operation: Operation) -> Self {
        let request = ReplicaRequest {
            operation,
            ..self.request
        };
        Self { request, ..self }
    }

    /// True when another node does the work.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.place, Place::There { .. })
    }
}

impl Replicas {
    pub(crate) fn new(parts: Parts, remote: Option<Remote>) -> Self {
        let unopened = Unopened::new(parts.clone(), remote.is_some());
        Self {
            parts,
            remote,
            repairs: Arc::new(Gate::new(REPAIRS_MAX)),
            replica_log: FailureLog::default(),
            repair_log: LogQuota::new(),
            hint_log: LogQuota::new(),
            unopened,
        }
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        let is_up = |remote: &Remote| remote.peers.is_up(node);
        node == self.parts.node || self.remote.as_ref().is_some_and(is_up)
    }

    /// The replica of this node that answers for a partition.
    pub(crate) fn local(&self, role: Role, partition: Partition) -> Option<LocalReplica> {
        match role {
            Role::Primary => self.parts.vnodes.vnode(partition).map(LocalReplica::Vnode),
            Role::Fallback => {
                // Replicas that share a node on purpose have stand-ins on the same node.
                let hints = self.remote.as_ref().map(|remote| remote.hints.clone());
                let own = || self.parts.vnodes.vnode(partition).map(LocalReplica::Vnode);
                hints.map(LocalReplica::Hints).or_else(own)
            }
        }
    }

    /// Carries out an operation on this thread, if the replica is on this node and memory suffices.
    pub(crate) fn ask(&self, plan: &Plan, slot: usize, operation: Operation) -> Asked {
        let work = match self.work(plan, slot, operation) {
            Ok(work) => work,
            Err(error) => return Asked::Answered(Err(error)),
        };
        let Place::Here(replica) = &work.place else {
            return Asked::WouldBlock(work);
        };
        let now = self.parts.wall_time();
        match replica.handle(&work.request, now, Reading::CachedOnly) {
            Handled::Done(reply) => Asked::Answered(Ok(reply)),
            Handled::WouldBlock => Asked::WouldBlock(work),
        }
    }

    pub(crate) fn work(
        &self,
        plan: &Plan,
        slot: usize,
        operation: Operation,
    ) -> Result<ReplicaWork, RequestError> {
        let replica = plan.replicas.get(slot).ok_or_else(no_reply)?;
        let place = if replica.node == self.parts.node {
            let local = self.local(replica.role, replica.partition);
            Place::Here(local.ok_or_else(|| self.unopened.absent(replica.partition))?)
        } else {
            Place::There {
                node: replica.node,
                role: replica.role,
            }
        };
        let request = ReplicaRequest {
            partition: replica.partition,
            epoch: replica.epoch,
            operation,
        };
        Ok(ReplicaWork { place, request })
    }

    /// Carries out work that could not be done inline, on the blocking pool or on another node.
    pub(crate) fn work_elsewhere(
        self: &Arc<Self>,
        slot: usize,
        work: ReplicaWork,
        deadline: Moment,
    ) -> impl Future<Output = WorkDone> + Send + use<> {
        let replicas = self.clone();
        // The work may continue after its request has ended.
        let under_way = self.parts.under_way.begin_owned();
        async move {
            let _under_way = under_way;
            let ReplicaWork { place, request } = work;
            match place {
                Place::Here(replica) => {
                    replicas
                        .work_blocking(slot, replica, request, deadline)
                        .await
                }
                Place::There { node, role } => {
                    let asked =
                        replicas.ask_peer(node, PeerRequest::Replica { role, request }, deadline);
                    let (replied, is_without_effect) = match asked.await {
                        Ok(reply) => (Ok(reply), false),
                        Err(failure) => {
                            let is_without_effect = failure.is_without_effect();
                            (Err(failure.into_request_error()), is_without_effect)
                        }
                    };
                    WorkDone {
                        slot,
                        replied,
                        queued: Duration::ZERO,
                        is_without_effect,
                    }
                }
            }
        }
    }

    /// Asks another node, until `deadline` at the latest.
    pub(crate) async fn ask_peer(
        &self,
        node: NodeId,
        request: PeerRequest,
        deadline: Moment,
    ) -> Result<ReplicaReply, PeerFailure> {
        let Some(remote) = &self.remote else {
            return Err(PeerFailure::NotReached("this node is alone".into()));
        };
        remote.peers.request(node, request, deadline).await
    }

    async fn work_blocking(
        &self,
        slot: usize,
        replica: LocalReplica,
        request: ReplicaRequest,
        deadline: Moment,
    ) -> WorkDone {
        let runtime = self.parts.runtime.clone();
        let (asked, now) = (runtime.now(), self.parts.wall_time());
        // The thread continues after the caller has stopped waiting.
        let under_way = self.parts.under_way.begin_owned();
        let work = self.parts.runtime.blocking(move || {
            let _under_way = under_way;
            let started = runtime.now();
            let reply = replica.handle_blocking(&request, now);
            (reply, started.since(asked))
        });
        let remaining = deadline.since(asked);
        let (replied, queued) = match self.parts.runtime.timeout(remaining, work).await {
            Ok((reply, queued)) => (Ok(reply), queued),
            Err(_) => (Err(RequestError::Timeout), Duration::ZERO),
        };
        WorkDone {
            slot,
            replied,
            queued,
            is_without_effect: false,
        }
    }

    /// Sends an outdated replica the object that it lacks. The client does not wait.
    pub(crate) fn repair(
        self: &Arc<Self>,
        plan: &Plan,
        slot: usize,
        object: Arc<Object>,
        had_nothing: bool,
    ) {
        let repaired = repaired_at(plan, slot, &object, had_nothing);
        let operation = Operation::Store {
            key: plan.key.clone(),
            object,
            resolution: plan.resolution(),
            tag: plan.tag(),
            // No client waits for it, and the other replicas have the object.
            durability: Durability::Buffered,
        };
        self.work_unawaited(plan, slot, operation, repaired);
    }

    /// Replaces a damaged object of a replica. The client does not wait.
    pub(crate) fn mend(self: &Arc<Self>, plan: &Plan, slot: usize, object: Arc<Object>) {
        let repaired = repaired_at(plan, slot, &object, false);
        let operation = Operation::Mend {
            key: plan.key.clone(),
            object,
            resolution: plan.resolution(),
            tag: plan.tag(),
        };
        self.work_unawaited(plan, slot, operation, repaired);
    }

    /// Carries out an operation that updates a replica as a read repair does. The caller waits;
    /// true when the object is there and durable.
    pub(crate) async fn repair_awaited(
        self: &Arc<Self>,
        plan: &Plan,
        slot: usize,
        operation: Operation,
        repaired: Repaired,
        deadline: Moment,
    ) -> bool {
        let Ok(work) = self.work(plan, slot, operation) else {
            return false;
        };
        let now = self.parts.runtime.now();
        self.parts.meter.read_repaired(now);
        self.parts.meter.replica_repaired(repaired, now);
        let done = self.work_elsewhere(slot, work, deadline).await;
        match done.replied {
            Ok(ReplicaReply::Received { durable }) => match durable {
                Durable::Already => true,
                Durable::After(ticket) => {
                    let runtime = self.parts.runtime.clone();
                    let synced = await_sync(runtime, slot, ticket, deadline);
                    synced.await.1.is_ok()
                }
            },
            _ => false,
        }
    }

    fn work_unawaited(
        self: &Arc<Self>,
        plan: &Plan,
        slot: usize,
        operation: Operation,
        repaired: Repaired,
    ) {
        let Ok(work) = self.work(plan, slot, operation) else {
            return;
        };
        let now = self.parts.runtime.now();
        let Some(pass) = self.repairs.enter_owned() else {
            self.parts.meter.repair_skipped(now);
            return;
        };
        self.parts.meter.read_repaired(now);
        self.parts.meter.replica_repaired(repaired, now);
        let partition = work.request.partition.number();
        let (replicas, done) = (
            self.clone(),
            self.work_elsewhere(slot, work, now.plus(REPAIR_TIMEOUT)),
        );
        self.parts.runtime.spawn("read repair", async move {
            let failure = match done.await.replied {
                Ok(ReplicaReply::Failed(failure)) => Some(failure.to_string()),
                Ok(_) => None,
                Err(error) => Some(error.in_full()),
            };
            let now = replicas.parts.runtime.now().elapsed();
            if let Some(error) = failure
                && let Some(left_out) = replicas.repair_log.take(now)
            {
                tracing::warn!(event = "read_repair_failed", partition, error, left_out);
            }
            drop(pass);
        });
    }

    /// Counts, at its vnode, a write of this node that a full disk kept from becoming durable.
    pub(crate) fn note_disk_full(&self, plan: &Plan, slot: usize, error: &RequestError) {
        let replica = plan
            .replicas
            .get(slot)
            .filter(|it| it.node == self.parts.node);
        if let (RequestError::DiskFull(_), Some(replica)) = (error, replica)
            && let Some(vnode) = self.parts.vnodes.vnode(replica.partition)
        {
            vnode.note_disk_full();
        }
    }

    /// True when another plan may succeed after this failure: the replica has another ring, or its
    /// store is not open, which was unknown before.
    pub(crate) fn is_to_be_replanned(
        &self,
        plan: &Plan,
        slot: usize,
        failure: &ReplicaFailure,
    ) -> bool {
        let is_unopened = matches!(failure, ReplicaFailure::NotOpen { .. });
        let note = |it: &Replica| self.unopened.pass_over(it.node, it.partition);
        is_misplanned(failure) || is_unopened && plan.replicas.get(slot).is_some_and(note)
    }

    /// True when a replica of this node has no store yet or no longer: the ring has just changed,
    /// and this node is about to follow.
    pub(crate) fn is_ring_changing(&self, error: &RequestError) -> bool {
        self.remote.is_some() && *error == RequestError::VnodeNotReady
    }

    /// Logs the failure of a replica if the client's error has less detail.
    pub(crate) fn note_failure(&self, plan: &Plan, slot: usize, error: &RequestError) {
        let is_notable = matches!(
            error,
            RequestError::DiskFull(_) | RequestError::Storage(_) | RequestError::Internal(_)
        );
        if !is_notable || plan.replicas.len() == 1 {
            return;
        }
        let partition = plan.replicas.get(slot).map(|it| it.partition.number());
        let now = self.parts.runtime.now().elapsed();
        if let Some(left_out) = self.replica_log.take(Some(error), now) {
            let error = error.in_full();
            tracing::warn!(event = "replica_failed", partition, error, left_out);
        }
    }
}

/// A replica of a plan that lacks an object.
pub(crate) fn repaired_at(
    plan: &Plan,
    slot: usize,
    object: &Object,
    had_nothing: bool,
) -> Repaired {
    let role = plan.replicas.get(slot).map(|it| it.role);
    let mut siblings = object.siblings().iter();
    Repaired {
        is_fallback: role == Some(Role::Fallback),
        had_nothing,
        kind: siblings.find_map(|it| Kind::from_content_type(&it.metadata.content_type)),
    }
}

/// Waits until a received object is stored.
pub(crate) async fn await_sync(
    runtime: Runtime,
    slot: usize,
    ticket: SyncTicket,
    deadline: Moment,
) -> (usize, Result<(), RequestError>) {
    let remaining = deadline.since(runtime.now());
    let synced = runtime.timeout(remaining, synced(&runtime, ticket)).await;
    let outcome = match synced {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.kind() == ErrorKind::Full => {
            Err(RequestError::DiskFull(error.to_string()))
        }
        Ok(Err(error)) => Err(RequestError::Storage(error.to_string())),
        Err(_) => Err(RequestError::Timeout),
    };
    (slot, outcome)
}

/// True when the request and the replica had different rings.
pub(crate) fn is_misplanned(failure: &ReplicaFailure) -> bool {
    matches!(
        failure,
        ReplicaFailure::StaleEpoch { .. } | ReplicaFailure::NotServing
    )
}

pub(crate) fn no_reply() -> RequestError {
    RequestError::Internal("a machine ended without a reply".into())
}

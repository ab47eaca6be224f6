//! What the driver does with one replica: ask it inline, ask it on the blocking pool, wait for its
//! sync, and bring it up to date behind the client's back.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Durability, ErrorKind, Reading, SyncTicket};
use kvorum_object::Object;
use kvorum_runtime::Moment;
use kvorum_vnode::{Handled, Operation, ReplicaFailure, ReplicaReply, ReplicaRequest, Vnode};

use crate::coordinator::Coordinator;
use crate::error::RequestError;
use crate::plan::Plan;

/// What a replica said; its own refusals are among the replies.
pub(crate) type Replied = Result<ReplicaReply, RequestError>;

/// How far a replica got on the thread that asked.
pub(crate) enum Asked {
    /// It answered.
    Answered(Replied),
    /// It would have to wait for a device.
    WouldBlock(ReplicaWork),
}

/// A request to a replica that has to be carried out where blocking is allowed.
pub(crate) struct ReplicaWork {
    vnode: Arc<Vnode>,
    request: ReplicaRequest,
}

/// What became of work on the blocking pool.
pub(crate) struct WorkDone {
    pub(crate) slot: usize,
    pub(crate) replied: Replied,
    /// How long it waited for a thread.
    pub(crate) queued: Duration,
}

impl Coordinator {
    /// Has a replica carry out an operation on this thread, if memory suffices.
    pub(crate) fn ask(&self, plan: &Plan, slot: usize, operation: Operation) -> Asked {
        let work = match self.work(plan, slot, operation) {
            Ok(work) => work,
            Err(error) => return Asked::Answered(Err(error)),
        };
        let now = self.wall_time();
        match work.vnode.handle(&work.request, now, Reading::CachedOnly) {
            Handled::Done(reply) => Asked::Answered(Ok(reply)),
            Handled::WouldBlock => Asked::WouldBlock(work),
        }
    }

    fn work(
        &self,
        plan: &Plan,
        slot: usize,
        operation: Operation,
    ) -> Result<ReplicaWork, RequestError> {
        let replica = plan.replicas.get(slot).ok_or_else(no_reply)?;
        let vnode = self.parts.vnodes.vnode(replica.partition);
        let vnode = vnode.ok_or(RequestError::VnodeNotReady)?;
        let request = ReplicaRequest {
            partition: replica.partition,
            epoch: replica.epoch,
            operation,
        };
        Ok(ReplicaWork { vnode, request })
    }

    /// Carries out on the blocking pool what could not be done inline.
    pub(crate) async fn work_blocking(
        &self,
        slot: usize,
        work: ReplicaWork,
        deadline: Moment,
    ) -> WorkDone {
        let runtime = self.parts.runtime.clone();
        let (asked, now) = (runtime.now(), self.wall_time());
        let work = self.parts.runtime.blocking(move || {
            let started = runtime.now();
            let ReplicaWork { vnode, request } = work;
            let handled = vnode.handle(&request, now, Reading::MayBlock);
            (handled, started.since(asked))
        });
        let remaining = deadline.since(asked);
        match self.parts.runtime.timeout(remaining, work).await {
            Ok((Handled::Done(reply), queued)) => WorkDone {
                slot,
                replied: Ok(reply),
                queued,
            },
            Ok((Handled::WouldBlock, queued)) => WorkDone {
                slot,
                replied: Err(RequestError::Internal(
                    "a read that may block said it would".into(),
                )),
                queued,
            },
            Err(_) => WorkDone {
                slot,
                replied: Err(RequestError::Timeout),
                queued: Duration::ZERO,
            },
        }
    }

    /// Waits until what a replica has received is stored.
    pub(crate) async fn await_sync(
        &self,
        slot: usize,
        ticket: SyncTicket,
        deadline: Moment,
    ) -> (usize, Result<(), RequestError>) {
        let runtime = &self.parts.runtime;
        let remaining = deadline.since(runtime.now());
        let synced = if ticket.is_driven() {
            runtime.timeout(remaining, ticket).await
        } else {
            let wait = runtime.blocking(move || ticket.wait());
            runtime.timeout(remaining, wait).await
        };
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

    /// Sends a replica that is behind what it lacks, behind the client's back.
    pub(crate) fn repair(&self, plan: &Plan, slot: usize, object: Arc<Object>) {
        let operation = Operation::Store {
            key: plan.key.clone(),
            object,
            resolution: plan.resolution(),
            // Nobody waits for it, and the others have it.
            durability: Durability::Buffered,
        };
        self.work_unawaited(plan, slot, operation);
    }

    /// Replaces what a replica found damaged, behind the client's back.
    pub(crate) fn mend(&self, plan: &Plan, slot: usize, object: Arc<Object>) {
        let operation = Operation::Mend {
            key: plan.key.clone(),
            object,
            resolution: plan.resolution(),
        };
        self.work_unawaited(plan, slot, operation);
    }

    fn work_unawaited(&self, plan: &Plan, slot: usize, operation: Operation) {
        let Ok(ReplicaWork { vnode, request }) = self.work(plan, slot, operation) else {
            return;
        };
        let gate = self.repairs.clone();
        if !gate.count_in() {
            return;
        }
        let (runtime, now) = (self.parts.runtime.clone(), self.wall_time());
        self.parts.meter.read_repaired(runtime.now());
        self.parts.runtime.spawn("read repair", async move {
            let partition = request.partition.number();
            let work = runtime.blocking(move || vnode.handle(&request, now, Reading::MayBlock));
            if let Handled::Done(ReplicaReply::Failed(failure)) = work.await {
                tracing::warn!(event = "read_repair_failed", partition, error = %failure);
            }
            gate.count_out();
        });
    }

    /// Logs why a replica failed where the client is told less than that.
    pub(crate) fn note_failure(&self, plan: &Plan, slot: usize, error: &RequestError) {
        let is_notable = matches!(
            error,
            RequestError::DiskFull(_) | RequestError::Storage(_) | RequestError::Internal(_)
        );
        if !is_notable || plan.replicas.len() == 1 {
            return;
        }
        let partition = plan.replicas.get(slot).map(|it| it.partition.number());
        tracing::warn!(event = "replica_failed", partition, error = %error);
    }
}

pub(crate) fn request_error(failure: ReplicaFailure) -> RequestError {
    match failure {
        ReplicaFailure::ConditionFound => RequestError::MatchFound,
        ReplicaFailure::ConditionModified => RequestError::Modified,
        ReplicaFailure::ConditionAbsent => RequestError::ConditionNotFound,
        ReplicaFailure::ObjectTooLarge { bytes, bytes_max } => {
            RequestError::ObjectTooLarge { bytes, bytes_max }
        }
        ReplicaFailure::TooManySiblings {
            siblings,
            siblings_max,
        } => RequestError::TooManySiblings {
            siblings,
            siblings_max,
        },
        ReplicaFailure::Full(detail) => RequestError::DiskFull(detail),
        ReplicaFailure::Damaged(detail) | ReplicaFailure::Storage(detail) => {
            RequestError::Storage(detail)
        }
        ReplicaFailure::Internal(detail) => RequestError::Internal(detail),
        // The ring has moved on between planning and asking: the next plan will know.
        ReplicaFailure::StaleEpoch { .. } => RequestError::VnodeNotReady,
    }
}

pub(crate) fn no_reply() -> RequestError {
    RequestError::Internal("a machine ended without a reply".into())
}

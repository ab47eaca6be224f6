//! Comparisons of replicas for anti-entropy: one key at all of them, and questions about their trees.
//!
//! The get machine compares a key, and waits for every replica. It updates outdated replicas as a read
//! repair does. But the caller waits until that is durable, and learns if all replicas were updated.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Durability;
use kvorum_encoding::StorageKey;
use kvorum_object::Object;
use kvorum_ring::{NodeId, Partition};
use kvorum_runtime::Moment;
use kvorum_vnode::wire::PeerRequest;
use kvorum_vnode::{
    Detail, Operation, PageFailure, ReplicaFailure, ReplicaReply, TreeAnswer, TreeRequest,
};

use crate::attempts::Attempts;
use crate::error::RequestError;
use crate::get::{GetAnswer, GetEffect, GetEffects, GetEvent, GetMachine, SlotSet};
use crate::local_vnodes::read_blocking;
use crate::parts::Parts;
use crate::plan::{Plan, Purpose};
use crate::quorum::ReadQuorum;
use crate::replicas::{Asked, Replicas, Replied, no_reply, repaired_at};
use crate::trace::Repaired;
use crate::waiting::Waiting;

/// Compares replicas.
pub(crate) struct Comparisons {
    replicas: Arc<Replicas>,
    attempts: Arc<Attempts>,
}

/// A replica to update.
struct Behind {
    slot: usize,
    operation: Operation,
    repaired: Repaired,
}

impl Comparisons {
    pub(crate) fn new(replicas: Arc<Replicas>, attempts: Arc<Attempts>) -> Self {
        Self { replicas, attempts }
    }

    /// See [`crate::Coordinator::mend_replicas`].
    pub(crate) async fn mend(&self, key: &StorageKey, timeout: Duration) -> bool {
        let Ok(address) = key.decode() else {
            return false;
        };
        let plan = self
            .attempts
            .plan(&address, None, Some(false), Purpose::Read);
        let Ok(plan) = plan else {
            return false;
        };
        let deadline = self.replicas.parts.runtime.now().plus(timeout);
        let (behind, have_all_answered) = self.compare(&plan, deadline).await;
        let mut repairs = Waiting::new();
        for Behind {
            slot,
            operation,
            repaired,
        } in behind
        {
            repairs.push(
                self.replicas
                    .repair_awaited(&plan, slot, operation, repaired, deadline),
            );
        }
        let mut is_mended = have_all_answered && plan.is_complete();
        while let Some(is_done) = repairs.next().await {
            is_mended &= is_done;
        }
        is_mended
    }

    /// The replicas that are behind, and true if all have answered.
    async fn compare(&self, plan: &Plan, deadline: Moment) -> (Vec<Behind>, bool) {
        let replicas = &self.replicas;
        let n = plan.replicas.len();
        let quorum = ReadQuorum {
            n,
            r: n,
            pr: 0,
            node_confirms: 0,
            basic_quorum: false,
            notfound_ok: true,
        };
        let mut effects = GetEffects::new();
        let all = SlotSet::ALL;
        let resolution = plan.resolution();
        let mut machine = GetMachine::start(&plan.replicas, all, quorum, resolution, &mut effects);
        let mut waiting = Waiting::new();
        let (mut behind, mut have_all_answered) = (Vec::new(), true);
        loop {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    GetEffect::Ask { slot } | GetEffect::Fetch { slot } => {
                        let operation = Operation::Get {
                            key: plan.key.clone(),
                            detail: Detail::Whole,
                        };
                        match replicas.ask(plan, slot, operation) {
                            Asked::Answered(replied) => {
                                let answer = answer_of(replied);
                                have_all_answered &= has_answered(&answer);
                                machine.step(GetEvent::Answer { slot, answer }, &mut effects);
                            }
                            Asked::WouldBlock(work) => {
                                waiting.push(replicas.work_elsewhere(slot, work, deadline));
                            }
                        }
                    }
                    GetEffect::Repair {
                        slot,
                        object,
                        had_nothing,
                    } => behind.push(behind_at(plan, slot, object, had_nothing)),
                    GetEffect::Mend { slot, object } => behind.push(damaged_at(plan, slot, object)),
                    GetEffect::Reply(_) | GetEffect::Done => {}
                }
            }
            if !effects.is_empty() {
                continue;
            }
            let Some(done) = waiting.next().await else {
                return (behind, have_all_answered);
            };
            let answer = answer_of(done.replied);
            have_all_answered &= has_answered(&answer);
            let slot = done.slot;
            machine.step(GetEvent::Answer { slot, answer }, &mut effects);
        }
    }

    /// See [`crate::Coordinator::ask_about_tree`].
    pub(crate) async fn ask(
        &self,
        node: NodeId,
        request: TreeRequest,
        timeout: Duration,
    ) -> Result<TreeAnswer, RequestError> {
        if node == self.replicas.parts.node {
            return self.ask_here(request, timeout).await;
        }
        let deadline = self.replicas.parts.runtime.now().plus(timeout);
        let asked = self
            .replicas
            .ask_peer(node, PeerRequest::Tree(request), deadline);
        match asked.await {
            Ok(ReplicaReply::Trees(answer)) => Ok(answer),
            Ok(ReplicaReply::Failed(failure)) => Err(RequestError::of_replica(failure)),
            Ok(_) => Err(no_reply()),
            Err(failure) => Err(failure.into_request_error()),
        }
    }

    async fn ask_here(
        &self,
        request: TreeRequest,
        timeout: Duration,
    ) -> Result<TreeAnswer, RequestError> {
        let parts = &self.replicas.parts;
        let vnode = parts.vnodes.vnode(request.partition);
        let vnode = vnode.ok_or_else(|| self.absent(request.partition))?;
        let Parts { runtime, meter, .. } = parts;
        let answer = read_blocking(runtime, meter, timeout, move |clock, lease| {
            vnode.answer_about_trees(&request, clock, lease)
        });
        answer.await.0.map_err(|failure| match failure {
            PageFailure::OutOfTime => RequestError::Timeout,
            PageFailure::Failed(failure) => RequestError::of_replica(failure),
        })
    }

    fn absent(&self, partition: Partition) -> RequestError {
        RequestError::of_replica(self.replicas.parts.vnodes.absence(partition).into())
    }
}

fn answer_of(replied: Replied) -> GetAnswer {
    match replied {
        Ok(ReplicaReply::Found(object)) => GetAnswer::Found(object),
        Ok(ReplicaReply::NotFound) => GetAnswer::NotFound,
        Ok(ReplicaReply::Failed(failure @ ReplicaFailure::Damaged(_))) => {
            GetAnswer::Damaged(RequestError::of_replica(failure))
        }
        Ok(ReplicaReply::Failed(failure)) => GetAnswer::Failed(RequestError::of_replica(failure)),
        Ok(_) => GetAnswer::Failed(no_reply()),
        Err(error) => GetAnswer::Failed(error),
    }
}

/// True for damaged replicas too, since they are mended.
fn has_answered(answer: &GetAnswer) -> bool {
    !matches!(answer, GetAnswer::Failed(_))
}

fn behind_at(plan: &Plan, slot: usize, object: Arc<Object>, had_nothing: bool) -> Behind {
    Behind {
        slot,
        repaired: repaired_at(plan, slot, &object, had_nothing),
        operation: Operation::Store {
            key: plan.key.clone(),
            object,
            resolution: plan.resolution(),
            tag: plan.tag(),
            durability: Durability::Grouped,
        },
    }
}

fn damaged_at(plan: &Plan, slot: usize, object: Arc<Object>) -> Behind {
    Behind {
        slot,
        repaired: repaired_at(plan, slot, &object, false),
        operation: Operation::Mend {
            key: plan.key.clone(),
            object,
            resolution: plan.resolution(),
            tag: plan.tag(),
        },
    }
}

//! Driving a get: executes the machine's effects and feeds the answers back.

use std::sync::Arc;

use kvorum_encoding::Address;
use kvorum_object::{Object, Resolution};
use kvorum_vnode::{Condition, Detail, Operation, ReplicaFailure, ReplicaReply};

use crate::coordinator::{Coordinator, Progress};
use crate::error::RequestError;
use crate::get::{GetAnswer, GetEffect, GetEffects, GetEvent, GetMachine};
use crate::plan::Plan;
use crate::replicas::{Asked, Replied, no_reply, request_error};
use crate::request::{GetOptions, PutOptions};
use crate::waiting::Waiting;

/// A get under way.
struct GetRun<'a> {
    plan: &'a Plan,
    detail: Detail,
    machine: GetMachine,
    /// Executed in order; those up to `executed` are.
    effects: GetEffects,
    executed: usize,
    reply: Option<Result<Option<Arc<Object>>, RequestError>>,
}

impl Coordinator {
    pub(crate) async fn drive_get(
        &self,
        address: &Address,
        options: &GetOptions,
        progress: &mut Progress,
    ) -> Result<Option<Arc<Object>>, RequestError> {
        let plan = self.plan(address, options.n_val, options.sloppy_quorum)?;
        let quorum = plan.read_quorum(options)?;
        let resolution = plan.resolution();
        let (machine, effects) = GetMachine::start(&plan.replicas, quorum, resolution);
        let mut run = GetRun {
            plan: &plan,
            detail: options.detail,
            machine,
            effects,
            executed: 0,
            reply: None,
        };
        let mut waiting = Waiting::new();
        loop {
            while let Some(effect) = run.next_effect() {
                if let Some((slot, work)) = self.execute_get(&mut run, effect) {
                    waiting.push(self.work_blocking(slot, work, progress.deadline));
                }
            }
            let Some(done) = waiting.next().await else {
                break;
            };
            progress.trace.queue += done.queued;
            self.take_answer(&mut run, done.slot, done.replied);
        }
        let found = run.reply.unwrap_or_else(|| Err(no_reply()))?;
        Ok(found.map(|object| visible(object, resolution)))
    }

    /// Executes one effect; returns the work that it leaves for the blocking pool.
    fn execute_get(
        &self,
        run: &mut GetRun<'_>,
        effect: GetEffect,
    ) -> Option<(usize, crate::replicas::ReplicaWork)> {
        match effect {
            GetEffect::Ask { slot } => {
                let (key, detail) = (run.plan.key.clone(), run.detail);
                match self.ask(run.plan, slot, Operation::Get { key, detail }) {
                    Asked::Answered(replied) => self.take_answer(run, slot, replied),
                    Asked::WouldBlock(work) => return Some((slot, work)),
                }
            }
            GetEffect::Reply(outcome) => run.reply = Some(outcome),
            // A head has no values to give.
            GetEffect::Repair { .. } | GetEffect::Mend { .. } if run.detail == Detail::Head => {}
            GetEffect::Repair { slot, object } => self.repair(run.plan, slot, object),
            GetEffect::Mend { slot, object } => self.mend(run.plan, slot, object),
            GetEffect::Done => {}
        }
        None
    }

    fn take_answer(&self, run: &mut GetRun<'_>, slot: usize, replied: Replied) {
        let answer = match replied {
            Ok(ReplicaReply::Found(object)) => GetAnswer::Found(object),
            Ok(ReplicaReply::NotFound) => GetAnswer::NotFound,
            Ok(ReplicaReply::Failed(failure @ ReplicaFailure::Damaged(_))) => {
                GetAnswer::Damaged(request_error(failure))
            }
            Ok(ReplicaReply::Failed(failure)) => GetAnswer::Failed(request_error(failure)),
            Ok(_) => GetAnswer::Failed(no_reply()),
            Err(RequestError::Timeout) => return run.step(GetEvent::Deadline),
            Err(error) => GetAnswer::Failed(error),
        };
        if let GetAnswer::Failed(error) | GetAnswer::Damaged(error) = &answer {
            self.note_failure(run.plan, slot, error);
        }
        run.step(GetEvent::Answer { slot, answer });
    }

    /// Whether a condition holds of what a quorum of the replicas knows.
    pub(crate) async fn check_by_quorum(
        &self,
        address: &Address,
        condition: &Condition,
        options: &PutOptions,
        progress: &mut Progress,
    ) -> Result<(), RequestError> {
        let head = GetOptions {
            n_val: options.n_val,
            sloppy_quorum: options.sloppy_quorum,
            detail: Detail::Head,
            ..GetOptions::default()
        };
        let found = self.drive_get(address, &head, progress).await?;
        let live = found.filter(|object| !object.is_tombstone());
        match (condition, live) {
            (Condition::Absent, Some(_)) => Err(RequestError::MatchFound),
            (Condition::Version(_), None) => Err(RequestError::ConditionNotFound),
            (Condition::Version(expected), Some(object)) if object.clock() != expected => {
                Err(RequestError::Modified)
            }
            _ => Ok(()),
        }
    }
}

impl GetRun<'_> {
    fn next_effect(&mut self) -> Option<GetEffect> {
        let next = self.effects.get_mut(self.executed)?;
        self.executed += 1;
        Some(std::mem::replace(next, GetEffect::Done))
    }

    fn step(&mut self, event: GetEvent) {
        self.effects.extend(self.machine.step(event));
    }
}

/// What clients of the bucket may see. A replica alone may hold siblings that the bucket does not
/// want, from a time when it did.
fn visible(object: Arc<Object>, resolution: Resolution) -> Arc<Object> {
    if resolution == Resolution::KeepSiblings || object.siblings().len() == 1 {
        return object;
    }
    Arc::new(kvorum_object::resolve(Object::clone(&object), resolution))
}

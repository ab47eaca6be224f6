//! Driving a get: executes the machine's effects and feeds the answers back.

use std::sync::Arc;

use kvorum_encoding::Address;
use kvorum_object::{Object, Resolution};
use kvorum_vnode::{Condition, Detail, Operation, ReplicaFailure, ReplicaReply};

use crate::coordinator::{Coordinator, Progress};
use crate::error::RequestError;
use crate::get::{GetAnswer, GetEffect, GetEffects, GetEvent, GetMachine};
use crate::plan::Plan;
use crate::replicas::{Asked, ReplicaWork, Replied, no_reply, request_error};
use crate::request::{GetOptions, PutOptions};
use crate::waiting::Waiting;

/// What a get ends with.
pub(crate) type GetReply = Result<Option<Arc<Object>>, RequestError>;

/// How far a get came without waiting. Most end here, so what waits is kept out of their way, in a
/// box: the future of a request that never waits stays small.
pub(crate) enum StartedGet {
    /// It has ended.
    Ended(GetReply),
    /// Some replicas have to be asked where blocking is allowed.
    Waits(Box<WaitingGet>),
}

/// A get whose replicas, some of them, would have had to wait for a device.
pub(crate) struct WaitingGet {
    run: GetRun,
    work: Vec<(usize, ReplicaWork)>,
}

/// A get under way.
struct GetRun {
    plan: Plan,
    detail: Detail,
    machine: GetMachine,
    /// Executed in order; those up to `executed` are.
    effects: GetEffects,
    executed: usize,
    reply: Option<GetReply>,
}

impl Coordinator {
    pub(crate) async fn drive_get(
        &self,
        address: &Address,
        options: &GetOptions,
        progress: &mut Progress,
    ) -> GetReply {
        match self.start_get(address, options) {
            StartedGet::Ended(reply) => reply,
            StartedGet::Waits(waiting) => self.wait_for_get(waiting, progress).await,
        }
    }

    /// Plans a get, asks every replica, and goes as far as memory suffices.
    pub(crate) fn start_get(&self, address: &Address, options: &GetOptions) -> StartedGet {
        let planned = self.plan(address, options.n_val, options.sloppy_quorum);
        let planned = planned.and_then(|plan| Ok((plan.read_quorum(options)?, plan)));
        let (quorum, plan) = match planned {
            Ok(planned) => planned,
            Err(error) => return StartedGet::Ended(Err(error)),
        };
        let mut effects = GetEffects::new();
        let machine = GetMachine::start(&plan.replicas, quorum, plan.resolution(), &mut effects);
        let mut run = GetRun {
            plan,
            detail: options.detail,
            machine,
            effects,
            executed: 0,
            reply: None,
        };
        let mut work = Vec::new();
        self.execute_get(&mut run, |slot, left| work.push((slot, left)));
        if work.is_empty() {
            StartedGet::Ended(run.into_reply())
        } else {
            StartedGet::Waits(Box::new(WaitingGet { run, work }))
        }
    }

    /// The rest of a get that has to wait.
    pub(crate) async fn wait_for_get(
        &self,
        get: Box<WaitingGet>,
        progress: &mut Progress,
    ) -> GetReply {
        let WaitingGet { mut run, work } = *get;
        let mut waiting = Waiting::new();
        for (slot, left) in work {
            waiting.push(self.work_blocking(slot, left, progress.deadline));
        }
        while let Some(done) = waiting.next().await {
            progress.trace.queue += done.queued;
            self.take_answer(&mut run, done.slot, done.replied);
            self.execute_get(&mut run, |slot, left| {
                waiting.push(self.work_blocking(slot, left, progress.deadline));
            });
        }
        run.into_reply()
    }

    /// Executes what is to be done; what would have to wait goes to `leave`.
    fn execute_get(&self, run: &mut GetRun, mut leave: impl FnMut(usize, ReplicaWork)) {
        while let Some(effect) = run.next_effect() {
            match effect {
                GetEffect::Ask { slot } => {
                    let (key, detail) = (run.plan.key.clone(), run.detail);
                    match self.ask(&run.plan, slot, Operation::Get { key, detail }) {
                        Asked::Answered(replied) => self.take_answer(run, slot, replied),
                        Asked::WouldBlock(work) => leave(slot, work),
                    }
                }
                GetEffect::Reply(outcome) => run.reply = Some(outcome),
                // A head has no values to give.
                GetEffect::Repair { .. } | GetEffect::Mend { .. } if run.detail == Detail::Head => {
                }
                GetEffect::Repair { slot, object } => self.repair(&run.plan, slot, object),
                GetEffect::Mend { slot, object } => self.mend(&run.plan, slot, object),
                GetEffect::Done => {}
            }
        }
    }

    fn take_answer(&self, run: &mut GetRun, slot: usize, replied: Replied) {
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
            self.note_failure(&run.plan, slot, error);
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

impl GetRun {
    fn next_effect(&mut self) -> Option<GetEffect> {
        let next = self.effects.get_mut(self.executed)?;
        self.executed += 1;
        Some(std::mem::replace(next, GetEffect::Done))
    }

    fn step(&mut self, event: GetEvent) {
        self.machine.step(event, &mut self.effects);
    }

    fn into_reply(self) -> GetReply {
        let resolution = self.plan.resolution();
        let found = self.reply.unwrap_or_else(|| Err(no_reply()))?;
        Ok(found.map(|object| visible(object, resolution)))
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

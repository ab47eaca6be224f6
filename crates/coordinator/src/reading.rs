//! Driving a get: executes the machine's effects and feeds the answers back.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_encoding::Address;
use kvorum_object::{Object, Resolution};
use kvorum_ring::Role;
use kvorum_runtime::{PlantedDefect, Runtime, is_planted};
use kvorum_vnode::{Condition, Detail, Operation, ReplicaFailure, ReplicaReply};

use crate::coordinator::{Coordinator, Progress};
use crate::error::RequestError;
use crate::get::{GetAnswer, GetEffect, GetEffects, GetEvent, GetMachine, SlotSet};
use crate::hands::Hands;
use crate::opening::OpeningWait;
use crate::plan::Plan;
use crate::quorum::ReadQuorum;
use crate::replicas::{Asked, ReplicaWork, Replied, WorkDone, no_reply, request_error};
use crate::request::{GetOptions, PutOptions};
use crate::waiting::Waiting;

/// The first pause before a request is planned anew, and the longest: the ring that others know is on
/// its way here, or this one's to them.
pub(crate) const REPLAN_PAUSE_MIN: Duration = Duration::from_millis(5);
const REPLAN_PAUSE_MAX: Duration = Duration::from_millis(500);

/// One get in so many asks every replica from the start, so that a replica which is behind is found and
/// repaired by reading even where the quorum never needs it.
const GETS_THAT_ASK_ALL_EVERY: u64 = 16;
/// So long those that were asked first are waited for before the others are asked: some times what a
/// replica takes on a busy node, and less than a client notices.
const PATIENCE: Duration = Duration::from_millis(20);
/// So long an answer is waited for that no client waits for.
const REST_PATIENCE: Duration = Duration::from_secs(1);

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

/// A get whose replicas, some of them, have to be waited for.
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
    /// A replica knows a newer ring than the one that the plan was made with, or does not know it yet.
    is_misplanned: bool,
    /// The replicas that are asked for heads while the client wants values.
    heads: SlotSet,
}

impl Coordinator {
    pub(crate) async fn drive_get(
        &self,
        address: &Address,
        options: &GetOptions,
        progress: &mut Progress,
    ) -> GetReply {
        let mut opening = OpeningWait::default();
        loop {
            let reply = match self.start_get(address, options) {
                StartedGet::Ended(reply) => reply,
                StartedGet::Waits(waiting) => {
                    self.wait_for_get(waiting, address, options, progress).await
                }
            };
            match reply {
                Err(RequestError::VnodeOpening)
                    if self.wait_to_open(&mut opening, progress).await => {}
                reply => return reply,
            }
        }
    }

    /// Plans a get, asks every replica, and goes as far as memory suffices.
    pub(crate) fn start_get(&self, address: &Address, options: &GetOptions) -> StartedGet {
        // Plan and machine are large, and moved no more often than they have to be.
        let plan = match self.plan(address, options.n_val, options.sloppy_quorum) {
            Ok(plan) => plan,
            Err(error) => return StartedGet::Ended(Err(error)),
        };
        let quorum = match plan.read_quorum(options) {
            Ok(quorum) => quorum,
            Err(error) => return StartedGet::Ended(Err(error)),
        };
        let mut effects = GetEffects::new();
        let first = self.asked_first(&plan, &quorum);
        let resolution = plan.resolution();
        let machine = GetMachine::start(&plan.replicas, first, quorum, resolution, &mut effects);
        let heads = match &self.parts.remote {
            Some(remote) if remote.heads_first && options.detail == Detail::Whole => {
                self.heads_of(&plan, first)
            }
            _ => SlotSet::NONE,
        };
        let mut run = GetRun {
            plan,
            detail: options.detail,
            machine,
            effects,
            executed: 0,
            reply: None,
            is_misplanned: false,
            heads,
        };
        let mut work = Vec::new();
        self.parts
            .execute_get(&mut run, |slot, left| work.push((slot, left)));
        if work.is_empty() && !run.is_to_be_replanned() {
            StartedGet::Ended(run.take_reply())
        } else {
            StartedGet::Waits(Box::new(WaitingGet { run, work }))
        }
    }

    /// Whom to ask first: as many as the quorum needs, primaries before stand-ins, the one here before
    /// others, and of those others in turn.
    fn asked_first(&self, plan: &Plan, quorum: &ReadQuorum) -> SlotSet {
        let (replicas, needed) = (&plan.replicas, quorum.needed());
        if self.parts.remote.is_none() || needed >= replicas.len() {
            return SlotSet::ALL;
        }
        let number = self.gets.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(GETS_THAT_ASK_ALL_EVERY) {
            return SlotSet::ALL;
        }
        let start = usize::try_from(number).unwrap_or(0) % replicas.len();
        let in_turn = || (start..replicas.len()).chain(0..start);
        let rank = |slot: usize| match &replicas[slot] {
            replica if replica.role == Role::Fallback => 2,
            replica if replica.node != self.parts.node => 1,
            _ => 0,
        };
        let mut first = SlotSet::NONE;
        (0..3)
            .flat_map(|wanted| in_turn().filter(move |slot| rank(*slot) == wanted))
            .take(needed)
            .for_each(|slot| first.insert(slot));
        first
    }

    /// All replicas on other nodes are asked for heads, but for one of the first where none is here.
    fn heads_of(&self, plan: &Plan, first: SlotSet) -> SlotSet {
        let is_here = |slot: usize| plan.replicas[slot].node == self.parts.node;
        let slots = 0..plan.replicas.len().min(64);
        let values_of = match slots.clone().find(|slot| is_here(*slot)) {
            Some(_) => None,
            None => slots.clone().find(|slot| first.contains(*slot)),
        };
        let mut heads = SlotSet::NONE;
        slots
            .filter(|slot| !is_here(*slot) && Some(*slot) != values_of)
            .for_each(|slot| heads.insert(slot));
        heads
    }

    /// The rest of a get that has to wait.
    pub(crate) async fn wait_for_get(
        &self,
        get: Box<WaitingGet>,
        address: &Address,
        options: &GetOptions,
        progress: &mut Progress,
    ) -> GetReply {
        let mut get = get;
        let mut pause = REPLAN_PAUSE_MIN;
        loop {
            let (reply, is_to_be_replanned) = self.run_get(*get, progress).await;
            if !is_to_be_replanned || !self.pause_before_replanning(&mut pause, progress).await {
                return reply;
            }
            match self.start_get(address, options) {
                StartedGet::Ended(reply) => return reply,
                StartedGet::Waits(again) => get = again,
            }
        }
    }

    /// Waits for the ring to be heard of that others know; false when there is no time for that.
    pub(crate) async fn pause_before_replanning(
        &self,
        pause: &mut Duration,
        progress: &Progress,
    ) -> bool {
        let runtime = &self.parts.runtime;
        if runtime.now().plus(*pause) >= progress.deadline {
            return false;
        }
        runtime.sleep(*pause).await;
        *pause = pause.saturating_mul(2).min(REPLAN_PAUSE_MAX);
        true
    }

    /// What a get ends with, and whether another plan may end better.
    async fn run_get(&self, get: WaitingGet, progress: &mut Progress) -> (GetReply, bool) {
        let WaitingGet { mut run, work } = get;
        let (hands, deadline) = (&self.parts, progress.deadline);
        let elsewhere =
            move |hands: &Arc<Hands>, slot, work| hands.work_elsewhere(slot, work, deadline);
        let mut waiting = Waiting::new();
        let mut is_remote = false;
        for (slot, left) in work {
            is_remote |= left.is_remote();
            waiting.push(elsewhere(hands, slot, left));
        }
        loop {
            match run.next_of(&hands.runtime, &mut waiting).await {
                Next::Answer(done) => {
                    progress.trace.queue += done.queued;
                    hands.take_answer(&mut run, done.slot, done.replied);
                }
                Next::Late => run.step(GetEvent::Late),
                Next::Nothing => return run.end(),
            }
            hands.execute_get(&mut run, |slot, left| {
                is_remote |= left.is_remote();
                waiting.push(elsewhere(hands, slot, left));
            });
            if is_remote && run.reply.is_some() && !waiting.is_empty() {
                let ended = run.end();
                hands.spawn_rest_of_get(run, waiting, elsewhere);
                return ended;
            }
        }
    }
}

/// What comes next of replicas that are waited for.
enum Next {
    Answer(WorkDone),
    Late,
    Nothing,
}

impl Hands {
    /// Waits for the replicas that the client did not wait for, a while: some may have to be repaired.
    fn spawn_rest_of_get<F>(
        self: &Arc<Self>,
        run: GetRun,
        waiting: Waiting<F>,
        elsewhere: impl Fn(&Arc<Self>, usize, ReplicaWork) -> F + Send + 'static,
    ) where
        F: Future<Output = WorkDone> + Send + 'static,
    {
        let hands = self.clone();
        let (mut run, mut waiting) = (run, waiting);
        self.runtime.spawn("rest of a get", async move {
            let mut is_over = false;
            while !is_over {
                match hands.runtime.timeout(REST_PATIENCE, waiting.next()).await {
                    Ok(Some(done)) => hands.take_answer(&mut run, done.slot, done.replied),
                    Ok(None) => return,
                    // Those that did answer are not to stay behind for one that does not.
                    Err(_) => {
                        is_over = true;
                        run.step(GetEvent::Deadline);
                    }
                }
                hands.execute_get(&mut run, |slot, left| {
                    waiting.push(elsewhere(&hands, slot, left));
                });
            }
        });
    }

    /// Executes what is to be done; what would have to wait goes to `leave`.
    fn execute_get(self: &Arc<Self>, run: &mut GetRun, mut leave: impl FnMut(usize, ReplicaWork)) {
        while let Some(effect) = run.next_effect() {
            match effect {
                GetEffect::Ask { slot } | GetEffect::Fetch { slot } => {
                    let is_head = matches!(effect, GetEffect::Ask { .. }) && run.is_head(slot);
                    if !is_head {
                        run.heads.remove(slot);
                    }
                    let detail = if is_head { Detail::Head } else { run.detail };
                    let key = run.plan.key.clone();
                    match self.ask(&run.plan, slot, Operation::Get { key, detail }) {
                        Asked::Answered(replied) => self.take_answer(run, slot, replied),
                        Asked::WouldBlock(work) => leave(slot, work),
                    }
                }
                GetEffect::Reply(outcome) => run.reply = Some(outcome),
                // A head has no values to give.
                GetEffect::Repair { .. } | GetEffect::Mend { .. } if run.detail == Detail::Head => {
                }
                GetEffect::Repair { .. } if is_planted(PlantedDefect::ReadRepairDropped) => {}
                GetEffect::Repair {
                    slot,
                    object,
                    had_nothing,
                } => self.repair(&run.plan, slot, object, had_nothing),
                GetEffect::Mend { slot, object } => self.mend(&run.plan, slot, object),
                GetEffect::Done => {}
            }
        }
    }

    fn take_answer(&self, run: &mut GetRun, slot: usize, replied: Replied) {
        let is_stand_in = || run.plan.replicas.get(slot).map(|it| it.role) == Some(Role::Fallback);
        let answer = match replied {
            Ok(ReplicaReply::Found(object)) if run.is_head(slot) => GetAnswer::Head(object),
            Ok(ReplicaReply::Found(object)) => GetAnswer::Found(object),
            // A stand-in has what was written since the replica went down, and nothing of before: that
            // it has nothing says nothing of the key.
            Ok(ReplicaReply::NotFound)
                if self.remote.is_some()
                    && is_stand_in()
                    && !is_planted(PlantedDefect::FallbackNotFoundCounted) =>
            {
                GetAnswer::Failed(RequestError::VnodeNotReady)
            }
            Ok(ReplicaReply::NotFound) => GetAnswer::NotFound,
            Ok(ReplicaReply::Failed(failure @ ReplicaFailure::Damaged(_))) => {
                GetAnswer::Damaged(request_error(failure))
            }
            Ok(ReplicaReply::Failed(failure)) => {
                run.is_misplanned |= is_misplanned(&failure);
                if matches!(failure, ReplicaFailure::NotOpen { .. }) {
                    run.is_misplanned |= self.note_unopened(&run.plan, slot);
                }
                GetAnswer::Failed(request_error(failure))
            }
            Ok(_) => GetAnswer::Failed(no_reply()),
            Err(RequestError::Timeout) => return run.step(GetEvent::Deadline),
            // Of a read nothing is left in doubt.
            Err(RequestError::OutcomeUnknown) => GetAnswer::Failed(RequestError::AllNodesDown),
            Err(error) => {
                run.is_misplanned |= self.remote.is_some() && is_not_open(&error);
                GetAnswer::Failed(error)
            }
        };
        if let GetAnswer::Failed(error) | GetAnswer::Damaged(error) = &answer {
            self.note_failure(&run.plan, slot, error);
        }
        run.step(GetEvent::Answer { slot, answer });
    }
}

/// True when the request went by another ring than the replica.
pub(crate) fn is_misplanned(failure: &ReplicaFailure) -> bool {
    matches!(
        failure,
        ReplicaFailure::StaleEpoch { .. } | ReplicaFailure::NotServing
    )
}

/// True when a replica of this node has no store yet, or has it no more: the ring has just changed, and
/// this node is on its way to where others that say so themselves are.
pub(crate) fn is_not_open(error: &RequestError) -> bool {
    *error == RequestError::VnodeNotReady
}

impl Coordinator {
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
    /// Waits for an answer, and not for ever where others could be asked.
    async fn next_of<F>(&self, runtime: &Runtime, waiting: &mut Waiting<F>) -> Next
    where
        F: Future<Output = WorkDone>,
    {
        let answer = if self.machine.has_asked_all() {
            Ok(waiting.next().await)
        } else {
            runtime.timeout(PATIENCE, waiting.next()).await
        };
        match answer {
            Ok(Some(done)) => Next::Answer(done),
            Ok(None) => Next::Nothing,
            Err(_) => Next::Late,
        }
    }

    fn next_effect(&mut self) -> Option<GetEffect> {
        let next = self.effects.get_mut(self.executed)?;
        self.executed += 1;
        Some(std::mem::replace(next, GetEffect::Done))
    }

    fn step(&mut self, event: GetEvent) {
        self.machine.step(event, &mut self.effects);
    }

    /// True when it failed, and another plan may not.
    fn is_to_be_replanned(&self) -> bool {
        self.is_misplanned && matches!(self.reply, Some(Err(_)))
    }

    fn is_head(&self, slot: usize) -> bool {
        slot < 64 && self.heads.contains(slot)
    }

    fn end(&mut self) -> (GetReply, bool) {
        let is_to_be_replanned = self.is_to_be_replanned();
        (self.take_reply(), is_to_be_replanned)
    }

    fn take_reply(&mut self) -> GetReply {
        let resolution = self.plan.resolution();
        let found = self.reply.take().unwrap_or_else(|| Err(no_reply()))?;
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

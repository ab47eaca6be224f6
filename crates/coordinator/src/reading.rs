//! Driving a get: executes the machine's effects and feeds the answers back.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_encoding::Address;
use kvorum_object::{Object, Resolution};
use kvorum_planted_defects::is_planted;
use kvorum_ring::Role;
use kvorum_runtime::Runtime;
use kvorum_vnode::{Condition, Detail, Operation, ReplicaFailure, ReplicaReply};

use crate::accounts::Progress;
use crate::attempts::{Attempts, Pauses};
use crate::error::RequestError;
use crate::get::{GetAnswer, GetEffect, GetEffects, GetEvent, GetMachine, SlotSet};
use crate::plan::{Plan, Purpose};
use crate::quorum::ReadQuorum;
use crate::replicas::{Asked, ReplicaWork, Replicas, Replied, WorkDone, no_reply};
use crate::request::{GetOptions, PutOptions};
use crate::waiting::Waiting;

/// One get in this many compares all replicas where not every get does. So reads also find and
/// repair outdated replicas that no quorum needs.
const GETS_THAT_COMPARE_ALL_EVERY: u64 = 16;
/// The wait for the first replicas before the others are asked: a multiple of a replica's time on a
/// busy node, and less than a client notices.
const PATIENCE: Duration = Duration::from_millis(20);
/// The longest wait for an answer that no client waits for.
const REST_PATIENCE: Duration = Duration::from_secs(1);

/// The result of a get.
pub(crate) type GetReply = Result<Option<Arc<Object>>, RequestError>;

/// A get after the steps that need no waiting. Most gets have then ended. The state of the others
/// is in a box, so that the future of a request that never waits stays small.
pub(crate) enum StartedGet {
    /// It has ended.
    Ended(GetReply),
    /// Some replicas need a thread that may block, or another node.
    Waits(Box<WaitingGet>),
}

/// A get that has to wait for some of its replicas.
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
    /// A replica has a newer ring than the plan, or has not received the plan's ring yet.
    is_misplanned: bool,
    /// Replicas that are asked for heads although the client wants values.
    heads: SlotSet,
}

/// Reads objects.
pub(crate) struct Reads {
    replicas: Arc<Replicas>,
    attempts: Arc<Attempts>,
    compares_all: bool,
    /// Number of gets that could choose their replicas.
    gets: AtomicU64,
}

impl Reads {
    /// With `compares_all`, each get asks all replicas sooner or later.
    pub(crate) fn new(
        replicas: Arc<Replicas>,
        attempts: Arc<Attempts>,
        compares_all: bool,
    ) -> Self {
        Self {
            replicas,
            attempts,
            compares_all,
            gets: AtomicU64::new(0),
        }
    }

    /// Reads an object, and tries again while a store is being opened.
    pub(crate) async fn get(
        &self,
        address: &Address,
        options: &GetOptions,
        progress: &mut Progress,
    ) -> GetReply {
        let mut pauses = Pauses::default();
        loop {
            let reply = match self.start(address, options) {
                StartedGet::Ended(reply) => reply,
                StartedGet::Waits(waiting) => {
                    self.wait_for(waiting, address, options, progress).await
                }
            };
            match reply {
                Err(RequestError::VnodeOpening)
                    if self.attempts.wait_to_open(&mut pauses, progress).await => {}
                reply => return reply,
            }
        }
    }

    /// Plans a get, asks the first replicas, and continues as far as memory suffices.
    pub(crate) fn start(&self, address: &Address, options: &GetOptions) -> StartedGet {
        // Plan and machine are large, so they are moved as seldom as possible.
        let (n_val, sloppy_quorum) = (options.n_val, options.sloppy_quorum);
        let plan = match self
            .attempts
            .plan(address, n_val, sloppy_quorum, Purpose::Read)
        {
            Ok(plan) => plan,
            Err(error) => return StartedGet::Ended(Err(error)),
        };
        let quorum = match plan.read_quorum(options) {
            Ok(quorum) => quorum,
            Err(error) => return StartedGet::Ended(Err(error)),
        };
        let mut effects = GetEffects::new();
        let (first, compares_all) = self.asked_first(&plan, &quorum);
        let resolution = plan.resolution();
        let mut machine =
            GetMachine::start(&plan.replicas, first, quorum, resolution, &mut effects);
        // Heads have no values for a repair.
        if compares_all && options.detail == Detail::Whole {
            machine.compare_all();
        }
        let heads = match &self.replicas.remote {
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
        run.execute(&self.replicas, |slot, left| {
            work.push((slot, left));
        });
        if work.is_empty() && !run.is_to_be_replanned() {
            StartedGet::Ended(run.take_reply())
        } else {
            StartedGet::Waits(Box::new(WaitingGet { run, work }))
        }
    }

    /// The replicas to ask first: as many as the quorum needs, primaries before stand-ins, and the
    /// replica of this node before those of others, which take turns. The flag is true if all
    /// replicas are compared.
    fn asked_first(&self, plan: &Plan, quorum: &ReadQuorum) -> (SlotSet, bool) {
        let (replicas, needed) = (&plan.replicas, quorum.needed());
        if self.replicas.remote.is_none() || needed >= replicas.len() {
            return (SlotSet::ALL, true);
        }
        let number = self.gets.fetch_add(1, Ordering::Relaxed);
        let start = usize::try_from(number).unwrap_or(0) % replicas.len();
        let in_turn = || (start..replicas.len()).chain(0..start);
        let rank = |slot: usize| match &replicas[slot] {
            replica if replica.role == Role::Fallback => 2,
            replica if replica.node != self.replicas.parts.node => 1,
            _ => 0,
        };
        let mut first = SlotSet::NONE;
        (0..3)
            .flat_map(|wanted| in_turn().filter(move |slot| rank(*slot) == wanted))
            .take(needed)
            .for_each(|slot| first.insert(slot));
        let is_its_turn = number.is_multiple_of(GETS_THAT_COMPARE_ALL_EVERY);
        (first, self.compares_all || is_its_turn)
    }

    /// The replicas to ask for heads: all on other nodes, except one of the first if none is on this node.
    fn heads_of(&self, plan: &Plan, first: SlotSet) -> SlotSet {
        let is_here = |slot: usize| plan.replicas[slot].node == self.replicas.parts.node;
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
    pub(crate) async fn wait_for(
        &self,
        get: Box<WaitingGet>,
        address: &Address,
        options: &GetOptions,
        progress: &mut Progress,
    ) -> GetReply {
        let mut get = get;
        let mut pauses = Pauses::default();
        loop {
            let (reply, is_to_be_replanned) = self.run_get(*get, progress).await;
            if !is_to_be_replanned
                || !self
                    .attempts
                    .pause_before_replanning(&mut pauses, progress)
                    .await
            {
                return reply;
            }
            match self.start(address, options) {
                StartedGet::Ended(reply) => return reply,
                StartedGet::Waits(again) => get = again,
            }
        }
    }

    /// The result of a get, and true if another plan may end better.
    async fn run_get(&self, get: WaitingGet, progress: &mut Progress) -> (GetReply, bool) {
        let WaitingGet { mut run, work } = get;
        let (replicas, deadline) = (&self.replicas, progress.deadline);
        let elsewhere = move |replicas: &Arc<Replicas>, slot, work| {
            replicas.work_elsewhere(slot, work, deadline)
        };
        let mut waiting = Waiting::new();
        let mut is_remote = false;
        for (slot, left) in work {
            is_remote |= left.is_remote();
            waiting.push(elsewhere(replicas, slot, left));
        }
        loop {
            if is_remote && run.reply.is_some() && !waiting.is_empty() {
                let ended = run.end();
                run.spawn_rest(replicas, waiting, elsewhere);
                return ended;
            }
            match run.next_of(&replicas.parts.runtime, &mut waiting).await {
                Next::Answer(done) => {
                    progress.trace.queue += done.queued;
                    run.take_answer(replicas, done.slot, done.replied);
                }
                Next::Late => run.step(GetEvent::Late),
                Next::Nothing => return run.end(),
            }
            run.execute(replicas, |slot, left| {
                is_remote |= left.is_remote();
                waiting.push(elsewhere(replicas, slot, left));
            });
        }
    }

    /// Checks a condition against the object that a quorum of the replicas has.
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
        let found = self.get(address, &head, progress).await?;
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

/// The next event of a get that waits.
enum Next {
    Answer(WorkDone),
    Late,
    Nothing,
}

impl GetRun {
    /// Executes the pending effects; work that would have to wait goes to `leave`.
    fn execute(&mut self, replicas: &Arc<Replicas>, mut leave: impl FnMut(usize, ReplicaWork)) {
        while let Some(effect) = self.next_effect() {
            match effect {
                GetEffect::Ask { slot } | GetEffect::Fetch { slot } => {
                    let is_head = matches!(effect, GetEffect::Ask { .. }) && self.is_head(slot);
                    if !is_head {
                        self.heads.remove(slot);
                    }
                    let detail = if is_head { Detail::Head } else { self.detail };
                    let key = self.plan.key.clone();
                    match replicas.ask(&self.plan, slot, Operation::Get { key, detail }) {
                        Asked::Answered(replied) => self.take_answer(replicas, slot, replied),
                        Asked::WouldBlock(work) => leave(slot, work),
                    }
                }
                GetEffect::Reply(outcome) => self.reply = Some(outcome),
                // A head has no values to give.
                GetEffect::Repair { .. } | GetEffect::Mend { .. }
                    if self.detail == Detail::Head => {}
                GetEffect::Repair { .. } if is_planted!(ReadRepairDropped) => {}
                GetEffect::Repair {
                    slot,
                    object,
                    had_nothing,
                } => replicas.repair(&self.plan, slot, object, had_nothing),
                GetEffect::Mend { slot, object } => replicas.mend(&self.plan, slot, object),
                GetEffect::Done => {}
            }
        }
    }

    fn take_answer(&mut self, replicas: &Replicas, slot: usize, replied: Replied) {
        let is_stand_in = || self.plan.replicas.get(slot).map(|it| it.role) == Some(Role::Fallback);
        let answer = match replied {
            Ok(ReplicaReply::Found(object)) if self.is_head(slot) => GetAnswer::Head(object),
            Ok(ReplicaReply::Found(object)) => GetAnswer::Found(object),
            // A stand-in has only writes since the replica went down: a key that it lacks may exist.
            Ok(ReplicaReply::NotFound)
                if replicas.remote.is_some()
                    && is_stand_in()
                    && !is_planted!(FallbackNotFoundCounted) =>
            {
                GetAnswer::Failed(RequestError::VnodeNotReady)
            }
            Ok(ReplicaReply::NotFound) => GetAnswer::NotFound,
            Ok(ReplicaReply::Failed(failure @ ReplicaFailure::Damaged(_))) => {
                GetAnswer::Damaged(RequestError::of_replica(failure))
            }
            Ok(ReplicaReply::Failed(failure)) => {
                self.is_misplanned |= replicas.is_to_be_replanned(&self.plan, slot, &failure);
                GetAnswer::Failed(RequestError::of_replica(failure))
            }
            Ok(_) => GetAnswer::Failed(no_reply()),
            Err(RequestError::Timeout) => return self.step(GetEvent::Deadline),
            // A read has no effect that could be in doubt.
            Err(RequestError::OutcomeUnknown) => GetAnswer::Failed(RequestError::AllNodesDown),
            Err(error) => {
                self.is_misplanned |= replicas.is_ring_changing(&error);
                GetAnswer::Failed(error)
            }
        };
        if let GetAnswer::Failed(error) | GetAnswer::Damaged(error) = &answer {
            replicas.note_failure(&self.plan, slot, error);
        }
        self.step(GetEvent::Answer { slot, answer });
    }

    /// Waits a while for the replicas that the client did not wait for: some may need a repair.
    fn spawn_rest<F>(
        self,
        replicas: &Arc<Replicas>,
        waiting: Waiting<F>,
        elsewhere: impl Fn(&Arc<Replicas>, usize, ReplicaWork) -> F + Send + 'static,
    ) where
        F: Future<Output = WorkDone> + Send + 'static,
    {
        let replicas = replicas.clone();
        let (mut run, mut waiting) = (self, waiting);
        let runtime = replicas.parts.runtime.clone();
        let under_way = replicas.parts.under_way.begin_owned();
        runtime.spawn("rest of a get", async move {
            let _under_way = under_way;
            let mut is_over = false;
            while !is_over {
                match replicas
                    .parts
                    .runtime
                    .timeout(REST_PATIENCE, waiting.next())
                    .await
                {
                    Ok(Some(done)) => run.take_answer(&replicas, done.slot, done.replied),
                    Ok(None) => return,
                    // Replicas that have answered are still repaired.
                    Err(_) => {
                        is_over = true;
                        run.step(GetEvent::Deadline);
                    }
                }
                run.execute(&replicas, |slot, left| {
                    waiting.push(elsewhere(&replicas, slot, left));
                });
            }
        });
    }

    /// Waits for an answer, for a limited time if other replicas could be asked.
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

    /// True when the get failed and another plan may succeed.
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

/// The object as clients of the bucket may see it. A lone replica may hold siblings from a time
/// when the bucket kept them.
fn visible(object: Arc<Object>, resolution: Resolution) -> Arc<Object> {
    if resolution == Resolution::KeepSiblings || object.siblings().len() == 1 {
        return object;
    }
    Arc::new(kvorum_object::resolve(Object::clone(&object), resolution))
}

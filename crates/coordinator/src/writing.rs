//! Driving a put: executes the machine's effects, feeds confirmations back, and waits for syncs.
//!
//! One put is one dot in every case: a second replica is asked to coordinate only if the first
//! certainly had no effect. If the ring changes after the object was made, the same object is sent
//! to the new replicas.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use kvorum_backend::{Durability, Durable, SyncTicket};
use kvorum_encoding::Address;
use kvorum_object::{Content, Object, Resolution, Timestamp};
use kvorum_planted_defects::is_planted;
use kvorum_properties::SyncOnWrite;
use kvorum_ring::Role;
use kvorum_vnode::{
    ClientUpdate, Condition, DataTypeUpdate, Operation, ReplicaFailure, ReplicaReply,
};
use smallvec::SmallVec;

use crate::accounts::Progress;
use crate::attempts::{Attempts, Pauses};
use crate::delivery::{Delivery, Made, WholeObject};
use crate::error::RequestError;
use crate::plan::{Plan, Purpose};
use crate::put::{PutEffect, PutEffects, PutEvent, PutMachine};
use crate::reading::Reads;
use crate::replicas::{Asked, Replicas, Replied, WorkDone, await_sync, no_reply};
use crate::request::{PutKind, PutOptions, PutRequest};
use crate::validating::validate;
use crate::waiting::Waiting;

/// A put that was carried out.
pub(crate) struct Written {
    pub(crate) plan: Plan,
    /// After an update of a large set, its value is the head of the set.
    pub(crate) object: Arc<Object>,
    pub(crate) is_in_pages: bool,
    /// The replica that made it in this attempt.
    pub(crate) made_by: Option<usize>,
    /// No replica of the plan lacks it.
    pub(crate) has_reached_all: bool,
    /// Pending syncs of replicas for which the client did not wait.
    pub(crate) unsynced: Vec<SyncTicket>,
}

/// The content of a write.
#[derive(Clone)]
enum Payload {
    /// A client's write, which gets its dot from a replica.
    Update(Arc<ClientUpdate>),
    /// An operation on a data type, which a replica carries out under a dot of its own.
    Operation(Arc<DataTypeUpdate>),
    /// An object that every replica merges.
    AsIs(Arc<Object>),
    /// An object that an earlier attempt of this put made.
    Made(Made),
}

/// A put under way.
struct PutRun {
    plan: Plan,
    machine: PutMachine,
    payload: Payload,
    sync: SyncOnWrite,
    /// Executed in order; those up to `executed` are.
    effects: PutEffects,
    executed: usize,
    reply: Option<Result<Arc<Object>, RequestError>>,
    /// Replicas that have received the object and not stored it yet.
    unsynced: SmallVec<[Unsynced; 1]>,
    /// The object made by the coordinating replica, or by the attempt before.
    made: Option<Made>,
    /// The replica that made it.
    made_by: Option<usize>,
    /// The coordinating replica failed and may or may not have written.
    is_in_doubt: bool,
    /// A replica has a newer ring than the plan, or has not received the plan's ring yet.
    is_misplanned: bool,
}

struct Unsynced {
    slot: usize,
    ticket: SyncTicket,
    is_awaited: bool,
}

/// An event for which a put waited.
enum Happened {
    Worked(WorkDone),
    Synced(usize, Result<(), RequestError>),
}

/// Writes objects.
pub(crate) struct Writes {
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) attempts: Arc<Attempts>,
    /// Checks a condition at a quorum.
    pub(crate) reads: Arc<Reads>,
}

impl Writes {
    /// Writes an object, and tries again if the fate of the last attempt allows it.
    pub(crate) async fn put(
        &self,
        address: &Address,
        mut request: PutRequest,
        options: &PutOptions,
        progress: &mut Progress,
    ) -> Result<Written, RequestError> {
        let plan = self.plan(address, options)?;
        let is_as_is = request.kind == PutKind::AsIs;
        let is_value = !is_as_is && !request.content.metadata.deleted;
        if plan.properties.has_validators && is_value {
            validate(&self.replicas.parts, address, &request.content).await?;
        }
        if request.condition != Condition::Always && (is_as_is || plan.replicas.len() > 1) {
            plan.write_quorums(options)?;
            self.reads
                .check_by_quorum(address, &request.condition, options, progress)
                .await?;
            // The coordinating replica still has to rule out later writes.
            if let Condition::Version(seen) = request.condition {
                request.condition = Condition::NothingBeyond(seen);
            }
        }
        let payload = self.payload(request, &plan);
        self.write(address, (plan, payload), options, progress)
            .await
    }

    /// Carries out an operation on a data type, at most once.
    pub(crate) async fn apply(
        &self,
        address: &Address,
        update: Arc<DataTypeUpdate>,
        options: &PutOptions,
        progress: &mut Progress,
    ) -> Result<Written, RequestError> {
        let plan = self.plan(address, options)?;
        let payload = Payload::Operation(update);
        self.write(address, (plan, payload), options, progress)
            .await
    }

    /// Writes a payload by a plan, and by another plan after an attempt without effect.
    async fn write(
        &self,
        address: &Address,
        (mut plan, mut payload): (Plan, Payload),
        options: &PutOptions,
        progress: &mut Progress,
    ) -> Result<Written, RequestError> {
        let mut pauses = Pauses::default();
        loop {
            let mut run = self.start(plan, payload, options)?;
            self.run(&mut run, progress).await;
            let reply = run.reply.take().unwrap_or_else(|| Err(no_reply()));
            let error = match reply {
                Ok(object) => return Ok(run.into_written(object)),
                Err(error) => error,
            };
            let is_opening = error == RequestError::VnodeOpening;
            let Some(again) = run.payload_for_retry(is_opening) else {
                return Err(error);
            };
            let has_time = match is_opening {
                true => self.attempts.wait_to_open(&mut pauses, progress).await,
                false => {
                    self.attempts
                        .pause_before_replanning(&mut pauses, progress)
                        .await
                }
            };
            if !has_time {
                return Err(error);
            }
            payload = again;
            plan = self.plan(address, options)?;
        }
    }

    fn plan(&self, address: &Address, options: &PutOptions) -> Result<Plan, RequestError> {
        let (n_val, sloppy_quorum) = (options.n_val, options.sloppy_quorum);
        self.attempts
            .plan(address, n_val, sloppy_quorum, Purpose::Write)
    }

    fn payload(&self, request: PutRequest, plan: &Plan) -> Payload {
        match request.kind {
            PutKind::Versioned => Payload::Update(Arc::new(ClientUpdate {
                resolution: resolution_of(&request, plan),
                context: request.context,
                condition: request.condition,
                content: self.ending(request.content, plan),
                tag: plan.tag(),
            })),
            PutKind::AsIs => {
                let object = Object::as_is(request.context, request.content, self.now());
                Payload::AsIs(Arc::new(object))
            }
        }
    }

    /// Content with its own time of expiry, or its bucket's. Tombstones have none. An object that
    /// is put as it is keeps its own or none: two puts of one such object have to store the same.
    fn ending(&self, mut content: Content, plan: &Plan) -> Content {
        let metadata = &mut content.metadata;
        if let Some(secs) = plan.properties.expiry_secs
            && metadata.expires_at.is_none()
            && !metadata.deleted
        {
            let micros = u64::from(secs) * 1_000_000;
            let end = self.now().as_micros().saturating_add(micros);
            metadata.expires_at = Some(Timestamp::from_micros(end));
        }
        content
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.replicas.parts.wall_time().0)
    }

    fn start(
        &self,
        plan: Plan,
        payload: Payload,
        options: &PutOptions,
    ) -> Result<PutRun, RequestError> {
        let quorums = plan.write_quorums(options)?;
        let (machine, effects) = match &payload {
            Payload::Update(_) | Payload::Operation(_) => {
                let coordinators = self.coordinators(&plan);
                PutMachine::start(plan.write_replicas(), &coordinators, quorums)
            }
            Payload::AsIs(object) | Payload::Made(Made { object, .. }) => {
                PutMachine::start_as_is(plan.write_replicas(), object, quorums)
            }
        };
        let made = match &payload {
            Payload::Made(made) => Some(made.clone()),
            Payload::Update(_) | Payload::Operation(_) | Payload::AsIs(_) => None,
        };
        Ok(PutRun {
            sync: options
                .sync_on_write
                .unwrap_or(plan.properties.sync_on_write),
            plan,
            machine,
            payload,
            effects,
            executed: 0,
            reply: None,
            unsynced: SmallVec::new(),
            made,
            made_by: None,
            is_in_doubt: false,
            is_misplanned: false,
        })
    }

    /// The replicas that may coordinate, the best first: a primary before a stand-in, a complete replica
    /// before one that is being filled, and a replica of this node before another's.
    fn coordinators(&self, plan: &Plan) -> SmallVec<[usize; 3]> {
        let mut coordinators: SmallVec<[usize; 3]> = (0..plan.replicas.len()).collect();
        if self.replicas.remote.is_none() {
            coordinators.truncate(1);
        } else {
            let lists: SmallVec<[_; 4]> = plan.write_replicas().collect();
            coordinators.sort_by_key(|slot| {
                let it = &lists[*slot];
                let is_stand_in = it.replica.role == Role::Fallback;
                (
                    is_stand_in,
                    !it.in_old,
                    it.replica.node != self.replicas.parts.node,
                )
            });
        }
        coordinators
    }

    /// Sends every replica the object, and waits until enough have stored it. Replicas on other
    /// nodes that the client need not wait for are written afterwards.
    async fn run(&self, run: &mut PutRun, progress: &mut Progress) {
        let (replicas, deadline) = (&self.replicas, progress.deadline);
        let mut works = Waiting::new();
        let mut syncs = Waiting::new();
        let mut is_remote = false;
        loop {
            run.execute(replicas, |slot, work| {
                is_remote |= work.is_remote();
                works.push(replicas.clone().deliver(slot, work, deadline));
            });
            let has_replied = run.reply.is_some();
            if has_replied && (is_remote || works.is_empty()) {
                break;
            }
            let mut new = run.unsynced.iter_mut().filter(|it| !it.is_awaited);
            while !has_replied && let Some(unsynced) = new.next() {
                unsynced.is_awaited = true;
                let (slot, ticket) = (unsynced.slot, unsynced.ticket.clone());
                let runtime = replicas.parts.runtime.clone();
                syncs.push(await_sync(runtime, slot, ticket, deadline));
            }
            let only_syncs = works.is_empty();
            let started = only_syncs.then(|| replicas.parts.runtime.now());
            let happened = poll_fn(|context| {
                let worked = works.poll_next(context);
                if let Poll::Ready(Some(done)) = worked {
                    return Poll::Ready(Some(Happened::Worked(done)));
                }
                match syncs.poll_next(context) {
                    Poll::Ready(Some((slot, outcome))) => {
                        Poll::Ready(Some(Happened::Synced(slot, outcome)))
                    }
                    Poll::Ready(None) if worked.is_ready() => Poll::Ready(None),
                    _ => Poll::Pending,
                }
            });
            let happened = happened.await;
            if let Some(started) = started {
                progress.trace.sync_wait += replicas.parts.runtime.now().since(started);
            }
            match happened {
                Some(Happened::Worked(done)) => {
                    progress.trace.queue += done.queued;
                    let WorkDone {
                        slot,
                        replied,
                        is_without_effect,
                        ..
                    } = done;
                    run.take_confirmation(replicas, slot, replied, is_without_effect);
                }
                Some(Happened::Synced(slot, outcome)) => run.take_sync(replicas, slot, outcome),
                None => break,
            }
        }
        if !works.is_empty() {
            let under_way = replicas.parts.under_way.begin_owned();
            replicas.parts.runtime.spawn("rest of a put", async move {
                let _under_way = under_way;
                while works.next().await.is_some() {}
            });
        }
    }
}

impl PutRun {
    /// Executes the pending effects; work that has to wait goes to `leave`.
    fn execute(&mut self, replicas: &Arc<Replicas>, mut leave: impl FnMut(usize, Delivery)) {
        while let Some(effect) = self.next_effect() {
            let is_coordination = matches!(effect, PutEffect::Coordinate { .. });
            let mut whole = None;
            let (slot, operation) = match effect {
                PutEffect::Coordinate { slot } => match self.coordinate() {
                    Some(operation) => (slot, operation),
                    None => continue,
                },
                PutEffect::Store { slot, object } => {
                    whole = self.whole_for(replicas, slot);
                    (slot, self.store(object))
                }
                PutEffect::Reply(outcome) => {
                    self.reply = Some(outcome);
                    continue;
                }
                PutEffect::Done => continue,
            };
            let asked = replicas.ask(&self.plan, slot, operation);
            if is_coordination {
                note_coordination(replicas, &asked);
            }
            match (asked, whole) {
                (Asked::Answered(Ok(ReplicaReply::NeedsWhole)), Some(whole)) => {
                    leave(slot, Delivery::Whole(whole));
                }
                (Asked::Answered(replied), _) => {
                    // A missing vnode of this node has done nothing.
                    let is_without_effect = replicas.remote.is_some() && replied.is_err();
                    self.take_confirmation(replicas, slot, replied, is_without_effect);
                }
                (Asked::WouldBlock(work), None) => leave(slot, Delivery::Plain(work)),
                (Asked::WouldBlock(work), Some(whole)) => {
                    leave(slot, Delivery::Update(work, whole));
                }
            }
        }
    }

    /// The delivery of the whole object, for a replica that is about to get an update of it.
    fn whole_for(&self, replicas: &Replicas, slot: usize) -> Option<Box<WholeObject>> {
        let update = self.made.as_ref()?.update.as_ref()?;
        let place = (slot, self.made_by);
        let whole = replicas.whole_object(&self.plan, place, update, self.durability());
        whole.ok()
    }

    fn take_confirmation(
        &mut self,
        replicas: &Replicas,
        slot: usize,
        replied: Replied,
        is_without_effect: bool,
    ) {
        let (event, durable) = match replied {
            Ok(ReplicaReply::Stored { object, durable }) => {
                (self.take_made(slot, object.into()), durable)
            }
            Ok(ReplicaReply::Updated { update, durable }) => {
                (self.take_made(slot, update.into()), durable)
            }
            Ok(ReplicaReply::Received { durable }) => (PutEvent::Received { slot }, durable),
            failed => return self.take_failure(replicas, slot, failed, is_without_effect),
        };
        self.step(event);
        match durable {
            Durable::Already => self.step(PutEvent::Durable { slot }),
            Durable::After(ticket) => self.unsynced.push(Unsynced {
                slot,
                ticket,
                is_awaited: false,
            }),
        }
    }

    fn take_made(&mut self, slot: usize, made: Made) -> PutEvent {
        let object = made.object.clone();
        (self.made, self.made_by) = (Some(made), Some(slot));
        PutEvent::Coordinated { object }
    }

    fn take_failure(
        &mut self,
        replicas: &Replicas,
        slot: usize,
        failed: Replied,
        mut is_without_effect: bool,
    ) {
        let error = match failed {
            Ok(ReplicaReply::Failed(failure)) => {
                self.is_misplanned |= replicas.is_to_be_replanned(&self.plan, slot, &failure);
                self.is_in_doubt |= failure.may_have_written();
                is_without_effect |= matches!(
                    failure,
                    ReplicaFailure::NotServing
                        | ReplicaFailure::Incomplete
                        | ReplicaFailure::Unwritable(_)
                        | ReplicaFailure::NotOpen { .. }
                );
                RequestError::of_replica(failure)
            }
            Ok(_) => no_reply(),
            Err(error) => {
                // A missing vnode has done nothing.
                self.is_in_doubt |= !is_without_effect && error != RequestError::VnodeOpening;
                self.is_misplanned |= replicas.is_ring_changing(&error);
                error
            }
        };
        if error == RequestError::Timeout {
            return self.step(PutEvent::Deadline);
        }
        replicas.note_failure(&self.plan, slot, &error);
        self.step(if is_without_effect {
            PutEvent::Declined { slot, error }
        } else {
            PutEvent::Failed { slot, error }
        });
    }

    fn take_sync(&mut self, replicas: &Replicas, slot: usize, outcome: Result<(), RequestError>) {
        match outcome {
            Ok(()) => self.step(PutEvent::Durable { slot }),
            Err(RequestError::Timeout) => self.step(PutEvent::Deadline),
            Err(error) => {
                replicas.note_disk_full(&self.plan, slot, &error);
                replicas.note_failure(&self.plan, slot, &error);
                self.step(PutEvent::Failed { slot, error });
            }
        }
        self.unsynced.retain(|unsynced| unsynced.slot != slot);
    }

    fn next_effect(&mut self) -> Option<PutEffect> {
        let next = self.effects.get_mut(self.executed)?;
        self.executed += 1;
        Some(std::mem::replace(next, PutEffect::Done))
    }

    fn step(&mut self, event: PutEvent) {
        self.effects.extend(self.machine.step(event));
    }

    /// The payload of another attempt, after a failure because of an old ring or of a store that
    /// was still being opened.
    fn payload_for_retry(&self, is_opening: bool) -> Option<Payload> {
        if !self.is_misplanned && !is_opening {
            return None;
        }
        if is_planted!(RetryTakenForNewWrite) {
            return Some(self.payload.clone());
        }
        match (&self.payload, &self.made) {
            (Payload::Update(_) | Payload::Operation(_), Some(made)) => {
                Some(Payload::Made(made.clone()))
            }
            (Payload::Update(_) | Payload::Operation(_), None) if self.is_in_doubt => None,
            (payload, _) => Some(payload.clone()),
        }
    }

    fn into_written(self, object: Arc<Object>) -> Written {
        Written {
            object,
            is_in_pages: self.made.is_some_and(|made| made.update.is_some()),
            made_by: self.made_by,
            has_reached_all: self.machine.has_reached_all(),
            unsynced: self.unsynced.into_iter().map(|it| it.ticket).collect(),
            plan: self.plan,
        }
    }

    fn coordinate(&self) -> Option<Operation> {
        let durability = match self.sync {
            SyncOnWrite::Backend => Durability::BackendDefault,
            SyncOnWrite::One | SyncOnWrite::All => Durability::Grouped,
        };
        let key = self.plan.key.clone();
        match &self.payload {
            Payload::Update(update) => Some(Operation::Coordinate {
                key,
                update: update.clone(),
                durability,
            }),
            Payload::Operation(update) => Some(Operation::Apply {
                key,
                update: update.clone(),
                durability,
            }),
            Payload::AsIs(_) | Payload::Made(_) => None,
        }
    }

    fn store(&self, object: Arc<Object>) -> Operation {
        let (key, tag) = (self.plan.key.clone(), self.plan.tag());
        let (resolution, durability) = (self.resolution(), self.durability());
        match self.made.as_ref().and_then(|made| made.update.clone()) {
            Some(update) => Operation::Follow {
                key,
                update,
                resolution,
                tag,
                durability,
            },
            None => Operation::Store {
                key,
                object,
                resolution,
                tag,
                durability,
            },
        }
    }

    /// The durability of replicas that did not make the object.
    fn durability(&self) -> Durability {
        match (self.sync, &self.payload) {
            (SyncOnWrite::Backend, _) => Durability::BackendDefault,
            // No replica of the new list is known to sync: all do.
            (SyncOnWrite::All, _) | (SyncOnWrite::One, Payload::Made(_)) => Durability::Grouped,
            (SyncOnWrite::One, _) => Durability::BackendDefault,
        }
    }

    /// If an earlier attempt may have made the object, the replicas have to read theirs.
    fn resolution(&self) -> Resolution {
        match &self.payload {
            Payload::Update(update) if update.resolution == Resolution::WrittenOnce => {
                Resolution::WrittenOnce
            }
            _ => self.plan.resolution(),
        }
    }
}

/// The resolution of concurrent versions. A write-once value replaces any other without a read,
/// unless its client has read a version or sets a condition. A delete always reads.
fn resolution_of(request: &PutRequest, plan: &Plan) -> Resolution {
    let is_blind = request.context.is_empty() && request.condition == Condition::Always;
    let is_value = !request.content.metadata.deleted;
    match plan.properties.is_write_once && is_blind && is_value {
        true => Resolution::WrittenOnce,
        false => plan.resolution(),
    }
}

/// Reports the node of the replica that coordinates. A missing vnode of this node coordinates nothing.
fn note_coordination(replicas: &Replicas, asked: &Asked) {
    let meter = &replicas.parts.meter;
    match asked {
        Asked::Answered(Err(_)) => {}
        Asked::WouldBlock(work) if work.is_remote() => meter.redirected(),
        Asked::Answered(Ok(_)) | Asked::WouldBlock(_) => meter.coordinated_here(),
    }
}

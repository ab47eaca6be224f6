//! Driving a put: executes the machine's effects, feeds confirmations back, and waits for syncs.

use std::sync::Arc;

use kvorum_backend::{Durability, Durable, SyncTicket};
use kvorum_encoding::Address;
use kvorum_object::Object;
use kvorum_properties::SyncOnWrite;
use kvorum_ring::Replica;
use kvorum_vnode::{ClientUpdate, Condition, Operation, ReplicaReply};
use smallvec::SmallVec;

use crate::coordinator::{Coordinator, Progress};
use crate::error::RequestError;
use crate::plan::Plan;
use crate::put::{PutEffect, PutEffects, PutEvent, PutMachine};
use crate::replicas::{Asked, ReplicaWork, Replied, no_reply, request_error};
use crate::request::{PutKind, PutOptions, PutRequest};
use crate::waiting::Waiting;

/// A put that was carried out.
pub(crate) struct Written {
    pub(crate) plan: Plan,
    pub(crate) object: Arc<Object>,
    /// No replica of the plan lacks it.
    pub(crate) has_reached_all: bool,
    /// What the replicas that the client did not wait for have still to sync.
    pub(crate) unsynced: Vec<SyncTicket>,
}

/// A put under way.
struct PutRun<'a> {
    plan: &'a Plan,
    machine: PutMachine,
    /// What the coordinating replica is to apply; `None` for `asis`.
    update: Option<Arc<ClientUpdate>>,
    sync: SyncOnWrite,
    /// Executed in order; those up to `executed` are.
    effects: PutEffects,
    executed: usize,
    reply: Option<Result<Arc<Object>, RequestError>>,
    /// Of the replicas that have received the object and not stored it yet.
    unsynced: SmallVec<[(usize, SyncTicket); 1]>,
}

impl Coordinator {
    pub(crate) async fn drive_put(
        &self,
        address: &Address,
        mut request: PutRequest,
        options: &PutOptions,
        progress: &mut Progress,
    ) -> Result<Written, RequestError> {
        let plan = self.plan(address, options.n_val, options.sloppy_quorum)?;
        let quorum = plan.write_quorum(options)?;
        let is_as_is = request.kind == PutKind::AsIs;
        if request.condition != Condition::Always && (is_as_is || plan.replicas.len() > 1) {
            self.check_by_quorum(address, &request.condition, options, progress)
                .await?;
            // The coordinating replica still has to rule out what came since.
            if let Condition::Version(seen) = request.condition {
                request.condition = Condition::NothingBeyond(seen);
            }
        }
        let (machine, effects, update) = match request.kind {
            PutKind::Versioned => {
                let coordinator = self.choose_coordinator(&plan)?;
                let (machine, effects) = PutMachine::start(&plan.replicas, coordinator, quorum);
                let update = ClientUpdate {
                    context: request.context,
                    condition: request.condition,
                    content: request.content,
                    resolution: plan.resolution(),
                };
                (machine, effects, Some(Arc::new(update)))
            }
            PutKind::AsIs => {
                let now = kvorum_object::Timestamp::from_micros(self.wall_time().0);
                let object = Arc::new(Object::as_is(request.context, request.content, now));
                let (machine, effects) = PutMachine::start_as_is(&plan.replicas, &object, quorum);
                (machine, effects, None)
            }
        };
        let sync = plan.properties.sync_on_write;
        let mut run = PutRun {
            plan: &plan,
            machine,
            update,
            sync: options.sync_on_write.unwrap_or(sync),
            effects,
            executed: 0,
            reply: None,
            unsynced: SmallVec::new(),
        };
        self.write_replicas(&mut run, progress).await;
        self.await_syncs(&mut run, progress).await;
        let object = run.reply.take().unwrap_or_else(|| Err(no_reply()))?;
        let has_reached_all = run.machine.has_reached_all();
        let unsynced = run.unsynced.into_iter().map(|(_, ticket)| ticket).collect();
        Ok(Written {
            object,
            has_reached_all,
            unsynced,
            plan,
        })
    }

    /// Has every replica receive the object, the client's patience permitting.
    async fn write_replicas(&self, run: &mut PutRun<'_>, progress: &mut Progress) {
        let mut waiting = Waiting::new();
        loop {
            while let Some(effect) = run.next_effect() {
                if let Some((slot, work)) = self.execute_put(run, effect) {
                    waiting.push(self.work_blocking(slot, work, progress.deadline));
                }
            }
            let Some(done) = waiting.next().await else {
                return;
            };
            progress.trace.queue += done.queued;
            self.take_confirmation(run, done.slot, done.replied);
        }
    }

    /// Waits until enough replicas have stored what they have received.
    async fn await_syncs(&self, run: &mut PutRun<'_>, progress: &mut Progress) {
        if run.reply.is_some() || run.unsynced.is_empty() {
            return;
        }
        let started = self.parts.runtime.now();
        let mut waiting = Waiting::new();
        for (slot, ticket) in &run.unsynced {
            waiting.push(self.await_sync(*slot, ticket.clone(), progress.deadline));
        }
        while run.reply.is_none()
            && let Some((slot, outcome)) = waiting.next().await
        {
            match outcome {
                Ok(()) => run.step(PutEvent::Durable { slot }),
                Err(RequestError::Timeout) => run.step(PutEvent::Deadline),
                Err(error) => {
                    self.note_failure(run.plan, slot, &error);
                    run.step(PutEvent::Failed { slot, error });
                }
            }
            run.unsynced.retain(|(waiting, _)| *waiting != slot);
            // Everything has been sent: what is left says how it ended.
            while let Some(effect) = run.next_effect() {
                if let PutEffect::Reply(outcome) = effect {
                    run.reply = Some(outcome);
                }
            }
        }
        progress.trace.sync_wait += self.parts.runtime.now().since(started);
    }

    /// Executes one effect; returns the work that it leaves for the blocking pool.
    fn execute_put(&self, run: &mut PutRun<'_>, effect: PutEffect) -> Option<(usize, ReplicaWork)> {
        let (slot, operation) = match effect {
            PutEffect::Coordinate { slot } => (slot, run.coordinate()?),
            PutEffect::Store { slot, object } => (slot, run.store(object)),
            PutEffect::Reply(outcome) => {
                run.reply = Some(outcome);
                return None;
            }
            PutEffect::Done => return None,
        };
        match self.ask(run.plan, slot, operation) {
            Asked::Answered(replied) => self.take_confirmation(run, slot, replied),
            Asked::WouldBlock(work) => return Some((slot, work)),
        }
        None
    }

    fn take_confirmation(&self, run: &mut PutRun<'_>, slot: usize, replied: Replied) {
        let (event, durable) = match replied {
            Ok(ReplicaReply::Stored { object, durable }) => {
                (PutEvent::Coordinated { object }, durable)
            }
            Ok(ReplicaReply::Received { durable }) => (PutEvent::Received { slot }, durable),
            Err(RequestError::Timeout) => return run.step(PutEvent::Deadline),
            failed => {
                let error = match failed {
                    Ok(ReplicaReply::Failed(failure)) => request_error(failure),
                    Ok(_) => no_reply(),
                    Err(error) => error,
                };
                self.note_failure(run.plan, slot, &error);
                return run.step(PutEvent::Failed { slot, error });
            }
        };
        run.step(event);
        match durable {
            Durable::Already => run.step(PutEvent::Durable { slot }),
            Durable::After(ticket) => run.unsynced.push((slot, ticket)),
        }
    }

    /// A replica of this node, preferably a primary.
    fn choose_coordinator(&self, plan: &Plan) -> Result<usize, RequestError> {
        let is_local = |replica: &Replica| replica.node == self.parts.node;
        plan.replicas
            .iter()
            .position(is_local)
            .ok_or(RequestError::AllNodesDown)
    }
}

impl PutRun<'_> {
    fn next_effect(&mut self) -> Option<PutEffect> {
        let next = self.effects.get_mut(self.executed)?;
        self.executed += 1;
        Some(std::mem::replace(next, PutEffect::Done))
    }

    fn step(&mut self, event: PutEvent) {
        self.effects.extend(self.machine.step(event));
    }

    fn coordinate(&self) -> Option<Operation> {
        let durability = match self.sync {
            SyncOnWrite::Backend => Durability::BackendDefault,
            SyncOnWrite::One | SyncOnWrite::All => Durability::Grouped,
        };
        Some(Operation::Coordinate {
            key: self.plan.key.clone(),
            update: self.update.clone()?,
            durability,
        })
    }

    fn store(&self, object: Arc<Object>) -> Operation {
        let durability = match self.sync {
            SyncOnWrite::Backend | SyncOnWrite::One => Durability::BackendDefault,
            SyncOnWrite::All => Durability::Grouped,
        };
        Operation::Store {
            key: self.plan.key.clone(),
            object,
            resolution: self.plan.resolution(),
            durability,
        }
    }
}

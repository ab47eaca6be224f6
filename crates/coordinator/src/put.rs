//! The put machine: one replica coordinates, the others store its object, and enough must confirm.
//!
//! Only the coordinating replica gives the write its dot, and it writes first: the others receive
//! the resulting object, so that one client put is one dot on every replica. A replica confirms
//! twice. Its confirmation of having received (and applied) the object counts towards w, that of
//! having stored it as durably as configured counts towards dw.
//!
//! Pure, like the get machine. A failed coordinator fails the request: its write may have happened,
//! and a second coordinator would give a second dot to one put.

use std::sync::Arc;

use kvorum_object::Object;
use kvorum_planted_defects::is_planted;
use kvorum_ring::{NodeId, Role, WriteReplica};
use smallvec::SmallVec;

use crate::error::RequestError;
use crate::quorum::{WriteQuorum, WriteQuorums};

/// An event of a put.
#[derive(Debug)]
pub enum PutEvent {
    /// The coordinating replica has applied the write.
    Coordinated {
        /// The object that it made.
        object: Arc<Object>,
    },
    /// A replica has received and applied the object.
    Received {
        /// Its place in the preference list.
        slot: usize,
    },
    /// A replica has stored the object.
    Durable {
        /// Its place in the preference list.
        slot: usize,
    },
    /// The coordinating replica was not reached, or refused before it did anything.
    Declined {
        /// Its place in the preference list.
        slot: usize,
        /// The reason.
        error: RequestError,
    },
    /// A replica failed.
    Failed {
        /// Its place in the preference list.
        slot: usize,
        /// The reason.
        error: RequestError,
    },
    /// The request's deadline passed.
    Deadline,
}

/// An order to the driver.
#[derive(Debug)]
pub enum PutEffect {
    /// Let this replica coordinate.
    Coordinate {
        /// Its place in the preference list.
        slot: usize,
    },
    /// Have this replica store the object.
    Store {
        /// Its place in the preference list.
        slot: usize,
        /// The object that the coordinator made.
        object: Arc<Object>,
    },
    /// Answer the client; at most once.
    Reply(Result<Arc<Object>, RequestError>),
    /// Nothing more will happen.
    Done,
}

/// Effects in the order of their execution.
pub type PutEffects = SmallVec<[PutEffect; 4]>;

/// One put in progress.
#[derive(Debug)]
pub struct PutMachine {
    quorums: WriteQuorums,
    slots: SmallVec<[Slot; 3]>,
    coordinator: Option<usize>,
    /// The replicas that coordinate when the coordinator declines, in order.
    others: SmallVec<[usize; 3]>,
    object: Option<Arc<Object>>,
    has_replied: bool,
    is_done: bool,
}

#[derive(Debug)]
struct Slot {
    node: NodeId,
    is_primary: bool,
    in_old: bool,
    in_new: bool,
    stage: Stage,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Received,
    Durable,
    Failed(RequestError),
}

impl PutMachine {
    /// Starts a put, coordinated by the first of `coordinators` that does not decline.
    pub fn start(
        replicas: impl Iterator<Item = WriteReplica>,
        coordinators: &[usize],
        quorums: WriteQuorums,
    ) -> (Self, PutEffects) {
        let mut machine = Self::new(replicas, None, quorums);
        let mut effects = PutEffects::new();
        match coordinators {
            [first, others @ ..] => {
                machine.coordinator = Some(*first);
                machine.others = SmallVec::from_slice(others);
                effects.push(PutEffect::Coordinate { slot: *first });
            }
            [] => {
                machine.reply(Err(RequestError::AllNodesDown), &mut effects);
                machine.finish(&mut effects);
            }
        }
        (machine, effects)
    }

    /// Starts a put of a complete object: every replica merges it, none gives a dot.
    pub fn start_as_is(
        replicas: impl Iterator<Item = WriteReplica>,
        object: &Arc<Object>,
        quorums: WriteQuorums,
    ) -> (Self, PutEffects) {
        let machine = Self::new(replicas, Some(object.clone()), quorums);
        let effects = machine.stores(object);
        (machine, effects)
    }

    fn new(
        replicas: impl Iterator<Item = WriteReplica>,
        object: Option<Arc<Object>>,
        quorums: WriteQuorums,
    ) -> Self {
        let slots = replicas
            .map(|it| Slot {
                node: it.replica.node,
                is_primary: it.replica.role == Role::Primary
                    || is_planted!(SloppyQuorumCountedForPw),
                in_old: it.in_old,
                in_new: it.in_new,
                stage: Stage::Waiting,
            })
            .collect();
        Self {
            quorums,
            slots,
            coordinator: None,
            others: SmallVec::new(),
            object,
            has_replied: false,
            is_done: false,
        }
    }

    /// Takes one event. Confirmations that are late, repeated, or from replicas that were not asked
    /// are ignored.
    pub fn step(&mut self, event: PutEvent) -> PutEffects {
        let mut effects = PutEffects::new();
        if self.is_done {
            return effects;
        }
        match event {
            PutEvent::Coordinated { object } => match self.coordinator {
                Some(slot) if self.object.is_none() => {
                    self.advance(slot, Stage::Received);
                    effects = self.stores(&object);
                    self.object = Some(object);
                }
                _ => return effects,
            },
            PutEvent::Received { slot } if self.object.is_some() => {
                self.advance(slot, Stage::Received);
            }
            PutEvent::Durable { slot } if self.object.is_some() => {
                self.advance(slot, Stage::Durable);
            }
            PutEvent::Declined { slot, error } => {
                if self.coordinator != Some(slot) || self.object.is_some() {
                    return self.step(PutEvent::Failed { slot, error });
                }
                self.advance(slot, Stage::Failed(error));
                if !self.others.is_empty() {
                    let next = self.others.remove(0);
                    self.coordinator = Some(next);
                    effects.push(PutEffect::Coordinate { slot: next });
                    return effects;
                }
            }
            PutEvent::Failed { slot, error }
                if self.object.is_some() || self.coordinator == Some(slot) =>
            {
                self.advance(slot, Stage::Failed(error));
            }
            // Before the coordinator has answered, no other replica has been asked.
            PutEvent::Received { .. } | PutEvent::Durable { .. } | PutEvent::Failed { .. } => {
                return effects;
            }
            PutEvent::Deadline => {
                self.reply(Err(RequestError::Timeout), &mut effects);
                self.finish(&mut effects);
                return effects;
            }
        }
        if !self.has_replied
            && let Some(verdict) = self.verdict()
        {
            self.reply(verdict, &mut effects);
        }
        if self.is_over() {
            self.finish(&mut effects);
        }
        effects
    }

    /// True when every replica of the list has received the object and none has failed.
    pub fn has_reached_all(&self) -> bool {
        let has_it = |slot: &Slot| matches!(slot.stage, Stage::Received | Stage::Durable);
        self.slots.iter().all(has_it)
    }

    fn finish(&mut self, effects: &mut PutEffects) {
        self.is_done = true;
        effects.push(PutEffect::Done);
    }

    fn stores(&self, object: &Arc<Object>) -> PutEffects {
        (0..self.slots.len())
            .filter(|slot| Some(*slot) != self.coordinator)
            .map(|slot| PutEffect::Store {
                slot,
                object: object.clone(),
            })
            .collect()
    }

    fn advance(&mut self, slot: usize, to: Stage) {
        let Some(slot) = self.slots.get_mut(slot) else {
            return;
        };
        let moves_on = match (&slot.stage, &to) {
            (Stage::Waiting, _) | (Stage::Received, Stage::Durable | Stage::Failed(_)) => true,
            (Stage::Received | Stage::Durable | Stage::Failed(_), _) => false,
        };
        if moves_on {
            slot.stage = to;
        }
    }

    fn reply(&mut self, outcome: Result<Arc<Object>, RequestError>, effects: &mut PutEffects) {
        if !self.has_replied {
            self.has_replied = true;
            effects.push(PutEffect::Reply(outcome));
        }
    }

    /// True when no replica can report anything new: the coordinator failed, or all are done.
    fn is_over(&self) -> bool {
        let settled = |slot: &Slot| matches!(slot.stage, Stage::Durable | Stage::Failed(_));
        self.coordinator_failure().is_some() || self.slots.iter().all(settled)
    }

    fn coordinator_failure(&self) -> Option<RequestError> {
        // Once its object has gone out, a failure of the coordinator counts like any replica's.
        if self.object.is_some() {
            return None;
        }
        let failure = |slot: &'_ Slot| match &slot.stage {
            Stage::Failed(error) => Some(error.clone()),
            _ => None,
        };
        let last = failure(self.slots.get(self.coordinator?)?)?;
        // If some coordinators could not be reached, the error of another one is the reason.
        let mut reasons = self.slots.iter().filter_map(failure);
        let of_the_others = reasons.find(|it| *it != RequestError::AllNodesDown);
        Some(match last {
            RequestError::AllNodesDown => of_the_others.unwrap_or(last),
            said => said,
        })
    }

    /// The reply, once the confirmations so far decide it.
    fn verdict(&self) -> Option<Result<Arc<Object>, RequestError>> {
        if let Some(error) = self.coordinator_failure() {
            return Some(Err(error));
        }
        let in_old = self.verdict_in(&self.quorums.old, |slot| slot.in_old);
        let in_new = match &self.quorums.new {
            Some(quorum) => self.verdict_in(quorum, |slot| slot.in_new),
            None => Some(Ok(())),
        };
        match (in_old, in_new) {
            (Some(Err(error)), _) | (_, Some(Err(error))) => Some(Err(error)),
            (Some(Ok(())), Some(Ok(()))) => self.object.clone().map(Ok),
            (None, _) | (_, None) => None,
        }
    }

    /// The verdict on one list's quorum, once it is met or out of reach.
    fn verdict_in(
        &self,
        quorum: &WriteQuorum,
        is_in: impl Fn(&Slot) -> bool,
    ) -> Option<Result<(), RequestError>> {
        let now = self.tally(&is_in, |stage| {
            matches!(stage, Stage::Received | Stage::Durable)
        });
        let durable = self.tally(&is_in, |stage| *stage == Stage::Durable);
        let is_met = now.replicas >= quorum.w
            && durable.replicas >= quorum.dw.max(1)
            && now.primaries >= quorum.pw
            && now.nodes >= quorum.node_confirms;
        if is_met {
            return Some(Ok(()));
        }
        let possible = self.tally(&is_in, |stage| !matches!(stage, Stage::Failed(_)));
        self.shortfall(quorum, &possible, &now, &durable).map(Err)
    }

    /// The error of a quorum that cannot be met even if all remaining replicas confirm.
    fn shortfall(
        &self,
        quorum: &WriteQuorum,
        possible: &Tally,
        now: &Tally,
        durable: &Tally,
    ) -> Option<RequestError> {
        let dw = quorum.dw.max(1);
        let error = if possible.primaries < quorum.pw {
            let (wanted, got) = (quorum.pw, now.primaries);
            RequestError::PrimaryWritesUnsatisfied { wanted, got }
        } else if possible.replicas < dw {
            if durable.replicas < now.replicas {
                // Some replicas are about to store it. As in Riak, the coordinator's own copy counts.
                return None;
            }
            let (wanted, got) = (dw, durable.replicas);
            RequestError::DurableWritesUnsatisfied { wanted, got }
        } else if possible.replicas < quorum.w {
            let (wanted, got) = (quorum.w, now.replicas);
            RequestError::WritesUnsatisfied { wanted, got }
        } else if possible.nodes < quorum.node_confirms {
            let (wanted, got) = (quorum.node_confirms, now.nodes);
            RequestError::NodeConfirmsUnsatisfied { wanted, got }
        } else {
            return None;
        };
        let is_opening =
            |slot: &Slot| matches!(slot.stage, Stage::Failed(RequestError::VnodeOpening));
        if self.slots.iter().any(is_opening) {
            // This error outranks any count: it shows that the same request will succeed soon.
            return Some(RequestError::VnodeOpening);
        }
        // A lone replica's own reason is more useful than a count of one.
        match &self.slots[..] {
            [
                Slot {
                    stage: Stage::Failed(reason),
                    ..
                },
            ] => Some(reason.clone()),
            _ => Some(error),
        }
    }

    fn tally(&self, is_in: impl Fn(&Slot) -> bool, counts: impl Fn(&Stage) -> bool) -> Tally {
        let mut nodes = SmallVec::<[NodeId; 3]>::new();
        let mut tally = Tally {
            replicas: 0,
            primaries: 0,
            nodes: 0,
        };
        let counting = |slot: &&Slot| is_in(slot) && counts(&slot.stage);
        for slot in self.slots.iter().filter(counting) {
            tally.replicas += 1;
            tally.primaries += usize::from(slot.is_primary);
            if !nodes.contains(&slot.node) {
                nodes.push(slot.node);
            }
        }
        tally.nodes = nodes.len();
        tally
    }
}

struct Tally {
    replicas: usize,
    primaries: usize,
    nodes: usize,
}

#[cfg(test)]
#[path = "put_test.rs"]
mod tests;

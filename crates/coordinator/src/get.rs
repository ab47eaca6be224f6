//! The get machine: asks replicas of a key, decides when enough have answered, and finds the replicas
//! to mend.
//!
//! Pure: events in, effects out, no clock and no socket. The driver executes the effects, in this
//! process for a local replica and over the network for others, and feeds the answers back. The
//! machine replies as soon as the quorum is met. It stays until every asked replica has answered or
//! the deadline has passed: only then are the outdated replicas known.
//!
//! The driver chooses the replicas that are asked first. The others are asked as soon as one of the first
//! fails, is late, or differs from another. So a client never waits for a lone replica, and a repair
//! compares all answers. A get that compares all replicas asks the others as soon as it has replied.
//!
//! The steps, the rule for giving up and the precedence of errors are those of Riak's get state machine.

use std::sync::Arc;

use kvorum_object::{Object, Resolution};
use kvorum_ring::{NodeId, PreferenceList, Role};
use smallvec::SmallVec;

use crate::error::RequestError;
use crate::quorum::ReadQuorum;

/// An event of a get.
#[derive(Debug)]
pub enum GetEvent {
    /// A replica answered.
    Answer {
        /// Its place in the preference list.
        slot: usize,
        /// Its answer.
        answer: GetAnswer,
    },
    /// The asked replicas have taken longer than usual.
    Late,
    /// The request's deadline passed.
    Deadline,
}

/// A replica's answer to a get.
#[derive(Debug)]
pub enum GetAnswer {
    /// It holds this object (a tombstone is an object).
    Found(Arc<Object>),
    /// It holds an object of which this is the head; values are empty.
    Head(Arc<Object>),
    /// It holds nothing.
    NotFound,
    /// It failed.
    Failed(RequestError),
    /// Its copy is damaged: a failure that the other replicas' copies can mend.
    Damaged(RequestError),
}

/// An order to the driver.
#[derive(Debug)]
pub enum GetEffect {
    /// Ask this replica.
    Ask {
        /// Its place in the preference list.
        slot: usize,
    },
    /// Ask this replica, which has answered with a head, for the values.
    Fetch {
        /// Its place in the preference list.
        slot: usize,
    },
    /// Answer the client; at most once.
    Reply(Result<Option<Arc<Object>>, RequestError>),
    /// Bring a replica that is behind up to this object. Not awaited.
    Repair {
        /// Its place in the preference list.
        slot: usize,
        /// The merged object of all replicas.
        object: Arc<Object>,
        /// The replica reported that it has nothing.
        had_nothing: bool,
    },
    /// Put this object in place of the damaged one of a replica. Not awaited.
    Mend {
        /// Its place in the preference list.
        slot: usize,
        /// The merged object of all replicas.
        object: Arc<Object>,
    },
    /// Nothing more will happen.
    Done,
}

/// Effects in the order of their execution.
pub type GetEffects = SmallVec<[GetEffect; 4]>;

/// One get in progress.
#[derive(Debug)]
pub struct GetMachine {
    quorum: ReadQuorum,
    resolution: Resolution,
    slots: SmallVec<[Slot; 3]>,
    /// Every replica is asked sooner or later.
    compares_all: bool,
    has_replied: bool,
    is_done: bool,
}

/// Replicas of a preference list, by their places in it; places from the 65th on are in every set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSet(u64);

impl SlotSet {
    /// Every replica.
    pub const ALL: Self = Self(u64::MAX);
    /// No replica.
    pub const NONE: Self = Self(0);

    /// True for a place in the set.
    pub fn contains(self, slot: usize) -> bool {
        slot >= 64 || self.0 >> slot & 1 == 1
    }

    /// Takes a place out.
    pub fn remove(&mut self, slot: usize) {
        if slot < 64 {
            self.0 &= !(1 << slot);
        }
    }

    /// Adds a place.
    pub fn insert(&mut self, slot: usize) {
        if slot < 64 {
            self.0 |= 1 << slot;
        }
    }
}

#[derive(Debug)]
struct Slot {
    node: NodeId,
    is_primary: bool,
    is_asked: bool,
    answer: Option<GetAnswer>,
    /// The replica was asked for the values to its head.
    is_fetching: bool,
}

impl Slot {
    /// True while an answer of the replica is pending.
    fn is_open(&self) -> bool {
        self.is_asked && self.answer.is_none() || self.is_fetching
    }
}

impl GetMachine {
    /// Starts a get over `replicas`, asking those in `first`. Effects are appended to those that the
    /// driver has yet to execute.
    pub fn start(
        replicas: &PreferenceList,
        first: SlotSet,
        quorum: ReadQuorum,
        resolution: Resolution,
        effects: &mut GetEffects,
    ) -> Self {
        let mut slots = SmallVec::new();
        for (slot, replica) in replicas.iter().enumerate() {
            let is_asked = first.contains(slot);
            slots.push(Slot {
                node: replica.node,
                is_primary: replica.role == Role::Primary,
                is_asked,
                answer: None,
                is_fetching: false,
            });
            if is_asked {
                effects.push(GetEffect::Ask { slot });
            }
        }
        Self {
            quorum,
            resolution,
            slots,
            compares_all: false,
            has_replied: false,
            is_done: false,
        }
    }

    /// Makes the get ask all other replicas as soon as the client has the reply.
    pub fn compare_all(&mut self) {
        self.compares_all = true;
    }

    /// True when no replica is left to ask.
    pub fn has_asked_all(&self) -> bool {
        self.slots.iter().all(|slot| slot.is_asked)
    }

    /// Takes one event and appends its effects. Duplicate and late answers are ignored.
    pub fn step(&mut self, event: GetEvent, effects: &mut GetEffects) {
        if self.is_done {
            return;
        }
        match event {
            GetEvent::Answer { slot, answer } => match self.slots.get_mut(slot) {
                Some(waiting) if waiting.is_asked && waiting.answer.is_none() => {
                    waiting.answer = Some(answer);
                }
                Some(waiting) if waiting.is_fetching => {
                    waiting.is_fetching = false;
                    waiting.answer = Some(answer);
                }
                _ => return,
            },
            GetEvent::Late => return self.ask_the_others(effects),
            GetEvent::Deadline => {
                self.reply(Err(RequestError::Timeout), effects);
                return self.finish(effects);
            }
        }
        let is_fetching = self.slots.iter().any(|slot| slot.is_fetching);
        if !self.has_replied
            && !is_fetching
            && let Some(reply) = self.verdict()
        {
            match self.slot_to_fetch().filter(|_| reply.is_ok()) {
                Some(slot) => self.fetch(slot, effects),
                None => self.reply(reply, effects),
            }
        }
        if self.are_others_needed() {
            self.ask_the_others(effects);
        }
        if !self.slots.iter().any(Slot::is_open) {
            // Without the values of a newer head the other replicas could not be repaired.
            match self.slot_to_fetch() {
                Some(slot) => self.fetch(slot, effects),
                None => self.finish(effects),
            }
        }
    }

    fn fetch(&mut self, slot: usize, effects: &mut GetEffects) {
        self.slots[slot].is_fetching = true;
        effects.push(GetEffect::Fetch { slot });
    }

    /// True when the answers so far require more replicas.
    fn are_others_needed(&self) -> bool {
        let has_failed = |slot: &Slot| {
            matches!(
                slot.answer,
                Some(GetAnswer::Failed(_) | GetAnswer::Damaged(_))
            )
        };
        let is_short = || !self.has_replied && !self.slots.iter().any(Slot::is_open);
        self.compares_all && self.has_replied
            || self.slots.iter().any(has_failed)
            || is_short()
            || self.do_answers_differ()
    }

    /// True when two replicas hold different things, or one holds nothing.
    fn do_answers_differ(&self) -> bool {
        let mut held = self.slots.iter().filter_map(|slot| match &slot.answer {
            Some(GetAnswer::Found(object) | GetAnswer::Head(object)) => Some(Some(object)),
            Some(GetAnswer::NotFound) => Some(None),
            Some(GetAnswer::Failed(_) | GetAnswer::Damaged(_)) | None => None,
        });
        let Some(first) = held.next() else {
            return false;
        };
        held.any(|object| match (first, object) {
            (Some(first), Some(object)) => !first.is_same_as(object),
            (first, object) => first.is_some() != object.is_some(),
        })
    }

    fn ask_the_others(&mut self, effects: &mut GetEffects) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if !std::mem::replace(&mut slot.is_asked, true) {
                effects.push(GetEffect::Ask { slot: index });
            }
        }
    }

    /// A replica whose head is newer than all values that have been sent.
    fn slot_to_fetch(&self) -> Option<usize> {
        let is_head = |slot: &Slot| matches!(slot.answer, Some(GetAnswer::Head(_)));
        if !self.slots.iter().any(is_head) {
            return None;
        }
        let whole = self.merged();
        let is_news = |slot: &Slot| match &slot.answer {
            Some(GetAnswer::Head(head)) => {
                whole.as_ref().is_none_or(|whole| head.is_news_to(whole))
            }
            _ => false,
        };
        // The newest first: its values may make the others' values superfluous.
        let dominates =
            |one: usize, other: usize| match (&self.slots[one].answer, &self.slots[other].answer) {
                (Some(GetAnswer::Head(one)), Some(GetAnswer::Head(other))) => {
                    one.clock().dominates(other.clock())
                }
                _ => false,
            };
        let news = (0..self.slots.len()).filter(|slot| is_news(&self.slots[*slot]));
        news.reduce(|best, slot| if dominates(slot, best) { slot } else { best })
    }

    fn reply(
        &mut self,
        outcome: Result<Option<Arc<Object>>, RequestError>,
        effects: &mut GetEffects,
    ) {
        if !self.has_replied {
            self.has_replied = true;
            effects.push(GetEffect::Reply(outcome));
        }
    }

    fn finish(&mut self, effects: &mut GetEffects) {
        self.is_done = true;
        self.push_repairs(effects);
        effects.push(GetEffect::Done);
    }

    /// The reply, once the answers so far decide it.
    fn verdict(&self) -> Option<Result<Option<Arc<Object>>, RequestError>> {
        let tally = self.tally();
        if tally.satisfies(&self.quorum) {
            return Some(Ok(self.merged()));
        }
        let is_hopeless = tally.failures >= self.quorum.failures_max();
        if is_hopeless || tally.answers == self.slots.len() {
            return Some(self.failure(&tally));
        }
        None
    }

    fn failure(&self, tally: &Tally) -> Result<Option<Arc<Object>>, RequestError> {
        let quorum = &self.quorum;
        let enough_replicas = tally.good >= quorum.r && tally.good_primaries >= quorum.pr;
        if enough_replicas && tally.nodes < quorum.node_confirms {
            let (wanted, got) = (quorum.node_confirms, tally.nodes);
            return Err(RequestError::InsufficientNodes { wanted, got });
        }
        if let Some(error) = self.first_failure(|error| *error == RequestError::Overload) {
            return Err(error);
        }
        // This error outranks any count: it shows that the same request will succeed soon.
        if let Some(error) = self.first_failure(|error| *error == RequestError::VnodeOpening) {
            return Err(error);
        }
        if tally.absent == tally.answers {
            return Ok(self.merged());
        }
        if let Some(error) = self.first_failure(|_| true) {
            // A single replica's own error is more useful than a count of one.
            if self.slots.len() == 1 {
                return Err(error);
            }
        }
        if tally.good_primaries < quorum.pr {
            let (wanted, got) = (quorum.pr, tally.good_primaries);
            return Err(RequestError::PrimaryReadsUnsatisfied { wanted, got });
        }
        Err(RequestError::ReadsUnsatisfied {
            wanted: quorum.r,
            got: tally.good,
        })
    }

    fn first_failure(&self, wanted: impl Fn(&RequestError) -> bool) -> Option<RequestError> {
        self.slots.iter().find_map(|slot| match &slot.answer {
            Some(GetAnswer::Failed(error) | GetAnswer::Damaged(error)) if wanted(error) => {
                Some(error.clone())
            }
            _ => None,
        })
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let mut nodes = SmallVec::<[NodeId; 3]>::new();
        for slot in &self.slots {
            let Some(answer) = &slot.answer else { continue };
            tally.answers += 1;
            let (is_good, is_absent) = match answer {
                GetAnswer::Found(object) | GetAnswer::Head(object) => (true, object.is_tombstone()),
                GetAnswer::NotFound => (self.quorum.notfound_ok, true),
                GetAnswer::Failed(_) | GetAnswer::Damaged(_) => (false, false),
            };
            tally.absent += usize::from(is_absent);
            if !is_good {
                tally.failures += 1;
                continue;
            }
            tally.good += 1;
            tally.good_primaries += usize::from(slot.is_primary);
            if !nodes.contains(&slot.node) {
                nodes.push(slot.node);
            }
        }
        tally.nodes = nodes.len();
        tally
    }

    /// The merged object of the replicas that have sent values.
    fn merged(&self) -> Option<Arc<Object>> {
        let mut found = self.slots.iter().filter_map(|slot| match &slot.answer {
            Some(GetAnswer::Found(object)) => Some(object),
            _ => None,
        });
        let first = found.next()?.clone();
        Some(found.fold(first, |merged, object| {
            if merged.is_same_as(object) {
                return merged;
            }
            let (left, right) = (Object::clone(&merged), Object::clone(object));
            Arc::new(kvorum_object::merge(left, right, self.resolution))
        }))
    }

    fn push_repairs(&self, effects: &mut GetEffects) {
        if self.slots.len() == 1 {
            return; // no other replica could mend a lone one
        }
        let Some(merged) = self.merged() else { return };
        for (index, slot) in self.slots.iter().enumerate() {
            match &slot.answer {
                Some(GetAnswer::Found(held) | GetAnswer::Head(held))
                    if held.is_same_as(&merged) => {}
                // A late head may be newer than the received values.
                Some(GetAnswer::Head(head)) if head.clock().dominates(merged.clock()) => {}
                Some(GetAnswer::Found(_) | GetAnswer::Head(_) | GetAnswer::NotFound) => {
                    effects.push(GetEffect::Repair {
                        slot: index,
                        object: merged.clone(),
                        had_nothing: matches!(slot.answer, Some(GetAnswer::NotFound)),
                    });
                }
                Some(GetAnswer::Damaged(_)) => effects.push(GetEffect::Mend {
                    slot: index,
                    object: merged.clone(),
                }),
                Some(GetAnswer::Failed(_)) | None => {}
            }
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    answers: usize,
    good: usize,
    good_primaries: usize,
    nodes: usize,
    /// Answers without an object or with a tombstone.
    absent: usize,
    failures: usize,
}

impl Tally {
    fn satisfies(&self, quorum: &ReadQuorum) -> bool {
        self.good >= quorum.r
            && self.good_primaries >= quorum.pr
            && self.nodes >= quorum.node_confirms
            && self.good > 0
    }
}

#[cfg(test)]
#[path = "get_test.rs"]
mod tests;

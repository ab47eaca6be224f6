//! A round: the facts that have to be established, in order, before tombstones of a preference list
//! are removed.
//!
//! ```text
//! announce   in the agreed log: no earlier attempt can raise the watermark any more
//! open       replicas fix what they have
//! compare    replicas: it is on all of them
//! hints      members: there are none
//! settle     members: requests that began before the comparison have ended
//! hints      members: no hint has come meanwhile
//! note       replicas have their marks
//! propose    in the agreed log: the watermark is raised
//! confirm    members, then replicas: they have the watermark and their notes
//! reap       replicas remove their tombstones
//! ```
//!
//! Each step begins when the step before has all its answers. The first negative answer ends the
//! round, and tombstones stay; notes made until then do no harm. In the last step, a failing
//! replica does not keep the others from removing their tombstones.
//!
//! Decision 37 explains what each step proves, and the order.

use std::collections::BTreeSet;

use kvorum_planted_defects::is_planted;

use crate::kept_because::KeptBecause;
use crate::round_event::{Asked, ReplicaAnswer, RoundEffect, RoundEvent, RoundOutcome};
use crate::watermark::{Incarnation, RoundName, Watermark};

/// The name and the size of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundRequest {
    /// Its name, with the number that follows the present watermark's.
    pub name: RoundName,
    /// A number that changes with the placement of the ring, the number of replicas and the
    /// members.
    pub epoch: u64,
    /// The number of replicas in the preference list.
    pub replicas: usize,
    /// The number of members of the cluster, up or down.
    pub members: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Announce,
    Open,
    Compare,
    Hints,
    Settle,
    HintsAgain,
    Note,
    Propose,
    ConfirmHints,
    Confirm,
    Reap,
    Ended,
}

/// One round in progress.
#[derive(Debug)]
pub struct Round {
    request: RoundRequest,
    step: Step,
    /// The places that have not answered in this step.
    awaited: BTreeSet<usize>,
    incarnations: Vec<Incarnation>,
    raised: Option<Watermark>,
    kept: Option<KeptBecause>,
    kept_by: Option<Asked>,
    reaped: u64,
}

impl Round {
    /// Starts a round; effects are appended to those that the driver has yet to execute.
    pub fn start(request: RoundRequest, effects: &mut Vec<RoundEffect>) -> Self {
        let mut round = Self {
            request,
            step: Step::Ended,
            awaited: BTreeSet::new(),
            incarnations: vec![Incarnation(0); request.replicas],
            raised: None,
            kept: None,
            kept_by: None,
            reaped: 0,
        };
        round.begin(Step::Announce, effects);
        round
    }

    /// Handles an event and appends its effects. An answer that is not awaited is ignored.
    pub fn step(&mut self, event: RoundEvent, effects: &mut Vec<RoundEffect>) {
        match event {
            RoundEvent::Stop if self.step != Step::Ended => {
                self.kept_by = None;
                self.end(Some(KeptBecause::Stopped), effects);
            }
            RoundEvent::Stop => {}
            RoundEvent::Announced { is_agreed } => {
                let answer = true_or(is_agreed, KeptBecause::OtherWatermark);
                self.take(Step::Announce, 0, answer, effects);
            }
            RoundEvent::Opened { replica, answer } => self.opened(replica, answer, effects),
            RoundEvent::Compared { is_complete } => {
                let answer = true_or(is_complete, KeptBecause::NotCompared);
                self.take(Step::Compare, 0, answer, effects);
            }
            RoundEvent::Settled { member, is_settled } => {
                let answer = true_or(is_settled, KeptBecause::RequestsUnderWay);
                self.take(Step::Settle, member, answer, effects);
            }
            RoundEvent::Hints { member, hints } => {
                self.take(Step::Hints, member, no_hints(hints), effects);
            }
            RoundEvent::HintsAgain { member, answer } => {
                self.take(Step::HintsAgain, member, answer, effects);
            }
            RoundEvent::Noted { replica, answer } => {
                self.take(Step::Note, replica, answer, effects);
            }
            RoundEvent::Agreed { is_agreed } => self.agreed(is_agreed, effects),
            RoundEvent::HintsConfirmed { member, answer } => {
                self.take(Step::ConfirmHints, member, answer, effects);
            }
            RoundEvent::Confirmed { replica, answer } => {
                self.take(Step::Confirm, replica, answer, effects);
            }
            RoundEvent::Reaped { replica, answer } => self.reaped(replica, answer, effects),
        }
    }

    fn opened(
        &mut self,
        replica: usize,
        answer: ReplicaAnswer<Incarnation>,
        effects: &mut Vec<RoundEffect>,
    ) {
        if self.step == Step::Open
            && let Ok(incarnation) = answer
            && let Some(place) = self.incarnations.get_mut(replica)
        {
            *place = incarnation;
        }
        self.take(Step::Open, replica, answer.map(|_| ()), effects);
    }

    fn agreed(&mut self, is_agreed: bool, effects: &mut Vec<RoundEffect>) {
        if self.step == Step::Propose && is_agreed {
            self.raised = Some(self.watermark());
        }
        let answer = true_or(is_agreed, KeptBecause::OtherWatermark);
        self.take(Step::Propose, 0, answer, effects);
    }

    /// A failing replica does not keep the others from removing their tombstones.
    fn reaped(
        &mut self,
        replica: usize,
        answer: ReplicaAnswer<u64>,
        effects: &mut Vec<RoundEffect>,
    ) {
        if self.step != Step::Reap || !self.awaited.contains(&replica) {
            return;
        }
        match answer {
            Ok(count) => self.reaped += count,
            Err(reason) => {
                self.kept = Some(reason);
                self.kept_by = asked(Step::Reap, replica);
            }
        }
        self.take(Step::Reap, replica, Ok(()), effects);
    }

    /// Handles an answer; the last answer of a step begins the next step.
    fn take(
        &mut self,
        step: Step,
        place: usize,
        answer: ReplicaAnswer<()>,
        effects: &mut Vec<RoundEffect>,
    ) {
        if self.step != step || !self.awaited.remove(&place) {
            return;
        }
        if let Err(reason) = answer {
            self.kept_by = asked(step, place);
            return self.end(Some(reason), effects);
        }
        if !self.awaited.is_empty() {
            return;
        }
        match next_of(step) {
            Step::Ended => self.end(self.kept, effects),
            next => self.begin(next, effects),
        }
    }

    fn begin(&mut self, step: Step, effects: &mut Vec<RoundEffect>) {
        self.step = step;
        let asked = self.asked_in(step);
        self.awaited = (0..asked).collect();
        effects.extend((0..asked).filter_map(|place| self.question(step, place)));
        if asked == 0 {
            self.end(Some(KeptBecause::NotCompared), effects);
        }
    }

    /// The number of questions in a step.
    fn asked_in(&self, step: Step) -> usize {
        match step {
            Step::Open | Step::Note | Step::Confirm | Step::Reap => self.request.replicas,
            Step::Hints | Step::Settle | Step::HintsAgain | Step::ConfirmHints => {
                self.request.members
            }
            Step::Announce | Step::Compare | Step::Propose => 1,
            Step::Ended => 0,
        }
    }

    fn question(&self, step: Step, place: usize) -> Option<RoundEffect> {
        let (replica, member) = (place, place);
        Some(match step {
            Step::Announce => RoundEffect::Announce(self.request.name),
            Step::Open => RoundEffect::AskOpen { replica },
            Step::Compare => RoundEffect::Compare,
            Step::Settle => RoundEffect::AskSettle { member },
            Step::HintsAgain => RoundEffect::AskHintsAgain { member },
            Step::Hints => RoundEffect::AskHints { member },
            Step::Note => RoundEffect::AskNote { replica },
            Step::Propose => RoundEffect::Propose(self.watermark()),
            Step::ConfirmHints => RoundEffect::AskConfirmHints { member },
            Step::Confirm => RoundEffect::AskConfirm { replica },
            Step::Reap => RoundEffect::AskReap { replica },
            Step::Ended => return None,
        })
    }

    fn watermark(&self) -> Watermark {
        Watermark {
            round: self.request.name,
            epoch: self.request.epoch,
            replicas: self.incarnations.clone(),
        }
    }

    fn end(&mut self, kept: Option<KeptBecause>, effects: &mut Vec<RoundEffect>) {
        self.step = Step::Ended;
        self.awaited.clear();
        effects.push(RoundEffect::End(RoundOutcome {
            kept,
            kept_by: self.kept_by,
            raised: self.raised.take(),
            reaped: self.reaped,
        }));
    }
}

/// The replica or member asked at a place in a step; `None` for the agreed log and the exchange.
fn asked(step: Step, place: usize) -> Option<Asked> {
    match step {
        Step::Open | Step::Note | Step::Confirm | Step::Reap => Some(Asked::Replica(place)),
        Step::Hints | Step::Settle | Step::HintsAgain | Step::ConfirmHints => {
            Some(Asked::Member(place))
        }
        Step::Announce | Step::Compare | Step::Propose | Step::Ended => None,
    }
}

fn next_of(step: Step) -> Step {
    match step {
        Step::Announce => Step::Open,
        Step::Open => Step::Compare,
        Step::Compare => Step::Hints,
        Step::Hints if is_planted!(OldRequestsNotAwaited) => Step::HintsAgain,
        Step::Hints => Step::Settle,
        Step::Settle => Step::HintsAgain,
        Step::HintsAgain => Step::Note,
        Step::Note => Step::Propose,
        Step::Propose if is_planted!(ReapedBeforeConfirmed) => Step::Reap,
        Step::Propose => Step::ConfirmHints,
        Step::ConfirmHints => Step::Confirm,
        Step::Confirm => Step::Reap,
        Step::Reap | Step::Ended => Step::Ended,
    }
}

fn true_or(is_true: bool, reason: KeptBecause) -> ReplicaAnswer<()> {
    match is_true {
        true => Ok(()),
        false => Err(reason),
    }
}

fn no_hints(hints: Option<u64>) -> ReplicaAnswer<()> {
    match hints {
        _ if is_planted!(TombstoneReapedBesideHint) => Ok(()),
        Some(0) => Ok(()),
        Some(_) => Err(KeptBecause::HintsOutstanding),
        None => Err(KeptBecause::HintsUnknown),
    }
}

//! Drives a round of the model: one effect, one compared key or one answer at a time, in any order.

use crate::keeper_event::{KeeperAnswer, KeeperEvent};
use crate::kept_because::KeptBecause;
use crate::model::replica::KEYS;
use crate::model::world::{MEMBERS, World};
use crate::round::{Round, RoundRequest};
use crate::round_event::{RoundEffect, RoundEvent};
use crate::watermark::{RoundName, Watermark};

/// A round and what its driver has under way.
pub(super) struct Driven {
    leader: usize,
    request: RoundRequest,
    round: Round,
    effects: Vec<RoundEffect>,
    /// Members that answer when these messages are gone.
    settling: Vec<(usize, Vec<u64>)>,
    /// The keys that the exchange has yet to look at.
    comparing: Option<Vec<u8>>,
    /// A replica has lost something since the exchange began.
    is_spoilt: bool,
    is_over: bool,
}

/// The fate of an effect.
enum Executed {
    Answered(RoundEvent),
    /// The answer comes later.
    Begun,
    /// It is to be tried again.
    Waits,
    Over,
}

impl Driven {
    pub(super) fn new(leader: usize, request: RoundRequest) -> Self {
        let mut effects = Vec::new();
        Self {
            leader,
            request,
            round: Round::start(request, &mut effects),
            effects,
            settling: Vec::new(),
            comparing: None,
            is_spoilt: false,
            is_over: false,
        }
    }

    pub(super) fn leader(&self) -> usize {
        self.leader
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The exchange that is under way is not complete.
    pub(super) fn spoil(&mut self) {
        self.is_spoilt = true;
    }

    /// One thing of the round happens.
    pub(super) fn advance(&mut self, world: &mut World) {
        if world.epoch != self.request.epoch && world.draw.happens(50) {
            return self.take(RoundEvent::Stop);
        }
        if let Some(event) = self.compared(world).or_else(|| self.settled(world)) {
            return self.take(event);
        }
        let Some(effect) = world.draw.take(&mut self.effects) else {
            return;
        };
        match self.execute(&effect, world) {
            Executed::Answered(event) => self.take(event),
            Executed::Begun => {}
            Executed::Waits if world.draw.happens(1) => self.take(RoundEvent::Stop),
            Executed::Waits => self.effects.push(effect),
            Executed::Over => self.is_over = true,
        }
    }

    fn take(&mut self, event: RoundEvent) {
        self.round.step(event, &mut self.effects);
    }

    /// The exchange looks at one key, or ends.
    fn compared(&mut self, world: &mut World) -> Option<RoundEvent> {
        let keys = self.comparing.as_mut()?;
        if let Some(key) = world.draw.take(keys) {
            self.is_spoilt |= !world.mend(key);
            return None;
        }
        self.comparing = None;
        let is_complete = !self.is_spoilt;
        world.is_mended |= is_complete;
        Some(RoundEvent::Compared { is_complete })
    }

    fn settled(&mut self, world: &World) -> Option<RoundEvent> {
        let is_over = |numbers: &[u64]| {
            let mut under_way = world.messages.iter();
            !under_way.any(|it| numbers.contains(&it.number))
        };
        let at = self.settling.iter().position(|it| is_over(&it.1))?;
        let (member, _) = self.settling.swap_remove(at);
        Some(RoundEvent::Settled {
            member,
            is_settled: true,
        })
    }

    fn execute(&mut self, effect: &RoundEffect, world: &mut World) -> Executed {
        let round = self.request.name;
        let event = match effect {
            RoundEffect::Announce(name) => announce(world, *name),
            RoundEffect::AskOpen { replica } => self.open(world, *replica),
            RoundEffect::Compare => {
                self.is_spoilt = false;
                self.comparing = Some((0..KEYS).collect());
                return Executed::Begun;
            }
            RoundEffect::AskSettle { member } => {
                let own = world.messages.iter();
                let own = own.filter(|it| it.coordinator == *member);
                self.settling
                    .push((*member, own.map(|it| it.number).collect()));
                return Executed::Begun;
            }
            RoundEffect::AskHints { member } => self.look_for_hints(world, *member),
            RoundEffect::AskHintsAgain { member } => RoundEvent::HintsAgain {
                member: *member,
                answer: world.hint_stores[*member].note.still_none(round),
            },
            RoundEffect::AskNote { replica } => {
                let answer = world
                    .replica(*replica)
                    .step_keeper(KeeperEvent::MakeNote { round });
                match answer {
                    Some(KeeperAnswer::Noted(answer)) => RoundEvent::Noted {
                        replica: *replica,
                        answer,
                    },
                    other => panic!("a keeper answered {other:?}"),
                }
            }
            RoundEffect::Propose(watermark) => propose(world, watermark.clone()),
            RoundEffect::AskConfirmHints { member } => {
                return self.confirm_hints(world, *member);
            }
            RoundEffect::AskConfirm { replica } => return self.confirm(world, *replica),
            RoundEffect::AskReap { replica } => self.reap(world, *replica),
            RoundEffect::End(_) => return Executed::Over,
        };
        Executed::Answered(event)
    }

    fn open(&self, world: &mut World, replica: usize) -> RoundEvent {
        let asked = world.replica(replica);
        let (round, extent) = (self.request.name, asked.extent());
        let answer = match asked.is_complete {
            false => Err(KeptBecause::ReplicaIncomplete),
            true => match asked.step_keeper(KeeperEvent::Open { round, extent }) {
                Some(KeeperAnswer::Opened(answer)) => answer,
                other => panic!("a keeper answered {other:?}"),
            },
        };
        RoundEvent::Opened { replica, answer }
    }

    fn look_for_hints(&self, world: &mut World, member: usize) -> RoundEvent {
        let store = &mut world.hint_stores[member];
        if store.hints.is_empty() {
            store.note.has_none(self.request.name);
        }
        RoundEvent::Hints {
            member,
            hints: Some(store.hints.len() as u64),
        }
    }

    /// A member that has not learned of the watermark yet is asked again.
    fn confirm_hints(&self, world: &World, member: usize) -> Executed {
        let learned = world.learned[member].as_ref();
        let note = world.hint_stores[member].note;
        match note.confirm(learned, self.request.name) {
            Err(KeptBecause::OtherWatermark) => Executed::Waits,
            answer => Executed::Answered(RoundEvent::HintsConfirmed { member, answer }),
        }
    }

    fn confirm(&self, world: &mut World, replica: usize) -> Executed {
        let round = self.request.name;
        match world
            .replica(replica)
            .step_keeper(KeeperEvent::Confirm { round })
        {
            Some(KeeperAnswer::Confirmed(Err(KeptBecause::OtherWatermark))) => Executed::Waits,
            Some(KeeperAnswer::Confirmed(answer)) => {
                Executed::Answered(RoundEvent::Confirmed { replica, answer })
            }
            other => panic!("a keeper answered {other:?}"),
        }
    }

    /// Some tombstones go now, and others later or never.
    fn reap(&self, world: &mut World, replica: usize) -> RoundEvent {
        let round = self.request.name;
        let answer = match world
            .replica(replica)
            .step_keeper(KeeperEvent::Reap { round })
        {
            Some(KeeperAnswer::MayReap(answer)) => answer,
            other => panic!("a keeper answered {other:?}"),
        };
        let answer = answer.map(|()| world.reap(replica, 70));
        RoundEvent::Reaped { replica, answer }
    }
}

/// Half of the members learn at once what the log has taken.
fn propose(world: &mut World, watermark: Watermark) -> RoundEvent {
    let raised = world.agreed.raise(watermark, world.epoch);
    let is_agreed = raised.is_ok();
    world.agreed = raised.unwrap_or_else(|_| world.agreed.clone());
    for member in 0..MEMBERS {
        if is_agreed && world.draw.happens(50) {
            world.learn(member);
        }
    }
    RoundEvent::Agreed { is_agreed }
}

fn announce(world: &mut World, name: RoundName) -> RoundEvent {
    let announced = world.agreed.announce(name);
    let is_agreed = announced.is_ok();
    world.agreed = announced.unwrap_or_else(|_| world.agreed.clone());
    RoundEvent::Announced { is_agreed }
}

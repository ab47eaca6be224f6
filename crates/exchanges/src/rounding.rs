//! Drives one round of a preference list: executes the machine's effects and feeds the answers back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kvorum_cluster::Command;
use kvorum_reaping::{
    Asked, Incarnation, KeptBecause, ListName, ReplicaAnswer, Round, RoundEffect, RoundEvent,
    RoundName, RoundOutcome, RoundRequest,
};
use kvorum_ring::{NodeId, PreferenceList};
use kvorum_runtime::Runtime;

use crate::round_question::{AskedRound, RoundMeans, RoundQuestion, RoundStep};

/// A member that has not learned a watermark yet is asked again after this long, so many times.
const LEARN_PAUSE: Duration = Duration::from_millis(200);
const LEARN_ATTEMPTS: u32 = 50;

/// A round that is to be driven.
pub(crate) struct Rounding {
    pub(crate) runtime: Runtime,
    pub(crate) means: Arc<dyn RoundMeans>,
    pub(crate) list: ListName,
    pub(crate) name: RoundName,
    pub(crate) epoch: u64,
    pub(crate) replicas: PreferenceList,
    /// All members of the cluster, up or down.
    pub(crate) members: Vec<NodeId>,
}

/// The end of a round.
pub(crate) struct RoundEnd {
    pub(crate) outcome: RoundOutcome,
    /// The node whose answer ended it early, or has left tombstones.
    pub(crate) kept_by: Option<NodeId>,
}

/// An exchange of the round's replicas; true when it was complete.
pub(crate) type Comparison = Pin<Box<dyn Future<Output = bool> + Send>>;

type Pending = Pin<Box<dyn Future<Output = RoundEvent> + Send>>;

impl Rounding {
    /// Drives the round to its end. Dropped before, it ends without harm. `compare` begins an exchange.
    pub(crate) async fn run(self, compare: impl Fn() -> Comparison) -> RoundEnd {
        let request = RoundRequest {
            name: self.name,
            epoch: self.epoch,
            replicas: self.replicas.len(),
            members: self.members.len(),
        };
        let mut effects = Vec::new();
        let mut round = Round::start(request, &mut effects);
        let mut pending: FuturesUnordered<Pending> = FuturesUnordered::new();
        loop {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    RoundEffect::End(outcome) => return self.ended(outcome),
                    RoundEffect::Compare => pending.push(compared(compare())),
                    effect => pending.push(self.event_of(effect)),
                }
            }
            let event = pending.next().await.unwrap_or(RoundEvent::Stop);
            round.step(event, &mut effects);
        }
    }

    fn ended(&self, outcome: RoundOutcome) -> RoundEnd {
        let node_of = |asked| match asked {
            Asked::Replica(at) => self.replicas.get(at).map(|it| it.node),
            Asked::Member(at) => self.members.get(at).copied(),
        };
        let kept_by = outcome.kept_by.and_then(node_of);
        RoundEnd { outcome, kept_by }
    }

    /// Sees to an effect: the event comes when it is done.
    fn event_of(&self, effect: RoundEffect) -> Pending {
        let list = self.list;
        match effect {
            RoundEffect::Announce(round) => {
                let agreed = self.means.agree(Command::AnnounceRound { list, round });
                Box::pin(async move {
                    let is_agreed = agreed.await;
                    RoundEvent::Announced { is_agreed }
                })
            }
            RoundEffect::Propose(watermark) => {
                let command = Command::RaiseWatermark { list, watermark };
                let agreed = self.means.agree(command);
                Box::pin(async move {
                    let is_agreed = agreed.await;
                    RoundEvent::Agreed { is_agreed }
                })
            }
            RoundEffect::AskOpen { replica } => {
                let asked = self.ask_replica(replica, RoundStep::Open);
                Box::pin(async move {
                    let answer = asked.await.map(Incarnation);
                    RoundEvent::Opened { replica, answer }
                })
            }
            RoundEffect::AskNote { replica } => {
                let asked = self.ask_replica(replica, RoundStep::Note);
                Box::pin(async move {
                    let answer = done(asked.await);
                    RoundEvent::Noted { replica, answer }
                })
            }
            RoundEffect::AskConfirm { replica } => {
                let asked = self.until_learned(self.replica(replica, RoundStep::Confirm));
                Box::pin(async move {
                    let answer = done(asked.await);
                    RoundEvent::Confirmed { replica, answer }
                })
            }
            RoundEffect::AskReap { replica } => {
                let asked = self.ask_replica(replica, RoundStep::Reap);
                Box::pin(async move {
                    let answer = asked.await;
                    RoundEvent::Reaped { replica, answer }
                })
            }
            effect => self.event_of_member(&effect),
        }
    }

    fn event_of_member(&self, effect: &RoundEffect) -> Pending {
        match *effect {
            RoundEffect::AskSettle { member } => {
                let asked = self.ask_member(member, RoundStep::Settle);
                Box::pin(async move {
                    let is_settled = asked.await.is_ok();
                    RoundEvent::Settled { member, is_settled }
                })
            }
            RoundEffect::AskHints { member } => {
                let asked = self.ask_member(member, RoundStep::Hints);
                Box::pin(async move {
                    let hints = asked.await.ok();
                    RoundEvent::Hints { member, hints }
                })
            }
            RoundEffect::AskHintsAgain { member } => {
                let asked = self.ask_member(member, RoundStep::HintsAgain);
                Box::pin(async move {
                    let answer = done(asked.await);
                    RoundEvent::HintsAgain { member, answer }
                })
            }
            RoundEffect::AskConfirmHints { member } => {
                let asked = self.until_learned(self.member(member, RoundStep::ConfirmHints));
                Box::pin(async move {
                    let answer = done(asked.await);
                    RoundEvent::HintsConfirmed { member, answer }
                })
            }
            _ => Box::pin(std::future::ready(RoundEvent::Stop)),
        }
    }

    fn ask_replica(&self, replica: usize, step: impl Fn(u16) -> RoundStep) -> AskedRound {
        self.ask(self.replica(replica, step))
    }

    fn ask_member(&self, member: usize, step: RoundStep) -> AskedRound {
        self.ask(self.member(member, step))
    }

    fn replica(&self, at: usize, step: impl Fn(u16) -> RoundStep) -> Option<(NodeId, RoundStep)> {
        let replica = self.replicas.get(at)?;
        Some((replica.node, step(replica.partition.number())))
    }

    fn member(&self, at: usize, step: RoundStep) -> Option<(NodeId, RoundStep)> {
        Some((*self.members.get(at)?, step))
    }

    fn ask(&self, asked: Option<(NodeId, RoundStep)>) -> AskedRound {
        let Some((node, step)) = asked else {
            return Box::pin(std::future::ready(Err(KeptBecause::ReplicaDown)));
        };
        let (list, round) = (self.list, self.name);
        self.means.ask(node, RoundQuestion { list, round, step })
    }

    /// Asks again for as long as a watermark has not been learned.
    fn until_learned(&self, asked: Option<(NodeId, RoundStep)>) -> AskedRound {
        let (runtime, means) = (self.runtime.clone(), self.means.clone());
        let (list, round) = (self.list, self.name);
        Box::pin(async move {
            let (node, step) = asked.ok_or(KeptBecause::ReplicaDown)?;
            let question = RoundQuestion { list, round, step };
            for _ in 1..LEARN_ATTEMPTS {
                match means.ask(node, question).await {
                    Err(KeptBecause::OtherWatermark) => runtime.sleep(LEARN_PAUSE).await,
                    answer => return answer,
                }
            }
            means.ask(node, question).await
        })
    }
}

fn compared(exchange: Comparison) -> Pending {
    Box::pin(async move {
        let is_complete = exchange.await;
        RoundEvent::Compared { is_complete }
    })
}

fn done(answer: Result<u64, KeptBecause>) -> ReplicaAnswer<()> {
    answer.map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use kvorum_ring::{Epoch, Partition, Replica, Role};

    use super::*;
    use crate::round_question::RoundAnswer;

    const NODES: u8 = 3;

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 16])
    }

    fn replica(number: u8) -> Replica {
        Replica {
            partition: Partition::of_number(u16::from(number)).unwrap(),
            node: node(number),
            role: Role::Primary,
            epoch: Epoch::FIRST,
        }
    }

    /// One node answers a question of this kind in its own way, and all others say yes.
    struct Answers {
        of: NodeId,
        to: fn(RoundStep) -> bool,
        answer: RoundAnswer,
    }

    impl RoundMeans for Answers {
        fn ask(&self, node: NodeId, question: RoundQuestion) -> AskedRound {
            let is_meant = node == self.of && (self.to)(question.step);
            Box::pin(ready(match (is_meant, question.step) {
                (true, _) => self.answer,
                (false, RoundStep::Reap(_)) => Ok(10),
                (false, _) => Ok(0),
            }))
        }

        fn agree(&self, _command: Command) -> Pin<Box<dyn Future<Output = bool> + Send>> {
            Box::pin(ready(true))
        }
    }

    fn run(answers: Answers) -> RoundEnd {
        let executor = Runtime::simulated(1).unwrap();
        let rounding = Rounding {
            runtime: executor.runtime(),
            means: Arc::new(answers),
            list: ListName {
                partition: 1,
                n_val: NODES,
            },
            name: RoundName {
                number: 1,
                nonce: 7,
            },
            epoch: 1,
            replicas: (1..=NODES).map(replica).collect(),
            members: (1..=NODES).map(node).collect(),
        };
        executor.block_on(rounding.run(|| Box::pin(ready(true))))
    }

    #[test]
    fn a_round_of_which_all_say_yes_names_no_node() {
        let end = run(Answers {
            of: node(2),
            to: |_| false,
            answer: Ok(0),
        });
        assert_eq!((end.outcome.kept, end.kept_by), (None, None));
        assert_eq!(end.outcome.reaped, 30);
    }

    #[test]
    fn the_node_whose_answer_ended_the_round_is_named() {
        let end = run(Answers {
            of: node(2),
            to: |step| step == RoundStep::Hints,
            answer: Ok(1),
        });
        assert_eq!(end.outcome.kept, Some(KeptBecause::HintsOutstanding));
        assert_eq!(end.kept_by, Some(node(2)));
        let end = run(Answers {
            of: node(3),
            to: |step| matches!(step, RoundStep::Reap(_)),
            answer: Err(KeptBecause::ReplicaDown),
        });
        assert_eq!(end.outcome.kept, Some(KeptBecause::ReplicaDown));
        assert_eq!(end.kept_by, Some(node(3)));
        assert_eq!(end.outcome.reaped, 20);
    }
}

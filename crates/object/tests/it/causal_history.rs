//! Random histories of one key over three replicas, compared with a model that has for each write the
//! exact set of writes that it superseded, and no clocks.
//!
//! A replica keeps a write that it has received, unless it has received a write that superseded it.
//! If only the newest is kept, it is the newest of all that the replica has received.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_object::{Clock, Content, Dot, Object, Resolution, Timestamp, merge};
use proptest::prelude::*;

use crate::replica::{Replica, content};

const REPLICAS: usize = 3;
const CLIENTS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Read {
        client: usize,
        replica: usize,
    },
    Write {
        client: usize,
        replica: usize,
        blind: bool,
        delete: bool,
        now: u64,
        reach: [bool; 3],
    },
    Exchange {
        from: usize,
        to: usize,
    },
    WriteElsewhere {
        replica: usize,
    },
    LoseData {
        replica: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let write = (
        0..CLIENTS,
        0..REPLICAS,
        any::<(bool, bool)>(),
        0..50u64,
        any::<[bool; 3]>(),
    )
        .prop_map(
            |(client, replica, (blind, delete), now, reach)| Step::Write {
                client,
                replica,
                blind,
                delete,
                now,
                reach,
            },
        );
    prop_oneof![
        3 => (0..CLIENTS, 0..REPLICAS).prop_map(|(client, replica)| Step::Read { client, replica }),
        4 => write,
        3 => (0..REPLICAS, 0..REPLICAS).prop_map(|(from, to)| Step::Exchange { from, to }),
        1 => (0..REPLICAS).prop_map(|replica| Step::WriteElsewhere { replica }),
        1 => (0..REPLICAS).prop_map(|replica| Step::LoseData { replica }),
    ]
}

type Dots = BTreeSet<Dot>;

/// The model's facts about one write.
struct Fact {
    superseded: Dots,
    content: Content,
    rank: (Timestamp, bool, Dot),
}

struct World {
    resolution: Resolution,
    replicas: Vec<Replica>,
    /// Writes that each replica has received, directly or through a context.
    heard: Vec<Dots>,
    /// Contexts of each client's last read, from the server and from the model.
    contexts: Vec<(Clock, Dots)>,
    facts: BTreeMap<Dot, Fact>,
    actors: u64,
}

impl World {
    fn new(resolution: Resolution) -> Self {
        Self {
            resolution,
            replicas: (1..=REPLICAS as u64).map(Replica::new).collect(),
            heard: vec![Dots::new(); REPLICAS],
            contexts: vec![(Clock::new(), Dots::new()); CLIENTS],
            facts: BTreeMap::new(),
            actors: REPLICAS as u64,
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Read { client, replica } => {
                let clock = self.replicas[replica]
                    .read()
                    .map(|object| object.clock().clone());
                let clock = Clock::decode(&clock.unwrap_or_default().encode()).unwrap();
                self.contexts[client] = (clock, self.heard[replica].clone());
            }
            Step::Write {
                client,
                replica,
                blind,
                delete,
                now,
                reach,
            } => {
                let object = self.write(client, replica, blind, delete, now);
                let heard = self.heard[replica].clone();
                for other in (0..REPLICAS).filter(|other| *other != replica && reach[*other]) {
                    self.replicas[other].take_in(object.clone(), self.resolution);
                    self.heard[other].extend(&heard);
                }
            }
            Step::Exchange { from, to } => {
                if let Some(object) = self.replicas[from].read() {
                    self.replicas[to].take_in(object, self.resolution);
                    let heard = self.heard[from].clone();
                    self.heard[to].extend(heard);
                }
            }
            Step::WriteElsewhere { replica } => self.replicas[replica].write_elsewhere(),
            Step::LoseData { replica } => {
                self.actors += 1;
                self.replicas[replica].lose_data(self.actors);
                self.heard[replica].clear();
            }
        }
    }

    fn write(
        &mut self,
        client: usize,
        replica: usize,
        blind: bool,
        delete: bool,
        now: u64,
    ) -> Object {
        let fresh = (Clock::new(), Dots::new());
        let (clock, superseded) = if blind {
            fresh
        } else {
            self.contexts[client].clone()
        };
        let content = if delete {
            Content::tombstone()
        } else {
            content(self.facts.len().to_string())
        };
        let before = self.heard[replica].clone();
        let object = self.replicas[replica].write(&clock, content.clone(), now, self.resolution);
        let new: Vec<_> = object
            .siblings()
            .iter()
            .filter(|sibling| !self.facts.contains_key(&sibling.dot))
            .collect();
        let [new] = &new[..] else {
            panic!("one write, {} new dots", new.len())
        };
        let known = before.iter().chain(&superseded);
        assert!(
            known
                .map(|dot| self.facts[dot].rank.0)
                .all(|time| time < new.metadata.last_modified),
            "a write is newer than all that it follows"
        );
        self.heard[replica].extend(&superseded);
        self.heard[replica].insert(new.dot);
        let rank = (new.metadata.last_modified, !delete, new.dot);
        self.facts.insert(
            new.dot,
            Fact {
                superseded,
                content,
                rank,
            },
        );
        object
    }

    fn standing(&self, heard: &Dots) -> Dots {
        let facts = heard.iter().map(|dot| (dot, &self.facts[dot]));
        match self.resolution {
            Resolution::NewestWins | Resolution::WrittenOnce => facts
                .max_by_key(|(_, fact)| fact.rank)
                .map(|(dot, _)| *dot)
                .into_iter()
                .collect(),
            Resolution::KeepSiblings => {
                let superseded: Dots = facts
                    .flat_map(|(_, fact)| fact.superseded.iter().copied())
                    .collect();
                heard - &superseded
            }
        }
    }

    fn check(&self, object: Option<&Object>, heard: &Dots) {
        let siblings = object.map(Object::siblings).unwrap_or_default();
        let got: Dots = siblings.iter().map(|sibling| sibling.dot).collect();
        assert_eq!(got, self.standing(heard));
        for sibling in siblings {
            let written = &self.facts[&sibling.dot].content;
            assert_eq!(sibling.value, written.value);
            assert_eq!(sibling.metadata.deleted, written.metadata.deleted);
        }
    }

    fn check_replicas(&self) {
        for (replica, heard) in self.replicas.iter().zip(&self.heard) {
            self.check(replica.read().as_ref(), heard);
        }
    }

    /// Merges the replicas' objects in every order and grouping.
    fn check_merge_laws(&self) {
        let objects: Vec<_> = self.replicas.iter().filter_map(Replica::read).collect();
        let join = |a: &Object, b: &Object| merge(a.clone(), b.clone(), self.resolution);
        for a in &objects {
            assert_eq!(join(a, a), *a, "idempotent");
            for b in &objects {
                assert_eq!(join(a, b), join(b, a), "commutative");
                assert_eq!(join(a, b).clock().newest(), join(b, a).clock().newest());
                for c in &objects {
                    assert_eq!(join(&join(a, b), c), join(a, &join(b, c)), "associative");
                }
            }
        }
        let all = objects
            .iter()
            .cloned()
            .reduce(|a, b| merge(a, b, self.resolution));
        // A replica that lost its data has no writes, as in the model.
        let heard = self.heard.iter().flatten().copied().collect();
        self.check(all.as_ref(), &heard);
    }
}

fn run(resolution: Resolution, steps: &[Step]) {
    let mut world = World::new(resolution);
    for step in steps {
        world.run(step);
        world.check_replicas();
    }
    world.check_merge_laws();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..Default::default() })]

    #[test]
    fn siblings_are_the_writes_that_nothing_superseded(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        run(Resolution::KeepSiblings, &steps);
    }

    #[test]
    fn r02_the_newest_of_all_writes_wins_in_every_order_of_delivery(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        run(Resolution::NewestWins, &steps);
    }
}

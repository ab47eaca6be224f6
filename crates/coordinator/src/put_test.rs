//! The put machine by scripts, and against a model under random interleavings.

use proptest::prelude::*;

use super::*;
use crate::script_test::{self, Header, Machine, failure, name_of, object, slot_and_what};

impl Machine for PutMachine {
    fn take(&mut self, event: &str) -> Vec<String> {
        print(self.step(parse(event)))
    }
}

/// `slot: made NAME` is the coordinator's answer; `slot: received`, `slot: durable` and `slot: FAILURE`
/// are any replica's.
fn parse(event: &str) -> PutEvent {
    let Some((slot, what)) = slot_and_what(event) else {
        assert_eq!(event, "deadline");
        return PutEvent::Deadline;
    };
    match what {
        "received" => PutEvent::Received { slot },
        "durable" => PutEvent::Durable { slot },
        what if what.starts_with("declined ") => PutEvent::Declined {
            slot,
            error: failure(what.trim_start_matches("declined ")),
        },
        what => match what.strip_prefix("made ") {
            Some(name) => PutEvent::Coordinated {
                object: object(name).unwrap(),
            },
            None => PutEvent::Failed {
                slot,
                error: failure(what),
            },
        },
    }
}

fn print(effects: PutEffects) -> Vec<String> {
    let print = |effect| match effect {
        PutEffect::Coordinate { slot } => format!("coordinate {slot}"),
        PutEffect::Store { slot, object } => format!("store {} at {slot}", name_of(&object)),
        PutEffect::Reply(Ok(object)) => format!("reply {}", name_of(&object)),
        PutEffect::Reply(Err(error)) => format!("reply {}", error.in_full()),
        PutEffect::Done => "done".into(),
    };
    effects.into_iter().map(print).collect()
}

fn start(header: &Header) -> (PutMachine, PutEffects) {
    let quorum = WriteQuorum {
        n: header.replicas.len(),
        w: header.number("w").unwrap_or(0),
        dw: header.number("dw").unwrap_or(0),
        pw: header.number("pw").unwrap_or(0),
        node_confirms: header.number("nodes").unwrap_or(0),
    };
    let (only_old, only_new) = (header.number("only_old"), header.number("only_new"));
    let quorums = WriteQuorums {
        old: quorum,
        new: only_new.map(|_| quorum),
    };
    let replicas = header.replicas.iter().enumerate();
    let replicas = replicas.map(|(slot, replica)| WriteReplica {
        replica: *replica,
        in_old: only_new != Some(slot),
        in_new: only_old != Some(slot),
    });
    match (header.number("coordinator"), header.number("or")) {
        (Some(first), Some(other)) => PutMachine::start(replicas, &[first, other], quorums),
        (Some(coordinator), None) => PutMachine::start(replicas, &[coordinator], quorums),
        (None, _) => PutMachine::start_as_is(replicas, &object("old").unwrap(), quorums),
    }
}

#[test]
fn puts_follow_their_scripts() {
    script_test::play("scripts/put", |header| {
        let (machine, effects) = start(header);
        (Box::new(machine), print(effects))
    });
}

#[test]
fn an_object_has_reached_all_when_none_failed() {
    let header = Header::parse("1 2 | coordinator=0 w=1");
    let (mut machine, _) = start(&header);
    for event in ["0: made old", "0: durable"] {
        machine.take(event);
    }
    assert!(!machine.has_reached_all());
    machine.take("1: received");
    assert!(machine.has_reached_all());
    machine.take("1: broken");
    assert!(!machine.has_reached_all());
}

/// The last event of a replica, in place of all of its events.
const FATES: [&str; 3] = ["durable", "received", "broken"];

fn is_met(fates: &[(u8, bool, usize)], quorum: &WriteQuorum) -> bool {
    let with = |fate: &'static str| fates.iter().filter(move |it| FATES[it.2] == fate);
    let good: Vec<_> = with("durable").chain(with("received")).collect();
    let mut nodes: Vec<u8> = good.iter().map(|it| it.0).collect();
    nodes.sort_unstable();
    nodes.dedup();
    good.len() >= quorum.w
        && with("durable").count() >= quorum.dw.max(1)
        && good.iter().filter(|it| it.1).count() >= quorum.pw
        && nodes.len() >= quorum.node_confirms
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn any_interleaving_gives_one_reply_and_one_end(
        replicas in prop::sample::select(vec![1_usize, 2, 3, 5]).prop_flat_map(|n| {
            prop::collection::vec((1..4_u8, any::<bool>(), 0..FATES.len()), n)
        }),
        (w, dw, pw, nodes) in (0..6_usize, 0..6_usize, 0..4_usize, 0..3_usize),
        coordinator in prop::option::weighted(0.8, 0..5_usize),
        order in prop::collection::vec(0..14_usize, 0..30),
        deadline_at in prop::option::weighted(0.2, 0..30_usize),
    ) {
        let n = replicas.len();
        let coordinator = coordinator.map(|slot| slot % n);
        let mut head: Vec<String> = replicas
            .iter()
            .map(|(node, is_primary, _)| format!("{node}{}", if *is_primary { "" } else { "*" }))
            .collect();
        head.push(format!("| w={} dw={} pw={pw} nodes={nodes}", w.min(n), dw.min(n)));
        head.extend(coordinator.map(|slot| format!("coordinator={slot}")));
        let header = Header::parse(&head.join(" "));
        let (mut machine, effects) = start(&header);
        let quorum = machine.quorums.old;

        let mut asked: Vec<usize> = Vec::new();
        let (mut replies, mut ends) = (Vec::new(), 0);
        let note = |effects: PutEffects, asked: &mut Vec<usize>| {
            let mut seen = Vec::new();
            for effect in effects {
                match effect {
                    PutEffect::Coordinate { slot } | PutEffect::Store { slot, .. } => asked.push(slot),
                    other => seen.push(other),
                }
            }
            seen
        };
        note(effects, &mut asked);

        // Events in random order, also invalid ones; then each replica's fate; then the
        // deadline, which comes for every request that is not over.
        let fate = |slot: usize| format!("{slot}: {}", FATES[replicas[slot].2]);
        let mut events: Vec<String> = order
            .iter()
            .map(|at| match at {
                0..6 if *at < n => fate(*at),
                6..12 => format!("{}: received", at - 6),
                12 => "0: made new".into(),
                _ => "9: durable".into(),
            })
            .collect();
        if let Some(at) = deadline_at {
            events.insert(at.min(events.len()), "deadline".into());
        }
        events.push("0: made new".into());
        events.extend((0..n).map(|slot| format!("{slot}: received")));
        events.extend((0..n).map(fate));
        events.push("deadline".into());
        for event in events {
            let is_deadline = event == "deadline";
            for effect in note(machine.step(parse(&event)), &mut asked) {
                prop_assert_eq!(ends, 0, "an effect after the end");
                match effect {
                    PutEffect::Reply(reply) => replies.push((reply, is_deadline)),
                    _ => ends += 1,
                }
            }
        }
        prop_assert_eq!((replies.len(), ends), (1, 1));
        let mut once = asked.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), asked.len(), "a replica was asked twice");
        let fails_at_once = coordinator.is_some_and(|slot| FATES[replicas[slot].2] == "broken");
        match &replies[0] {
            (Err(RequestError::Timeout), was_deadline) => prop_assert!(was_deadline),
            (Err(_), _) => prop_assert!(fails_at_once || !is_met(&replicas, &quorum)),
            // A replica may be counted before it fails.
            (Ok(_), _) => {
                let hopeful: Vec<_> = replicas.iter().map(|it| (it.0, it.1, 0)).collect();
                prop_assert!(is_met(&hopeful, &quorum));
                prop_assert_eq!(asked.len(), n, "the client was answered before the put was sent to all");
            }
        }
    }
}

//! The get machine by scripts, and against a model under random interleavings.

use proptest::prelude::*;

use kvorum_object::Head;

use super::*;
use crate::script_test::{self, Header, Machine, failure, name_of, object, slot_and_what};

impl Machine for GetMachine {
    fn take(&mut self, event: &str) -> Vec<String> {
        let mut effects = GetEffects::new();
        self.step(parse(event), &mut effects);
        print(effects)
    }
}

fn parse(event: &str) -> GetEvent {
    let Some((slot, what)) = slot_and_what(event) else {
        return match event {
            "late" => GetEvent::Late,
            event => {
                assert_eq!(event, "deadline");
                GetEvent::Deadline
            }
        };
    };
    let answer = match what {
        "nothing" => GetAnswer::NotFound,
        "damaged" => GetAnswer::Damaged(RequestError::Storage("damaged".into())),
        name if name.starts_with("head of ") => {
            let object = object(name.trim_start_matches("head of ")).unwrap();
            let head = Head::decode(&object.encode().head).unwrap();
            GetAnswer::Head(Arc::new(head.into_object_without_values()))
        }
        name => match object(name) {
            Some(object) => GetAnswer::Found(object),
            None => GetAnswer::Failed(failure(name)),
        },
    };
    GetEvent::Answer { slot, answer }
}

fn print(effects: GetEffects) -> Vec<String> {
    let print = |effect| match effect {
        GetEffect::Ask { slot } => format!("ask {slot}"),
        GetEffect::Fetch { slot } => format!("fetch {slot}"),
        GetEffect::Reply(Ok(Some(object))) => format!("reply {}", name_of(&object)),
        GetEffect::Reply(Ok(None)) => "reply nothing".into(),
        GetEffect::Reply(Err(error)) => format!("reply {}", error.in_full()),
        GetEffect::Repair { slot, object, .. } => {
            format!("repair {slot} with {}", name_of(&object))
        }
        GetEffect::Mend { slot, object } => format!("mend {slot} with {}", name_of(&object)),
        GetEffect::Done => "done".into(),
    };
    effects.into_iter().map(print).collect()
}

/// `first=N`: the first N replicas of the list are asked first.
fn first(header: &Header) -> SlotSet {
    let Some(count) = header.number("first") else {
        return SlotSet::ALL;
    };
    let mut first = SlotSet::NONE;
    (0..count).for_each(|slot| first.insert(slot));
    first
}

fn quorum(header: &Header) -> ReadQuorum {
    ReadQuorum {
        n: header.replicas.len(),
        r: header.number("r").unwrap(),
        pr: header.number("pr").unwrap_or(0),
        node_confirms: header.number("nodes").unwrap_or(0),
        basic_quorum: header.has("basic"),
        notfound_ok: !header.has("notfound_fails"),
    }
}

#[test]
fn gets_follow_their_scripts() {
    script_test::play("scripts/get", |header| {
        let resolution = if header.has("newest_wins") {
            Resolution::NewestWins
        } else {
            Resolution::KeepSiblings
        };
        let mut effects = GetEffects::new();
        let quorum = quorum(header);
        let (replicas, first) = (&header.replicas, first(header));
        let mut machine = GetMachine::start(replicas, first, quorum, resolution, &mut effects);
        if header.has("compare") {
            machine.compare_all();
        }
        (Box::new(machine), print(effects))
    });
}

/// A replica: its node, true for a primary, and its answer.
fn replicas() -> impl Strategy<Value = Vec<(u8, bool, usize)>> {
    prop::sample::select(vec![1_usize, 2, 3, 5])
        .prop_flat_map(|n| prop::collection::vec((1..4_u8, any::<bool>(), 0..WHAT.len()), n))
}

const WHAT: [&str; 8] = [
    "old", "new", "rival", "grave", "nothing", "damaged", "broken", "overload",
];

/// The first event number that is an answer; lower numbers are deadlines and late replicas.
const ANSWER: i32 = 7;

/// The rules of reading, applied to answers that have all come.
fn is_met(answers: &[(u8, bool, usize)], quorum: &ReadQuorum) -> bool {
    let is_good = |what: usize| match WHAT[what] {
        "nothing" => quorum.notfound_ok,
        what => object(what).is_some(),
    };
    let good: Vec<_> = answers.iter().filter(|(.., what)| is_good(*what)).collect();
    let primaries = good.iter().filter(|(_, is_primary, _)| *is_primary).count();
    let mut nodes: Vec<u8> = good.iter().map(|(node, ..)| *node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    good.len() >= quorum.r.max(1) && primaries >= quorum.pr && nodes.len() >= quorum.node_confirms
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn any_interleaving_gives_one_reply_and_one_end(
        replicas in replicas(),
        (r, pr, nodes) in (0..6_usize, 0..4_usize, 0..3_usize),
        (basic, notfound_ok) in (any::<bool>(), any::<bool>()),
        (first, compares_all) in (any::<u64>(), any::<bool>()),
        order in prop::collection::vec((0..6_usize, 0..100), 0..20),
    ) {
        let n = replicas.len();
        let head: Vec<String> = replicas
            .iter()
            .map(|(node, is_primary, _)| format!("{node}{}", if *is_primary { "" } else { "*" }))
            .collect();
        let mut settings = format!("r={} pr={} nodes={nodes}", r.min(n), pr.min(n));
        if basic {
            settings.push_str(" basic");
        }
        if !notfound_ok {
            settings.push_str(" notfound_fails");
        }
        let header = Header::parse(&format!("{} | {settings}", head.join(" ")));
        let quorum = quorum(&header);
        let resolution = Resolution::KeepSiblings;
        // At least one replica is asked.
        let first = SlotSet(first | 1);
        let mut asked: Vec<usize> = (0..n).filter(|slot| first.contains(*slot)).collect();
        let mut started = GetEffects::new();
        let mut machine =
            GetMachine::start(&header.replicas, first, quorum, resolution, &mut started);
        if compares_all {
            machine.compare_all();
        }
        prop_assert_eq!(started.len(), asked.len());

        // Random events first, then all missing answers, also of replicas that are asked only then.
        let rest = (0..n).cycle().take(n * (n + 1)).map(|slot| (slot, ANSWER));
        let mut answered = Vec::new();
        let (mut replies, mut ends, mut was_late) = (Vec::new(), 0, false);
        for (slot, kind) in order.into_iter().chain(rest) {
            let (is_deadline, is_patience_over) = (kind < 2, (2..ANSWER).contains(&kind));
            let event = match replicas.get(slot) {
                _ if is_deadline => GetEvent::Deadline,
                _ if is_patience_over => GetEvent::Late,
                Some((.., what)) => parse(&format!("{slot}: {}", WHAT[*what])),
                None => parse(&format!("{slot}: old")),
            };
            let is_answer = !is_deadline && !is_patience_over && asked.contains(&slot);
            if is_answer && !answered.contains(&slot) && ends == 0 {
                answered.push(slot);
            }
            was_late |= is_deadline && ends == 0;
            let mut effects = GetEffects::new();
            machine.step(event, &mut effects);
            for effect in effects {
                prop_assert_eq!(ends, 0, "an effect after the end");
                match effect {
                    GetEffect::Reply(reply) => replies.push((reply, answered.clone(), is_deadline)),
                    GetEffect::Done => ends += 1,
                    GetEffect::Repair { slot, object, .. } => {
                        prop_assert!(answered.contains(&slot));
                        let has = WHAT[replicas[slot].2];
                        prop_assert!(name_of(&object) != has, "a repair that changes nothing");
                    }
                    GetEffect::Mend { slot, .. } => {
                        prop_assert_eq!(WHAT[replicas[slot].2], "damaged");
                    }
                    GetEffect::Ask { slot } => {
                        prop_assert!(!asked.contains(&slot), "asked twice");
                        asked.push(slot);
                    }
                    GetEffect::Fetch { .. } => prop_assert!(false, "nobody sends heads"),
                }
            }
        }
        prop_assert_eq!((replies.len(), ends), (1, 1));
        prop_assert!(!compares_all || was_late || asked.len() == n, "a replica was left out");
        let (reply, by, was_deadline) = &replies[0];
        let said: Vec<_> = by.iter().map(|slot| replicas[*slot]).collect();
        let is_absent = |(.., what): &(u8, bool, usize)| matches!(WHAT[*what], "nothing" | "grave");
        match reply {
            // If all replicas answer that the object is absent, that is a reply even if absence
            // does not count to r.
            Ok(_) => prop_assert!(is_met(&said, &quorum) || said.iter().all(is_absent)),
            Err(RequestError::Timeout) => prop_assert!(*was_deadline),
            Err(_) => {
                prop_assert!(!is_met(&said, &quorum));
                let may_give_up = basic || was_late || !is_met(&replicas, &quorum);
                prop_assert!(may_give_up, "gave up what was within reach");
            }
        }
    }
}

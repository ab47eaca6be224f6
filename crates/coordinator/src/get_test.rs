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

/// `first=N`: the first N replicas of the list are asked at first.
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

fn check(script: &str) {
    script_test::check(script, |header| {
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

#[test]
fn replicas_that_the_quorum_does_not_need_are_left_alone() {
    check(
        "1 2 3 | r=2 first=2
        -> ask 0, ask 1
        0: old
        1: old
        -> reply old, done",
    );
    check(
        "1 2 3 | r=2 first=2
        -> ask 0, ask 1
        0: nothing
        1: nothing
        -> reply nothing, done",
    );
}

#[test]
fn a_get_that_compares_all_asks_the_others_once_it_has_replied() {
    check(
        "1 2 3 | r=2 first=2 compare
        -> ask 0, ask 1
        0: old
        1: old
        -> reply old, ask 2
        2: old
        -> done",
    );
    check(
        "1 2 3 | r=1 first=1 compare
        -> ask 0
        0: new
        -> reply new, ask 1, ask 2
        1: head of new
        2: head of old
        -> repair 2 with new, done",
    );
    check(
        "1 2 3 | r=2 first=2 compare
        -> ask 0, ask 1
        0: old
        1: old
        -> reply old, ask 2
        deadline
        -> done",
    );
}

/// The client has its answer, and the newest values are at the replica that it did not need.
#[test]
fn a_newer_head_behind_the_reply_is_followed_up_and_repairs_the_others() {
    check(
        "1 2 3 | r=2 first=2 compare
        -> ask 0, ask 1
        0: old
        1: head of old
        -> reply old, ask 2
        2: head of new
        -> fetch 2
        2: new
        -> repair 0 with new, repair 1 with new, done",
    );
    check(
        "1 2 3 | r=2 first=2 compare
        -> ask 0, ask 1
        0: old
        1: head of old
        -> reply old, ask 2
        2: head of new
        -> fetch 2
        2: broken
        -> done",
    );
}

#[test]
fn the_others_are_asked_when_one_fails_is_late_or_differs() {
    check(
        "1 2 3 | r=2 first=2
        -> ask 0, ask 1
        0: broken
        -> ask 2
        2: old
        1: old
        -> reply old, done",
    );
    check(
        "1 2 3 | r=2 first=2
        -> ask 0, ask 1
        1: old
        late
        -> ask 2
        late
        2: old
        -> reply old
        0: old
        -> done",
    );
    check(
        "1 2 3 | r=2 first=2
        -> ask 0, ask 1
        0: old
        1: new
        -> reply new, ask 2
        2: nothing
        -> repair 0 with new, repair 2 with new, done",
    );
    check(
        "1 2 3 | r=2 first=2
        -> ask 0, ask 1
        0: nothing
        1: old
        -> reply old, ask 2
        2: old
        -> repair 0 with old, done",
    );
    check(
        "1 2 3 | r=1 first=1
        -> ask 0
        0: damaged
        -> ask 1, ask 2
        1: old
        -> reply old
        2: old
        -> mend 0 with old, done",
    );
}

#[test]
fn the_others_are_asked_when_the_first_do_not_suffice() {
    check(
        "1 2 3 | r=1 notfound_fails first=1
        -> ask 0
        0: nothing
        -> ask 1, ask 2
        1: old
        -> reply old
        2: old
        -> repair 0 with old, done",
    );
    check(
        "1 1 2 | r=2 nodes=2 first=2
        -> ask 0, ask 1
        0: old
        1: old
        -> ask 2
        2: old
        -> reply old, done",
    );
    check(
        "1 2 3 | r=2 first=2
        -> ask 0, ask 1
        0: old
        1: head of new
        -> fetch 1, ask 2
        2: head of new
        1: new
        -> reply new, repair 0 with new, done",
    );
}

#[test]
fn heads_that_say_nothing_new_are_not_followed_up() {
    check(
        "1 2 3 | r=2
        -> ask 0, ask 1, ask 2
        0: new
        1: head of new
        -> reply new
        2: head of old
        -> repair 2 with new, done",
    );
}

#[test]
fn values_that_only_a_head_knows_of_are_fetched() {
    check(
        "1 2 3 | r=2
        -> ask 0, ask 1, ask 2
        0: old
        1: head of new
        -> fetch 1
        2: head of old
        1: new
        -> reply new, repair 0 with new, repair 2 with new, done",
    );
}

#[test]
fn concurrent_versions_are_fetched_from_each_who_has_them() {
    check(
        "1 2 3 | r=3
        -> ask 0, ask 1, ask 2
        0: nothing
        1: head of new
        2: head of rival
        -> fetch 1
        1: new
        -> fetch 2
        2: rival
        -> reply new+rival, repair 0 with new+rival, repair 1 with new+rival, repair 2 with new+rival, done",
    );
}

#[test]
fn a_replica_that_fails_to_give_its_values_has_failed() {
    check(
        "1 2 3 | r=2
        -> ask 0, ask 1, ask 2
        1: head of new
        2: head of old
        -> fetch 1
        1: broken
        0: old
        -> reply old, done",
    );
}

#[test]
fn a_lone_replica_decides() {
    check("1 | r=1\n-> ask 0\n0: old\n-> reply old, done");
    check("1 | r=1\n-> ask 0\n0: nothing\n-> reply nothing, done");
    check("1 | r=1\n-> ask 0\n0: grave\n-> reply grave, done");
    check("1 | r=1\n-> ask 0\ndeadline\n-> reply timeout, done");
}

#[test]
fn a_lone_replica_tells_why_it_failed() {
    check("1 | r=1\n-> ask 0\n0: broken\n-> reply storage: broken, done");
    check("1 | r=1 pr=1\n-> ask 0\n0: full\n-> reply disk_full: no room, done");
    check("1 | r=1\n-> ask 0\n0: damaged\n-> reply storage: damaged, done");
    check("1 | r=1 notfound_fails\n-> ask 0\n0: nothing\n-> reply nothing, done");
}

#[test]
fn the_reply_comes_with_the_quorum_and_repairs_with_the_last_answer() {
    check(
        "1 2 3 | r=2
        -> ask 0, ask 1, ask 2
        1: old
        0: new
        -> reply new
        2: nothing
        -> repair 1 with new, repair 2 with new, done",
    );
}

#[test]
fn late_siblings_are_repaired_though_the_client_never_saw_them() {
    check(
        "1 2 3 | r=1
        -> ask 0, ask 1, ask 2
        0: new
        -> reply new
        1: rival
        2: new
        -> repair 0 with new+rival, repair 1 with new+rival, repair 2 with new+rival, done",
    );
}

/// One replica has kept siblings of which another, under other properties, chose one; both have seen
/// the same writes. A read that compared clocks alone left them so for ever, and answered one or the
/// other.
#[test]
fn replicas_that_saw_the_same_and_kept_different_siblings_become_equal() {
    check(
        "1 2 3 | r=2 first=2
        -> ask 0, ask 1
        0: both
        1: chosen
        -> reply new, ask 2
        2: both
        -> repair 0 with new, repair 2 with new, done",
    );
    check(
        "1 2 3 | r=2
        -> ask 0, ask 1, ask 2
        0: both
        1: head of chosen
        -> fetch 1
        2: head of both
        1: chosen
        -> reply new, repair 0 with new, repair 2 with new, done",
    );
}

#[test]
fn a_bucket_without_siblings_gets_the_newest() {
    check(
        "1 2 | r=2 newest_wins
        -> ask 0, ask 1
        0: rival
        1: new
        -> reply new, repair 0 with new, repair 1 with new, done",
    );
}

#[test]
fn answers_that_come_twice_or_after_the_end_change_nothing() {
    check(
        "1 2 3 | r=2
        -> ask 0, ask 1, ask 2
        0: old
        0: new
        0: broken
        7: new
        deadline
        -> reply timeout, done
        1: old
        deadline",
    );
    check(
        "1 2 | r=1
        -> ask 0, ask 1
        0: old
        -> reply old
        deadline
        -> done
        1: nothing",
    );
}

#[test]
fn the_deadline_repairs_those_that_are_known_to_be_behind() {
    check(
        "1 2 3 | r=3
        -> ask 0, ask 1, ask 2
        0: new
        2: old
        deadline
        -> reply timeout, repair 2 with new, done",
    );
}

#[test]
fn a_damaged_replica_is_mended_by_the_others() {
    check(
        "1 2 3 | r=2
        -> ask 0, ask 1, ask 2
        0: damaged
        1: new
        2: new
        -> reply new, mend 0 with new, done",
    );
    check(
        "1 2 3 | r=3
        -> ask 0, ask 1, ask 2
        0: damaged
        -> reply {r_val_unsatisfied,3,0}
        1: new
        2: nothing
        -> mend 0 with new, repair 2 with new, done",
    );
    check(
        "1 2 | r=1
        -> ask 0, ask 1
        0: damaged
        1: nothing
        -> reply nothing, done",
    );
}

#[test]
fn a_failed_replica_is_not_repaired() {
    check(
        "1 2 3 | r=2
        -> ask 0, ask 1, ask 2
        0: broken
        1: new
        2: new
        -> reply new, done",
    );
}

#[test]
fn too_few_answers_are_counted() {
    check(
        "1 2 3 | r=2
        -> ask 0, ask 1, ask 2
        0: old
        1: broken
        2: full
        -> reply {r_val_unsatisfied,2,1}, done",
    );
    check(
        "1 2 3 4 5 | r=3
        -> ask 0, ask 1, ask 2, ask 3, ask 4
        0: broken
        1: broken
        2: broken
        -> reply {r_val_unsatisfied,3,0}
        3: new
        4: nothing
        -> repair 4 with new, done",
    );
}

#[test]
fn too_few_primaries_are_counted() {
    check(
        "1 2* 3* | r=2 pr=1
        -> ask 0, ask 1, ask 2
        1: old
        2: old
        0: broken
        -> reply {pr_val_unsatisfied,1,0}, done",
    );
    check(
        "1 2 3* | r=1 pr=2
        -> ask 0, ask 1, ask 2
        2: old
        0: old
        1: old
        -> reply old, done",
    );
}

#[test]
fn nothing_found_by_a_stand_in_does_not_hide_a_missing_primary() {
    check(
        "1 2* | r=1 pr=1
        -> ask 0, ask 1
        1: nothing
        0: broken
        -> reply {pr_val_unsatisfied,1,0}, done",
    );
}

#[test]
fn distinct_nodes_are_counted() {
    check(
        "1 1 2 | r=2 nodes=2
        -> ask 0, ask 1, ask 2
        0: old
        1: old
        2: old
        -> reply old, done",
    );
    check(
        "1 1 2 | r=2 nodes=2
        -> ask 0, ask 1, ask 2
        0: old
        1: old
        2: broken
        -> reply {insufficient_nodes,1,need,2}, done",
    );
}

#[test]
fn insufficient_nodes_count_before_overload_and_overload_before_the_rest() {
    check(
        "1 1 2 | r=2 nodes=2
        -> ask 0, ask 1, ask 2
        0: old
        1: old
        2: overload
        -> reply {insufficient_nodes,1,need,2}, done",
    );
    check(
        "1 2 3 | r=2 pr=2
        -> ask 0, ask 1, ask 2
        0: broken
        1: overload
        -> reply overload
        2: old
        -> done",
    );
}

#[test]
fn nothing_everywhere_is_no_failure() {
    check(
        "1 2 3 | r=2 notfound_fails
        -> ask 0, ask 1, ask 2
        0: nothing
        1: nothing
        -> reply nothing
        2: nothing
        -> done",
    );
    check(
        "1 2 3 | r=2 notfound_fails
        -> ask 0, ask 1, ask 2
        0: grave
        1: nothing
        2: nothing
        -> reply grave, repair 1 with grave, repair 2 with grave, done",
    );
    check(
        "1 2 3 | r=2 notfound_fails
        -> ask 0, ask 1, ask 2
        0: old
        1: nothing
        2: nothing
        -> reply {r_val_unsatisfied,2,1}, repair 1 with old, repair 2 with old, done",
    );
}

#[test]
fn a_basic_quorum_gives_up_once_a_majority_found_nothing() {
    check(
        "1 2 3 | r=1 notfound_fails basic
        -> ask 0, ask 1, ask 2
        0: nothing
        1: nothing
        -> reply nothing
        2: old
        -> repair 0 with old, repair 1 with old, done",
    );
    check(
        "1 2 3 | r=1 notfound_fails
        -> ask 0, ask 1, ask 2
        0: nothing
        1: nothing
        2: old
        -> reply old, repair 0 with old, repair 1 with old, done",
    );
    check(
        "1 2 3 4 5 | r=1 notfound_fails basic
        -> ask 0, ask 1, ask 2, ask 3, ask 4
        0: nothing
        1: broken
        2: broken
        -> reply {r_val_unsatisfied,1,0}
        3: nothing
        4: nothing
        -> done",
    );
}

/// A replica: its node, true for a primary, and its answer.
fn replicas() -> impl Strategy<Value = Vec<(u8, bool, usize)>> {
    prop::sample::select(vec![1_usize, 2, 3, 5])
        .prop_flat_map(|n| prop::collection::vec((1..4_u8, any::<bool>(), 0..WHAT.len()), n))
}

const WHAT: [&str; 8] = [
    "old", "new", "rival", "grave", "nothing", "damaged", "broken", "overload",
];

/// The first number of an event that is an answer; below it are deadlines and the end of patience.
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

        // Random events first, then all missing answers, those of replicas that are asked only then
        // among them.
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
            // Everything absent is an answer even where absence does not count to r.
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

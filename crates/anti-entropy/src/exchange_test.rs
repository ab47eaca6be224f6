//! Exchanges, one property at a time; each planted defect is found here.

use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_tictac::TreeSize;

use crate::exchange::{Exchange, ExchangeLimits, ExchangeRequest};
use crate::exchange_event::{BranchesAnswer, ExchangeEffect, ExchangeEvent};
use crate::outcome::{EndedBy, Outcome};
use crate::test_world::{Draw, Entry, World, key, segment};

const DEFECTS: [PlantedDefect; 5] = [
    PlantedDefect::TreeTrustedWhileBuilt,
    PlantedDefect::RangeHintSkipsNewest,
    PlantedDefect::ExpiredEntryRepaired,
    PlantedDefect::InFlightTakenForDifference,
    PlantedDefect::ExchangeShortOfReplicaComplete,
];

fn world(keys: u64) -> World {
    let mut world = World::new(3, TreeSize::XxSmall);
    (0..keys).for_each(|number| world.write_everywhere(number));
    world
}

fn run(world: &mut World) -> Outcome {
    let request = world.request();
    run_as(world, request)
}

fn run_as(world: &mut World, request: ExchangeRequest) -> Outcome {
    world.exchange(request, &mut Draw(1), |_, _, _| {})
}

fn lose(world: &mut World, replica: usize, number: u64) {
    let entry = world.fresh();
    for (at, it) in world.replicas.iter_mut().enumerate() {
        if at != replica {
            it.put(&key(number), entry);
        }
    }
}

#[test]
fn equal_replicas_cost_a_question_each() {
    let outcome = run(&mut world(500));
    assert_eq!(outcome.ended_by, EndedBy::Equal);
    assert!(outcome.is_complete);
    assert_eq!((outcome.questions, outcome.keys_read), (3, 0));
}

#[test]
fn a_lost_write_is_mended_and_few_keys_are_read() {
    let mut world = World::new(3, TreeSize::for_keys(100_000));
    (0..100_000).for_each(|number| world.write_everywhere(number));
    lose(&mut world, 1, 4711);
    let outcome = run(&mut world);
    assert!(world.are_equal() && world.are_trees_equal());
    assert_eq!(outcome.ended_by, EndedBy::Repaired);
    assert!(outcome.is_complete);
    assert_eq!(
        (outcome.branches, outcome.leaves, outcome.keys_repaired),
        (1, 1, 1)
    );
    assert_eq!(outcome.questions, 18, "each step twice, of three replicas");
    assert!(
        outcome.keys_read < 3000 / 10,
        "a tenth of a percent: {}",
        outcome.keys_read
    );
    assert_eq!(run(&mut world).ended_by, EndedBy::Equal);
}

#[test]
fn equal_clocks_over_different_bytes_are_a_difference() {
    let mut world = world(100);
    let own = world.replicas[2].entries[&key(7)];
    let other = Entry {
        value: own.value + 1,
        ..own
    };
    world.replicas[2].put(&key(7), other);
    assert_eq!(run(&mut world).keys_repaired, 1);
    assert!(world.are_equal());
}

#[test]
fn trees_of_two_sizes_are_compared_at_the_smaller_one() {
    let mut world = world(300);
    world.replicas[0].rebuild(TreeSize::Small, 0);
    assert_eq!(run(&mut world).ended_by, EndedBy::Equal);
    lose(&mut world, 1, 5);
    assert_eq!(run(&mut world).keys_repaired, 1);
    assert!(world.are_equal());
}

#[test]
fn another_version_of_the_hash_is_no_difference() {
    let mut world = world(300);
    world.replicas[1].hash_version += 1;
    world.replicas[1].tree.change(
        77,
        None,
        Some(kvorum_tictac::LeafHash::new(b"", [], 0, false)),
    );
    let outcome = run(&mut world);
    assert_eq!(
        (outcome.ended_by, outcome.keys_repaired),
        (EndedBy::Equal, 0)
    );
    assert!(!outcome.is_complete);
    assert_eq!(outcome.took_part, [true, false, true]);
}

#[test]
fn a_wrong_tree_is_put_right_and_nothing_is_repaired() {
    let mut world = world(300);
    let right = world.replicas[1].tree.clone();
    world.replicas[1].tree.correct(9, 1234);
    let outcome = run(&mut world);
    assert_eq!(
        (outcome.ended_by, outcome.keys_repaired),
        (EndedBy::Recounted, 0)
    );
    assert_eq!(world.replicas[1].tree.root(), right.root());
    assert_eq!(run(&mut world).ended_by, EndedBy::Equal);
}

#[test]
fn a_tree_that_is_wrong_everywhere_is_put_right_in_turns() {
    let mut world = world(2000);
    for leaf in 0..300 {
        world.replicas[1].tree.correct(leaf * 13, leaf + 1);
    }
    for turn in 0.. {
        let request = ExchangeRequest {
            turn,
            ..world.request()
        };
        let outcome = run_as(&mut world, request);
        if outcome.ended_by == EndedBy::Equal {
            break;
        }
        assert_eq!(outcome.ended_by, EndedBy::Recounted);
        assert_eq!(outcome.is_complete, !outcome.is_cut);
        assert!(outcome.leaves_recounted > 0 && turn < 20, "{outcome:?}");
    }
}

/// A key that is written all the time does not prevent the correction of other leaves.
#[test]
fn a_wrong_leaf_is_put_right_beside_one_that_is_written() {
    let mut world = world(300);
    let hot = key(5);
    let leaf = TreeSize::XxSmall.leaf_of(segment(&hot));
    let wrong = if leaf == 9 { 10 } else { 9 };
    let right = world.replicas[1].tree.leaf(wrong);
    world.replicas[1].tree.correct(wrong, 1234);
    let request = world.request();
    let outcome = world.exchange(request, &mut Draw(2), |world, _, draw| {
        let entry = world.fresh();
        world.replicas[draw.place(3)].put(&hot, entry);
    });
    assert_eq!(world.replicas[1].tree.leaf(wrong), right);
    assert_eq!((outcome.leaves, outcome.leaves_recounted), (2, 1));
    assert_eq!(outcome.ended_by, EndedBy::InFlight);
    assert_eq!((outcome.keys_in_flight, outcome.keys_repaired), (1, 0));
    assert!(!outcome.is_complete);
}

/// Keys with colliding segments fill a leaf with more keys than may be listed.
#[test]
fn a_leaf_with_more_keys_than_may_be_listed_is_mended_piece_by_piece() {
    let mut world = world(0);
    let wanted = TreeSize::XxSmall.leaf_of(segment(&key(0)));
    let colliding = (0u64..).filter(|it| TreeSize::XxSmall.leaf_of(segment(&key(*it))) == wanted);
    let numbers: Vec<u64> = colliding.take(55).collect();
    numbers.iter().for_each(|it| world.write_everywhere(*it));
    lose(&mut world, 1, numbers[50]);
    lose(&mut world, 2, numbers[54]);
    let limits = ExchangeLimits {
        keys_max: 10,
        ..ExchangeLimits::default()
    };
    let (mut after, mut exchanges) = (None, 0);
    while !world.are_equal() {
        let request = ExchangeRequest {
            limits,
            after,
            ..world.request()
        };
        let outcome = run_as(&mut world, request);
        assert!(!outcome.is_complete && outcome.keys_read <= 2 * 3 * 10);
        after = outcome.resume_after;
        exchanges += 1;
        assert!(exchanges <= 6);
    }
    assert!(exchanges >= 5, "{exchanges}");
}

#[test]
fn bounds_cut_an_exchange_and_turns_come_to_everything() {
    let mut world = world(2000);
    for number in 0..400 {
        lose(&mut world, 2, number * 5);
    }
    let limits = ExchangeLimits {
        branches_max: 4,
        leaves_max: 20,
        keys_max: 10,
        repairs_at_once: 3,
    };
    let mut exchanges = 0;
    while !world.are_equal() {
        let request = ExchangeRequest {
            limits,
            turn: exchanges,
            ..world.request()
        };
        let outcome = run_as(&mut world, request);
        assert!(outcome.leaves <= 20 && outcome.keys_read <= 2 * 3 * 10);
        exchanges += 1;
        assert!(exchanges < 200);
    }
    assert!(world.repairs_at_once <= 3, "{}", world.repairs_at_once);
    assert!(exchanges >= 400 / 20, "{exchanges}");
}

#[test]
fn a_cut_exchange_is_not_complete() {
    let mut world = world(500);
    (0..100).for_each(|number| lose(&mut world, 2, number));
    let limits = ExchangeLimits {
        leaves_max: 20,
        ..ExchangeLimits::default()
    };
    let request = ExchangeRequest {
        limits,
        ..world.request()
    };
    let outcome = run_as(&mut world, request);
    assert!(outcome.is_cut && !outcome.is_complete && outcome.keys_repaired > 0);
}

#[test]
fn a_stopped_exchange_does_nothing_more() {
    let mut world = world(100);
    (0..30).for_each(|number| lose(&mut world, 2, number));
    for stop_after in 0.. {
        let mut effects = Vec::new();
        let mut exchange = Exchange::start(world.request(), &mut effects);
        for _ in 0..stop_after {
            if matches!(
                effects[..],
                [ExchangeEffect::Repair { .. }, ..] | [ExchangeEffect::End(_)]
            ) {
                break;
            }
            if let Some(event) = world.carry_out(effects.remove(0)) {
                exchange.step(event, &mut effects);
            }
        }
        let is_last = matches!(effects[..], [ExchangeEffect::Repair { .. }, ..]);
        effects.clear();
        exchange.step(ExchangeEvent::Stop, &mut effects);
        let [ExchangeEffect::End(outcome)] = &effects[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(outcome.ended_by, EndedBy::Stopped);
        assert!(!outcome.is_complete);
        effects.clear();
        exchange.step(ExchangeEvent::PauseOver, &mut effects);
        exchange.step(ExchangeEvent::Stop, &mut effects);
        assert!(effects.is_empty());
        if is_last {
            return;
        }
    }
}

#[test]
fn answers_out_of_place_are_ignored() {
    let mut world = world(50);
    lose(&mut world, 0, 3);
    let outcome = world.exchange(world.request(), &mut Draw(5), |_, _, _| {});
    let mut effects = Vec::new();
    let mut exchange = Exchange::start(world.request(), &mut effects);
    effects.clear();
    let answer = BranchesAnswer::Failed;
    exchange.step(ExchangeEvent::Branches { replica: 0, answer }, &mut effects);
    exchange.step(ExchangeEvent::PauseOver, &mut effects);
    let (key, is_mended) = (key(3), true);
    exchange.step(ExchangeEvent::Repaired { key, is_mended }, &mut effects);
    assert!(effects.is_empty(), "{effects:?}");
    assert_eq!(outcome.keys_repaired, 1);
}

/// A tree that is emptied before a rebuild agrees with replicas that lack its entries.
#[test]
fn a_tree_that_is_being_built_by_the_second_step_is_left_out() {
    let mut world = world(300);
    let entry = world.fresh();
    world.replicas[1].put(&key(5), entry);
    let request = world.request();
    let outcome = world.exchange(request, &mut Draw(1), |world, effect, _| {
        if matches!(effect, ExchangeEffect::AskBranches { .. }) {
            world.replicas[1].is_building = true;
            world.replicas[1].tree = world.replicas[0].tree.clone();
        }
    });
    assert_eq!(outcome.took_part, [true, false, true]);
    assert!(!outcome.is_complete);
}

#[test]
fn one_replica_alone_has_nobody_to_compare_with() {
    let mut world = World::new(1, TreeSize::XxSmall);
    assert_eq!(run(&mut world).ended_by, EndedBy::TooFewReplicas);
    let mut world = self::world(10);
    world.replicas[0].is_down = true;
    world.replicas[2].is_building = true;
    assert_eq!(run(&mut world).ended_by, EndedBy::TooFewReplicas);
}

// Properties that each have a planted defect.

/// A replica whose tree is not built yet has all keys, and receives none.
fn keeps_out_a_tree_that_is_being_built() -> bool {
    let mut world = world(300);
    world.replicas[1].tree = kvorum_tictac::Tree::new(TreeSize::XxSmall);
    world.replicas[1].is_building = true;
    let outcome = run(&mut world);
    outcome.keys_read == 0 && outcome.took_part == [true, false, true] && !outcome.is_complete
}

/// A bounded exchange finds some of the entries lost in one bucket. Its hint covers all later
/// losses, up to the newest.
fn hints_lead_to_the_newest() -> bool {
    (0..4).all(one_hint_leads_to_the_newest)
}

fn one_hint_leads_to_the_newest(turn: usize) -> bool {
    let mut world = world(500);
    (1000..1060).for_each(|number| lose(&mut world, 2, number * 3));
    let limits = ExchangeLimits {
        leaves_max: 8,
        ..ExchangeLimits::default()
    };
    let request = ExchangeRequest {
        limits,
        turn,
        ..world.request()
    };
    let first = run_as(&mut world, request);
    let request = ExchangeRequest {
        hint: first.hint.clone(),
        ..world.request()
    };
    let second = run_as(&mut world, request);
    let hint = first.hint.unwrap();
    assert!(hint.bucket_prefix.is_some());
    assert!(!second.is_complete, "it looked into a range alone");
    assert!(second.keys_read < 2 * 3 * 100, "{}", second.keys_read);
    let held = &world.replicas[0].entries;
    let mut of_range = held.iter().filter(|(_, it)| it.order >= hint.modified_from);
    of_range.all(|(key, _)| world.replicas[2].entries.contains_key(key))
}

/// An entry that has expired anywhere goes to no replica.
fn leaves_expired_entries_alone() -> bool {
    let mut world = world(100);
    let entry = Entry {
        expiry: Some(900),
        ..world.fresh()
    };
    world.replicas[0].put(&key(7777), entry);
    let first = run(&mut world);
    let rest = run(&mut world);
    let is_alone = !world.replicas[1].entries.contains_key(&key(7777));
    is_alone && first.ended_by == EndedBy::Recounted && rest.ended_by == EndedBy::Equal
}

/// A replica has dropped an entry by its own clock, and the others still show it.
#[test]
fn what_has_expired_by_the_clock_of_one_replica_counts_as_absent_at_all() {
    let mut world = world(100);
    let entry = Entry {
        expiry: Some(1_500),
        ..world.fresh()
    };
    world.replicas[0].put(&key(7777), entry);
    world.replicas[1].clock_ahead = 1_000;
    for _ in 0..3 {
        let outcome = run(&mut world);
        assert_eq!((outcome.keys_repaired, outcome.is_complete), (0, true));
    }
    assert!(!world.replicas[1].entries.contains_key(&key(7777)));
    world.replicas[1].clock_ahead = 0;
    assert_eq!(run(&mut world).keys_repaired, 1);
    assert!(world.replicas[1].entries.contains_key(&key(7777)));
}

/// Every write reaches every replica, a little late at one: nothing is ever repaired.
fn takes_no_write_under_way_for_a_difference() -> bool {
    (0..40).all(|seed| {
        let mut world = world(200);
        let mut draw = Draw(seed);
        let mut late: Vec<(usize, u64, Entry)> = Vec::new();
        let outcome = world.exchange(world.request(), &mut draw, |world, effect, draw| {
            if matches!(effect, ExchangeEffect::Pause) {
                for (replica, number, entry) in late.drain(..) {
                    world.replicas[replica].receive(&key(number), entry);
                }
            }
            for _ in 0..3 {
                let (number, entry) = (draw.below(200), world.fresh());
                let waits = draw.place(3);
                for replica in 0..3 {
                    match replica == waits {
                        true => late.push((replica, number, entry)),
                        false => world.replicas[replica].receive(&key(number), entry),
                    }
                }
            }
        });
        outcome.keys_repaired == 0
    })
}

/// An exchange without all replicas is not complete.
fn counts_all_replicas() -> bool {
    let mut world = world(50);
    world.replicas[2].is_down = true;
    let equal = run(&mut world);
    lose(&mut world, 1, 4);
    let repaired = run(&mut world);
    let is_mended = world.replicas[1].entries == world.replicas[0].entries;
    is_mended && !equal.is_complete && !repaired.is_complete
}

fn promise_of(defect: PlantedDefect) -> fn() -> bool {
    match defect {
        PlantedDefect::TreeTrustedWhileBuilt => keeps_out_a_tree_that_is_being_built,
        PlantedDefect::RangeHintSkipsNewest => hints_lead_to_the_newest,
        PlantedDefect::ExpiredEntryRepaired => leaves_expired_entries_alone,
        PlantedDefect::InFlightTakenForDifference => takes_no_write_under_way_for_a_difference,
        _ => counts_all_replicas,
    }
}

#[test]
fn promises_are_kept() {
    for defect in DEFECTS {
        assert!(promise_of(defect)(), "{defect:?} without being planted");
    }
}

#[test]
fn planted_defects_are_found() {
    for defect in DEFECTS {
        let _planted = plant(defect);
        assert!(!promise_of(defect)(), "{defect:?} was not found");
    }
}

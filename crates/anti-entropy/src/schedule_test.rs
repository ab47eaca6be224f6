//! The order of targets: those never compared, those with hints, the rest by age; bounds, stops and
//! epochs.

use std::collections::BTreeMap;

use kvorum_encoding::StorageKey;

use crate::outcome::{EndedBy, Outcome};
use crate::range_hint::RangeHint;
use crate::schedule::{Order, Schedule, ScheduleSettings, Target, TargetReport};

const SETTINGS: ScheduleSettings = ScheduleSettings {
    at_once: 2,
    interval_micros: 100,
    loops_max: 2,
};

fn target(partition: u16) -> Target {
    Target { partition, n: 3 }
}

/// A schedule, and the last order of each target.
struct Kept {
    schedule: Schedule,
    orders: BTreeMap<Target, Order>,
}

impl Kept {
    fn next(&mut self, now: u64) -> Option<Order> {
        let order = self.schedule.next(now)?;
        self.orders.insert(order.target, order.clone());
        Some(order)
    }

    fn ended(&mut self, target: Target, outcome: &Outcome, now: u64) {
        self.schedule.ended(&self.orders[&target], outcome, now);
    }

    fn report(&self) -> Vec<TargetReport> {
        self.schedule.report()
    }
}

fn schedule(partitions: u16) -> Kept {
    let mut schedule = Schedule::new(SETTINGS);
    let gone = schedule.set_targets(7, (0..partitions).map(target));
    assert!(gone.is_empty());
    Kept {
        schedule,
        orders: BTreeMap::new(),
    }
}

fn outcome(ended_by: EndedBy, is_complete: bool) -> Outcome {
    Outcome {
        is_complete,
        ended_by,
        ..Outcome::new(3)
    }
}

fn hinted() -> Outcome {
    let hint = RangeHint {
        bucket_prefix: None,
        modified_from: 5,
        modified_to: u64::MAX,
    };
    Outcome {
        hint: Some(hint),
        keys_repaired: 4,
        ..outcome(EndedBy::Repaired, true)
    }
}

fn begin(schedule: &mut Kept, now: u64) -> Option<Target> {
    schedule.next(now).map(|order| order.target)
}

#[test]
fn as_many_are_under_way_as_may_be_and_each_has_its_turn() {
    let mut schedule = schedule(5);
    let mut begun = Vec::new();
    for now in 0..50 {
        while let Some(target) = begin(&mut schedule, now) {
            begun.push(target);
        }
        let under_way = schedule.report().into_iter().filter(|it| it.is_under_way);
        let under_way: Vec<Target> = under_way.map(|it| it.target).collect();
        assert!(under_way.len() <= 2);
        if let Some(first) = under_way.first() {
            schedule.ended(*first, &outcome(EndedBy::Equal, true), now);
        }
    }
    begun.sort();
    assert_eq!(
        begun,
        (0..5).map(target).collect::<Vec<_>>(),
        "once in an interval"
    );
}

#[test]
fn the_one_compared_longest_ago_is_next_when_its_interval_is_over() {
    let mut schedule = schedule(2);
    assert_eq!(begin(&mut schedule, 10), Some(target(0)));
    assert_eq!(begin(&mut schedule, 20), Some(target(1)));
    schedule.ended(target(1), &outcome(EndedBy::Equal, true), 21);
    schedule.ended(target(0), &outcome(EndedBy::Equal, true), 30);
    assert_eq!(schedule.schedule.next_due(), Some(110));
    assert_eq!(begin(&mut schedule, 109), None);
    assert_eq!(begin(&mut schedule, 130), Some(target(0)));
    assert_eq!(begin(&mut schedule, 130), Some(target(1)));
}

#[test]
fn differences_are_followed_at_once_for_so_many_loops() {
    let mut schedule = schedule(2);
    assert_eq!(begin(&mut schedule, 0), Some(target(0)));
    schedule.ended(target(0), &hinted(), 1);
    assert_eq!(
        begin(&mut schedule, 1),
        Some(target(1)),
        "never compared comes first"
    );
    for now in 1..3 {
        let order = schedule.next(now).unwrap();
        assert_eq!((order.target, order.hint), (target(0), hinted().hint));
        schedule.ended(target(0), &hinted(), now);
    }
    assert_eq!(schedule.next(3), None, "the loops are over");
    let order = schedule.next(200).unwrap();
    assert_eq!(order.hint, None, "a new interval looks everywhere");
}

#[test]
fn a_disabled_schedule_stops_at_once() {
    let mut schedule = schedule(3);
    assert_eq!(begin(&mut schedule, 0), Some(target(0)));
    assert_eq!(schedule.schedule.disable(), [target(0)]);
    assert_eq!(
        (begin(&mut schedule, 0), schedule.schedule.next_due()),
        (None, None)
    );
    schedule.ended(target(0), &outcome(EndedBy::Stopped, false), 1);
    assert_eq!(
        schedule.report()[0].compared_at,
        None,
        "stopped is not compared"
    );
    schedule.schedule.enable();
    assert_eq!(begin(&mut schedule, 2), Some(target(1)));
}

#[test]
fn complete_is_said_for_the_present_epoch_alone() {
    let mut schedule = schedule(2);
    assert_eq!(begin(&mut schedule, 3), Some(target(0)));
    schedule.ended(target(0), &outcome(EndedBy::Equal, true), 9);
    let report = schedule.report()[0];
    assert_eq!((report.compared_at, report.complete_at), (Some(9), Some(3)));
    assert!(report.is_complete_in_epoch);

    assert_eq!(begin(&mut schedule, 10), Some(target(1)));
    assert_eq!(schedule.schedule.set_targets(8, [target(0), target(1)]), []);
    schedule.ended(target(1), &outcome(EndedBy::Equal, true), 11);
    let [first, second] = schedule.report()[..] else {
        panic!("two targets");
    };
    assert!(!first.is_complete_in_epoch, "the epoch has passed");
    assert_eq!(second.complete_at, None, "it began in another epoch");
    assert_eq!(second.compared_at, Some(11));
}

#[test]
fn targets_that_go_have_their_exchanges_stopped() {
    let mut schedule = schedule(3);
    assert_eq!(begin(&mut schedule, 0), Some(target(0)));
    assert_eq!(begin(&mut schedule, 0), Some(target(1)));
    assert_eq!(
        schedule.schedule.set_targets(8, [target(1), target(5)]),
        [target(0)]
    );
    schedule.ended(target(0), &outcome(EndedBy::Stopped, false), 1);
    assert_eq!(begin(&mut schedule, 1), Some(target(5)));
    assert_eq!(schedule.report().len(), 2);
}

#[test]
fn repaired_keys_are_counted() {
    let mut schedule = schedule(1);
    for (now, keys) in [(0, 5), (100, 9), (200, 2)] {
        assert_eq!(begin(&mut schedule, now), Some(target(0)));
        let outcome = Outcome {
            keys_repaired: keys,
            ..outcome(EndedBy::Repaired, true)
        };
        schedule.ended(target(0), &outcome, now);
    }
    let report = schedule.report()[0];
    let counts = (report.repaired_last, report.repaired_max, report.repaired);
    assert_eq!((counts, report.exchanges), ((2, 9, 16), 3));
}

#[test]
fn an_exchange_of_a_target_that_went_and_came_back_counts_for_nothing() {
    let mut schedule = schedule(1);
    let former = schedule.next(0).unwrap();
    assert_eq!(schedule.schedule.set_targets(8, []), [target(0)]);
    assert_eq!(schedule.schedule.set_targets(9, [target(0)]), []);
    assert_eq!(begin(&mut schedule, 1), Some(target(0)));
    let complete = outcome(EndedBy::Equal, true);
    schedule.schedule.ended(&former, &complete, 2);
    let report = schedule.report()[0];
    assert!(report.is_under_way && !report.is_complete_in_epoch);
    schedule.ended(target(0), &complete, 3);
    assert!(schedule.report()[0].is_complete_in_epoch);
}

#[test]
fn a_cut_exchange_is_gone_on_with_behind_hints() {
    let mut schedule = schedule(1);
    let first = schedule.next(0).unwrap();
    let cut = Outcome {
        resume_after: Some(StorageKey::from_encoded(b"cut".to_vec())),
        ..hinted()
    };
    schedule.ended(target(0), &cut, 1);
    let hinted = schedule.next(2).unwrap();
    assert_eq!((hinted.hint, hinted.after), (cut.hint, None));
    schedule.ended(target(0), &outcome(EndedBy::NothingInRange, false), 3);
    let resumed = schedule.next(200).unwrap();
    assert_eq!((resumed.hint, resumed.after), (None, cut.resume_after));
    assert_eq!(resumed.turn, hinted.turn, "the same leaves again");
    schedule.ended(target(0), &outcome(EndedBy::Repaired, false), 201);
    let last = schedule.next(400).unwrap();
    assert_eq!((last.after, last.turn), (None, first.turn + 2));
}

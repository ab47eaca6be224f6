//! Random lives of a preference list, after which nothing deleted is there and nothing live is
//! missing; and short ones. In each of these, an old copy of a value is in another place that a
//! delete does not reach.
//!
//! Five members lead rounds among writes, late messages, hints, crashes, moves, wiped replicas, and
//! replicas and stores of hints that are put back to backups of any age.

use kvorum_planted_defects::{PlantedDefect, plant};

use crate::model::replica::Object;
use crate::model::world::{MEMBERS, World};

mod draw;
mod driving;
mod hint_store;
mod replica;
mod world;

const LIVES: u64 = 1000;
const STEPS_MAX: u64 = 1000;

#[test]
fn nothing_deleted_comes_back_and_nothing_live_goes() {
    let mut reaped = 0;
    for seed in 0..LIVES {
        let mut world = World::new(seed);
        for _ in 0..world.draw.below(STEPS_MAX) {
            world.step();
        }
        assert_eq!(world.wrong_at_last(), None, "seed {seed}");
        reaped += world.reaped;
    }
    assert!(reaped > LIVES / 2, "only {reaped} tombstones were removed");
}

const VALUE: Object = Object {
    order: 1,
    is_tombstone: false,
};
const TOMBSTONE: Object = Object {
    order: 2,
    is_tombstone: true,
};

/// A value and then its tombstone on all replicas, with something in between.
fn deleted(seed: u64, between: impl FnOnce(&mut World)) -> World {
    let mut world = World::new(seed);
    world.write_to(0, VALUE, None);
    between(&mut world);
    world.write_to(0, TOMBSTONE, None);
    world.start_round_at(1);
    world
}

/// A round up to its end or a failure, while all members learn at once.
fn go_on(world: &mut World) {
    for _ in 0..300 {
        world.drive();
        (0..MEMBERS).for_each(|member| world.learn(member));
    }
}

/// Nothing is in the way of the tombstone.
fn plain(seed: u64) -> (u64, Option<String>) {
    let mut world = deleted(seed, |_| {});
    go_on(&mut world);
    (world.reaped, world.wrong_at_last())
}

/// The value is in a message that comes late.
fn in_a_request(seed: u64) -> (u64, Option<String>) {
    let mut world = deleted(seed, |world| world.send(4, 1, 0, VALUE));
    go_on(&mut world);
    (world.reaped, world.wrong_at_last())
}

/// The value is in a hint.
fn in_a_hint(seed: u64) -> (u64, Option<String>) {
    let mut world = deleted(seed, |world| {
        world.hint_stores[3].add(1, 0, VALUE, false);
    });
    go_on(&mut world);
    (world.reaped, world.wrong_at_last())
}

/// The value is in the backup to which a replica is put back when the tombstone has gone.
fn in_a_backup(seed: u64) -> (u64, Option<String>) {
    let mut world = deleted(seed, |world| world.back_up_place(0));
    go_on(&mut world);
    let reaped = world.reaped;
    world.restore_place(0);
    (reaped, world.wrong_at_last())
}

/// A replica is put back to such a backup after it has noted its mark, and before its member may
/// have learned the watermark. Its entries are on their way when the others remove the tombstone.
fn in_a_replica_that_has_not_learned(seed: u64) -> (u64, Option<String>) {
    let mut world = deleted(seed, |world| world.back_up_place(0));
    while world.agreed.watermark.is_none() {
        world.drive();
    }
    world.restore_place(0);
    if let Some(object) = world.replica(0).get(0) {
        (1..3).for_each(|place| world.send(4, place, 0, object));
    }
    for _ in 0..200 {
        world.drive();
        (1..MEMBERS).for_each(|member| world.learn(member));
    }
    (world.reaped, world.wrong_at_last())
}

type Scenario = fn(u64) -> (u64, Option<String>);

/// The tombstones that went in a hundred lives, and the first thing that was wrong.
fn in_a_hundred_lives(scenario: Scenario) -> (u64, Option<String>) {
    let (mut reaped, mut wrong) = (0, None);
    for seed in 0..100 {
        let (count, found) = scenario(seed);
        reaped += count;
        wrong = wrong.or(found);
    }
    (reaped, wrong)
}

#[test]
fn a_tombstone_goes_when_nothing_is_in_its_way() {
    let (reaped, wrong) = in_a_hundred_lives(plain);
    assert_eq!(wrong, None);
    assert!(reaped > 150, "{reaped} of 300");
}

#[test]
fn a_tombstone_stays_beside_an_old_copy() {
    let of_each: [Scenario; 3] = [in_a_request, in_a_hint, in_a_replica_that_has_not_learned];
    for scenario in of_each {
        assert_eq!(in_a_hundred_lives(scenario), (0, None));
    }
}

#[test]
fn a_replica_from_before_a_reaped_tombstone_gives_nothing() {
    let (reaped, wrong) = in_a_hundred_lives(in_a_backup);
    assert_eq!(wrong, None);
    assert!(reaped > 150, "{reaped} of 300");
}

#[test]
fn planted_defects_are_found() {
    let planted: [(PlantedDefect, Scenario); 5] = [
        (PlantedDefect::OldRequestsNotAwaited, in_a_request),
        (PlantedDefect::TombstoneReapedBesideHint, in_a_hint),
        (PlantedDefect::RestoredReplicaTakenForSource, in_a_backup),
        (
            PlantedDefect::ReapedBeforeConfirmed,
            in_a_replica_that_has_not_learned,
        ),
        (PlantedDefect::ReapLeavesIndexEntry, plain),
    ];
    for (defect, scenario) in planted {
        let _planted = plant(defect);
        let (_, wrong) = in_a_hundred_lives(scenario);
        assert!(wrong.is_some(), "{defect:?} has not been found");
    }
}

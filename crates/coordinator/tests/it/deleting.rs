//! Deletes, and the fate of tombstones.

use std::time::Duration;

use kvorum_backend::{ErrorKind, Reading};
use kvorum_cluster::{Command, Member};
use kvorum_coordinator::{DeleteOptions, Deleted, TombstoneKeeping};
use kvorum_object::Clock;
use kvorum_properties::PropertyOverlay;
use kvorum_ring::NodeId;

use crate::world::{Setup, World, colocated, holds, siblings, values};

fn keeping(tombstones: TombstoneKeeping) -> Setup {
    Setup {
        tombstones,
        ..colocated()
    }
}

fn holders(world: &World, key: &str) -> usize {
    world.backends.values().filter(|it| holds(it, key)).count()
}

#[test]
fn a_delete_leaves_a_tombstone_that_the_next_write_covers() {
    for setup in [Setup::default(), colocated()] {
        let world = World::new(&setup);
        world.set_bucket("bucket", siblings());
        assert_eq!(world.delete("k"), Deleted::NothingThere);
        assert_eq!(world.get("k"), None);
        world.put("k", "a", &Clock::new());
        assert_eq!(world.delete("k"), Deleted::Written);
        let tombstone = world.get("k").unwrap();
        assert!(tombstone.is_tombstone());
        assert_eq!(world.delete("k"), Deleted::NothingThere);
        let again = world.put("k", "b", tombstone.clock());
        assert_eq!(values(&again), ["b"]);
        // A blind write does not cover the tombstone, which stays beside the value.
        world.delete("k");
        world.put("k", "c", &Clock::new());
        assert_eq!(values(&world.get("k").unwrap()), ["", "c"]);
    }
}

#[test]
fn a_delete_covers_what_its_context_has_seen_and_no_more() {
    let world = World::new(&colocated());
    world.set_bucket("bucket", siblings());
    let seen = world.put("k", "a", &Clock::new());
    world.put("k", "b", &Clock::new());
    let context = Some(seen.clock().clone());
    let deleted = world.try_delete("k", context, &DeleteOptions::default());
    assert_eq!(deleted, Ok(Deleted::Written));
    let left = world.get("k").unwrap();
    assert!(!left.is_tombstone());
    assert_eq!(values(&left), ["", "b"]);
}

#[test]
fn tombstones_are_kept_where_they_are_to_be_kept() {
    let world = World::new(&keeping(TombstoneKeeping::Keep));
    world.put("k", "a", &Clock::new());
    world.delete("k");
    world.settle();
    world.coordinator.reap_due(Reading::MayBlock);
    assert_eq!(holders(&world, "k"), 3);
}

#[test]
fn tombstones_go_at_once_where_they_are_to_go_at_once() {
    let world = World::new(&keeping(TombstoneKeeping::Immediate));
    world.put("k", "a", &Clock::new());
    assert_eq!(world.delete("k"), Deleted::Written);
    assert_eq!(holders(&world, "k"), 0);
    world.put("k", "b", &Clock::new());
    assert_eq!(values(&world.get("k").unwrap()), ["b"]);
}

#[test]
fn tombstones_go_after_their_time() {
    let world = World::new(&keeping(TombstoneKeeping::For(Duration::from_secs(3))));
    world.put("k", "a", &Clock::new());
    world.delete("k");
    world.settle();
    world.coordinator.reap_due(Reading::MayBlock);
    assert_eq!(holders(&world, "k"), 3);
    world.run(world.runtime.sleep(Duration::from_secs(3)));
    world.coordinator.reap_due(Reading::MayBlock);
    assert_eq!(holders(&world, "k"), 0);
}

#[test]
fn what_was_written_since_is_not_reaped() {
    let world = World::new(&keeping(TombstoneKeeping::For(Duration::from_secs(3))));
    world.put("k", "a", &Clock::new());
    world.delete("k");
    let tombstone = world.get("k").unwrap();
    world.put("k", "b", tombstone.clock());
    world.run(world.runtime.sleep(Duration::from_secs(5)));
    world.coordinator.reap_due(Reading::MayBlock);
    assert_eq!(values(&world.get("k").unwrap()), ["b"]);
    assert_eq!(holders(&world, "k"), 3);
}

#[test]
fn a_tombstone_that_a_replica_lacks_is_not_reaped() {
    let world = World::new(&keeping(TombstoneKeeping::Immediate));
    world.put("k", "a", &Clock::new());
    world.replicas("k")[2].refuse_puts(Some(ErrorKind::Full));
    assert_eq!(world.delete("k"), Deleted::Written);
    world.replicas("k")[2].refuse_puts(None);
    world.coordinator.reap_due(Reading::MayBlock);
    // The third replica still has the value, and must not be the only one left to answer.
    assert_eq!(holders(&world, "k"), 3);
    assert!(world.get("k").unwrap().is_tombstone());
}

/// Regression: in a cluster where one node had all replicas of a bucket, a tombstone was removed at
/// once. A hint of another member brought the value back.
#[test]
fn a_tombstone_is_not_reaped_while_other_members_may_have_hints() {
    let world = World::new(&keeping(TombstoneKeeping::Immediate));
    let (node, member) = (NodeId::from_bytes([2; 16]), Member::new("other@127.0.0.1"));
    world.propose(Command::AddMember { node, member });
    world.put("k", "a", &Clock::new());
    assert_eq!(world.delete("k"), Deleted::Written);
    world.coordinator.reap_due(Reading::MayBlock);
    assert_eq!(holders(&world, "k"), 3);
    assert!(world.get("k").unwrap().is_tombstone());
}

#[test]
fn a_tombstone_on_fewer_replicas_than_the_bucket_has_is_not_reaped() {
    let world = World::new(&keeping(TombstoneKeeping::Immediate));
    world.put("k", "a", &Clock::new());
    let fewer = DeleteOptions {
        n_val: Some(1),
        ..DeleteOptions::default()
    };
    world.try_delete("k", None, &fewer).unwrap();
    assert_eq!(holders(&world, "k"), 3);
    assert!(world.get("k").unwrap().is_tombstone());
}

#[test]
fn a_tombstone_is_reaped_once_it_is_durable_everywhere() {
    for fails in [false, true] {
        let setup = Setup {
            syncs_late: true,
            ..keeping(TombstoneKeeping::Immediate)
        };
        let world = World::new(&setup);
        let lenient = PropertyOverlay {
            w: Some(kvorum_properties::Quorum::One),
            dw: Some(kvorum_properties::Quorum::One),
            ..PropertyOverlay::default()
        };
        world.set_bucket("bucket", lenient);
        world.syncs.release(3);
        world.put("k", "a", &Clock::new());
        // The first of the three replicas' syncs is done, which is enough for the client.
        world.syncs.release(4);
        assert_eq!(world.delete("k"), Deleted::Written);
        world.coordinator.reap_due(Reading::CachedOnly);
        assert_eq!(holders(&world, "k"), 3);
        match fails {
            true => world.syncs.fail(ErrorKind::Failed),
            false => world.syncs.release(6),
        }
        world.coordinator.reap_due(Reading::MayBlock);
        assert_eq!(holders(&world, "k"), if fails { 3 } else { 0 });
    }
}

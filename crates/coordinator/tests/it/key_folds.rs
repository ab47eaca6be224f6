//! Folds over keys: each entry once whatever the number of copies, from any node; and changes of
//! the keys that are found.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_coordinator::{
    Coordinator, KeyChange, KeysChanged, PutOptions, RequestError, RequestKind, TombstoneKeeping,
};
use kvorum_encoding::{Bucket, BucketType, Key};
use kvorum_key_folds::{EntryClass, Findings, FoldKind, FoldScope, KeyFold};
use kvorum_object::Clock;
use kvorum_properties::PropertyOverlay;

use crate::cluster::Cluster;
use crate::several_nodes;
use crate::world::{Setup, World, colocated, forget, holds, siblings, values};

const PATIENCE: Duration = Duration::from_secs(60);

fn scope() -> FoldScope {
    FoldScope::bucket(&BucketType::default_type(), &Bucket::from("bucket"))
}

async fn fold(
    coordinator: &Coordinator,
    scope: FoldScope,
    kind: FoldKind,
) -> Result<Findings, RequestError> {
    let fold = KeyFold { scope, kind };
    coordinator.fold_keys(fold, PATIENCE).await
}

impl World {
    fn fold(&self, kind: FoldKind) -> Findings {
        self.run(fold(&self.coordinator, scope(), kind)).unwrap()
    }

    fn count(&self, class: EntryClass) -> u64 {
        self.fold(FoldKind::Count(class)).count
    }

    fn change(&self, scope: FoldScope, change: KeyChange) -> (u64, u64) {
        let changed = self.coordinator.change_keys(scope, change, PATIENCE);
        let KeysChanged { dispatched, left } = self.run(changed).unwrap();
        (dispatched, left)
    }

    fn holders(&self, key: &str) -> usize {
        self.backends.values().filter(|it| holds(it, key)).count()
    }
}

fn keeping() -> Setup {
    Setup {
        tombstones: TombstoneKeeping::Keep,
        ..colocated()
    }
}

fn range(first: &'static str, last: &'static str) -> FoldScope {
    FoldScope {
        keys: Some((Key::from(first), Key::from(last))),
        ..scope()
    }
}

#[test]
fn every_entry_is_found_once_whatever_the_copies() {
    for n_val in [1, 2, 3, 5, 8] {
        let world = World::new(&colocated());
        let properties = PropertyOverlay {
            n_val: Some(n_val),
            ..PropertyOverlay::default()
        };
        world.set_bucket("bucket", properties);
        for number in 0..60 {
            world.put(&format!("k{number:02}"), "a", &Clock::new());
        }
        world.put("other/k", "a", &Clock::new());
        world.delete("k07");
        // Plans begin at a random place.
        for _ in 0..5 {
            let stats = world.fold(FoldKind::ObjectStats).stats;
            assert_eq!(stats.count, 60, "n_val {n_val}");
            assert_eq!(stats.siblings.get(&1), Some(&60));
            assert_eq!(world.count(EntryClass::Living), 59);
            let clocks = world.fold(FoldKind::Clocks(EntryClass::Any)).clocks;
            let keys: Vec<String> = clocks.iter().map(|it| it.key.to_string()).collect();
            let expected = (0..60).map(|number| format!("k{number:02}"));
            assert_eq!(keys, expected.collect::<Vec<_>>());
        }
        let kind = FoldKind::Count(EntryClass::Any);
        let ranged = world.run(fold(&world.coordinator, range("k10", "k19"), kind));
        assert_eq!(ranged.unwrap().count, 10);
    }
}

#[test]
fn a_tree_is_the_same_whichever_replicas_it_is_made_of() {
    let world = World::new(&colocated());
    for number in 0..60 {
        world.put(&format!("k{number}"), "a", &Clock::new());
    }
    world.settle();
    let kind = FoldKind::Tree {
        leaves: 4096,
        seed: Some(7),
    };
    let tree = world.fold(kind);
    assert!(!tree.leaves.is_empty());
    for _ in 0..5 {
        assert_eq!(world.fold(kind), tree);
    }
}

#[test]
fn a_scope_that_is_empty_asks_no_vnode_and_an_unknown_type_is_refused() {
    let world = World::new(&colocated());
    world.put("k", "a", &Clock::new());
    let kind = FoldKind::ObjectStats;
    let nothing = world.run(fold(&world.coordinator, range("z", "a"), kind));
    assert_eq!(nothing, Ok(Findings::default()));
    let unknown = FoldScope::bucket(&BucketType::from("none"), &Bucket::from("bucket"));
    let refused = world.run(fold(&world.coordinator, unknown, kind));
    assert_eq!(refused, Err(RequestError::UnknownBucketType));
    let finished = world.meter.finished.lock();
    let folds = finished
        .iter()
        .filter(|(kind, _)| *kind == RequestKind::KeyFold);
    assert_eq!(folds.count(), 2);
}

#[test]
fn a_fold_asks_another_replica_where_entries_may_be_missing() {
    let world = World::new(&colocated());
    for number in 0..60 {
        world.put(&format!("k{number}"), "a", &Clock::new());
    }
    world.settle();
    let state = world.coordinator.state();
    let (partition, ..) = state.ring().partitions().next().unwrap();
    let harmed = &world.backends[&partition];
    harmed.has_lost_keys.store(true, Ordering::Relaxed);
    for _ in 0..8 {
        assert_eq!(world.count(EntryClass::Any), 60);
    }
    for backend in world.backends.values() {
        backend.has_lost_keys.store(true, Ordering::Relaxed);
    }
    let refused = world.run(fold(&world.coordinator, scope(), FoldKind::ObjectStats));
    assert!(
        matches!(refused, Err(RequestError::Storage(_))),
        "{refused:?}"
    );
}

#[test]
fn objects_of_a_range_are_erased_and_tombstones_reaped() {
    let world = World::new(&keeping());
    for key in ["a", "b", "c", "d"] {
        world.put(key, "value", &Clock::new());
    }
    assert_eq!(world.change(range("b", "c"), KeyChange::Erase), (2, 0));
    assert_eq!(world.count(EntryClass::Tombstones), 2);
    assert!(world.get("b").unwrap().is_tombstone());
    assert_eq!(world.change(range("b", "c"), KeyChange::Erase), (0, 0));
    assert_eq!(world.change(range("c", "d"), KeyChange::Reap), (1, 0));
    assert_eq!((world.holders("b"), world.holders("c")), (3, 0));
    assert_eq!(world.change(scope(), KeyChange::Reap), (1, 0));
    assert_eq!(world.count(EntryClass::Any), 2);
    for key in ["a", "d"] {
        assert_eq!(values(&world.get(key).unwrap()), ["value"]);
    }
}

#[test]
fn more_keys_are_erased_than_are_done_at_a_time() {
    let world = World::new(&keeping());
    for number in 0..100 {
        world.put(&format!("k{number}"), "value", &Clock::new());
    }
    assert_eq!(world.change(scope(), KeyChange::Erase), (100, 0));
    assert_eq!(world.count(EntryClass::Living), 0);
    assert_eq!(world.change(scope(), KeyChange::Reap), (100, 0));
    assert_eq!(world.count(EntryClass::Any), 0);
}

#[test]
fn a_tombstone_that_a_replica_lacks_is_given_to_it_before_it_goes() {
    let world = World::new(&keeping());
    world.put("k", "value", &Clock::new());
    world.delete("k");
    world.settle();
    forget(world.replicas("k")[1], "k");
    assert_eq!(world.holders("k"), 2);
    let reaped = |round: u32| {
        let (dispatched, left) = world.change(scope(), KeyChange::Reap);
        assert!(dispatched <= 1 && left == 0, "{round}");
        dispatched == 1
    };
    // A fold asks one replica of each key, possibly the one that lacks it; the next fold asks others.
    assert!((0..20).any(reaped));
    assert_eq!(world.holders("k"), 0);
}

#[test]
fn what_has_been_written_over_a_tombstone_is_not_reaped() {
    let world = World::new(&keeping());
    world.set_bucket("bucket", siblings());
    world.put("k", "value", &Clock::new());
    world.delete("k");
    // Beside the tombstone, which becomes one of two siblings.
    world.put("k", "beside", &Clock::new());
    assert_eq!(world.change(scope(), KeyChange::Reap), (0, 0));
    assert_eq!(values(&world.get("k").unwrap()), ["", "beside"]);
}

#[test]
fn replicas_that_lack_something_are_repaired() {
    let world = World::new(&colocated());
    for key in ["a", "b", "c"] {
        world.put(key, "value", &Clock::new());
    }
    world.settle();
    forget(world.replicas("a")[0], "a");
    forget(world.replicas("b")[2], "b");
    let repaired = |round: u32| {
        let (dispatched, left) = world.change(scope(), KeyChange::Repair);
        assert!((1..=3).contains(&dispatched), "{round}");
        assert_eq!(left, 0, "{round}");
        ["a", "b", "c"].iter().all(|key| world.holders(key) == 3)
    };
    // A fold may ask the replica that lacks a key; the next fold asks others.
    assert!((0..20).any(repaired));
}

#[test]
fn any_node_folds_over_what_all_have() {
    let cluster = Cluster::new(&crate::cluster::Setup::default());
    for number in 0..40 {
        let (key, options) = (format!("k{number}"), PutOptions::default());
        let at = u8::try_from(number % 4).unwrap() + 1;
        let blank = Clock::new();
        let put = several_nodes::put(cluster.node(at), &key, "v", &blank, &options);
        cluster.run(put).unwrap();
    }
    cluster.settle();
    let kind = FoldKind::Tree {
        leaves: 4096,
        seed: None,
    };
    let on = |at: u8, kind| {
        let coordinator = &cluster.node(at).coordinator;
        cluster.run(fold(coordinator, scope(), kind)).unwrap()
    };
    let tree = on(1, kind);
    for at in 1..=4 {
        assert_eq!(on(at, FoldKind::ObjectStats).stats.count, 40);
        assert_eq!(on(at, kind), tree);
    }
    cluster.cut_off(3, true);
    for at in [1, 2, 4] {
        assert_eq!(on(at, FoldKind::Count(EntryClass::Living)).count, 40);
    }
}

#[test]
fn a_tombstone_with_replicas_on_other_nodes_stays() {
    let cluster = Cluster::new(&crate::cluster::Setup::default());
    let options = PutOptions::default();
    let blank = Clock::new();
    let put = several_nodes::put(cluster.node(1), "k", "v", &blank, &options);
    cluster.run(put).unwrap();
    cluster.settle();
    let change = |change| {
        let changed = cluster
            .node(1)
            .coordinator
            .change_keys(scope(), change, PATIENCE);
        let KeysChanged { dispatched, left } = cluster.run(changed).unwrap();
        (dispatched, left)
    };
    assert_eq!(change(KeyChange::Erase), (1, 0));
    cluster.settle();
    assert_eq!(change(KeyChange::Reap), (1, 1));
    assert_eq!(change(KeyChange::Repair), (1, 0));
    let owners = cluster.owners("k");
    for (at, partition) in owners.into_iter().zip(cluster.partitions("k")) {
        let stored = cluster.node(at).stored(partition, "k").unwrap();
        assert!(stored.is_tombstone());
    }
}

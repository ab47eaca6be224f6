//! Reads, writes, conditions and repairs.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{Durability, ErrorKind};
use kvorum_cluster::Command;
use kvorum_coordinator::{
    Condition, Detail, GetOptions, PutKind, PutOptions, PutRequest, RequestError,
};
use kvorum_encoding::BucketType;
use kvorum_object::{ActorId, Clock, Dot, Object, Timestamp};
use kvorum_properties::{PropertyOverlay, SyncOnWrite};
use kvorum_runtime::{ProductionOptions, Runtime};

use crate::world::{
    Setup, World, address, colocated, forget, holds, request, siblings, storage_key, values,
};

fn setups() -> [Setup; 3] {
    let large = Setup {
        ring_size: 64,
        ..colocated()
    };
    [Setup::default(), colocated(), large]
}

#[test]
fn what_is_written_is_read() {
    for setup in setups() {
        let world = World::new(&setup);
        assert_eq!(world.get("k"), None);
        let written = world.put("k", "value", &Clock::new());
        assert_eq!(world.get("k"), Some(written));
        let copies = if setup.colocated { 3 } else { 1 };
        let holders = world.backends.values().filter(|it| holds(it, "k"));
        assert_eq!(holders.count(), copies);
    }
}

#[test]
fn siblings_stand_side_by_side_until_resolved() {
    for setup in setups() {
        let world = World::new(&setup);
        world.set_bucket("bucket", siblings());
        world.put("k", "a", &Clock::new());
        let both = world.put("k", "b", &Clock::new());
        assert_eq!(values(&both), ["a", "b"]);
        assert_eq!(values(&world.get("k").unwrap()), ["a", "b"]);
        world.put("k", "c", both.clock());
        assert_eq!(values(&world.get("k").unwrap()), ["c"]);
    }
}

#[test]
fn one_client_put_is_one_dot_on_every_replica() {
    let world = World::new(&colocated());
    world.set_bucket("bucket", siblings());
    for backend in world.replicas("k") {
        // Every read of the first attempt has to be repeated where it may wait.
        backend.would_block.store(true, Ordering::Relaxed);
    }
    let written = world.put("k", "a", &Clock::new());
    assert_eq!(written.siblings().len(), 1);
    assert_eq!(written.clock().entries().len(), 1);
    assert_eq!(world.get("k"), Some(written));
}

#[test]
fn the_default_bucket_keeps_the_last_value() {
    for setup in setups() {
        let world = World::new(&setup);
        for value in ["a", "b", "c"] {
            world.put("k", value, &Clock::new());
            assert_eq!(values(&world.get("k").unwrap()), [value]);
        }
        let last_write_wins = PropertyOverlay {
            last_write_wins: Some(true),
            ..PropertyOverlay::default()
        };
        world.set_bucket("lww", last_write_wins);
        for value in ["a", "b"] {
            world.put("lww/k", value, &Clock::new());
        }
        assert_eq!(values(&world.get("lww/k").unwrap()), ["b"]);
    }
}

#[test]
fn siblings_of_a_bucket_that_wants_none_any_more_are_resolved_on_reading() {
    let world = World::new(&Setup::default());
    world.set_bucket("bucket", siblings());
    world.put("k", "a", &Clock::new());
    world.put("k", "b", &Clock::new());
    let no_siblings = PropertyOverlay {
        allow_mult: Some(false),
        ..PropertyOverlay::default()
    };
    world.set_bucket("bucket", no_siblings);
    assert_eq!(values(&world.get("k").unwrap()), ["b"]);
}

#[test]
fn a_head_comes_without_values_and_repairs_nothing() {
    let world = World::new(&colocated());
    let written = world.put("k", "value", &Clock::new());
    forget(world.replicas("k")[1], "k");
    let head = GetOptions {
        detail: Detail::Head,
        ..GetOptions::default()
    };
    let found = world.try_get("k", &head).unwrap().unwrap();
    assert_eq!(found.clock(), written.clock());
    assert!(found.siblings()[0].value.is_empty());
    world.settle();
    assert!(!holds(world.replicas("k")[1], "k"));
    assert_eq!(*world.meter.repairs.lock(), 0);
}

#[test]
fn a_read_repairs_replicas_that_are_behind() {
    let world = World::new(&colocated());
    let old = world.put("k", "a", &Clock::new());
    world.replicas("k")[2].refuse_puts(Some(ErrorKind::Full));
    let new = world.put("k", "b", old.clock());
    world.replicas("k")[2].refuse_puts(None);
    forget(world.replicas("k")[1], "k");
    assert_eq!(world.get("k"), Some(new.clone()));
    world.settle();
    assert_eq!(*world.meter.repairs.lock(), 2);
    // Each replica alone has the object now.
    for lone in 0..3 {
        let world_without = |other: usize, kind| world.replicas("k")[other].refuse_reads(kind);
        let others = (0..3).filter(|other| *other != lone);
        others
            .clone()
            .for_each(|it| world_without(it, Some(ErrorKind::Failed)));
        let one = GetOptions {
            r: Some(kvorum_properties::Quorum::One),
            ..GetOptions::default()
        };
        assert_eq!(world.try_get("k", &one).unwrap(), Some(new.clone()));
        others.for_each(|it| world_without(it, None));
    }
    world.settle();
    assert_eq!(*world.meter.repairs.lock(), 2);
}

/// Concurrent values of many writers, with others at each replica. After one read all replicas are
/// equal, and no clock has lost an entry: a lost entry would bring back values that it covered.
#[test]
fn r09_one_read_repairs_all_and_prunes_no_clock() {
    let world = World::new(&colocated());
    world.set_bucket("bucket", siblings());
    let of_writers = |actors: std::ops::Range<u64>| {
        let mut clock = Clock::new();
        for number in actors {
            let dot = Dot {
                actor: ActorId(1_000 + number),
                counter: 1 + number % 7,
            };
            clock.observe(dot, Timestamp::from_micros(number));
        }
        clock
    };
    // The first has both values, the second nothing, and the third one of them.
    for (value, actors, missing) in [("a", 0..300, 1), ("b", 200..500, 2)] {
        world.replicas("k")[missing].refuse_puts(Some(ErrorKind::Full));
        world.put("k", value, &of_writers(actors));
        world.replicas("k")[missing].refuse_puts(None);
    }
    forget(world.replicas("k")[1], "k");
    let all = GetOptions {
        r: Some(kvorum_properties::Quorum::All),
        ..GetOptions::default()
    };
    let first = world.try_get("k", &all).unwrap().unwrap();
    world.settle();
    assert_eq!(values(&first), ["a", "b"]);
    assert!(first.clock().descends(&of_writers(0..500)));
    assert_eq!(*world.meter.repairs.lock(), 2);
    for _ in 0..2 {
        let again = world.try_get("k", &all).unwrap();
        world.settle();
        assert_eq!(again.as_ref(), Some(&first));
        assert_eq!(*world.meter.repairs.lock(), 2, "one round was not enough");
    }
    for lone in 0..3 {
        assert_eq!(alone(&world, lone).as_ref(), Some(&first));
    }
}

/// The answer of one of three replicas when the others fail.
fn alone(world: &World, lone: usize) -> Option<Arc<Object>> {
    let replicas = world.replicas("k");
    let others = || (0..3).filter(|other| *other != lone);
    others().for_each(|it| replicas[it].refuse_reads(Some(ErrorKind::Failed)));
    let one = GetOptions {
        r: Some(kvorum_properties::Quorum::One),
        ..GetOptions::default()
    };
    let found = world.try_get("k", &one).unwrap();
    others().for_each(|it| replicas[it].refuse_reads(None));
    found
}

/// Any replicas are damaged, perhaps the coordinating one too, as long as one is whole.
#[test]
fn r33_a_read_mends_damaged_replicas_and_what_is_damaged_never_spreads() {
    for damaged in 1..7_u32 {
        for damages_head in [true, false] {
            let world = World::new(&colocated());
            let written = world.put("k", "a", &Clock::new());
            let key = storage_key("k");
            for at in (0..3).filter(|at| damaged >> at & 1 == 1) {
                match damages_head {
                    true => world.replicas("k")[at].damage_head(&key),
                    false => world.replicas("k")[at].damage_body(&key),
                }
            }
            let one = GetOptions {
                r: Some(kvorum_properties::Quorum::One),
                ..GetOptions::default()
            };
            assert_eq!(world.try_get("k", &one).unwrap(), Some(written.clone()));
            world.settle();
            let mended = usize::try_from(damaged.count_ones()).unwrap();
            assert_eq!(*world.meter.repairs.lock(), mended);
            for lone in 0..3 {
                assert_eq!(alone(&world, lone), Some(written.clone()));
            }
        }
    }
}

/// A put over a damaged object leaves nothing of it at any replica.
#[test]
fn r33_a_put_that_meets_a_damaged_replica_writes_what_it_was_given() {
    for at in 0..3 {
        for damages_head in [true, false] {
            let world = World::new(&colocated());
            let written = world.put("k", "a", &Clock::new());
            let key = storage_key("k");
            match damages_head {
                true => world.replicas("k")[at].damage_head(&key),
                false => world.replicas("k")[at].damage_body(&key),
            }
            world.put("k", "b", written.clock());
            assert_eq!(values(&world.get("k").unwrap()), ["b"]);
            world.settle();
            for lone in 0..3 {
                assert_eq!(values(&alone(&world, lone).unwrap()), ["b"]);
            }
        }
    }
}

#[test]
fn a_lone_damaged_replica_says_so_and_can_be_written_over() {
    let world = World::new(&Setup::default());
    world.put("k", "a", &Clock::new());
    world.replicas("k")[0].damage_body(&storage_key("k"));
    let damaged = world.try_get("k", &GetOptions::default());
    assert!(
        matches!(damaged, Err(RequestError::Storage(_))),
        "{damaged:?}"
    );
    world.put("k", "b", &Clock::new());
    assert_eq!(values(&world.get("k").unwrap()), ["b"]);
}

#[test]
fn conditions_hold_or_refuse() {
    for setup in setups() {
        let world = World::new(&setup);
        let first = world.put_if("k", "a", Condition::Absent).unwrap();
        let again = world.put_if("k", "b", Condition::Absent);
        assert_eq!(again, Err(RequestError::MatchFound));
        let version = Condition::Version(first.clock().clone());
        let second = world.put_if("k", "b", version.clone()).unwrap();
        assert_eq!(values(&second), ["b"]);
        assert_eq!(
            world.put_if("k", "c", version.clone()),
            Err(RequestError::Modified)
        );
        assert_eq!(
            world.put_if("absent", "c", version.clone()),
            Err(RequestError::ConditionNotFound)
        );
        world.delete("k");
        assert_eq!(
            world.put_if("k", "c", version),
            Err(RequestError::ConditionNotFound)
        );
        assert!(world.put_if("k", "c", Condition::Absent).is_ok());
    }
}

#[test]
fn a_condition_is_not_spoilt_by_a_coordinating_replica_that_is_behind() {
    let world = World::new(&colocated());
    let old = world.put("k", "a", &Clock::new());
    let refuse = |kind| world.replicas("k")[0].refuse_puts(kind);
    forget(world.replicas("k")[0], "k");
    let version = Condition::Version(old.clock().clone());
    let new = world.put_if("k", "b", version).unwrap();
    refuse(None);
    assert!(holds(world.replicas("k")[0], "k"));
    assert_eq!(values(&new), ["b"]);
}

#[test]
fn what_only_other_replicas_know_refuses_too() {
    let world = World::new(&colocated());
    world.put("k", "a", &Clock::new());
    forget(world.replicas("k")[0], "k");
    let refused = world.put_if("k", "b", Condition::Absent);
    assert_eq!(refused, Err(RequestError::MatchFound));
}

#[test]
fn of_racing_conditional_puts_exactly_one_wins() {
    for setup in setups() {
        let options = ProductionOptions {
            workers: NonZeroUsize::new(4),
            ..ProductionOptions::default()
        };
        let world = World::on(Runtime::production(&options).unwrap(), &setup);
        for round in 0..30 {
            let key = format!("k{round}");
            for backend in world.replicas(&key).into_iter().filter(|_| round % 2 == 1) {
                backend.would_block.store(true, Ordering::Relaxed);
            }
            let race = |condition: Condition| {
                let racers: Vec<_> = (0..6)
                    .map(|racer| {
                        let (coordinator, address) = (world.coordinator.clone(), address(&key));
                        let put = request(&racer.to_string(), &Clock::new(), condition.clone());
                        let now = world.runtime.now();
                        world.runtime.spawn("racer", async move {
                            let options = PutOptions::default();
                            coordinator.put(&address, put, &options, now).await
                        })
                    })
                    .collect();
                let outcomes: Vec<_> = racers
                    .into_iter()
                    .map(|racer| world.run(racer).unwrap())
                    .collect();
                let won = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok());
                let won: Vec<_> = won.cloned().collect();
                assert_eq!(won.len(), 1, "{outcomes:?}");
                won[0].clone()
            };
            let first = race(Condition::Absent);
            assert_eq!(world.get(&key).as_ref(), Some(&first));
            let second = race(Condition::Version(first.clock().clone()));
            assert_eq!(world.get(&key), Some(second));
        }
    }
}

#[test]
fn an_object_stored_as_it_is_keeps_its_clock() {
    for setup in setups() {
        let world = World::new(&setup);
        let mut given = request("a", &Clock::new(), Condition::Always);
        given.kind = PutKind::AsIs;
        given.context = world.put("elsewhere", "x", &Clock::new()).clock().clone();
        for _ in 0..2 {
            let stored = world.try_put("k", given.clone(), &PutOptions::default());
            assert_eq!(stored.unwrap().clock(), &given.context);
        }
        let found = world.get("k").unwrap();
        assert_eq!(found.clock(), &given.context);
        assert_eq!(values(&found), ["a"]);
        given.condition = Condition::Absent;
        let refused = world.try_put("k", given, &PutOptions::default());
        assert_eq!(refused, Err(RequestError::MatchFound));
    }
}

#[test]
fn sync_on_write_decides_which_replicas_have_to_sync() {
    use Durability::{BackendDefault, Grouped};
    let world = World::new(&colocated());
    let cases = [
        (
            SyncOnWrite::Backend,
            [BackendDefault, BackendDefault, BackendDefault],
        ),
        (SyncOnWrite::One, [Grouped, BackendDefault, BackendDefault]),
        (SyncOnWrite::All, [Grouped, Grouped, Grouped]),
    ];
    for (sync, expected) in cases {
        for by_request in [true, false] {
            let bucket = format!("{sync:?}");
            let (key, mut options) = (format!("{bucket}/{by_request}"), PutOptions::default());
            if by_request {
                options.sync_on_write = Some(sync);
            } else {
                let properties = PropertyOverlay {
                    sync_on_write: Some(sync),
                    ..PropertyOverlay::default()
                };
                world.set_bucket(&bucket, properties);
            }
            let put = request("a", &Clock::new(), Condition::Always);
            world
                .replicas(&key)
                .iter()
                .for_each(|it| it.asked.lock().clear());
            world.try_put(&key, put, &options).unwrap();
            let asked: Vec<_> = world
                .replicas(&key)
                .iter()
                .map(|it| it.asked.lock()[0])
                .collect();
            assert_eq!(asked, expected, "{sync:?} {by_request}");
        }
    }
}

#[test]
fn unknown_types_long_keys_and_absent_vnodes_are_refused() {
    let world = World::new(&Setup::default());
    let get = |key: &str| world.try_get(key, &GetOptions::default());
    assert_eq!(get("nowhere/b/k"), Err(RequestError::UnknownBucketType));
    let put = request("a", &Clock::new(), Condition::Always);
    assert_eq!(
        world.try_put("nowhere/b/k", put.clone(), &PutOptions::default()),
        Err(RequestError::UnknownBucketType)
    );
    assert_eq!(
        world.try_delete(
            "nowhere/b/k",
            None,
            &kvorum_coordinator::DeleteOptions::default()
        ),
        Err(RequestError::UnknownBucketType)
    );
    assert!(get(&"k".repeat(65_536)).is_ok());
    let bytes = 65_537;
    assert_eq!(
        get(&"k".repeat(bytes)),
        Err(RequestError::KeyTooLarge { bytes })
    );
    // Names of buckets are bounded alike.
    assert_eq!(
        get(&format!("{}/k", "b".repeat(bytes))),
        Err(RequestError::KeyTooLarge { bytes })
    );
    let places = world.coordinator.preference_list(&address("k")).unwrap();
    world.vnodes.remove(places[0].partition);
    assert_eq!(get("k"), Err(RequestError::VnodeNotReady));
    assert_eq!(
        world.try_put("k", put, &PutOptions::default()),
        Err(RequestError::VnodeNotReady)
    );
}

#[test]
fn a_preference_list_names_the_replicas_in_ring_order() {
    let world = World::new(&colocated());
    let places = world.coordinator.preference_list(&address("k")).unwrap();
    assert_eq!(places.len(), 3);
    let number = |at: usize| places[at].partition.number();
    assert_eq!((number(0) + 1) % 8, number(1) % 8);
    assert!(places.iter().all(|place| place.is_primary));
    assert_eq!(places[0].node_name, "one@127.0.0.1");
}

/// A bucket type whose objects are written once.
fn add_once(world: &World) {
    let bucket_type = BucketType::new(b"once".to_vec());
    world.propose(Command::CreateType {
        bucket_type: bucket_type.clone(),
        properties: PropertyOverlay {
            write_once: Some(true),
            ..PropertyOverlay::default()
        },
    });
    world.propose(Command::ActivateType { bucket_type });
}

#[test]
fn what_is_written_once_is_put_without_a_read() {
    let world = World::new(&colocated());
    add_once(&world);
    let refuse_reads = |kind: Option<ErrorKind>| {
        let backends = world.backends.values();
        backends.for_each(|it| it.refuse_reads(kind));
    };
    refuse_reads(Some(ErrorKind::Failed));
    let put = |key: &str| {
        let put = request("v", &Clock::new(), Condition::Always);
        world.try_put(key, put, &PutOptions::default())
    };
    assert!(put("bucket/k").is_err(), "a plain put has to look");
    let written = put("once/bucket/k").unwrap();
    refuse_reads(None);
    assert_eq!(world.get("once/bucket/k"), Some(written));
    let copies = world.replicas("once/bucket/k");
    assert!(copies.iter().all(|it| holds(it, "once/bucket/k")));
}

/// For a client that knows a version or sets a condition, the object is not written once: the
/// client gets the same as in any bucket.
#[test]
fn versions_conditions_and_deletes_count_where_objects_are_written_once() {
    let world = World::new(&colocated());
    add_once(&world);
    let key = "once/bucket/k";
    let first = world.put(key, "a", &Clock::new());
    let refused = world.put_if(key, "b", Condition::Absent);
    assert_eq!(refused, Err(RequestError::MatchFound));
    let second = world.put(key, "b", first.clock());
    assert!(second.clock().dominates(first.clock()));
    assert_eq!(values(&world.get(key).unwrap()), ["b"]);
    world.delete(key);
    assert!(world.get(key).is_none_or(|it| it.is_tombstone()));
    world.settle();
    world.put(key, "c", &Clock::new());
    assert_eq!(values(&world.get(key).unwrap()), ["c"]);
}

#[test]
fn a_value_that_is_written_twice_is_one_value() {
    let world = World::new(&colocated());
    add_once(&world);
    let key = "once/bucket/k";
    world.put(key, "a", &Clock::new());
    world.settle();
    forget(world.replicas(key)[2], key);
    world.put(key, "b", &Clock::new());
    let read = world.get(key).unwrap();
    assert_eq!(values(&read), ["b"]);
    assert_eq!(read.clock().entries().len(), 1, "nothing accumulates");
}

#[test]
fn a_bucket_gives_an_end_to_what_is_put_without_one() {
    let world = World::new(&colocated());
    let expiry = PropertyOverlay {
        expiry_secs: Some(60),
        ..PropertyOverlay::default()
    };
    world.set_bucket("bucket", expiry);
    let now = world.runtime.wall_time().micros();
    let end = |object: &Object| object.siblings()[0].metadata.expires_at;
    let put = |change: fn(&mut PutRequest)| {
        let mut put = request("v", &Clock::new(), Condition::Always);
        change(&mut put);
        world.try_put("k", put, &PutOptions::default()).unwrap()
    };
    let given = end(&put(|_| {})).unwrap().as_micros();
    // The simulated clock advances a little while replicas are asked.
    assert!((60_000_000..61_000_000).contains(&(given - now)), "{given}");
    let own = put(|it| it.content.metadata.expires_at = Some(Timestamp::from_micros(u64::MAX)));
    assert_eq!(end(&own), Some(Timestamp::from_micros(u64::MAX)));
    let as_it_is = put(|it| it.kind = PutKind::AsIs);
    assert_eq!(end(&as_it_is), None);
    let tombstone = put(|it| it.content.metadata.deleted = true);
    assert_eq!(end(&tombstone), None);
    for replica in world.replicas("k") {
        assert!(holds(replica, "k"));
    }
}

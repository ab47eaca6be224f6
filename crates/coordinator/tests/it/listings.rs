//! Listings: every key once, and nothing else.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_coordinator::{RequestError, RequestKind};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_object::Clock;
use kvorum_properties::{KeyFunction, PropertyOverlay};

use crate::world::{Setup, World, address, colocated, request};

const PATIENCE: Duration = Duration::from_secs(60);

async fn list_keys(world: &World, bucket: &'static str) -> Result<Vec<String>, RequestError> {
    let bucket = Bucket::from(bucket);
    let untyped = BucketType::default_type();
    let mut listing = world.coordinator.list_keys(&untyped, &bucket, PATIENCE)?;
    let mut keys = Vec::new();
    while let Some(found) = listing.next().await {
        let found = found?;
        assert!(!found.is_empty() && found.len() <= 1_000);
        keys.extend(found.iter().map(ToString::to_string));
    }
    Ok(keys)
}

fn sorted_once(mut keys: Vec<String>) -> Vec<String> {
    let listed = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), listed, "a key was listed twice");
    keys
}

async fn list_buckets(world: &World) -> Vec<String> {
    let untyped = BucketType::default_type();
    let mut listing = world.coordinator.list_buckets(&untyped, PATIENCE).unwrap();
    let mut buckets = Vec::new();
    while let Some(found) = listing.next().await {
        buckets.extend(found.unwrap().iter().map(ToString::to_string));
    }
    sorted_once(buckets)
}

#[test]
fn every_key_is_listed_once_whatever_the_copies() {
    for n_val in [1, 2, 3, 5, 8] {
        for ring_size in [8, 16] {
            let setup = Setup {
                ring_size,
                ..colocated()
            };
            let world = World::new(&setup);
            let properties = PropertyOverlay {
                n_val: Some(n_val),
                ..PropertyOverlay::default()
            };
            world.set_bucket("bucket", properties);
            let mut keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
            for key in &keys {
                world.put(key, "a", &Clock::new());
            }
            world.put("other/k", "a", &Clock::new());
            world.delete("k7");
            keys.retain(|key| key != "k7");
            // Plans begin at a random place.
            for _ in 0..5 {
                let listed = world.run(list_keys(&world, "bucket")).unwrap();
                keys.sort();
                assert_eq!(sorted_once(listed), keys, "n_val {n_val} ring {ring_size}");
            }
        }
    }
}

async fn count(world: &World, bucket: &'static str) -> Result<u64, RequestError> {
    let (untyped, bucket) = (BucketType::default_type(), Bucket::from(bucket));
    let mut counting = world.coordinator.count_keys(&untyped, &bucket, PATIENCE)?;
    let mut counted = 0;
    while let Some(sofar) = counting.next().await {
        let sofar = sofar?;
        assert!(sofar >= counted);
        counted = sofar;
    }
    Ok(counted)
}

#[test]
fn every_key_is_counted_once_whatever_the_copies() {
    for n_val in [1, 3, 8] {
        let world = World::new(&colocated());
        let properties = PropertyOverlay {
            n_val: Some(n_val),
            ..PropertyOverlay::default()
        };
        world.set_bucket("bucket", properties);
        for number in 0..100 {
            world.put(&format!("k{number}"), "a", &Clock::new());
        }
        world.put("other/k", "a", &Clock::new());
        world.delete("k7");
        // Plans begin at a random place.
        for _ in 0..5 {
            assert_eq!(world.run(count(&world, "bucket")), Ok(99), "n_val {n_val}");
        }
        assert_eq!(world.run(count(&world, "nothing")), Ok(0));
    }
}

#[test]
fn a_bucket_that_lies_on_one_vnode_is_listed_in_parts() {
    let world = World::new(&colocated());
    let together = PropertyOverlay {
        chash_keyfun: Some(KeyFunction::BucketOnly),
        ..PropertyOverlay::default()
    };
    world.set_bucket("bucket", together);
    let keys: Vec<String> = (0..12_000).map(|number| format!("{number:05}")).collect();
    for key in &keys {
        world.put(key, "a", &Clock::new());
    }
    let listed = world.run(list_keys(&world, "bucket")).unwrap();
    assert_eq!(sorted_once(listed), keys);
}

#[test]
fn a_part_of_a_listing_is_bounded_in_bytes() {
    let world = World::new(&colocated());
    let together = PropertyOverlay {
        chash_keyfun: Some(KeyFunction::BucketOnly),
        ..PropertyOverlay::default()
    };
    world.set_bucket("bucket", together);
    // Two parts of a megabyte each, and a third.
    let keys: Vec<String> = (0..50)
        .map(|number| format!("{number:02}{}", "k".repeat(50_000)))
        .collect();
    for key in &keys {
        world.put(key, "a", &Clock::new());
    }
    let chunks = world.run(async {
        let (untyped, bucket) = (BucketType::default_type(), Bucket::from("bucket"));
        let mut listing = world.coordinator.list_keys(&untyped, &bucket, PATIENCE);
        let listing = listing.as_mut().unwrap();
        let mut chunks = Vec::new();
        while let Some(found) = listing.next().await {
            chunks.push(found.unwrap().len());
        }
        chunks
    });
    assert_eq!(chunks.iter().sum::<usize>(), 50);
    assert!(chunks.iter().all(|keys| *keys <= 21), "{chunks:?}");
}

#[test]
fn a_listing_that_nobody_takes_more_of_counts_until_its_deadline() {
    let world = World::new(&colocated());
    world.put("k", "a", &Clock::new());
    let (untyped, bucket) = (BucketType::default_type(), Bucket::from("bucket"));
    let begin = || world.coordinator.list_keys(&untyped, &bucket, PATIENCE);
    let left: Vec<_> = world.run(async { std::iter::from_fn(|| begin().ok()).collect() });
    assert!(!left.is_empty());
    assert_eq!(
        world.run(async { begin().err() }),
        Some(RequestError::Overload)
    );
    world.run(world.runtime.sleep(PATIENCE + Duration::from_secs(1)));
    assert_eq!(world.run(list_keys(&world, "bucket")).unwrap(), ["k"]);
    drop(left);
    // Each listing is uncounted once.
    let again: Vec<_> = world.run(async { std::iter::from_fn(|| begin().ok()).collect() });
    assert_eq!(again.len(), 16);
}

#[test]
fn keys_that_are_there_throughout_are_listed_amid_writes_and_deletes() {
    let world = World::new(&colocated());
    let stable: Vec<String> = (0..300)
        .map(|number| format!("stable{number:03}"))
        .collect();
    for key in &stable {
        world.put(key, "a", &Clock::new());
    }
    for round in 0..10 {
        let coordinator = world.coordinator.clone();
        let runtime = world.runtime.clone();
        let writer = world.runtime.spawn("writer", async move {
            for number in 0..200 {
                let key = address(&format!("{}{round}", number % 40));
                let (now, none) = (runtime.now(), kvorum_coordinator::Condition::Always);
                let put = request("b", &Clock::new(), none);
                coordinator
                    .put(&key, put, &Default::default(), now)
                    .await
                    .unwrap();
                runtime.yield_now().await;
                let options = Default::default();
                coordinator.delete(&key, None, &options, now).await.unwrap();
                let key = address(&format!("stable{number:03}"));
                let put = request("c", &Clock::new(), kvorum_coordinator::Condition::Always);
                coordinator
                    .put(&key, put, &Default::default(), now)
                    .await
                    .unwrap();
            }
        });
        let listed = world.run(list_keys(&world, "bucket")).unwrap();
        let listed: BTreeSet<String> = sorted_once(listed).into_iter().collect();
        let missing: Vec<_> = stable.iter().filter(|key| !listed.contains(*key)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        world.run(writer).unwrap();
    }
}

#[test]
fn buckets_are_listed_once_and_only_where_something_lives() {
    for setup in [Setup::default(), colocated()] {
        let world = World::new(&setup);
        for key in ["a/1", "a/2", "a/3", "b/1", "c/1", "c/2"] {
            world.put(key, "x", &Clock::new());
        }
        world.delete("b/1");
        world.delete("c/1");
        assert_eq!(world.run(list_buckets(&world)), ["a", "c"]);
    }
}

#[test]
fn listings_are_metered_once() {
    let world = World::new(&Setup::default());
    world.put("k", "a", &Clock::new());
    let finished = || std::mem::take(&mut *world.meter.finished.lock());
    finished();
    world.run(list_keys(&world, "bucket")).unwrap();
    assert_eq!(finished(), [(RequestKind::ListKeys, None)]);
    world.run(list_buckets(&world));
    assert_eq!(finished(), [(RequestKind::ListBuckets, None)]);
    // A client that stops reading in the middle.
    let untyped = BucketType::default_type();
    drop(world.coordinator.list_buckets(&untyped, PATIENCE));
    assert_eq!(finished(), [(RequestKind::ListBuckets, None)]);
    let unknown = BucketType::from("nowhere");
    let refused = world.coordinator.list_buckets(&unknown, PATIENCE);
    assert!(matches!(refused, Err(RequestError::UnknownBucketType)));
    let bucket = Bucket::from("bucket");
    let refused = world.coordinator.list_keys(&unknown, &bucket, PATIENCE);
    assert!(matches!(refused, Err(RequestError::UnknownBucketType)));
    let error = Some(RequestError::UnknownBucketType);
    assert_eq!(
        finished(),
        [
            (RequestKind::ListBuckets, error.clone()),
            (RequestKind::ListKeys, error)
        ]
    );
}

#[test]
fn too_many_listings_are_refused_until_one_ends() {
    let world = World::new(&Setup::default());
    let untyped = BucketType::default_type();
    let begin = || world.coordinator.list_buckets(&untyped, PATIENCE);
    let mut listings: Vec<_> = (0..16).map(|_| begin().map_err(|_| "too early")).collect();
    assert!(listings.iter().all(Result::is_ok));
    assert!(matches!(begin(), Err(RequestError::Overload)));
    listings.pop();
    assert!(begin().is_ok());
}

#[test]
fn a_listing_ends_with_its_patience_or_a_vnode_that_is_away() {
    let world = World::new(&Setup::default());
    let bucket = Bucket::from("bucket");
    let untyped = BucketType::default_type();
    let mut listing = world
        .coordinator
        .list_keys(&untyped, &bucket, Duration::ZERO)
        .unwrap();
    let first = world.run(listing.next());
    assert_eq!(first, Some(Err(RequestError::Timeout)));
    drop(listing);
    let (_, error) = world.meter.finished.lock().pop().unwrap();
    assert_eq!(error, Some(RequestError::Timeout));

    let (partition, ..) = world
        .coordinator
        .state()
        .ring()
        .partitions()
        .next()
        .unwrap();
    world.vnodes.remove(partition);
    let listed = world.run(list_keys(&world, "bucket"));
    assert_eq!(listed, Err(RequestError::VnodeNotReady));
}

#[test]
fn a_listing_asks_another_replica_where_keys_may_be_missing() {
    let world = World::new(&colocated());
    let mut keys: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    for key in &keys {
        world.put(key, "a", &Clock::new());
    }
    keys.sort();
    world.settle();
    let (partition, ..) = world
        .coordinator
        .state()
        .ring()
        .partitions()
        .next()
        .unwrap();
    let harmed = &world.backends[&partition];
    harmed.has_lost_keys.store(true, Ordering::Relaxed);
    // Plans begin at a random place.
    for _ in 0..8 {
        let listed = world.run(list_keys(&world, "bucket")).unwrap();
        assert_eq!(sorted_once(listed), keys);
    }
    for backend in world.backends.values() {
        backend.has_lost_keys.store(true, Ordering::Relaxed);
    }
    let refused = world.run(list_keys(&world, "bucket"));
    assert!(
        matches!(refused, Err(RequestError::Storage(_))),
        "{refused:?}"
    );
}

//! Listings of one vnode: complete, without tombstones, and in parts.

use kvorum_backend::{Flow, FoldClock, FoldEnd, FoldRange, Lease};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey, type_prefix};
use kvorum_object::{Clock, Content};
use kvorum_ring::Epoch;
use kvorum_vnode::{Condition, FoldRequest, Operation, ReplicaFailure};

use crate::{Bench, NOW, content, coordinate};

fn request(range: FoldRange) -> FoldRequest {
    FoldRequest {
        epoch: Epoch::new(3),
        range,
        clock: FoldClock::stopped_at(NOW),
        lease: Lease::Unlimited,
    }
}

fn untyped() -> FoldRange {
    FoldRange::prefix(&type_prefix(&BucketType::default_type()))
}

fn write(bench: &Bench, bucket: &'static str, key: &'static str, content: Content) {
    let bucket = Bucket::from(bucket);
    let key = StorageKey::new(&BucketType::default_type(), &bucket, &Key::from(key));
    let Operation::Coordinate {
        update, durability, ..
    } = coordinate("", content, &Clock::new(), Condition::Always)
    else {
        return;
    };
    bench.done(Operation::Coordinate {
        key,
        update,
        durability,
    });
}

fn names(key: &StorageKey) -> String {
    let address = key.decode().unwrap();
    format!("{}/{}", address.bucket, address.key)
}

#[test]
fn keys_come_in_order_and_in_parts_without_tombstones() {
    let bench = Bench::new();
    for key in ["d", "a", "c", "b", "e"] {
        write(&bench, "x", key, content("1"));
    }
    write(&bench, "x", "bb", Content::tombstone());
    let mut range = untyped();
    let mut listed = Vec::new();
    loop {
        let mut part = Vec::new();
        let end = bench.vnode.fold_keys(&request(range.clone()), &mut |key| {
            part.push(names(key));
            if part.len() < 2 {
                Flow::Continue
            } else {
                Flow::Stop
            }
        });
        listed.push(part.join(" "));
        match end.unwrap() {
            FoldEnd::Stopped(next) => range = range.resumed_at(&next),
            end => {
                assert_eq!(end, FoldEnd::Complete);
                break;
            }
        }
    }
    assert_eq!(listed, ["x/a x/b", "x/c x/d", "x/e"]);
}

#[test]
fn a_bucket_whose_first_key_is_a_tombstone_is_listed() {
    let bench = Bench::new();
    write(&bench, "graves", "a", Content::tombstone());
    write(&bench, "graves", "b", Content::tombstone());
    write(&bench, "living", "a", content("1"));
    write(&bench, "mixed", "a", Content::tombstone());
    write(&bench, "mixed", "b", Content::tombstone());
    write(&bench, "mixed", "c", content("1"));
    let mut listed = Vec::new();
    let end = bench.vnode.fold_buckets(&request(untyped()), &mut |key| {
        listed.push(names(key));
        Flow::Continue
    });
    assert_eq!(end, Ok(FoldEnd::Complete));
    assert_eq!(listed, ["living/a", "mixed/c"]);
}

#[test]
fn a_listing_planned_with_an_older_ring_is_refused() {
    let bench = Bench::new();
    bench.vnode.advance_epoch(Epoch::new(4));
    let end = bench
        .vnode
        .fold_keys(&request(untyped()), &mut |_| Flow::Continue);
    assert!(matches!(end, Err(ReplicaFailure::StaleEpoch { .. })));
}

//! Folds over keys on one vnode: each question, scopes, parts, and refusals.

use std::sync::Arc;

use kvorum_backend::{FoldClock, Lease, Timestamp};
use kvorum_encoding::{Bucket, BucketType, Key, checksum, tree_position};
use kvorum_key_folds::{EntryClass, Findings, FoldKind, FoldScope, KeyFold, KeyNumber, LeafFilter};
use kvorum_object::Clock;
use kvorum_ring::{Epoch, KeyHash, RingSize, position};
use kvorum_vnode::{KeyFoldPart, KeyFoldRequest, PageFailure, ReplicaFailure};

use crate::{Bench, NOW, partition, storage_key};

const LEAVES: u32 = 4096;

fn scope() -> FoldScope {
    FoldScope::bucket(&BucketType::default_type(), &Bucket::from("bucket"))
}

fn request(scope: FoldScope, kind: FoldKind) -> KeyFoldRequest {
    KeyFoldRequest {
        partition: partition(),
        epoch: Epoch::new(3),
        hash: KeyHash::Standard,
        size: RingSize::new(8).unwrap(),
        owners: None,
        fold: Arc::new(KeyFold { scope, kind }),
        from: None,
    }
}

fn part(bench: &Bench, request: &KeyFoldRequest) -> Result<KeyFoldPart, PageFailure> {
    let clock = FoldClock::stopped_at(NOW);
    bench.vnode.key_fold_part(request, &clock, Lease::Unlimited)
}

fn found(bench: &Bench, scope: FoldScope, kind: FoldKind) -> Findings {
    let part = part(bench, &request(scope, kind)).unwrap();
    assert_eq!(part.next, None);
    part.findings
}

fn count(bench: &Bench, scope: FoldScope, class: EntryClass) -> u64 {
    found(bench, scope, FoldKind::Count(class)).count
}

/// `a` to `d` with one sibling each, `c` the largest; `e` with three; `f` a tombstone.
fn filled() -> Bench {
    let bench = Bench::new();
    for key in ["d", "a", "b", "f"] {
        bench.put(key, "small", &Clock::new());
    }
    bench.put("c", &"large".repeat(1_000), &Clock::new());
    for value in ["1", "2", "3"] {
        bench.put("e", value, &Clock::new());
    }
    bench.delete("f");
    bench
}

fn names(keys: impl Iterator<Item = Key>) -> String {
    keys.map(|key| key.to_string()).collect()
}

#[test]
fn statistics_count_every_entry_with_its_size_and_siblings() {
    let stats = found(&filled(), scope(), FoldKind::ObjectStats).stats;
    assert_eq!(stats.count, 6);
    assert!(stats.bytes > 5_000);
    assert_eq!(stats.sizes.get(&3), Some(&1));
    assert_eq!(stats.sizes.values().sum::<u64>(), 6);
    let siblings: Vec<(u64, u64)> = stats.siblings.into_iter().collect();
    assert_eq!(siblings, [(1, 5), (3, 1)]);
}

#[test]
fn keys_stand_out_by_siblings_and_by_size() {
    let bench = filled();
    let siblings = found(&bench, scope(), FoldKind::SiblingsAbove(2)).numbers;
    let expected = KeyNumber {
        key: Key::from("e"),
        number: 3,
    };
    assert_eq!(siblings, [expected]);
    assert!(
        found(&bench, scope(), FoldKind::SiblingsAbove(3))
            .numbers
            .is_empty()
    );
    let large = found(&bench, scope(), FoldKind::SizeAbove(5_000)).numbers;
    assert_eq!(names(large.into_iter().map(|it| it.key)), "c");
}

#[test]
fn keys_come_with_the_clocks_that_reads_return() {
    let bench = filled();
    let graves = found(&bench, scope(), FoldKind::Clocks(EntryClass::Tombstones)).clocks;
    let [grave] = &graves[..] else {
        panic!("{graves:?}");
    };
    let tombstone = bench.get("f").unwrap();
    assert_eq!(grave.key, Key::from("f"));
    assert_eq!(grave.clock, tombstone.clock().encode());
    let living = found(&bench, scope(), FoldKind::Clocks(EntryClass::Living)).clocks;
    assert_eq!(names(living.into_iter().map(|it| it.key)), "abcde");
    let all = found(&bench, scope(), FoldKind::Clocks(EntryClass::Any)).clocks;
    assert_eq!(names(all.into_iter().map(|it| it.key)), "abcdef");
}

#[test]
fn a_scope_is_one_bucket_and_a_range_of_its_keys_and_times() {
    let bench = filled();
    let all = |scope| count(&bench, scope, EntryClass::Any);
    let other = FoldScope::bucket(&BucketType::default_type(), &Bucket::from("bucke"));
    assert_eq!((all(scope()), all(other)), (6, 0));
    let keys = |first: &'static str, last: &'static str| FoldScope {
        keys: Some((Key::from(first), Key::from(last))),
        ..scope()
    };
    assert_eq!(all(keys("b", "d")), 3);
    assert_eq!(all(keys("", "zz")), 6);
    assert_eq!(all(keys("d", "b")), 0);
    let modified = |first, last| FoldScope {
        modified_seconds: Some((first, last)),
        ..scope()
    };
    // Siblings are written in the same microsecond, each stamped a little later than the one before.
    assert_eq!(NOW, Timestamp(1_000_000));
    assert_eq!(all(modified(1, 1)), 6);
    assert_eq!(all(modified(0, 0)), 0);
    assert_eq!(all(modified(2, u64::MAX)), 0);
}

#[test]
fn leaves_narrow_a_scope_to_the_keys_that_fall_into_them() {
    let bench = filled();
    let leaf = |key: &str| tree_position(checksum(storage_key(key).as_bytes())) % LEAVES;
    let in_leaf = FoldScope {
        leaves: LeafFilter::new(LEAVES, vec![leaf("c")]),
        ..scope()
    };
    let found = found(&bench, in_leaf, FoldKind::Clocks(EntryClass::Any)).clocks;
    let names = names(found.into_iter().map(|it| it.key));
    let keys = ["a", "b", "c", "d", "e", "f"];
    let expected: String = keys
        .into_iter()
        .filter(|it| leaf(it) == leaf("c"))
        .collect();
    assert_eq!(names, expected);
}

#[test]
fn trees_show_each_write_and_differ_by_seed() {
    let bench = filled();
    let tree = |bench: &Bench, seed| {
        let leaves = LEAVES;
        found(bench, scope(), FoldKind::Tree { leaves, seed }).leaves
    };
    let before = tree(&bench, None);
    assert!((1..=6).contains(&before.len()));
    assert_eq!(before, tree(&bench, None));
    assert_ne!(before, tree(&bench, Some(1)));
    assert_ne!(tree(&bench, Some(2)), tree(&bench, Some(1)));
    bench.put("a", "changed", &Clock::new());
    let after = tree(&bench, None);
    let is_changed = |leaf: &&u32| before.get(*leaf) != after.get(*leaf);
    assert_eq!(after.keys().filter(is_changed).count(), 1);
}

#[test]
fn a_vnode_answers_for_the_owners_that_it_is_asked_for() {
    let bench = filled();
    let size = RingSize::new(8).unwrap();
    let mut sum = 0;
    for number in 0..8 {
        let owner = size.partition(number).unwrap();
        let asked = KeyFoldRequest {
            owners: Some(vec![owner]),
            ..request(scope(), FoldKind::Clocks(EntryClass::Any))
        };
        let found = part(&bench, &asked).unwrap().findings.clocks;
        for key in found.iter().map(|it| &it.key) {
            let (bucket_type, bucket) = (BucketType::default_type(), Bucket::from("bucket"));
            let place = position(&bucket_type, &bucket, key, KeyHash::Standard);
            assert_eq!(place.owner(size), owner);
        }
        sum += found.len();
    }
    assert_eq!(sum, 6);
}

#[test]
fn a_long_list_comes_in_parts() {
    let bench = Bench::new();
    // Longer keys than a part has room for.
    let long = "k".repeat(2_000);
    for number in 0..700 {
        bench.put(&format!("{long}{number:03}"), "v", &Clock::new());
    }
    let mut asked = request(scope(), FoldKind::Clocks(EntryClass::Any));
    let (mut whole, mut parts) = (Findings::default(), 0);
    loop {
        let part = part(&bench, &asked).unwrap();
        assert!(part.findings.memory_bytes() < 2 << 20);
        whole.merge(part.findings);
        parts += 1;
        asked.from = part.next;
        if asked.from.is_none() {
            break;
        }
    }
    assert_eq!(parts, 2);
    let keys: Vec<Key> = whole.clocks.into_iter().map(|it| it.key).collect();
    let expected = (0..700).map(|number| Key::new(format!("{long}{number:03}").into_bytes()));
    assert_eq!(keys, expected.collect::<Vec<_>>());
}

#[test]
fn a_lease_that_is_over_ends_the_fold() {
    let bench = filled();
    let asked = request(scope(), FoldKind::ObjectStats);
    let clock = FoldClock::stopped_at(NOW);
    let ended = bench.vnode.key_fold_part(&asked, &clock, Lease::Until(NOW));
    assert_eq!(ended, Err(PageFailure::OutOfTime));
}

#[test]
fn a_fold_is_refused_where_a_listing_is() {
    let bench = filled();
    let asked = request(scope(), FoldKind::ObjectStats);
    bench.vnode.mark_incomplete();
    let incomplete = Err(PageFailure::Failed(ReplicaFailure::Incomplete));
    assert_eq!(part(&bench, &asked), incomplete);
    bench.vnode.mark_complete();
    assert!(part(&bench, &asked).is_ok());
    bench.vnode.advance_epoch(Epoch::new(4));
    let stale = part(&bench, &asked);
    let is_stale = matches!(
        stale,
        Err(PageFailure::Failed(ReplicaFailure::StaleEpoch { .. }))
    );
    assert!(is_stale, "{stale:?}");
}

#[test]
fn an_empty_bucket_has_nothing() {
    let bench = Bench::new();
    assert_eq!(
        found(&bench, scope(), FoldKind::ObjectStats),
        Findings::default()
    );
}

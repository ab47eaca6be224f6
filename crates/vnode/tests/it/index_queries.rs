//! Index queries of one vnode, compared with reads of each of its objects.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{FoldClock, Lease};
use kvorum_encoding::{Bucket, BucketType, Key};
use kvorum_object::{Clock, Content, IndexEntry, IndexOrder, Metadata, Object};
use kvorum_ring::{Epoch, KeyHash, RingSize, position};
use kvorum_vnode::{
    Condition, IndexPage, IndexPageRequest, IndexPosition, IndexScan, Operation, PageFailure,
    ReplicaFailure, TermPattern,
};
use proptest::prelude::*;

use crate::{Bench, NOW, coordinate, made_elsewhere, partition, storage_key, store};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const NUMBERS: [&str; 6] = [
    "-12",
    "-1",
    "0",
    "3",
    "007",
    "99999999999999999999999999999999999999999",
];
const WORDS: [&str; 4] = ["", "red", "redder", "x\0y"];

fn entry(field: &'static str, value: &'static str) -> IndexEntry {
    IndexEntry {
        field: field.into(),
        value: value.into(),
    }
}

fn content(value: &str, indexes: Vec<IndexEntry>) -> Content {
    Content {
        metadata: Metadata {
            indexes,
            ..Metadata::default()
        },
        value: Bytes::copy_from_slice(value.as_bytes()),
    }
}

fn put(bench: &Bench, key: &'static str, indexes: Vec<IndexEntry>, context: &Clock) {
    bench.done(coordinate(
        key,
        content("v", indexes),
        context,
        Condition::Always,
    ));
}

fn request(scan: IndexScan) -> IndexPageRequest {
    IndexPageRequest {
        partition: partition(),
        epoch: Epoch::new(3),
        hash: KeyHash::Standard,
        size: RingSize::new(8).unwrap(),
        owners: None,
        bucket_type: BucketType::default_type(),
        bucket: Bucket::from("bucket"),
        scan,
        pattern: None,
        after: None,
        entries_max: 1_000,
    }
}

fn terms(field: &'static str, from: Option<&Bytes>, to: Option<&Bytes>) -> IndexPageRequest {
    let bound = |term: Option<&Bytes>| term.cloned().map_or(Bound::Unbounded, Bound::Included);
    request(IndexScan::Terms {
        field: field.into(),
        from: bound(from),
        to: bound(to),
    })
}

fn page(bench: &Bench, request: &IndexPageRequest) -> Result<IndexPage, PageFailure> {
    let clock = FoldClock::stopped_at(NOW);
    bench.vnode.index_page(request, &clock, Lease::Unlimited)
}

#[test]
fn queries_and_what_writes_did_to_indexes_are_counted() {
    let bench = Bench::new();
    let both = vec![entry("a_bin", "1"), entry("b_bin", "1")];
    put(&bench, "one", both, &Clock::default());
    put(&bench, "two", vec![entry("a_bin", "2")], &Clock::default());
    put(&bench, "none", Vec::new(), &Clock::default());
    // One query of two parts.
    assert_eq!(all_pages(&bench, terms("a_bin", None, None), 1).len(), 2);
    let status = bench.vnode.status();
    let expected = kvorum_backend::IndexCounts {
        writes: 3,
        postings_written: 3,
        ..kvorum_backend::IndexCounts::default()
    };
    assert_eq!((status.index_reads, status.index_counts), (1, expected));
}

fn all_pages(bench: &Bench, mut request: IndexPageRequest, entries_max: u32) -> Vec<IndexPosition> {
    request.entries_max = entries_max;
    let mut found = Vec::new();
    loop {
        let page = page(bench, &request).unwrap();
        assert!(page.entries.len() <= entries_max as usize);
        found.extend(page.entries);
        match page.next {
            Some(next) => request.after = Some(next),
            None => return found,
        }
    }
}

/// The expected content of an index of these objects.
fn expected(
    objects: &[(&'static str, Option<std::sync::Arc<Object>>)],
    field: &str,
) -> BTreeSet<IndexPosition> {
    let mut found = BTreeSet::new();
    for (key, object) in objects {
        let siblings = object.iter().flat_map(|object| object.siblings());
        for entry in siblings.flat_map(|it| &it.metadata.indexes) {
            if entry.field == field {
                let order = IndexOrder::of_field(&entry.field).unwrap();
                let term = order.term_of(&entry.value).unwrap();
                let key = Key::from(*key);
                found.insert(IndexPosition { term, key });
            }
        }
    }
    found
}

#[derive(Clone, Debug)]
enum Act {
    /// The flag is set if the present object has been seen.
    Put(usize, Vec<IndexEntry>, bool),
    /// From another replica.
    Receive(usize, Vec<IndexEntry>),
    Delete(usize),
    Reap(usize),
}

fn indexes() -> impl Strategy<Value = Vec<IndexEntry>> {
    let number = (0..NUMBERS.len()).prop_map(|it| entry("n_int", NUMBERS[it]));
    let word = (0..WORDS.len()).prop_map(|it| entry("w_bin", WORDS[it]));
    proptest::collection::vec(prop_oneof![number, word], 0..4)
}

fn act() -> impl Strategy<Value = Act> {
    let key = 0..KEYS.len();
    prop_oneof![
        6 => (key.clone(), indexes(), any::<bool>()).prop_map(|(key, it, seen)| Act::Put(key, it, seen)),
        2 => (key.clone(), indexes()).prop_map(|(key, it)| Act::Receive(key, it)),
        2 => key.clone().prop_map(Act::Delete),
        1 => key.prop_map(Act::Reap),
    ]
}

fn play(bench: &Bench, number: u64, act: &Act) {
    match act {
        Act::Put(key, indexes, seen) => {
            let key = KEYS[*key];
            let stored = bench.get(key).filter(|_| *seen);
            let context = stored.map_or_else(Clock::new, |it| it.clock().clone());
            put(bench, key, indexes.clone(), &context);
        }
        Act::Receive(key, indexes) => {
            let mut object = made_elsewhere("w", &Clock::new(), number);
            let (clock, siblings) = object.into_parts();
            let metadata = siblings.into_iter().next().unwrap().metadata;
            let content = Content {
                metadata: Metadata {
                    indexes: indexes.clone(),
                    ..metadata
                },
                value: "w".into(),
            };
            object = Object::as_is(clock, content, kvorum_object::Timestamp::ZERO);
            bench.done(store(KEYS[*key], &object));
        }
        Act::Delete(key) => {
            if bench.get(KEYS[*key]).is_some() {
                bench.delete(KEYS[*key]);
            }
        }
        Act::Reap(key) => {
            if let Some(object) = bench.get(KEYS[*key]) {
                let (key, clock) = (storage_key(KEYS[*key]), object.clock().clone());
                bench.done(Operation::Reap { key, clock });
            }
        }
    }
}

fn check(bench: &Bench) {
    let objects = KEYS.map(|key| (key, bench.get(key)));
    for (field, values) in [("n_int", &NUMBERS[..]), ("w_bin", &WORDS[..])] {
        let all: Vec<_> = expected(&objects, field).into_iter().collect();
        for entries_max in [1, 2, 1_000] {
            assert_eq!(all_pages(bench, terms(field, None, None), entries_max), all);
        }
        let order = IndexOrder::of_field(field.as_bytes()).unwrap();
        let term = |value: &&'static str| order.term_of(&Bytes::from(*value)).unwrap();
        for from in values.iter().map(term) {
            for to in values.iter().map(term) {
                let some = all.iter().filter(|it| it.term >= from && it.term <= to);
                let some: Vec<_> = some.cloned().collect();
                let found = all_pages(bench, terms(field, Some(&from), Some(&to)), 2);
                assert_eq!(found, some);
            }
        }
    }
    let living = objects
        .iter()
        .filter(|(_, it)| it.as_ref().is_some_and(|it| !it.is_tombstone()));
    let living: Vec<Key> = living.map(|(key, _)| Key::from(*key)).collect();
    let all = IndexScan::Keys {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
    };
    let found = all_pages(bench, request(all), 2).into_iter();
    assert_eq!(found.map(|it| it.key).collect::<Vec<_>>(), living);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn an_index_is_what_its_objects_say(acts in proptest::collection::vec(act(), 1..12)) {
        let bench = Bench::new();
        for (number, act) in acts.iter().enumerate() {
            play(&bench, number as u64 + 1, act);
            check(&bench);
        }
    }
}

#[test]
fn of_a_key_range_both_ends_are_in_it() {
    let bench = Bench::new();
    for key in KEYS {
        put(&bench, key, Vec::new(), &Clock::new());
    }
    let range = request(IndexScan::Keys {
        from: Bound::Included("b".into()),
        to: Bound::Included("c".into()),
    });
    let keys: Vec<_> = all_pages(&bench, range, 1)
        .into_iter()
        .map(|it| it.key)
        .collect();
    assert_eq!(keys, ["b", "c"].map(Key::from));
}

#[test]
fn patterns_and_owners_choose_among_what_is_looked_at() {
    let bench = Bench::new();
    for (key, word) in KEYS.into_iter().zip(WORDS) {
        put(&bench, key, vec![entry("w_bin", word)], &Clock::new());
    }
    let mut red = terms("w_bin", None, None);
    red.pattern = Some(TermPattern::new("^red").unwrap());
    let found = |request: &IndexPageRequest| -> Vec<Key> {
        let found = all_pages(&bench, request.clone(), 1);
        found.into_iter().map(|it| it.key).collect()
    };
    assert_eq!(found(&red), ["b", "c"].map(Key::from));
    let untyped = BucketType::default_type();
    let owner = |key: &Key| {
        position(&untyped, &Bucket::from("bucket"), key, KeyHash::Standard).owner(red.size)
    };
    for key in ["b", "c"].map(Key::from) {
        let mut of_owner = red.clone();
        of_owner.owners = Some(vec![owner(&key)]);
        assert!(found(&of_owner).contains(&key));
        assert!(found(&of_owner).iter().all(|it| owner(it) == owner(&key)));
    }
    let mut keys = request(IndexScan::Keys {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
    });
    keys.pattern = Some(TermPattern::new("[ad]").unwrap());
    assert_eq!(found(&keys), ["a", "d"].map(Key::from));
}

#[test]
fn a_store_without_indexes_keeps_objects_and_says_so_when_asked() {
    let bench = Bench::new();
    bench.backend.is_plain.store(true, Ordering::Relaxed);
    put(&bench, "a", vec![entry("w_bin", "red")], &Clock::new());
    let refused = page(&bench, &terms("w_bin", None, None));
    let engine = ReplicaFailure::IndexesNotSupported("memory".into());
    assert_eq!(refused, Err(PageFailure::Failed(engine)));
}

#[test]
fn a_query_planned_with_an_older_ring_is_refused() {
    let bench = Bench::new();
    bench.vnode.advance_epoch(Epoch::new(4));
    let refused = page(&bench, &terms("w_bin", None, None));
    assert!(matches!(
        refused,
        Err(PageFailure::Failed(ReplicaFailure::StaleEpoch { .. }))
    ));
}

#[test]
fn a_page_that_may_lack_entries_is_refused_as_damaged() {
    let bench = Bench::new();
    put(&bench, "a", vec![entry("w_bin", "red")], &Clock::new());
    let keys = request(IndexScan::Keys {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
    });
    for request in [terms("w_bin", None, None), keys] {
        bench.backend.has_lost_keys.store(false, Ordering::Relaxed);
        assert_eq!(page(&bench, &request).unwrap().entries.len(), 1);
        bench.backend.has_lost_keys.store(true, Ordering::Relaxed);
        let refused = page(&bench, &request);
        assert!(matches!(
            refused,
            Err(PageFailure::Failed(ReplicaFailure::Damaged(_)))
        ));
    }
}

//! Index queries, against a model of the stored objects: every form, in one piece and in pages.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use kvorum_coordinator::{
    Condition, Continuation, Coordinator, IndexMatch, IndexOptions, IndexQuery, IndexSelection,
    IndexValues, PutKind, PutOptions, PutRequest, RequestError, RequestKind,
};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_object::{Clock, Content, IndexEntry, Metadata};
use kvorum_properties::PropertyOverlay;
use kvorum_runtime::{Randomness as _, SeededRandomness};

use crate::cluster::{Cluster, ClusterNode};
use crate::world::{Setup, World, address, colocated, siblings};

/// Values of `n_int` and `w_bin` by key.
type Model = BTreeMap<String, (BTreeSet<i64>, BTreeSet<String>)>;

pub(crate) fn content(numbers: &BTreeSet<i64>, words: &BTreeSet<String>) -> Content {
    let entry = |field: &'static str, value: String| IndexEntry {
        field: field.into(),
        value: value.into(),
    };
    let numbers = numbers.iter().map(|it| entry("n_int", it.to_string()));
    let words = words.iter().map(|it| entry("w_bin", it.clone()));
    Content {
        metadata: Metadata {
            indexes: numbers.chain(words).collect(),
            ..Metadata::default()
        },
        value: Bytes::from_static(b"value"),
    }
}

pub(crate) fn put_of(content: Content, context: &Clock) -> PutRequest {
    PutRequest {
        context: context.clone(),
        condition: Condition::Always,
        content,
        kind: PutKind::Versioned,
    }
}

fn query(field: &str, values: &IndexValues, options: IndexOptions) -> IndexQuery {
    IndexQuery {
        bucket_type: BucketType::default_type(),
        bucket: Bucket::from("bucket"),
        selection: IndexSelection::new(field.as_bytes(), values).unwrap(),
        options,
    }
}

async fn results(
    coordinator: &Arc<Coordinator>,
    query: IndexQuery,
) -> Result<(Vec<IndexMatch>, Option<Continuation>), RequestError> {
    let mut results = coordinator.query_index(query)?;
    let mut found = Vec::new();
    while let Some(chunk) = results.next().await {
        let chunk = chunk?;
        assert!(!chunk.is_empty() && chunk.len() <= 1_000);
        found.extend(chunk);
    }
    Ok((found, results.continuation()))
}

fn pairs(found: Vec<IndexMatch>) -> Vec<(String, String)> {
    let pair = |it: IndexMatch| {
        let value = String::from_utf8(it.value.to_vec()).unwrap();
        (value, it.key.to_string())
    };
    found.into_iter().map(pair).collect()
}

fn range(from: impl ToString + Copy, to: impl ToString + Copy) -> IndexValues {
    IndexValues::Range(from.to_string().into(), to.to_string().into())
}

/// All entries, in order, page by page.
pub(crate) async fn paged(
    coordinator: &Arc<Coordinator>,
    field: &str,
    values: &IndexValues,
    page: u32,
) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let options = IndexOptions {
            results_max: NonZeroU32::new(page),
            after: after.take(),
            ..IndexOptions::default()
        };
        let (found, next) = results(coordinator, query(field, values, options))
            .await
            .unwrap();
        assert_eq!(next.is_some(), found.len() == page as usize);
        all.extend(pairs(found));
        match next {
            Some(next) => after = Some(Continuation::parse(next.to_text().as_bytes()).unwrap()),
            None => return all,
        }
    }
}

/// Compares every form of a query with its expected result, in order.
async fn check_query(
    coordinator: &Arc<Coordinator>,
    field: &str,
    values: &IndexValues,
    expected: &[(String, String)],
) {
    let ask = |options| results(coordinator, query(field, values, options));
    let (found, next) = ask(IndexOptions::default()).await.unwrap();
    let mut found = pairs(found);
    found.sort();
    let mut any_order = expected.to_vec();
    any_order.sort();
    assert_eq!(found, any_order, "{field} {values:?}");
    assert_eq!(next, None);
    let sorted = IndexOptions {
        is_sorted: true,
        ..IndexOptions::default()
    };
    let (found, next) = ask(sorted).await.unwrap();
    assert_eq!(pairs(found), expected, "{field} {values:?}");
    assert_eq!(next, None);
    for page in [1, 3, 1_000] {
        let found = paged(coordinator, field, values, page).await;
        assert_eq!(found, expected, "{field} {values:?} by {page}");
    }
}

async fn check(coordinator: &Arc<Coordinator>, model: &Model) {
    let numbers: BTreeSet<(i64, &String)> = model
        .iter()
        .flat_map(|(key, (numbers, _))| numbers.iter().map(move |it| (*it, key)))
        .collect();
    for (from, to) in [(-5, 5), (-100, 100), (2, 2), (0, -1), (-3, 0)] {
        let some = numbers.iter().filter(|it| it.0 >= from && it.0 <= to);
        let some: Vec<_> = some.map(|it| (it.0.to_string(), it.1.clone())).collect();
        check_query(coordinator, "n_int", &range(from, to), &some).await;
    }
    let equal = IndexValues::Equal("2".into());
    let some = numbers.iter().filter(|it| it.0 == 2);
    let some: Vec<_> = some.map(|it| (it.0.to_string(), it.1.clone())).collect();
    check_query(coordinator, "n_int", &equal, &some).await;
    let words: BTreeSet<(String, String)> = model
        .iter()
        .flat_map(|(key, (_, words))| words.iter().map(move |it| (it.clone(), key.clone())))
        .collect();
    for (from, to) in [("a", "zzz"), ("b", "bz")] {
        let some = words.iter().filter(|it| *it.0 >= *from && *it.0 <= *to);
        let some: Vec<_> = some.cloned().collect();
        check_query(coordinator, "w_bin", &range(from, to), &some).await;
    }
    let keys = model.keys().map(|key| (String::new(), key.clone()));
    let keys: Vec<_> = keys.collect();
    check_query(
        coordinator,
        "$bucket",
        &IndexValues::Equal("_".into()),
        &keys,
    )
    .await;
    let some = keys.iter().filter(|it| *it.1 >= *"k1" && *it.1 <= *"k3");
    let some: Vec<_> = some.cloned().collect();
    check_query(coordinator, "$key", &range("k1", "k3"), &some).await;
}

struct Random(SeededRandomness);

impl Random {
    fn below(&self, end: u8) -> u8 {
        u8::try_from(self.0.next_u64() % u64::from(end)).unwrap()
    }

    fn sets(&self) -> (BTreeSet<i64>, BTreeSet<String>) {
        let numbers = (0..self.below(3)).map(|_| i64::from(self.below(11)) - 5);
        let words = (0..self.below(3)).map(|_| {
            let letter = char::from(b'a' + self.below(4));
            letter.to_string().repeat(1 + usize::from(self.below(2)))
        });
        (numbers.collect(), words.collect())
    }
}

#[test]
fn a_query_finds_what_is_stored_once_whatever_the_copies() {
    for (n_val, seed) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
        let world = World::new(&colocated());
        let properties = PropertyOverlay {
            n_val: Some(n_val),
            ..siblings()
        };
        world.set_bucket("bucket", properties);
        let random = Random(SeededRandomness::new(seed));
        let mut model = Model::new();
        for step in 0..90 {
            let key = format!("k{}", random.below(40));
            match random.below(6) {
                0 => {
                    if model.remove(&key).is_some() {
                        world.delete(&key);
                    }
                }
                seen => {
                    let (numbers, words) = random.sets();
                    let stored = world.get(&key).filter(|_| seen > 1);
                    let context = stored.map_or_else(Clock::new, |it| it.clock().clone());
                    let put = put_of(content(&numbers, &words), &context);
                    world.try_put(&key, put, &PutOptions::default()).unwrap();
                    let entry = model.entry(key).or_default();
                    if seen > 1 {
                        // The object is replaced.
                        *entry = (numbers, words);
                    } else {
                        // It gets a sibling: the entries of all siblings count.
                        entry.0.extend(numbers);
                        entry.1.extend(words);
                    }
                }
            }
            if step % 30 == 29 {
                world.settle();
                world.run(check(&world.coordinator, &model));
            }
        }
    }
}

#[test]
fn a_query_of_many_entries_is_read_in_parts() {
    let world = World::new(&colocated());
    let numbers = |number: i64| content(&BTreeSet::from([number / 7]), &BTreeSet::new());
    let mut expected = Vec::new();
    for number in 0..9_000 {
        let key = format!("{number:05}");
        let put = put_of(numbers(number), &Clock::new());
        world.try_put(&key, put, &PutOptions::default()).unwrap();
        expected.push(((number / 7).to_string(), key));
    }
    world.settle();
    let all = range(0, 9_000);
    world.run(check_query_of_many(&world.coordinator, &all, &expected));
}

async fn check_query_of_many(
    coordinator: &Arc<Coordinator>,
    all: &IndexValues,
    expected: &[(String, String)],
) {
    for is_sorted in [false, true] {
        let options = IndexOptions {
            is_sorted,
            ..IndexOptions::default()
        };
        let (found, _) = results(coordinator, query("n_int", all, options))
            .await
            .unwrap();
        let mut found = pairs(found);
        if !is_sorted {
            found.sort_by_key(|it| it.1.clone());
        }
        assert!(found == expected, "sorted {is_sorted}");
    }
    assert!(paged(coordinator, "n_int", all, 1_700).await == expected);
}

#[test]
fn patterns_select_among_terms_and_keys() {
    let world = World::new(&colocated());
    for (key, word) in [("k1", "red"), ("k2", "blue"), ("k3", "dark red")] {
        let words = BTreeSet::from([word.to_owned()]);
        let put = put_of(content(&BTreeSet::new(), &words), &Clock::new());
        world.try_put(key, put, &PutOptions::default()).unwrap();
    }
    let found = |field: &str, values: IndexValues, pattern: &'static str| {
        let mut asked = query(field, &values, IndexOptions::default());
        let pattern = asked.selection.pattern(&pattern.into()).unwrap();
        asked.options.pattern = Some(pattern);
        asked.options.is_sorted = true;
        let (found, _) = world.run(results(&world.coordinator, asked)).unwrap();
        let keys = pairs(found).into_iter().map(|it| it.1);
        keys.collect::<Vec<_>>()
    };
    assert_eq!(found("w_bin", range("a", "z"), "red$"), ["k3", "k1"]);
    assert_eq!(found("w_bin", range("a", "c"), "red$"), [""; 0]);
    assert_eq!(found("$key", range("k1", "k3"), "[12]"), ["k1", "k2"]);
    assert_eq!(*world.meter.index_results.lock(), [2, 0, 2]);
}

#[test]
fn queries_are_metered_bounded_in_time_and_refused_where_there_is_no_index() {
    let world = World::new(&Setup::default());
    let ask = |options| {
        let asked = query("n_int", &IndexValues::Equal("1".into()), options);
        world.run(results(&world.coordinator, asked)).map(drop)
    };
    let finished = || std::mem::take(&mut *world.meter.finished.lock());
    assert_eq!(ask(IndexOptions::default()), Ok(()));
    assert_eq!(finished(), [(RequestKind::IndexQuery, None)]);
    assert_eq!(*world.meter.index_results.lock(), [0]);
    assert!(*world.meter.parts_read.lock() > 0);
    let no_time = IndexOptions {
        timeout: Some(Duration::ZERO),
        ..IndexOptions::default()
    };
    assert_eq!(ask(no_time), Err(RequestError::Timeout));
    let failed = (RequestKind::IndexQuery, Some(RequestError::Timeout));
    assert_eq!(finished(), [failed]);
    for backend in world.backends.values() {
        backend.is_plain.store(true, Ordering::Relaxed);
    }
    let refused = ask(IndexOptions::default()).unwrap_err();
    assert_eq!(refused, RequestError::IndexesNotSupported("memory".into()));
    assert_eq!(
        refused.to_string(),
        "{error,{indexes_not_supported,memory}}"
    );
    let mut unknown = query(
        "$bucket",
        &IndexValues::Equal("_".into()),
        IndexOptions::default(),
    );
    unknown.bucket_type = BucketType::from("nowhere");
    let refused = world.run(results(&world.coordinator, unknown));
    assert_eq!(refused.map(drop), Err(RequestError::UnknownBucketType));
}

fn put_on(cluster: &Cluster, node: &ClusterNode, number: i64) {
    let numbers = content(&BTreeSet::from([number]), &BTreeSet::new());
    let coordinator: &Coordinator = &node.coordinator;
    let (key, now) = (format!("k{number:03}"), coordinator.runtime().now());
    let options = PutOptions::default();
    let put = put_of(numbers, &Clock::new());
    let address = address(&key);
    cluster
        .run(coordinator.put(&address, put, &options, now))
        .unwrap();
}

#[test]
fn any_node_of_several_answers_even_with_one_down() {
    let cluster = Cluster::new(&crate::cluster::Setup {
        nodes: 5,
        owners: 5,
        ..crate::cluster::Setup::default()
    });
    let expected: Vec<_> = (0..200)
        .map(|it| (it.to_string(), format!("k{it:03}")))
        .collect();
    for number in 0..200 {
        put_on(&cluster, cluster.node(1), number);
    }
    cluster.settle();
    let check = |at: u8| {
        let all = range(-7, 200);
        let coordinator = &cluster.node(at).coordinator;
        cluster.run(check_query(coordinator, "n_int", &all, &expected));
    };
    (1..=5).for_each(check);
    cluster.cut_off(3, true);
    check(1);
    check(5);
}

/// Regression: a vnode that had lost index entries to damage answered with the rest, and a query
/// that used it missed some.
#[test]
fn a_query_asks_another_replica_where_entries_may_be_missing() {
    let world = World::new(&colocated());
    let mut model = Model::new();
    for number in 0..60 {
        let (numbers, words) = (BTreeSet::from([number % 5]), BTreeSet::new());
        let key = format!("k{number}");
        let put = put_of(content(&numbers, &words), &Clock::new());
        world.try_put(&key, put, &PutOptions::default()).unwrap();
        model.insert(key, (numbers, words));
    }
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
        world.run(check(&world.coordinator, &model));
    }
    for backend in world.backends.values() {
        backend.has_lost_keys.store(true, Ordering::Relaxed);
    }
    for field in ["n_int", "$key"] {
        let everything = query(field, &range(0, 9), IndexOptions::default());
        let refused = world.run(results(&world.coordinator, everything));
        assert!(
            matches!(refused, Err(RequestError::Storage(_))),
            "{refused:?}"
        );
    }
}

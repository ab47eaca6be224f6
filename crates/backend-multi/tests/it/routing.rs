//! Buckets spread over children, and routes that change under data: all answers are those of one
//! store with this history, and no write is ever hidden.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, ErrorKind, Fields, Flow, FoldDetail, FoldEnd, FoldFilter,
    FoldRange, IndexEntry, IndexRange, Lease, Lookup, ReadAt, StepBudget, Timestamp, Write,
};
use kvorum_backend_multi::{ChildNumber, DrawNumber, MultiBackend, RouteTable, Routes};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey, bucket_prefix};
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::children::{self, Engine};

const NOW: Timestamp = Timestamp(5);
const BUCKETS: [&str; 4] = ["a", "b", "b\0c", "d"];
const KEYS: [&str; 4] = ["", "k", "k\0", "z"];
const TERMS: [&str; 3] = ["", "m", "x"];
const FIELD: &[u8] = b"f_bin";

const THREE: &[(&str, Engine)] = &[
    ("bc", Engine::Bitcask),
    ("ldb", Engine::Leveldb),
    ("mem", Engine::Memory),
];
const TWO: &[(&str, Engine)] = &[("bc", Engine::Bitcask), ("ldb", Engine::Leveldb)];

/// Routes that a test changes.
#[derive(Default)]
struct Switched(Mutex<(u64, Arc<RouteTable>)>);

impl Routes for Switched {
    fn version(&self) -> u64 {
        self.0.lock().0
    }

    fn table(&self) -> (u64, Arc<RouteTable>) {
        self.0.lock().clone()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put {
        bucket: usize,
        key: usize,
        terms: Vec<usize>,
        body_bytes: usize,
    },
    Remove {
        bucket: usize,
        key: usize,
    },
    Route {
        bucket: usize,
        child: ChildNumber,
    },
    /// Everything is compared, folds in parts of this many keys.
    Look {
        part: usize,
    },
    Maintain,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let (bucket, key) = (0..BUCKETS.len(), 0..KEYS.len());
    let terms = prop::collection::vec(0..TERMS.len(), 0..3);
    prop_oneof![
        8 => (bucket.clone(), key.clone(), terms, prop::sample::select(vec![0, 40, 900]))
            .prop_map(|(bucket, key, terms, body_bytes)| Step::Put { bucket, key, terms, body_bytes }),
        2 => (bucket.clone(), key).prop_map(|(bucket, key)| Step::Remove { bucket, key }),
        2 => (bucket, 0..3_usize).prop_map(|(bucket, child)| Step::Route { bucket, child }),
        2 => (1..6_usize).prop_map(|part| Step::Look { part }),
        1 => Just(Step::Maintain),
        1 => Just(Step::Reopen),
    ]
}

/// The value of a key.
#[derive(Clone, Debug)]
struct Value {
    body: Bytes,
    terms: Vec<usize>,
    /// The child that it was put to.
    child: ChildNumber,
}

struct Trial {
    disk: Arc<dyn Disk>,
    children: &'static [(&'static str, Engine)],
    routes: Arc<Switched>,
    draw: DrawNumber,
    store: Option<MultiBackend>,
    model: BTreeMap<StorageKey, Value>,
    children_of: BTreeMap<usize, ChildNumber>,
    puts: u8,
}

fn bucket(number: usize) -> Bucket {
    Bucket::from(BUCKETS[number])
}

fn prefix(number: usize) -> Bytes {
    bucket_prefix(&BucketType::default_type(), &bucket(number)).into()
}

fn key(in_bucket: usize, number: usize) -> StorageKey {
    let (of_type, key) = (BucketType::default_type(), Key::from(KEYS[number]));
    StorageKey::new(&of_type, &bucket(in_bucket), &key)
}

impl Trial {
    fn new(children: &'static [(&'static str, Engine)]) -> Self {
        let next = Mutex::new(0);
        let draw: DrawNumber = Arc::new(move || {
            let mut next = next.lock();
            *next += 1;
            *next
        });
        let mut trial = Self {
            disk: Arc::new(MemoryDisk::new()),
            children,
            routes: Arc::default(),
            draw,
            store: None,
            model: BTreeMap::new(),
            children_of: BTreeMap::new(),
            puts: 0,
        };
        trial.reopen();
        trial
    }

    fn reopen(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().unwrap();
        }
        let routes = self.routes.clone();
        let opened = children::open(
            &self.disk,
            Path::new("s"),
            self.children,
            routes,
            &self.draw,
        );
        self.store = Some(opened.unwrap());
    }

    fn store(&self) -> &MultiBackend {
        self.store.as_ref().unwrap()
    }

    fn child_of(&self, bucket: usize) -> ChildNumber {
        self.children_of.get(&bucket).copied().unwrap_or(0)
    }

    fn has_indexes(&self, child: ChildNumber) -> bool {
        self.children[child].1 != Engine::Bitcask
    }

    fn play(&mut self, step: &Step) {
        match step {
            Step::Put {
                bucket,
                key,
                terms,
                body_bytes,
            } => self.put(*bucket, *key, terms, *body_bytes),
            Step::Remove {
                bucket,
                key: number,
            } => {
                let key = key(*bucket, *number);
                let batch = Batch::of(Write::remove(key.clone()));
                drop(self.store().put(&batch, Durability::Buffered).unwrap());
                self.model.remove(&key);
            }
            Step::Route { bucket, child } => self.route(*bucket, child % self.children.len()),
            Step::Look { part } => self.look(*part),
            Step::Maintain => self.maintain(),
            // Entries in memory would be lost, which other tests are about.
            Step::Reopen if self.children.len() == TWO.len() => self.reopen(),
            Step::Reopen => {}
        }
    }

    fn put(&mut self, bucket: usize, number: usize, terms: &[usize], body_bytes: usize) {
        self.puts = self.puts.wrapping_add(1);
        let (key, body) = (
            key(bucket, number),
            Bytes::from(vec![self.puts; body_bytes]),
        );
        let mut terms = terms.to_vec();
        terms.sort_unstable();
        terms.dedup();
        let entries = terms.iter().map(|term| IndexEntry {
            field: Bytes::from_static(FIELD),
            term: Bytes::from_static(TERMS[*term].as_bytes()),
        });
        let mut write = Write::put(key.clone(), Fields::default(), Bytes::new(), body.clone());
        if let Write::Put { index_entries, .. } = &mut write {
            *index_entries = entries.collect();
        }
        let receipt = self.store().put(&Batch::of(write), Durability::Grouped);
        receipt.unwrap().wait().unwrap();
        let child = self.child_of(bucket);
        self.model.insert(key, Value { body, terms, child });
    }

    fn route(&mut self, of_bucket: usize, child: ChildNumber) {
        self.children_of.insert(of_bucket, child);
        let mut table = RouteTable::to(0);
        for (number, child) in &self.children_of {
            table.route_bucket(&BucketType::default_type(), &bucket(*number), *child);
        }
        let mut routes = self.routes.0.lock();
        *routes = (routes.0 + 1, Arc::new(table));
    }

    fn maintain(&self) {
        let budget = StepBudget { bytes: 1 << 20 };
        for _ in 0..200 {
            let Some(task) = self.store().maintenance_due(NOW).into_iter().next() else {
                return;
            };
            self.store().maintenance_step(&task, budget, NOW).unwrap();
        }
    }

    fn look(&self, part: usize) {
        self.look_at_keys();
        let all: Vec<_> = self
            .model
            .iter()
            .map(|(key, it)| (key.clone(), it.body.clone()))
            .collect();
        assert_eq!(self.folded(&FoldRange::all(), part), all);
        let mut buckets = Vec::new();
        for number in 0..BUCKETS.len() {
            let start = prefix(number);
            let of_bucket: Vec<_> = all
                .iter()
                .filter(|(key, _)| key.as_bytes().starts_with(&start))
                .cloned()
                .collect();
            assert_eq!(self.folded(&FoldRange::prefix(&start), part), of_bucket);
            if !of_bucket.is_empty() {
                buckets.push(start);
            }
            self.look_at_index(number, part);
        }
        buckets.sort();
        assert_eq!(self.listed(part), buckets);
        assert_eq!(self.store().is_empty(NOW).unwrap(), all.is_empty());
        assert_eq!(self.store().status().keys, all.len() as u64);
    }

    fn look_at_keys(&self) {
        for bucket in 0..BUCKETS.len() {
            for number in 0..KEYS.len() {
                let key = key(bucket, number);
                let wanted = self.model.get(&key).map(|it| it.body.clone());
                let at = ReadAt::may_block(NOW);
                let body = match self.store().get(&key, at).unwrap() {
                    Lookup::Found(entry) => Some(entry.body),
                    _ => None,
                };
                assert_eq!(body, wanted, "{key:?}");
                let head = match self.store().head(&key, at).unwrap() {
                    Lookup::Found(head) => Some(head.body_len),
                    _ => None,
                };
                assert_eq!(head, wanted.map(|it| it.len() as u64), "{key:?}");
            }
        }
    }

    fn folded(&self, range: &FoldRange, part: usize) -> Vec<(StorageKey, Bytes)> {
        let snapshot = self.store().snapshot(Lease::Unlimited).unwrap();
        let (mut seen, mut rest) = (Vec::new(), range.clone());
        loop {
            let mut count = 0;
            let filter = FoldFilter::unexpired(NOW);
            let end = snapshot.fold(FoldDetail::Entries, &rest, &filter, &mut |visited| {
                seen.push((visited.key.clone(), visited.body.clone()));
                count += 1;
                stop_at(count == part)
            });
            match end.unwrap() {
                FoldEnd::Complete => return seen,
                FoldEnd::Stopped(at) => rest = rest.resumed_at(&at),
                FoldEnd::LeaseExpired(_) => panic!("the lease has no end"),
            }
        }
    }

    fn listed(&self, part: usize) -> Vec<Bytes> {
        let snapshot = self.store().snapshot(Lease::Unlimited).unwrap();
        let (mut seen, mut rest) = (Vec::new(), FoldRange::all());
        loop {
            let mut count = 0;
            let filter = FoldFilter::unexpired(NOW);
            let end = snapshot.fold_buckets(&rest, &filter, &mut |visited| {
                let len = visited.key.bucket_prefix_len().unwrap();
                seen.push(visited.key.to_bytes().slice(..len));
                count += 1;
                stop_at(count == part)
            });
            match end.unwrap() {
                FoldEnd::Complete => return seen,
                FoldEnd::Stopped(at) => rest = rest.resumed_at(&at),
                FoldEnd::LeaseExpired(_) => panic!("the lease has no end"),
            }
        }
    }

    fn look_at_index(&self, bucket: usize, part: usize) {
        let (start, own) = (prefix(bucket), self.child_of(bucket));
        let values = self
            .model
            .iter()
            .filter(|(key, _)| key.as_bytes().starts_with(&start));
        let values: Vec<_> = values.collect();
        let indexes = self.store().indexes_of(&start);
        assert_eq!(indexes.is_some(), self.has_indexes(own));
        let Some(indexes) = indexes else {
            return;
        };
        let mut range = IndexRange {
            bucket_prefix: start,
            field: Bytes::from_static(FIELD),
            from: std::ops::Bound::Unbounded,
            to: std::ops::Bound::Unbounded,
            after: None,
        };
        let is_short = values.iter().any(|(_, it)| !self.has_indexes(it.child));
        let mut seen = Vec::new();
        loop {
            let mut count = 0;
            let end = indexes.fold_index(&range, Lease::Unlimited, NOW, &mut |term, key| {
                seen.push((term.clone(), key.clone()));
                count += 1;
                stop_at(count == part)
            });
            match end {
                Ok(FoldEnd::Complete) => break,
                Ok(_) => range.after = seen.last().cloned(),
                Err(error) => {
                    assert!(is_short && error.kind() == ErrorKind::Unread, "{error}");
                    return;
                }
            }
        }
        assert!(!is_short, "a query was short of what keeps no entries");
        let terms = values.iter().flat_map(|(key, it)| {
            let terms = it.terms.iter();
            terms.map(|term| (Bytes::from_static(TERMS[*term].as_bytes()), (*key).clone()))
        });
        let mut wanted: Vec<_> = terms.collect();
        wanted.sort();
        assert_eq!(seen, wanted);
    }
}

fn stop_at(is_end: bool) -> Flow {
    match is_end {
        true => Flow::Stop,
        false => Flow::Continue,
    }
}

fn check(children: &'static [(&'static str, Engine)], steps: &[Step]) {
    let mut trial = Trial::new(children);
    steps.iter().for_each(|step| trial.play(step));
    trial.look(3);
    trial.maintain();
    trial.look(2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn three_engines_answer_as_one_store(steps in prop::collection::vec(step(), 1..40)) {
        check(THREE, &steps);
    }

    #[test]
    fn what_was_written_stays_in_sight_over_restarts(steps in prop::collection::vec(step(), 1..40)) {
        check(TWO, &steps);
    }
}

/// A write takes its key out of its former child: the entry must not come back when the new one
/// expires or goes.
#[test]
fn what_a_write_replaced_in_another_child_does_not_come_back() {
    let mut trial = Trial::new(TWO);
    trial.put(0, 1, &[], 10);
    trial.route(0, 1);
    trial.put(0, 1, &[], 20);
    let keys: Vec<u64> = trial
        .store()
        .children()
        .iter()
        .map(|it| it.store.status().keys)
        .collect();
    assert_eq!(keys, [0, 1]);
    trial.play(&Step::Remove { bucket: 0, key: 1 });
    trial.look(1);
}

/// A read that began with the routes before a change read from the child with the key, while a
/// write moved it from there to the child of the new route.
#[test]
fn a_read_misses_no_key_that_a_change_of_routes_and_a_write_move() {
    const ROUNDS: usize = 300;
    let mut trial = Trial::new(TWO);
    trial.put(0, 1, &[], 10);
    trial.maintain();
    let (store, key, at) = (trial.store(), key(0, 1), ReadAt::may_block(NOW));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut is_always_found = true;
            while !is_over.load(Ordering::Acquire) {
                is_always_found &= matches!(store.get(&key, at), Ok(Lookup::Found(_)));
            }
            is_always_found
        });
        for round in 0..ROUNDS {
            let mut table = RouteTable::to(0);
            table.route_bucket(&BucketType::default_type(), &bucket(0), round % 2);
            *trial.routes.0.lock() = (1 + round as u64, Arc::new(table));
            let write = Write::put(key.clone(), Fields::default(), Bytes::new(), Bytes::new());
            let put = store.put(&Batch::of(write), Durability::Buffered);
            trial.maintain();
            if put.is_err() || reader.is_finished() {
                break;
            }
        }
        is_over.store(true, Ordering::Release);
        assert!(reader.join().is_ok_and(|it| it));
    });
}

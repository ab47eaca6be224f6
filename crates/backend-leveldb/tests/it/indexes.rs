//! Secondary indexes: entries are added and removed only with their object.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, ErrorKind, Fields, Flow, FoldEnd, IndexEntry, IndexRange, Lease,
    OldEntry, Reading, Timestamp, Write,
};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings};
use kvorum_disk::{Fault, FaultyDisk, MemoryDisk, Rule};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey, bucket_prefix};

use crate::engine::{shared, small_settings};

pub(crate) fn open(disk: &MemoryDisk, settings: &LeveldbSettings) -> Leveldb {
    open_at(disk, "store", settings)
}

pub(crate) fn open_at(disk: &MemoryDisk, at: &str, settings: &LeveldbSettings) -> Leveldb {
    let (disk, draw) = (Arc::new(disk.clone()), Arc::new(|| 7));
    Leveldb::open(disk, Path::new(at), settings, shared(), draw, None).unwrap()
}

pub(crate) fn key(name: &str) -> StorageKey {
    let bucket_type = BucketType::default_type();
    let bucket = Bucket::new(b"people".to_vec());
    StorageKey::new(&bucket_type, &bucket, &Key::new(name.as_bytes().to_vec()))
}

fn entry(term: &str) -> IndexEntry {
    IndexEntry {
        field: Bytes::from_static(b"city_bin"),
        term: Bytes::copy_from_slice(term.as_bytes()),
    }
}

pub(crate) fn put(store: &Leveldb, name: &str, fields: Fields, index_entries: Vec<IndexEntry>) {
    let batch = Batch::of(Write::Put {
        key: key(name),
        fields,
        head: Bytes::from_static(b"head"),
        body: Bytes::from_static(b"body"),
        index_entries,
        old: OldEntry::UNKNOWN,
    });
    let _receipt = store.put(&batch, Durability::Buffered).unwrap();
}

pub(crate) fn terms(terms: &[&str]) -> Vec<IndexEntry> {
    terms.iter().map(|it| entry(it)).collect()
}

pub(crate) fn range(from: Option<&str>, to: Option<&str>) -> IndexRange {
    let bound = |term: Option<&str>| {
        let owned = term.map(|it| Bytes::copy_from_slice(it.as_bytes()));
        owned.map_or(Bound::Unbounded, Bound::Included)
    };
    let bucket = Bucket::new(b"people".to_vec());
    IndexRange {
        bucket_prefix: bucket_prefix(&BucketType::default_type(), &bucket).into(),
        field: Bytes::from_static(b"city_bin"),
        from: bound(from),
        to: bound(to),
        after: None,
    }
}

fn folded(store: &Leveldb, range: &IndexRange, now: u64) -> Vec<(String, StorageKey)> {
    let mut seen = Vec::new();
    let indexes = store.indexes().unwrap();
    let end = indexes.fold_index(range, Lease::Unlimited, Timestamp(now), &mut |term, key| {
        seen.push((String::from_utf8_lossy(term).into_owned(), key.clone()));
        Flow::Continue
    });
    assert_eq!(end.unwrap(), FoldEnd::Complete);
    seen
}

pub(crate) fn do_all(store: &Leveldb, now: u64) {
    for _ in 0..30 {
        for task in store.maintenance_due(Timestamp(now)) {
            let budget = kvorum_backend::StepBudget { bytes: u64::MAX };
            store
                .maintenance_step(&task, budget, Timestamp(now))
                .unwrap();
        }
    }
}

pub(crate) fn lasting(last_modified: u64) -> Fields {
    Fields {
        last_modified: Timestamp(last_modified),
        ..Fields::default()
    }
}

#[test]
fn a_fold_is_in_order_of_terms_and_keys_and_goes_on_where_it_stopped() {
    let store = open(&MemoryDisk::new(), &small_settings(0));
    for number in 0..60 {
        let term = ["berlin", "aachen", "cottbus"][number % 3];
        put(&store, &format!("{number:02}"), lasting(1), terms(&[term]));
    }
    do_all(&store, 1);
    let all = folded(&store, &range(None, None), 1);
    assert_eq!(all.len(), 60);
    assert!(all.is_sorted());
    let some = folded(&store, &range(Some("b"), Some("berlin")), 1);
    assert_eq!(some.len(), 20);
    let mut resumed: Vec<(String, StorageKey)> = Vec::new();
    let mut rest = range(None, None);
    loop {
        let mut page = Vec::new();
        let indexes = store.indexes().unwrap();
        let end = indexes.fold_index(&rest, Lease::Unlimited, Timestamp(1), &mut |term, key| {
            page.push((term.clone(), key.clone()));
            if page.len() == 7 {
                Flow::Stop
            } else {
                Flow::Continue
            }
        });
        rest.after = page.last().cloned();
        let text = |term: &Bytes| String::from_utf8_lossy(term).into_owned();
        resumed.extend(page.iter().map(|(term, key)| (text(term), key.clone())));
        if end.unwrap() == FoldEnd::Complete {
            break;
        }
    }
    assert_eq!(resumed, all);
}

#[test]
fn an_object_that_comes_to_expire_takes_all_its_entries_with_it() {
    for settings in [
        small_settings(0),
        LeveldbSettings {
            expiry: Some(Duration::from_micros(1_000_000)),
            ..small_settings(1)
        },
    ] {
        let store = open(&MemoryDisk::new(), &settings);
        put(&store, "ann", lasting(10), terms(&["aachen", "berlin"]));
        put(&store, "bob", lasting(10), terms(&["berlin"]));
        let expiring = Fields {
            expiry: Some(Timestamp(100)),
            ..lasting(20)
        };
        put(&store, "ann", expiring, terms(&["aachen", "berlin"]));
        assert_eq!(folded(&store, &range(None, None), 99).len(), 3);
        assert_eq!(folded(&store, &range(None, None), 100).len(), 1);
        (0..80).for_each(|it| put(&store, &format!("filler {it}"), lasting(50), Vec::new()));
        do_all(&store, 100);
        // A collected entry does not come back with a later object of the same name.
        put(&store, "ann", lasting(110), terms(&["cottbus"]));
        let left: BTreeSet<String> = folded(&store, &range(None, None), 120)
            .into_iter()
            .filter(|it| it.1 == key("ann"))
            .map(|it| it.0)
            .collect();
        assert_eq!(left, BTreeSet::from(["cottbus".to_owned()]));
    }
}

/// The replaced object has the list of entries to remove, and may not be in memory.
#[test]
fn a_put_that_must_not_wait_is_refused_where_its_old_entries_are_not_in_memory() {
    let memory = MemoryDisk::new();
    let store = open(&memory, &small_settings(0));
    put(&store, "a", Fields::default(), terms(&["Oslo"]));
    store.close().unwrap();
    drop(store);
    let disk = FaultyDisk::over_memory(&memory);
    let (below, at) = (Arc::new(disk.clone()), Path::new("store"));
    let draw = Arc::new(|| 7);
    let store = Leveldb::open(below, at, &small_settings(0), shared(), draw, None).unwrap();
    disk.add_rule(Rule::new(Fault::NotCached));
    let moved = |reading| {
        let place = None;
        let write = Write::Put {
            key: key("a"),
            fields: Fields::default(),
            head: Bytes::from_static(b"head"),
            body: Bytes::from_static(b"body"),
            index_entries: terms(&["Rome"]),
            old: OldEntry { place, reading },
        };
        let put = store.put(&Batch::of(write), Durability::Buffered);
        put.map_err(|error| error.kind()).map(drop)
    };
    assert_eq!(moved(Reading::CachedOnly), Err(ErrorKind::WouldBlock));
    let all = range(None, None);
    assert_eq!(folded(&store, &all, 0), [("Oslo".to_owned(), key("a"))]);
    assert_eq!(moved(Reading::MayBlock), Ok(()));
    assert_eq!(folded(&store, &all, 0), [("Rome".to_owned(), key("a"))]);
}

#[test]
fn removing_an_object_removes_its_entries() {
    let disk = MemoryDisk::new();
    let store = open(&disk, &small_settings(0));
    put(&store, "ann", lasting(1), terms(&["aachen", "berlin"]));
    store.close().unwrap();
    drop(store);
    let store = open(&disk, &small_settings(0));
    let batch = Batch::of(Write::remove(key("ann")));
    let _receipt = store.put(&batch, Durability::Buffered).unwrap();
    assert_eq!(folded(&store, &range(None, None), 1), []);
}

#[test]
fn entries_age_with_their_object_and_are_young_again_with_it() {
    let settings = LeveldbSettings {
        expiry: Some(Duration::from_micros(100)),
        ..small_settings(0)
    };
    let store = open(&MemoryDisk::new(), &settings);
    put(&store, "ann", lasting(1_000), terms(&["aachen"]));
    put(&store, "ann", lasting(1_090), terms(&["aachen"]));
    assert_eq!(folded(&store, &range(None, None), 1_150).len(), 1);
    assert_eq!(folded(&store, &range(None, None), 1_190).len(), 0);
}

//! A store is opened with its former children, or refused with the names of missing ones.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, ErrorKind, Fields, Lookup, ReadAt, Sequence, Timestamp, Write,
};
use kvorum_backend_multi::{DrawNumber, FixedRoutes, MultiBackend, RouteTable};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use parking_lot::Mutex;

use crate::children::{self, Engine};

const BOTH: [(&str, Engine); 2] = [("bc", Engine::Bitcask), ("ldb", Engine::Leveldb)];
const AT: ReadAt = ReadAt {
    reading: kvorum_backend::Reading::MayBlock,
    now: Timestamp(1),
};

fn draw() -> DrawNumber {
    let next = Mutex::new(100);
    Arc::new(move || {
        let mut next = next.lock();
        *next += 1;
        *next
    })
}

/// Routes bucket `b` to the second child, all others to the first one.
fn routes() -> Arc<FixedRoutes> {
    let mut table = RouteTable::to(0);
    table.route_bucket(&BucketType::default_type(), &Bucket::from("b"), 1);
    Arc::new(FixedRoutes::new(table))
}

fn open(
    disk: &Arc<dyn Disk>,
    children: &[(&str, Engine)],
    draw: &DrawNumber,
) -> kvorum_backend::Result<MultiBackend> {
    children::open(disk, Path::new("s"), children, routes(), draw)
}

fn key(bucket: &'static str, key: &'static str) -> StorageKey {
    StorageKey::new(
        &BucketType::default_type(),
        &Bucket::from(bucket),
        &Key::from(key),
    )
}

fn put(store: &dyn Backend, key: StorageKey) {
    let write = Write::put(key, Fields::default(), Bytes::new(), Bytes::from("body"));
    let receipt = store.put(&Batch::of(write), Durability::Grouped);
    receipt.unwrap().wait().unwrap();
}

fn has(store: &dyn Backend, key: &StorageKey) -> bool {
    matches!(store.get(key, AT).unwrap(), Lookup::Found(_))
}

#[test]
fn each_bucket_is_in_its_child_over_a_restart() {
    let (disk, draw) = (MemoryDisk::new(), draw());
    let seam: Arc<dyn Disk> = Arc::new(disk);
    let store = open(&seam, &BOTH, &draw).unwrap();
    put(&store, key("a", "1"));
    put(&store, key("b", "1"));
    put(&store, key("b", "2"));
    let keys: Vec<u64> = store
        .children()
        .iter()
        .map(|it| it.store.status().keys)
        .collect();
    assert_eq!(keys, [1, 2]);
    assert_eq!(store.status().keys, 3);
    let identity = store.identity();
    store.close().unwrap();
    let closed_at = store.durable();
    drop(store);
    let store = open(&seam, &BOTH, &draw).unwrap();
    assert_eq!((store.identity(), store.durable()), (identity, closed_at));
    assert!(has(&store, &key("a", "1")) && has(&store, &key("b", "2")));
}

/// A node with an additional backend in its configuration has the same stores.
#[test]
fn a_child_may_be_added_and_not_left_out_while_its_files_are_there() {
    let (disk, draw) = (MemoryDisk::new(), draw());
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let one = open(&seam, &BOTH[..1], &draw);
    let identity = one.map(|it| it.identity()).unwrap();
    let two = open(&seam, &BOTH, &draw).unwrap();
    assert_eq!(two.identity(), identity);
    drop(two);
    let refused = open(&seam, &BOTH[..1], &draw).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    let message = refused.to_string();
    assert!(
        message.contains("multi_backend.ldb.storage_backend = leveldb"),
        "{message}"
    );
    let other_engine = [BOTH[0], ("ldb", Engine::Memory)];
    assert_eq!(
        open(&seam, &other_engine, &draw).err().unwrap().kind(),
        ErrorKind::Denied
    );
    disk.remove_directory(Path::new("s/ldb")).unwrap();
    assert_eq!(open(&seam, &BOTH[..1], &draw).unwrap().identity(), identity);
}

#[test]
fn a_child_that_is_gone_or_another_store_is_refused_by_name() {
    let (disk, draw) = (MemoryDisk::new(), draw());
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = open(&seam, &BOTH, &draw).unwrap();
    put(&store, key("b", "1"));
    store.close().unwrap();
    drop(store);
    disk.remove_directory(Path::new("s/ldb")).unwrap();
    let refused = open(&seam, &BOTH, &draw).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("backend ldb"), "{refused}");
}

/// The entries of a child in memory are lost at a stop, so a run must not begin at the sequence at
/// which the one before ended.
#[test]
fn with_a_child_in_memory_no_run_begins_where_the_one_before_ended() {
    let children = [("bc", Engine::Bitcask), ("m", Engine::Memory)];
    let (seam, draw): (Arc<dyn Disk>, _) = (Arc::new(MemoryDisk::new()), draw());
    let mut closed_at = Sequence(0);
    for run in 0..3 {
        let store = open(&seam, &children, &draw).unwrap();
        assert!(store.durable() > closed_at, "run {run}");
        put(&store, key("a", "1"));
        if run == 1 {
            put(&store, key("b", "1"));
        }
        store.close().unwrap();
        closed_at = store.durable();
    }
}

#[test]
fn an_erasure_gives_a_new_identity_and_leaves_nothing() {
    let (seam, draw): (Arc<dyn Disk>, _) = (Arc::new(MemoryDisk::new()), draw());
    let store = open(&seam, &BOTH, &draw).unwrap();
    put(&store, key("a", "1"));
    put(&store, key("b", "1"));
    let before = store.identity();
    store.erase().unwrap();
    let after = store.identity();
    assert_ne!(before, after);
    assert!(store.is_empty(Timestamp(1)).unwrap());
    drop(store);
    let store = open(&seam, &BOTH, &draw).unwrap();
    assert_eq!(store.identity(), after);
    assert!(store.is_empty(Timestamp(1)).unwrap());
}

#[test]
fn a_batch_over_two_children_is_refused_and_an_empty_one_is_behind_all() {
    let (seam, draw): (Arc<dyn Disk>, _) = (Arc::new(MemoryDisk::new()), draw());
    let store = open(&seam, &BOTH, &draw).unwrap();
    let write = |key| Write::put(key, Fields::default(), Bytes::new(), Bytes::new());
    let both = Batch {
        writes: vec![write(key("a", "1")), write(key("b", "1"))],
    };
    let refused = store.put(&both, Durability::Grouped).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Misuse);
    assert!(refused.to_string().contains("bc and ldb"), "{refused}");
    assert!(store.is_empty(Timestamp(1)).unwrap());
    for bucket in ["a", "b"] {
        let batch = Batch::of(write(key(bucket, "1")));
        drop(store.put(&batch, Durability::Buffered).unwrap());
    }
    let receipt = store.put(&Batch::default(), Durability::Grouped).unwrap();
    receipt.wait().unwrap();
    for child in store.children() {
        assert_eq!(child.store.durable(), child.store.sync().unwrap());
        assert!(child.store.durable() >= Sequence(1), "{}", child.name);
    }
}

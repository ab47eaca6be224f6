//! Reads of the store's own files by a request: a head without its body, a bucket without other
//! buckets.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease,
    Lookup, StepBudget, Task, TaskKind, Visited, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, Compression};
use kvorum_disk::{FaultyDisk, MemoryDisk, Operation};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey, bucket_prefix};

use crate::store::{NOW, at, key, open, write};

/// Bytes read since the last call, by file.
fn read_of_each(disk: &FaultyDisk) -> BTreeMap<String, usize> {
    let mut read: BTreeMap<String, usize> = BTreeMap::new();
    let log = disk.log().into_iter();
    for it in log.filter(|it| it.operation == Operation::Read) {
        let name = it.path.file_name().unwrap_or_default().to_string_lossy();
        *read.entry(name.into_owned()).or_default() += it.bytes;
    }
    disk.clear_log();
    read
}

fn bytes_read(disk: &FaultyDisk) -> usize {
    read_of_each(disk).values().sum()
}

/// Digits without order, each many times, so that they compress to a fraction of their length.
fn digits(count: usize) -> Bytes {
    let mut state = 7_u64;
    let mut digit = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        b'0' + u8::try_from(state >> 60).unwrap() % 10
    };
    (0..count / 16).flat_map(|_| [digit(); 16]).collect()
}

#[test]
fn a_head_is_read_without_reading_its_body() {
    const BODY: usize = 1 << 20;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(3)] {
        let (memory, body) = (MemoryDisk::new(), digits(BODY));
        let settings = BitcaskSettings {
            compression,
            ..BitcaskSettings::default()
        };
        let store = open(&memory, settings.clone());
        let head = Bytes::from_static(b"the head");
        let put = Write::put(key("k"), Fields::default(), head.clone(), body.clone());
        write(&store, put);
        store.close().unwrap();
        drop(store);
        let disk = FaultyDisk::over_memory(&memory);
        let store = open(&disk, settings);
        assert!(store.capabilities().cheap_heads);
        bytes_read(&disk);
        let Lookup::Found(found) = store.head(&key("k"), at(NOW)).unwrap() else {
            unreachable!("no head");
        };
        assert_eq!((found.head, found.body_len), (head, BODY as u64));
        let of_head = bytes_read(&disk);
        let Lookup::Found(found) = store.get(&key("k"), at(NOW)).unwrap() else {
            unreachable!("no entry");
        };
        assert_eq!(found.body, body);
        let of_entry = bytes_read(&disk);
        let is_packed = compression != Compression::None;
        assert_eq!(of_entry < BODY / 2, is_packed, "{of_entry}");
        assert!((1..512).contains(&of_head), "{of_head}, {compression:?}");
        assert!(of_head * 40 < of_entry, "{of_head} of {of_entry}");
    }
}

const BUCKETS: usize = 50;
const KEYS: usize = 400;

fn bucket(number: usize) -> Bucket {
    Bucket::from(format!("bucket {number:02}").into_bytes())
}

fn key_in(bucket_number: usize, number: usize) -> StorageKey {
    let key = Key::from(format!("a key of some length {number:05}").into_bytes());
    StorageKey::new(&BucketType::default_type(), &bucket(bucket_number), &key)
}

/// Puts keys of every bucket in turn, so that each file has keys of all, and every file but the
/// active one has a hint.
fn fill(store: &Bitcask) {
    for number in 0..KEYS {
        let puts = (0..BUCKETS).map(|of| {
            let body = Bytes::from(vec![b'v'; 100]);
            Write::put(key_in(of, number), Fields::default(), Bytes::new(), body)
        });
        let batch = Batch {
            writes: puts.collect(),
        };
        let receipt = store.put(&batch, Durability::Grouped).unwrap();
        receipt.wait().unwrap();
    }
    let is_hint = |task: &Task| task.kind == TaskKind::Hint;
    while let Some(task) = store.maintenance_due(NOW).into_iter().find(is_hint) {
        let budget = StepBudget { bytes: 1 << 20 };
        let _outcome = store.maintenance_step(&task, budget, NOW).unwrap();
    }
}

fn folded(store: &Bitcask, range: &FoldRange) -> Vec<StorageKey> {
    let snapshot = store.snapshot(Lease::Unlimited).unwrap();
    let mut keys = Vec::new();
    let visit = &mut |visited: Visited<'_>| {
        keys.push(visited.key.clone());
        Flow::Continue
    };
    let filter = FoldFilter::unexpired(NOW);
    let end = snapshot.fold(FoldDetail::Keys, range, &filter, visit);
    assert_eq!(end.unwrap(), FoldEnd::Complete);
    keys
}

/// The fold reads the bucket's blocks of each hint, and the active file, which has no hint yet.
#[test]
fn a_fold_of_a_bucket_reads_a_small_part_of_what_all_buckets_take() {
    let memory = MemoryDisk::new();
    let settings = BitcaskSettings {
        file_bytes_max: 1 << 20,
        ..BitcaskSettings::default()
    };
    let store = open(&memory, settings.clone());
    fill(&store);
    store.close().unwrap();
    drop(store);
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, settings);
    let of_hints = |read: BTreeMap<String, usize>| -> (usize, usize) {
        let hints = read.iter().filter(|(name, _)| name.ends_with(".hint"));
        let bytes = hints.clone().map(|(_, bytes)| bytes).sum();
        (hints.count(), bytes)
    };
    read_of_each(&disk);
    assert_eq!(folded(&store, &FoldRange::all()).len(), BUCKETS * KEYS);
    let (files, of_all) = of_hints(read_of_each(&disk));
    let prefix = bucket_prefix(&BucketType::default_type(), &bucket(17));
    let found = folded(&store, &FoldRange::prefix(&prefix));
    let expected: Vec<_> = (0..KEYS).map(|number| key_in(17, number)).collect();
    assert!(found == expected, "{}", found.len());
    let read = read_of_each(&disk);
    let segments = read.keys().filter(|name| name.ends_with(".segment"));
    assert_eq!(segments.count(), 1, "{read:?}");
    let (_, of_bucket) = of_hints(read);
    assert!(files > 2, "{files}");
    assert!(of_bucket * 8 < of_all, "{of_bucket} of {of_all}");
}

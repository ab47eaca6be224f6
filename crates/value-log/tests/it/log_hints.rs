//! Bitcask over the value log: the bytes that folds and heads read with log hints, without them,
//! and with damaged ones.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, Fields, Flow, FoldClock, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease,
    Lookup, ReadAt, Reading, Snapshot, StepBudget, TaskKind, Timestamp, Visited, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, SyncStrategy};
use kvorum_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation};
use kvorum_encoding::{Bucket, BucketType, Key, SegmentFilter, StorageKey, bucket_prefix};
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::tenants::{Opened, tenants_of};

const NOW: Timestamp = Timestamp(1_000_000);
const ALL: StepBudget = StepBudget { bytes: u64::MAX };
const RECORDS_MIN: usize = 500;
const BLOCK_BYTES: usize = 8 << 10;

struct Node {
    disk: FaultyDisk,
    log: ValueLog,
    store: Opened,
}

/// Reads since the last count.
#[derive(Debug, Default)]
struct Read {
    /// Reads of segments of the log.
    fronts: usize,
    /// Bytes read of the store's own segments.
    own_bytes: usize,
    /// Reads of log hints, and their bytes.
    blocks: usize,
    block_bytes: usize,
}

impl Node {
    fn open(memory: &MemoryDisk) -> Self {
        let disk = FaultyDisk::over_memory(memory);
        let below: Arc<dyn Disk> = Arc::new(disk.clone());
        let log_settings = ValueLogSettings {
            segment_bytes: 64 << 10,
            garbage_percent_max: 30,
        };
        let log = ValueLog::open(below.clone(), Path::new("log"), 7, log_settings);
        let log = log.unwrap().0;
        let settings = BitcaskSettings {
            sync: SyncStrategy::Grouped,
            log_hint_records_min: RECORDS_MIN as u64,
            log_hints_merged: 4,
            ..BitcaskSettings::default()
        };
        let (drawn, shared) = (AtomicU64::new(42), log.clone());
        let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let store = Bitcask::open(below, Path::new("store"), settings, draw, Some(shared));
        let store: Opened = store.unwrap().into();
        log.admit(&tenants_of(std::slice::from_ref(&store)))
            .unwrap();
        disk.clear_log();
        Self { disk, log, store }
    }

    fn put(&self, writes: Vec<Write>) {
        let put = self.store.put(&Batch { writes }, Durability::Buffered);
        let _buffered = put.unwrap();
    }

    /// Puts this many keys in mixed order, with due upkeep now and then.
    fn fill(&self, count: usize) {
        for number in 0..count {
            // Each key once: the factor has no divisor in common with the counts of the tests.
            self.put(vec![put(number * 7919 % count, count, number)]);
            if number % 300 == 0 {
                self.upkeep();
            }
        }
        self.upkeep();
    }

    fn upkeep(&self) {
        self.store.sync().unwrap();
        loop {
            let due = self.store.maintenance_due(NOW);
            let Some(task) = due.into_iter().find(|it| it.kind != TaskKind::Scrub) else {
                break;
            };
            self.store.maintenance_step(&task, ALL, NOW).unwrap();
        }
        while self.log.is_upkeep_due() {
            self.log.upkeep_step(ALL).unwrap();
        }
    }

    fn detail(&self, name: &str) -> usize {
        let details = self.store.status().details;
        let found = details.iter().find(|(known, _)| *known == name);
        found.unwrap().1.parse().unwrap()
    }

    /// A part of a listing, on a snapshot of its own, and the beginning of the next part.
    fn part(&self, range: &FoldRange, keys_max: usize) -> (Vec<StorageKey>, Option<StorageKey>) {
        let snapshot = self.store.snapshot(Lease::Unlimited).unwrap();
        let filter = FoldFilter::unexpired(NOW);
        let mut keys = Vec::new();
        let visit = &mut |visited: Visited<'_>| {
            keys.push(visited.key.clone());
            match keys.len() < keys_max {
                true => Flow::Continue,
                false => Flow::Stop,
            }
        };
        match snapshot.fold(FoldDetail::Keys, range, &filter, visit) {
            Ok(FoldEnd::Complete) => (keys, None),
            Ok(FoldEnd::Stopped(next)) => (keys, Some(next)),
            end => panic!("{end:?}"),
        }
    }

    fn all_in_parts(&self, keys_max: usize) -> (Vec<StorageKey>, usize) {
        let (mut all, mut parts) = (Vec::new(), 0);
        let mut range = FoldRange::all();
        loop {
            let (keys, next) = self.part(&range, keys_max);
            all.extend(keys);
            parts += 1;
            match next {
                Some(next) => range = range.resumed_at(&next),
                None => return (all, parts),
            }
        }
    }

    fn read(&self) -> Read {
        let mut read = Read::default();
        for it in self.disk.log() {
            let extension = it.path.extension().unwrap_or_default();
            match it.operation {
                Operation::Read if extension == "segment" && it.path.starts_with("store") => {
                    read.own_bytes += it.bytes;
                }
                Operation::Read if extension == "segment" => read.fronts += 1,
                Operation::Read if extension == "loghint" => {
                    read.blocks += 1;
                    read.block_bytes += it.bytes;
                }
                _ => {}
            }
        }
        self.disk.clear_log();
        read
    }

    fn log_hint_paths(&self) -> Vec<PathBuf> {
        let names = self.disk.list(Path::new("store")).unwrap().into_iter();
        let names = names.filter(|it| it.name.ends_with(".loghint"));
        names.map(|it| Path::new("store").join(it.name)).collect()
    }
}

fn bucket(number: usize) -> Bucket {
    Bucket::from(format!("bucket {number:02}").into_bytes())
}

/// The key of this number among this many, in twenty buckets, ascending.
fn key(number: usize, count: usize) -> StorageKey {
    let key = Key::from(format!("a key of some length {number:07}").into_bytes());
    let bucket = bucket(number * 20 / count);
    StorageKey::new(&BucketType::default_type(), &bucket, &key)
}

fn put(number: usize, count: usize, value: usize) -> Write {
    let fields = Fields {
        last_modified: NOW,
        ..Fields::default()
    };
    let body = Bytes::from(format!("{value:0100}"));
    Write::put(key(number, count), fields, Bytes::new(), body)
}

fn keys(count: usize) -> Vec<StorageKey> {
    (0..count).map(|number| key(number, count)).collect()
}

/// Regression: every part of a listing read the front of every record of the partition, so a
/// listing took quadratic time in the number of its parts.
#[test]
fn a_listing_in_parts_reads_a_few_blocks_for_each_and_never_all_fronts() {
    const COUNT: usize = 12_000;
    let node = Node::open(&MemoryDisk::new());
    node.fill(COUNT);
    let (hints, unhinted) = (node.detail("log_hints"), node.detail("unhinted_records"));
    assert!((1..=12).contains(&hints), "{hints}");
    assert!(unhinted < RECORDS_MIN, "{unhinted}");
    node.read();
    let (all, parts) = node.all_in_parts(400);
    assert!(all == keys(COUNT) && parts >= 30);
    let read = node.read();
    assert!(read.fronts <= parts * unhinted, "{read:?}");
    // Each part begins within a block of each hint, and may reach into the next one.
    let len: u64 = {
        let paths = node.log_hint_paths().into_iter();
        let infos = paths.map(|path| node.disk.info(&path).unwrap().unwrap().len);
        infos.sum()
    };
    let blocks = usize::try_from(len).unwrap() / BLOCK_BYTES + hints;
    assert!(read.blocks <= blocks + parts * hints, "{read:?}, {blocks}");
}

#[test]
fn a_fold_of_a_bucket_reads_what_is_said_of_that_bucket() {
    const COUNT: usize = 12_000;
    let node = Node::open(&MemoryDisk::new());
    node.fill(COUNT);
    let (hints, unhinted) = (node.detail("log_hints"), node.detail("unhinted_records"));
    node.read();
    let prefix = bucket_prefix(&BucketType::default_type(), &bucket(7));
    let (found, next) = node.part(&FoldRange::prefix(&prefix), usize::MAX);
    assert!(found == keys(COUNT)[7 * 600..8 * 600] && next.is_none());
    let read = node.read();
    assert!(read.fronts <= unhinted, "{read:?}");
    // 600 entries of less than 60 bytes, and the neighbours in their blocks.
    let bytes_max = 600 * 60 + hints * 2 * (BLOCK_BYTES + 100);
    assert!(read.block_bytes <= bytes_max, "{read:?}");
    assert!(
        read.blocks <= hints * 2 + 600 * 60 / BLOCK_BYTES,
        "{read:?}"
    );
}

/// Regression: anti-entropy folds over a few segments at a time, and each fold read every block.
/// The entry that supersedes a key may be in a block without a key of these segments.
#[test]
fn a_fold_over_a_few_anti_entropy_segments_reads_few_blocks_and_shows_what_there_is() {
    const COUNT: usize = 12_000;
    let segment_of = |number: usize| u32::try_from(number * 5 % 1_000_003).unwrap();
    let put_in = |number: usize, segment: u32, value: usize| {
        let fields = Fields {
            segment,
            ..Fields::default()
        };
        let body = Bytes::from(format!("{value:0100}"));
        Write::put(key(number, COUNT), fields, Bytes::new(), body)
    };
    let node = Node::open(&MemoryDisk::new());
    for number in 0..COUNT {
        let mixed = number * 7919 % COUNT;
        node.put(vec![put_in(mixed, segment_of(mixed), number)]);
        if number % 300 == 0 {
            node.upkeep();
        }
    }
    node.upkeep();
    let before = node.store.snapshot(Lease::Unlimited).unwrap();
    let wanted: Vec<usize> = (0..4).map(|number| number * 3_000 + 77).collect();
    for (at, number) in (0..).zip(&wanted) {
        node.put(vec![match at {
            0 => Write::remove(key(*number, COUNT)),
            1 => put_in(*number, 999_999, 1),
            2 => put_in(*number, segment_of(*number), 2),
            _ => continue,
        }]);
    }
    let moved = 3;
    node.put(vec![put_in(moved, segment_of(wanted[3]), 3)]);
    // A log hint of its own for the last entries.
    for number in (0..2 * RECORDS_MIN).map(|it| it * 2 + 1_000_000) {
        node.put(vec![put_in(number, 500_000, 4)]);
    }
    node.upkeep();
    let filter = FoldFilter {
        segments: Some(SegmentFilter::Segments(
            wanted.iter().map(|number| segment_of(*number)).collect(),
        )),
        ..FoldFilter::unexpired(NOW)
    };
    let folded = |snapshot: &dyn Snapshot| {
        node.read();
        let mut found = Vec::new();
        let visit = &mut |visited: Visited<'_>| {
            found.push(visited.key.clone());
            Flow::Continue
        };
        let all = FoldRange::all();
        let end = snapshot.fold(FoldDetail::Keys, &all, &filter, visit);
        assert_eq!(end, Ok(FoldEnd::Complete));
        (found, node.read())
    };
    let kept = (0..).zip(&wanted).filter(|(at, _)| *at > 1);
    let kept = std::iter::once(moved).chain(kept.map(|(_, number)| *number));
    let now = node.store.snapshot(Lease::Unlimited).unwrap();
    let (found, read) = folded(&*now);
    assert!(found.into_iter().eq(kept.map(|it| key(it, COUNT))));
    let paths = node.log_hint_paths().into_iter();
    let lens = paths.map(|path| node.disk.info(&path).unwrap().unwrap().len);
    let len = usize::try_from(lens.sum::<u64>()).unwrap();
    assert!(read.block_bytes < len / 3, "{read:?} of {len}");
    let (found, _) = folded(&*before);
    assert!(
        found
            .into_iter()
            .eq(wanted.iter().map(|it| key(*it, COUNT)))
    );
}

/// Regression: collected entries are copied to a segment of the store, which has no hint until it
/// is full, so each part of a listing read all of it.
#[test]
fn a_listing_in_parts_reads_a_few_blocks_of_what_was_copied_out_of_the_log() {
    const COUNT: usize = 6_000;
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    node.fill(COUNT);
    // Each time a part of each segment becomes garbage, and the rest is copied.
    for round in 0..5 {
        for number in (0..COUNT).filter(|number| number % 8 == round) {
            node.put(vec![put(number, COUNT, round)]);
        }
        node.upkeep();
    }
    let segment_bytes = |node: &Node| -> usize {
        let names = node.disk.list(Path::new("store")).unwrap().into_iter();
        let segments = names.filter(|it| it.name.ends_with(".segment"));
        let paths = segments.map(|it| Path::new("store").join(it.name));
        let lens = paths.map(|path| node.disk.info(&path).unwrap().unwrap().len);
        usize::try_from(lens.sum::<u64>()).unwrap()
    };
    let bytes = segment_bytes(&node);
    assert!(bytes > 2 * RECORDS_MIN * 250, "{bytes}");
    assert_eq!(node.detail("segments"), 1);
    let check = |node: &Node| {
        node.read();
        let (all, parts) = node.all_in_parts(400);
        assert!(all == keys(COUNT));
        let read = node.read();
        assert!(read.own_bytes < parts * RECORDS_MIN * 250, "{read:?}");
        assert!(read.fronts < parts * RECORDS_MIN, "{read:?}");
    };
    check(&node);
    node.store.close().unwrap();
    drop(node);
    check(&Node::open(&memory));
}

#[test]
fn log_hints_outlive_a_restart_and_what_came_behind_them_is_found() {
    const COUNT: usize = 3_000;
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    node.fill(COUNT);
    for number in (0..COUNT).step_by(3) {
        node.put(vec![Write::remove(key(number, COUNT))]);
    }
    node.put(vec![put(1, COUNT, 77_777)]);
    node.store.close().unwrap();
    node.log.stop();
    drop(node);
    let node = Node::open(&memory);
    assert!(node.detail("log_hints") > 0);
    let (found, _) = node.all_in_parts(500);
    let mut expected = keys(COUNT);
    let mut number = 0..;
    expected.retain(|_| number.next().is_none_or(|it: usize| !it.is_multiple_of(3)));
    assert!(found == expected);
    assert!(node.read().fronts < 8 * COUNT / 2);
    node.upkeep();
    node.read();
    assert!(node.all_in_parts(500).0 == expected);
    let read = node.read();
    assert!(read.fronts <= 5 * RECORDS_MIN, "{read:?}");
}

/// Snapshots taken before keys changed show the old state, also with log hints written since.
#[test]
fn a_snapshot_sees_its_moment_while_log_hints_are_written_and_merged() {
    const COUNT: usize = 2_000;
    let node = Node::open(&MemoryDisk::new());
    node.fill(COUNT);
    let snapshot = node.store.snapshot(Lease::Unlimited).unwrap();
    for round in 0..3 {
        for number in 0..COUNT {
            match (number + round) % 4 {
                0 => node.put(vec![Write::remove(key(number, COUNT))]),
                _ => node.put(vec![put(number, COUNT, 1_000_000 + number)]),
            }
        }
        node.upkeep();
    }
    let filter = FoldFilter::unexpired(NOW);
    let mut seen = Vec::new();
    let visit = &mut |visited: Visited<'_>| {
        let body: usize = std::str::from_utf8(&visited.body).unwrap().parse().unwrap();
        seen.push((visited.key.clone(), body));
        Flow::Continue
    };
    let all = FoldRange::all();
    let end = snapshot.fold(FoldDetail::Entries, &all, &filter, visit);
    assert_eq!(end, Ok(FoldEnd::Complete));
    assert_eq!(seen.len(), COUNT);
    assert!(seen.iter().all(|(_, body)| *body < COUNT));
    assert!(seen.into_iter().map(|(key, _)| key).eq(keys(COUNT)));
}

/// A damaged log hint gives no wrong answer, and costs reads until it is rewritten.
#[test]
fn a_damaged_log_hint_costs_reads_and_is_written_again() {
    const COUNT: usize = 3_000;
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    node.fill(COUNT);
    let paths = node.log_hint_paths();
    assert!(!paths.is_empty());
    for (at, path) in (0..).zip(&paths) {
        let file = memory.open(path, OpenMode::ReadWrite).unwrap();
        // In a block, some way in.
        let offset = file.len().unwrap() / (2 + at % 2);
        file.write_at(&[0xa5; 3], offset).unwrap();
    }
    assert!(node.all_in_parts(usize::MAX).0 == keys(COUNT));
    assert!(node.all_in_parts(700).0 == keys(COUNT));
    node.upkeep();
    let now = node.log_hint_paths();
    assert!(!now.is_empty() && paths.iter().all(|path| !now.contains(path)));
    node.read();
    assert!(node.all_in_parts(usize::MAX).0 == keys(COUNT));
    let read = node.read();
    assert!(read.fronts < RECORDS_MIN, "{read:?}");
    assert_eq!(node.store.status().lost, Vec::new());
}

#[test]
fn corruption_in_a_log_hint_is_found_by_scrubbing_and_mended() {
    const COUNT: usize = 2_000;
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    node.fill(COUNT);
    let damaged = node.log_hint_paths().remove(0);
    let file = memory.open(&damaged, OpenMode::ReadWrite).unwrap();
    file.write_at(&[0xa5; 3], file.len().unwrap() / 2).unwrap();
    let later = Timestamp(NOW.0 + 40 * 86_400_000_000);
    for _ in 0..200 {
        let due = node.store.maintenance_due(later);
        let Some(task) = due.into_iter().find(|it| it.kind == TaskKind::Scrub) else {
            break;
        };
        node.store.maintenance_step(&task, ALL, later).unwrap();
    }
    let lost = node.store.status().lost;
    let name = damaged.file_name().unwrap().to_str().unwrap();
    let is_reported = lost
        .iter()
        .any(|it| it.file == name && it.held.contains("nothing is lost"));
    assert!(is_reported, "{lost:?}");
    node.upkeep();
    assert!(!node.log_hint_paths().contains(&damaged));
    assert!(node.all_in_parts(usize::MAX).0 == keys(COUNT));
}

#[test]
fn an_erased_store_leaves_no_log_hints() {
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    node.fill(2_000);
    let before = node.log_hint_paths();
    assert!(!before.is_empty());
    node.store.erase().unwrap();
    assert_eq!(node.log_hint_paths(), Vec::<PathBuf>::new());
    assert_eq!(node.all_in_parts(10).0, Vec::new());
    node.put(vec![put(3, 10, 1)]);
    assert_eq!(node.all_in_parts(10).0, vec![key(3, 10)]);
}

/// Version 0.1.0 wrote log hints in a layout of their own.
#[test]
fn log_hints_of_an_earlier_version_are_written_again_without_a_word() {
    const COUNT: usize = 2_000;
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    node.fill(COUNT);
    node.store.close().unwrap();
    let paths = node.log_hint_paths();
    assert!(!paths.is_empty());
    drop(node);
    for path in &paths {
        kvorum_disk::replace_file(&memory, path, b"KVlghint and what it said").unwrap();
    }
    let node = Node::open(&memory);
    assert_eq!(node.log_hint_paths(), Vec::<PathBuf>::new());
    assert_eq!(node.store.status().lost, Vec::new());
    assert!(node.all_in_parts(700).0 == keys(COUNT));
    node.upkeep();
    assert!(!node.log_hint_paths().is_empty());
    assert!(node.all_in_parts(700).0 == keys(COUNT));
}

/// An entry whose successor is in an unreadable part of a hint is not shown either.
#[test]
fn a_fold_over_anti_entropy_segments_passes_over_no_damage() {
    const COUNT: usize = 2_000;
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    node.fill(COUNT);
    // A hint of its own for removals.
    (0..COUNT).for_each(|number| node.put(vec![Write::remove(key(number, COUNT))]));
    node.upkeep();
    let snapshot = node.store.snapshot(Lease::Unlimited).unwrap();
    for path in node.log_hint_paths() {
        let file = memory.open(&path, OpenMode::ReadWrite).unwrap();
        file.write_at(&[0xa5; 3], file.len().unwrap() / 2).unwrap();
    }
    (0..COUNT).for_each(|number| node.put(vec![put(number, COUNT, number)]));
    let filter = FoldFilter {
        segments: Some(SegmentFilter::Segments(vec![0])),
        ..FoldFilter::unexpired(NOW)
    };
    let mut found = 0;
    let visit = &mut |_: Visited<'_>| {
        found += 1;
        Flow::Continue
    };
    let all = FoldRange::all();
    let end = snapshot.fold(FoldDetail::Keys, &all, &filter, visit);
    assert_eq!((end, found), (Ok(FoldEnd::Complete), 0));
}

#[test]
fn a_log_hint_of_erased_contents_that_a_crash_left_is_removed_without_a_word() {
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    node.fill(2_000);
    let left = node.log_hint_paths().remove(0);
    let copy = Path::new("copy");
    node.disk.link(&left, copy).unwrap();
    node.store.erase().unwrap();
    node.put(vec![put(3, 10, 1)]);
    node.store.close().unwrap();
    drop(node);
    memory.rename(copy, &left).unwrap();
    let node = Node::open(&memory);
    assert_eq!(node.log_hint_paths(), Vec::<PathBuf>::new());
    assert_eq!(node.store.status().lost, Vec::new());
    assert_eq!(node.all_in_parts(10).0, vec![key(3, 10)]);
}

/// Regression: the lease was checked only before the keys were gathered, so a timed-out listing
/// continued to read every front.
#[test]
fn a_lease_that_ends_while_keys_are_gathered_ends_the_fold() {
    const COUNT: usize = 3_000;
    let node = Node::open(&MemoryDisk::new());
    let write = |number| put(number, COUNT, 0);
    (0..COUNT).for_each(|number| node.put(vec![write(number)]));
    node.store.sync().unwrap();
    node.read();
    let looked = Arc::new(AtomicU64::new(0));
    let looks = looked.clone();
    let clock = FoldClock::new(move || Timestamp(looks.fetch_add(1, Ordering::Relaxed)));
    let filter = FoldFilter::unexpired_by(&clock);
    let snapshot = node.store.snapshot(Lease::Until(Timestamp(5))).unwrap();
    let from = key(3, COUNT);
    let range = FoldRange {
        from: Bound::Excluded(from.to_bytes()),
        ..FoldRange::all()
    };
    let mut visited = 0;
    let end = snapshot.fold(FoldDetail::Keys, &range, &filter, &mut |_| {
        visited += 1;
        Flow::Continue
    });
    let Ok(FoldEnd::LeaseExpired(resume)) = end else {
        panic!("{end:?}");
    };
    assert_eq!(visited, 0);
    assert!(from < resume && resume <= key(4, COUNT));
    let read = node.read();
    assert!(read.fronts < COUNT / 2, "{read:?}");
}

/// Regression: memory for keys beside the key directory was neither counted nor bounded: 8 bytes
/// for each record in the log, and as much again while the list grew.
#[test]
fn a_key_takes_no_more_than_24_bytes_whether_log_hints_are_written_or_not() {
    const COUNT: usize = 200_000;
    let open = |segment_bytes| {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let settings = ValueLogSettings {
            segment_bytes,
            garbage_percent_max: 30,
        };
        let (log, _) = ValueLog::open(disk.clone(), Path::new("log"), 7, settings).unwrap();
        let shared = log.clone();
        let settings = BitcaskSettings::default();
        let draw = Arc::new(|| 42);
        let store = Bitcask::open(disk, Path::new("store"), settings, draw, Some(shared));
        let store: Opened = store.unwrap().into();
        log.admit(&tenants_of(std::slice::from_ref(&store)))
            .unwrap();
        (log, store)
    };
    let (_log, store) = open(1 << 20);
    for number in 0..COUNT {
        let batch = Batch::of(put(number, COUNT, number));
        let _buffered = store.put(&batch, Durability::Buffered).unwrap();
        if number % 10_000 == 9_999 {
            store.sync().unwrap();
            let status = store.status();
            let each = status.memory_bytes as f64 / status.keys as f64;
            assert!(number < 50_000 || each <= 24.0, "{each} at {number}");
        }
    }
    let before = store.status().memory_bytes;
    loop {
        let due = store.maintenance_due(NOW);
        let Some(task) = due.into_iter().find(|it| it.kind == TaskKind::Hint) else {
            break;
        };
        store.maintenance_step(&task, ALL, NOW).unwrap();
    }
    let status = store.status();
    let each = status.memory_bytes as f64 / status.keys as f64;
    assert!(status.memory_bytes > before, "their indexes count");
    assert!(each <= 24.0, "{each}");
}

/// In the log, too, heads are read without bodies.
#[test]
fn a_head_in_the_log_is_read_without_its_body() {
    const BODY: usize = 40 << 10;
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    let (head, body) = (Bytes::from_static(b"the head"), Bytes::from(vec![7; BODY]));
    let write = Write::put(key(1, 20), Fields::default(), head.clone(), body.clone());
    node.put(vec![write]);
    node.store.close().unwrap();
    node.log.stop();
    drop(node);
    let node = Node::open(&memory);
    let bytes_read = || {
        let log = node.disk.log().into_iter();
        let reads = log.filter(|it| it.operation == Operation::Read);
        let of_log = reads.filter(|it| it.path.starts_with("log"));
        let bytes: usize = of_log.map(|it| it.bytes).sum();
        node.disk.clear_log();
        bytes
    };
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    assert!(node.store.capabilities().cheap_heads);
    node.disk.clear_log();
    let Lookup::Found(found) = node.store.head(&key(1, 20), at).unwrap() else {
        panic!("no head");
    };
    assert_eq!((found.head, found.body_len), (head, BODY as u64));
    let of_head = bytes_read();
    assert!((1..512).contains(&of_head), "{of_head}");
    let Lookup::Found(found) = node.store.get(&key(1, 20), at).unwrap() else {
        panic!("no entry");
    };
    assert_eq!(found.body, body);
    assert!(bytes_read() >= BODY);
}

//! Leveldb over the value log: the places of bodies, the bytes written for them, and the report of
//! a lost one.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, ErrorKind, Fields, Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease,
    Lookup, ReadAt, Reading, Result, Sequence, StepBudget, TaskKind, Timestamp, Write,
};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared, Tiers};
use kvorum_disk::{CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule};
use kvorum_encoding::StorageKey;
use kvorum_segment::file_name;
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::removals::records_of;
use crate::tenants::{Opened, leveldb_settings, tenants_of};

const STORE: &str = "store";
const LOG: &str = "log";
const NOW: Timestamp = Timestamp(1_000_000);
const ALL: StepBudget = StepBudget { bytes: u64::MAX };
const BODY_BYTES: usize = 500;
const LOG_SEGMENT_BYTES: u64 = 4_000;

struct Node {
    log: ValueLog,
    store: Opened,
}

/// Bodies of 100 bytes and more stay in the log.
fn settings() -> LeveldbSettings {
    LeveldbSettings {
        blob_threshold_bytes: 100,
        write_buffer_bytes: 20_000,
        compression: kvorum_backend_leveldb::Compression::None,
        ..leveldb_settings()
    }
}

impl Node {
    fn open(disk: &MemoryDisk) -> Self {
        Self::open_with(disk, &settings()).unwrap()
    }

    fn open_with(disk: &MemoryDisk, settings: &LeveldbSettings) -> Result<Self> {
        Self::open_on(Arc::new(disk.clone()), settings)
    }

    fn open_on(disk: Arc<dyn Disk>, settings: &LeveldbSettings) -> Result<Self> {
        let log_settings = ValueLogSettings {
            segment_bytes: LOG_SEGMENT_BYTES,
            garbage_percent_max: 20,
        };
        let (log, _) = ValueLog::open(disk.clone(), Path::new(LOG), 5, log_settings)?;
        let drawn = AtomicU64::new(7);
        let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let (shared, memory) = (log.clone(), Shared::new(1 << 20, 1 << 20));
        let path = Path::new(STORE);
        let store = Leveldb::open(disk, path, settings, memory, draw, Some(shared))?;
        let store: Opened = store.into();
        log.admit(&tenants_of(std::slice::from_ref(&store)))?;
        Ok(Self { log, store })
    }

    fn put(&self, key: usize, value: u8) {
        let body = Bytes::from(vec![value; BODY_BYTES]);
        let write = Write::put(key_of(key), Fields::default(), Bytes::new(), body);
        let receipt = self.store.put(&Batch::of(write), Durability::Grouped);
        receipt.unwrap().wait().unwrap();
    }

    fn remove(&self, key: usize) {
        let batch = Batch::of(Write::remove(key_of(key)));
        let receipt = self.store.put(&batch, Durability::Grouped);
        receipt.unwrap().wait().unwrap();
    }

    fn value(&self, key: usize) -> Result<Option<u8>> {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: NOW,
        };
        Ok(match self.store.get(&key_of(key), at)? {
            Lookup::Found(entry) => {
                assert_eq!(entry.body.len(), BODY_BYTES);
                Some(entry.body[0])
            }
            _ => None,
        })
    }

    /// All upkeep of the store but syncs.
    fn keep_store(&self) {
        for _ in 0..100 {
            let due = self.store.maintenance_due(NOW);
            let Some(task) = due.iter().find(|it| it.kind != TaskKind::Sync) else {
                return;
            };
            self.store.maintenance_step(task, ALL, NOW).unwrap();
        }
    }

    /// Does the log's chores: makes files, and drops unneeded segments.
    fn do_chores(&self) {
        while self.log.is_chore_due() && self.log.chore_step().unwrap() {}
    }

    /// Collects until no collection is due.
    fn collect(&self) {
        for _ in 0..1_000 {
            self.log.usage_changed();
            self.keep_store();
            self.do_chores();
            if self.log.collection_due().is_none() {
                return;
            }
            self.log
                .collection_step(StepBudget { bytes: 1_000 })
                .unwrap();
        }
    }

    fn detail(&self, name: &str) -> u64 {
        let status = self.store.status();
        let found = status.details.iter().find(|(known, _)| *known == name);
        found.unwrap().1.parse().unwrap()
    }
}

fn key_of(key: usize) -> StorageKey {
    StorageKey::from_encoded(format!("key {key:04}").into_bytes())
}

fn files(disk: &MemoryDisk, suffix: &str) -> Vec<PathBuf> {
    let entries = disk.list(Path::new(STORE)).unwrap().into_iter();
    let named = entries.filter(|it| it.name.ends_with(suffix));
    named.map(|it| Path::new(STORE).join(it.name)).collect()
}

fn bytes_of(disk: &MemoryDisk, suffix: &str) -> u64 {
    let lens = files(disk, suffix).into_iter();
    lens.map(|it| disk.info(&it).unwrap().unwrap().len).sum()
}

#[test]
fn a_large_body_is_written_once() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..200).for_each(|key| node.put(key, 1));
    node.keep_store();
    node.store.close().unwrap();
    assert_eq!(files(&disk, ".blob"), Vec::<PathBuf>::new());
    assert_eq!(files(&disk, ".segment"), Vec::<PathBuf>::new());
    let tables = bytes_of(&disk, ".sst");
    assert!((1..200 * 200).contains(&tables), "{tables}");
    drop(node);
    let node = Node::open(&disk);
    (0..200).for_each(|key| assert_eq!(node.value(key), Ok(Some(1))));
    assert!(node.detail("value_log_bytes") > 200 * BODY_BYTES as u64);
}

#[test]
fn a_collection_copies_what_lives_and_nothing_else() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..100).for_each(|key| node.put(key, 1));
    // Nine of ten become garbage.
    for value in 2..12 {
        (0..100)
            .filter(|key| key % 10 != 0)
            .for_each(|key| node.put(key, value));
        node.keep_store();
    }
    let before = node.log.status().segments;
    node.collect();
    let after = node.log.status().segments;
    assert!(after < before / 2, "{after} of {before} segments");
    let copied = bytes_of(&disk, ".blob");
    assert!(copied > 0);
    let check = |node: &Node| {
        for key in 0..100 {
            let expected = if key % 10 == 0 { 1 } else { 11 };
            assert_eq!(node.value(key), Ok(Some(expected)), "{key}");
        }
        assert_eq!(node.store.status().lost, Vec::new());
    };
    check(&node);
    drop(node);
    disk.crash(CrashOptions::nothing_unsynced());
    check(&Node::open(&disk));
}

/// A memtable holds only places, so it would be flushed after a long time. Regression: on a full
/// disk, deletes spread over all segments made no room. Only a merge that released whole segments
/// requested a survey of the log, and no append did.
#[test]
fn a_merge_that_needs_less_of_every_segment_has_the_log_looked_through() {
    let node = Node::open(&MemoryDisk::new());
    let mut seen = 0;
    (0..300).for_each(|key| node.put(key, 1));
    for round in 0..6 {
        // Remove one key of each segment, then flush.
        (0..300)
            .filter(|key| key % 7 == round)
            .for_each(|key| node.remove(key));
        (0..100).for_each(|key| node.put(1_000 + 100 * round + key, 1));
        loop {
            node.do_chores();
            let due = node.store.maintenance_due(NOW);
            let Some(task) = due.iter().find(|it| it.kind != TaskKind::Sync) else {
                break;
            };
            let used = || {
                let bytes = node.detail("value_log_bytes");
                (node.detail("value_log_segments"), bytes)
            };
            let (segments, bytes) = used();
            node.store.maintenance_step(task, ALL, NOW).unwrap();
            let is_merge = task.kind == TaskKind::Compact && used().0 == segments;
            if is_merge && used().1 + LOG_SEGMENT_BYTES < bytes {
                assert!(node.log.is_chore_due());
                seen += 1;
            }
        }
    }
    assert!(seen > 0);
}

#[test]
fn usage_that_has_fallen_by_little_has_nothing_looked_through() {
    let node = Node::open(&MemoryDisk::new());
    node.put(1, 1);
    node.do_chores();
    node.log.usage_fell(LOG_SEGMENT_BYTES / 8);
    assert!(!node.log.is_chore_due());
    node.log.usage_fell(LOG_SEGMENT_BYTES / 8);
    assert!(node.log.is_chore_due());
    node.do_chores();
    assert!(!node.log.is_chore_due());
}

#[test]
fn a_store_that_lies_far_behind_the_log_is_flushed_however_little_it_has() {
    let disk = MemoryDisk::new();
    let far = LeveldbSettings {
        write_buffer_bytes: 1 << 20,
        log_segments_behind_max: 3,
        ..settings()
    };
    let node = Node::open_with(&disk, &far).unwrap();
    let is_flush_due = || {
        let due = node.store.maintenance_due(NOW);
        due.iter().any(|it| it.kind == TaskKind::Flush)
    };
    let first = node.log.newest_segment();
    let mut key = 0;
    while !is_flush_due() {
        node.put(key, 1);
        key += 1;
        assert!(key < 1_000);
    }
    assert_eq!(node.log.newest_segment(), first + 4);
    node.keep_store();
    assert!(!is_flush_due());
    let covered = Some(node.store.tenant.covered());
    assert_eq!(covered, Some(Sequence(key as u64)));
    // A batch without a write has nothing to flush, but has to be covered.
    let empty = node.store.put(&Batch::default(), Durability::Grouped);
    empty.unwrap().wait().unwrap();
    (0..5).for_each(|_| node.log.roll().unwrap());
    node.put(0, 2);
    node.keep_store();
    assert!(!is_flush_due());
}

#[test]
fn a_snapshot_reads_what_the_log_has_let_go_of() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..50).for_each(|key| node.put(key, 1));
    let snapshot = node.store.snapshot(Lease::Unlimited).unwrap();
    let first = Path::new(LOG).join(file_name(1));
    for value in 2..12 {
        (0..50).for_each(|key| node.put(key, value));
        node.keep_store();
    }
    node.collect();
    assert_eq!(disk.info(&first).unwrap(), None);
    let mut seen = Vec::new();
    let (range, filter) = (FoldRange::all(), FoldFilter::unexpired(NOW));
    let folded = snapshot.fold(FoldDetail::Entries, &range, &filter, &mut |visited| {
        seen.push(visited.body[0]);
        Flow::Continue
    });
    folded.unwrap();
    assert_eq!(seen, [1; 50]);
}

fn flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, offset, kvorum_disk::Reading::MayBlock)
        .unwrap();
    file.write_at(&[byte[0] ^ 0x40], offset).unwrap();
}

/// A damaged record is not offered: its body is lost with the segment, and reported by its key.
#[test]
fn a_body_that_is_lost_with_its_segment_is_reported_by_its_key() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..20).for_each(|key| node.put(key, 1));
    node.keep_store();
    // In the body of one of the first segment's few records.
    let first = Path::new(LOG).join(file_name(1));
    flip(&disk, &first, 1_400);
    let unreadable: Vec<usize> = (0..20).filter(|key| node.value(*key).is_err()).collect();
    let [lost] = unreadable[..] else {
        assert_eq!(unreadable.len(), 1);
        return;
    };
    let error = node.value(lost).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    for value in 2..8 {
        (10..20).for_each(|key| node.put(key, value));
        node.keep_store();
    }
    // Its neighbours are needed, so the segment is read and copied.
    let tenant = &node.store.tenant;
    assert!(tenant.usage().iter().any(|it| it.segment == 1));
    (1..8)
        .filter(|key| *key != lost && key % 2 == 0)
        .for_each(|key| node.put(key, 9));
    node.collect();
    node.keep_store();
    if disk.info(&first).unwrap().is_none() {
        let reported = node.store.status().lost;
        let name = format!("key {lost:04}");
        assert!(
            reported.iter().any(|it| it.held.contains(&name)),
            "{reported:?}"
        );
    }
    for key in (0..20).filter(|it| *it != lost) {
        assert!(matches!(node.value(key), Ok(Some(_))), "{key}");
    }
    assert!(node.value(lost).is_err());
    // A get fails rather than finds it absent, and a put repairs it.
    node.put(lost, 7);
    assert_eq!(node.value(lost), Ok(Some(7)));
}

#[test]
fn a_segment_that_is_missing_is_reported_and_one_that_was_let_go_is_not() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..50).for_each(|key| node.put(key, 1));
    node.keep_store();
    // The note of dropped segments is removed too.
    node.do_chores();
    node.store.close().unwrap();
    drop(node);
    let second = Path::new(LOG).join(file_name(2));
    disk.remove_file(&second).unwrap();
    let node = Node::open(&disk);
    let reported = node.store.status().lost;
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(reported[0].file, format!("value_log/{}", file_name(2)));
    let lost = (0..50).filter(|key| node.value(*key).is_err()).count();
    assert!((3..20).contains(&lost), "{lost}");
    (0..50).for_each(|key| node.put(key, 2));
    (0..50).for_each(|key| assert_eq!(node.value(key), Ok(Some(2))));
}

#[test]
fn a_store_with_bodies_in_the_log_is_not_opened_without_it() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    node.put(1, 1);
    node.store.close().unwrap();
    drop(node);
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let memory = Shared::new(1 << 20, 1 << 20);
    let (path, draw) = (Path::new(STORE), Arc::new(|| 9));
    let opened = Leveldb::open(seam, path, &settings(), memory, draw, None);
    let refused = opened.err().map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::Misuse));
    assert_eq!(Node::open(&disk).value(1), Ok(Some(1)));
}

/// Old tables move to the slow device, and old bodies have to move with them.
#[test]
fn over_two_devices_no_body_stays_in_the_log() {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new("slow")).unwrap();
    let tiered = LeveldbSettings {
        tiers: Some(Tiers {
            slow_directory: PathBuf::from("slow/store"),
            from_level: 2,
        }),
        ..settings()
    };
    let node = Node::open_with(&disk, &tiered).unwrap();
    (0..100).for_each(|key| node.put(key, 1));
    node.store.close().unwrap();
    assert!(!files(&disk, ".blob").is_empty());
    assert_eq!(node.detail("value_log_segments"), 0);
    drop(node);
    let node = Node::open_with(&disk, &tiered).unwrap();
    (0..100).for_each(|key| assert_eq!(node.value(key), Ok(Some(1))));
}

/// Regression: a table that the system could not read for a while took the bodies of all older
/// tables with it.
#[test]
fn a_body_stays_while_a_table_above_it_cannot_be_read() {
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    (0..50).for_each(|key| node.put(key, 1));
    node.keep_store();
    node.store.close().unwrap();
    drop(node);
    let older = files(&memory, ".sst");
    let node = Node::open(&memory);
    (0..50).step_by(7).for_each(|key| node.put(key, 2));
    node.store.close().unwrap();
    drop(node);
    let newest = files(&memory, ".sst")
        .into_iter()
        .find(|it| !older.contains(it))
        .unwrap();
    let faulty = FaultyDisk::over_memory(&memory);
    let denied = Fault::Error(kvorum_disk::ErrorKind::Denied);
    faulty.add_rule(Rule::new(denied).on(Operation::Open).path(&newest));
    let node = Node::open_on(Arc::new(faulty.clone()), &settings()).unwrap();
    assert!(node.value(1).is_err());
    // Most of the first segments counts as garbage.
    let tenant = &node.store.tenant;
    let mut refused = 0;
    for segment in 1..node.log.newest_segment() {
        let path = Path::new(LOG).join(file_name(u64::from(segment)));
        if memory.info(&path).unwrap().is_none() {
            continue;
        }
        let offered = records_of(&memory, 5, segment, &path);
        let relocated = tenant.relocate(&offered);
        refused += usize::from(relocated.is_err());
        if relocated.is_ok() {
            while !tenant.settle(segment, ALL).unwrap().is_done {}
        }
    }
    assert!(refused > 0);
    node.log.usage_changed();
    node.do_chores();
    drop(node);
    faulty.heal();
    let node = Node::open_on(Arc::new(faulty), &settings()).unwrap();
    for key in 0..50 {
        let expected = if key % 7 == 0 { 2 } else { 1 };
        assert_eq!(node.value(key), Ok(Some(expected)), "{key}");
    }
}

/// A batch that cannot be read now may be readable at the next start, so its sequence counts as
/// used. An index with lost entries is not complete.
#[test]
fn a_sequence_whose_batch_was_unreadable_once_is_not_given_out_again() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..3).for_each(|key| node.put(key, 1));
    // The segment is sealed, with a list of its contents.
    node.log.roll().unwrap();
    node.do_chores();
    drop(node);
    let first = Path::new(LOG).join(file_name(1));
    let records = records_of(&disk, 5, 1, &first);
    let place = records.last().unwrap().place();
    let end = place.record.offset + place.record.len;
    for (at, is_key_known) in [(end - 100, true), (place.record.offset + 40, false)] {
        let disk = disk.crash_image(CrashOptions::everything());
        flip(&disk, &first, at);
        let node = Node::open(&disk);
        match is_key_known {
            true => _ = node.value(2).unwrap_err(),
            false => assert_eq!(node.value(2), Ok(None)),
        }
        assert_eq!(node.detail("ranges_in_doubt"), u64::from(!is_key_known));
        node.put(2, 2);
        drop(node);
        // As after a fault of the device.
        flip(&disk, &first, at);
        let node = Node::open(&disk);
        assert_eq!(node.value(2), Ok(Some(2)));
    }
}

/// A node, and a function that makes the log's second segment unreadable.
fn node_and_broken_log() -> (Node, impl Fn()) {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let node = Node::open_on(Arc::new(disk.clone()), &settings()).unwrap();
    let broken = Rule::new(Fault::Error(kvorum_disk::ErrorKind::Device)).on(Operation::Read);
    let break_log = move || {
        disk.add_rule(broken.clone().path_contains(LOG));
    };
    (node, break_log)
}

#[test]
fn what_is_read_twice_from_the_log_is_kept_in_memory() {
    let (node, break_log) = node_and_broken_log();
    node.put(1, 1);
    node.put(2, 2);
    for key in [1, 1, 2] {
        assert!(node.value(key).unwrap().is_some());
    }
    break_log();
    assert_eq!(node.value(1).unwrap(), Some(1));
    node.value(2).unwrap_err();
    // The put has a place other than that of the body that was read.
    node.put(1, 9);
    node.value(1).unwrap_err();
}

#[test]
fn of_a_walk_that_comes_again_the_beginning_is_kept_in_memory() {
    const KEYS: usize = 400;
    let (node, break_log) = node_and_broken_log();
    (0..KEYS).for_each(|key| node.put(key, 1));
    for _ in 0..2 {
        let snapshot = node.store.snapshot(Lease::Unlimited).unwrap();
        let (range, filter) = (FoldRange::all(), FoldFilter::unexpired(NOW));
        let folded = snapshot.fold(FoldDetail::Entries, &range, &filter, &mut |visited| {
            assert_eq!(visited.body.len(), BODY_BYTES);
            Flow::Continue
        });
        assert_eq!(folded, Ok(FoldEnd::Complete));
    }
    break_log();
    let kept = |keys: std::ops::Range<usize>| keys.filter(|key| node.value(*key).is_ok()).count();
    assert!(kept(0..100) > 50);
    assert_eq!(kept(300..KEYS), 0);
}

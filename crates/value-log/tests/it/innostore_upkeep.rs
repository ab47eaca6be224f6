//! Upkeep of one store of innostore: damage is found before a read meets it, live pages are moved out of
//! files with an unreadable part too, expired entries are removed, and a crash leaves little to replay.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, ErrorKind, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease, Lookup,
    ReadAt, Reading, Result, StepBudget, TaskKind, Timestamp, Visited, Write,
};
use kvorum_backend_innostore::InnostoreSettings;
use kvorum_disk::{Disk, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::tenants::{Engine, Opened, innostore_settings, tenants_of};

const STORE: &str = "store";
const KEYS: usize = 60;
const NOW: Timestamp = Timestamp(1_000_000);
const DAY: u64 = 86_400_000_000;
const BUDGET: StepBudget = StepBudget { bytes: 500 };

struct Node {
    store: Opened,
    log: ValueLog,
    replayed: u64,
}

impl Node {
    fn open(disk: &MemoryDisk, settings: &InnostoreSettings) -> Self {
        Self::open_on(Arc::new(disk.clone()), settings)
    }

    fn open_on(disk: Arc<dyn Disk>, settings: &InnostoreSettings) -> Self {
        Self::open_in(disk, Path::new("log"), Path::new(STORE), settings)
    }

    fn open_in(
        disk: Arc<dyn Disk>,
        log: &Path,
        store: &Path,
        settings: &InnostoreSettings,
    ) -> Self {
        let log_settings = ValueLogSettings {
            segment_bytes: 4_000,
            garbage_percent_max: 20,
        };
        let (log, _) = ValueLog::open(disk.clone(), log, 5, log_settings).unwrap();
        let drawn = AtomicU64::new(7);
        let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let engine = Engine::Innostore(settings.clone());
        let store = engine.open(disk, store, draw, log.clone()).unwrap();
        let admitted = log.admit(&tenants_of(std::slice::from_ref(&store)));
        let replayed = admitted.unwrap().batches_replayed;
        Self {
            store,
            log,
            replayed,
        }
    }

    fn put(&self, number: usize, len: usize, fields: Fields) {
        let body = Bytes::from(vec![b'v'; len]);
        let write = Write::put(key(number), fields, Bytes::from_static(b"head"), body);
        let receipt = self.store.put(&Batch::of(write), Durability::Grouped);
        receipt.unwrap().wait().unwrap();
    }

    fn get(&self, number: usize, now: Timestamp) -> Result<Option<usize>> {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now,
        };
        Ok(match self.store.get(&key(number), at)? {
            Lookup::Found(entry) => Some(entry.body.len()),
            _ => None,
        })
    }

    /// Does all due tasks of these kinds, until none is due. Returns their cost.
    fn tend(&self, kinds: &[TaskKind], now: Timestamp) -> u64 {
        let mut cost_bytes = 0;
        for _ in 0..10_000 {
            let due = self.store.maintenance_due(now);
            let Some(task) = due.iter().find(|it| kinds.contains(&it.kind)) else {
                return cost_bytes;
            };
            let step = self.store.maintenance_step(task, BUDGET, now);
            cost_bytes += step.unwrap().cost_bytes;
        }
        let due = self.store.maintenance_due(now);
        unreachable!("upkeep ends: {due:?} of {:?}", self.store.status())
    }

    fn keys_folded(&self, now: Timestamp) -> usize {
        let snapshot = self.store.snapshot(Lease::Unlimited).unwrap();
        let mut keys = 0;
        let visit = &mut |_: Visited<'_>| {
            keys += 1;
            Flow::Continue
        };
        let filter = FoldFilter::unexpired(now);
        let folded = snapshot.fold(FoldDetail::Entries, &FoldRange::all(), &filter, visit);
        folded.unwrap();
        keys
    }
}

const ALL: [TaskKind; 4] = [
    TaskKind::Flush,
    TaskKind::Collect,
    TaskKind::Reclaim,
    TaskKind::Scrub,
];

fn key(number: usize) -> StorageKey {
    StorageKey::from_encoded(format!("key {number:03}").into_bytes())
}

fn settings() -> InnostoreSettings {
    InnostoreSettings {
        dirty_age_max: Duration::ZERO,
        ..innostore_settings()
    }
}

fn page_files(disk: &MemoryDisk) -> Vec<String> {
    let entries = disk.list(Path::new(STORE)).unwrap().into_iter();
    let names = entries.map(|it| it.name);
    names.filter(|it| it.ends_with(".pages")).collect()
}

fn flip(disk: &MemoryDisk, file: &str, at: u64) {
    let path = Path::new(STORE).join(file);
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at, kvorum_disk::Reading::MayBlock)
        .unwrap();
    file.write_at(&[byte[0] ^ 1], at).unwrap();
}

/// A store with a tree of some files and nothing in memory.
fn filled(settings: &InnostoreSettings) -> (MemoryDisk, Node) {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk, settings);
    (0..KEYS).for_each(|number| node.put(number, 20 + number * 37 % 300, Fields::default()));
    node.tend(&[TaskKind::Flush], NOW);
    (disk, node)
}

/// The scrub reads the page once in its period, without any other reader, and reports damage as a
/// reader would.
#[test]
fn a_scrub_finds_every_damaged_page_and_replaces_a_damaged_copy() {
    let settings = InnostoreSettings {
        scrub_period: Some(Duration::from_secs(86_400)),
        ..settings()
    };
    let (disk, node) = filled(&settings);
    node.tend(&ALL, NOW);
    let (mut reported, mut mended) = (0, 0);
    for file in page_files(&disk) {
        let path = Path::new(STORE).join(&file);
        let len = disk.info(&path).unwrap().unwrap().len;
        for at in (40..len).step_by(61) {
            let image = disk.crash_image(kvorum_disk::CrashOptions::nothing_unsynced());
            flip(&image, &file, at);
            // No cache has the page.
            let node = Node::open(&image, &settings);
            // A cycle begins, and has ended a day later.
            node.tend(&ALL, Timestamp(NOW.0 + 2 * DAY));
            node.tend(&ALL, Timestamp(NOW.0 + 4 * DAY));
            let errors = (0..KEYS).filter(|it| node.get(*it, NOW).is_err()).count();
            let status = node.store.status();
            assert_eq!(
                !status.lost.is_empty(),
                errors > 0,
                "{file} at {at}: {status:?}"
            );
            reported += usize::from(errors > 0);
            // Both copies of a branch are read, and one suffices.
            mended += usize::from(errors == 0 && status.corrupt_reads > 0);
            let again = status.corrupt_reads;
            node.tend(&ALL, Timestamp(NOW.0 + 6 * DAY));
            let status = node.store.status();
            assert!(
                errors > 0 || status.corrupt_reads == again,
                "{file} at {at}"
            );
        }
    }
    assert!(
        reported > 10 && mended > 2,
        "{reported} were reported, {mended} mended"
    );
}

#[test]
fn a_scrub_reads_as_much_of_the_tree_as_of_its_period_has_passed() {
    let settings = InnostoreSettings {
        scrub_period: Some(Duration::from_secs(86_400)),
        ..settings()
    };
    let (_disk, node) = filled(&settings);
    let live = node.store.status().live_bytes;
    assert_eq!(node.tend(&[TaskKind::Scrub], NOW), 0);
    let half = node.tend(&[TaskKind::Scrub], Timestamp(NOW.0 + DAY / 2));
    // A small tree is read in one step.
    assert!(half == 0 || half <= live, "{half} of {live}");
    let all = half + node.tend(&[TaskKind::Scrub], Timestamp(NOW.0 + DAY));
    assert_eq!(all, live);
}

/// Regression: a damaged page kept its file for ever, however little was live in it.
#[test]
fn a_file_with_a_damaged_page_is_left_and_what_can_be_read_of_it_stays() {
    let (disk, node) = filled(&settings());
    node.store.close().unwrap();
    drop(node);
    let file = page_files(&disk).into_iter().next().unwrap();
    flip(&disk, &file, 60);
    let node = Node::open(&disk, &settings());
    let lost: Vec<usize> = (0..KEYS).filter(|it| node.get(*it, NOW).is_err()).collect();
    assert!(!lost.is_empty() && lost.len() < 12, "{lost:?}");
    // In all files, all pages but the damaged one become garbage.
    let others = || (0..KEYS).filter(|it| !lost.contains(it));
    for round in 0..6 {
        others().for_each(|number| node.put(number, 30 + round, Fields::default()));
        node.tend(&ALL, NOW);
    }
    assert!(
        !page_files(&disk).contains(&file),
        "{:?}",
        page_files(&disk)
    );
    for number in others() {
        assert_eq!(node.get(number, NOW), Ok(Some(35)), "key {number}");
    }
    assert!(!node.store.status().lost.is_empty());
    assert_eq!(node.keys_folded(NOW), KEYS - lost.len());
}

/// Expired entries are absent at once, and take no space after a rewrite.
#[test]
fn what_is_expired_goes_with_the_next_rewrite_of_its_leaf() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk, &settings());
    let end = Timestamp(NOW.0 + 1_000);
    let fields = |number: usize| Fields {
        expiry: number.is_multiple_of(2).then_some(end),
        ..Fields::default()
    };
    (0..KEYS).for_each(|number| node.put(number, 400, fields(number)));
    node.tend(&ALL, NOW);
    let before = node.store.status();
    assert_eq!(node.keys_folded(NOW), KEYS);
    assert_eq!(node.keys_folded(end), KEYS / 2);
    assert_eq!(node.get(0, end), Ok(None));
    (1..KEYS)
        .step_by(4)
        .for_each(|number| node.put(number, 400, Fields::default()));
    node.tend(&ALL, end);
    let after = node.store.status();
    assert!(
        after.live_bytes < before.live_bytes * 2 / 3,
        "{before:?} {after:?}"
    );
    assert_eq!(node.keys_folded(end), KEYS / 2);
}

/// The limit of memory bounds the part of the log that a start after a crash reads.
#[test]
fn a_crash_leaves_no_more_to_read_again_than_memory_holds() {
    let disk = MemoryDisk::new();
    let settings = innostore_settings();
    let node = Node::open(&disk, &settings);
    for number in 0..2_000 {
        node.put(number % KEYS, 100, Fields::default());
        let due = node.store.maintenance_due(NOW);
        if let Some(task) = due.first() {
            node.store.maintenance_step(task, BUDGET, NOW).unwrap();
        }
    }
    drop(node);
    let image = disk.crash_image(kvorum_disk::CrashOptions::nothing_unsynced());
    let node = Node::open(&image, &settings);
    // Twice the limit, at some 300 bytes a put.
    assert!(node.replayed < 25, "{} batches", node.replayed);
    assert_eq!(node.keys_folded(NOW), KEYS);
}

/// A snapshot does not change while everything below it is rewritten. Its files are removed with it.
#[test]
fn a_snapshot_stands_while_its_files_are_left() {
    let (disk, node) = filled(&settings());
    let before = page_files(&disk);
    let snapshot = node.store.snapshot(Lease::Unlimited).unwrap();
    for round in 0..4 {
        (0..KEYS).for_each(|number| node.put(number, 500 + round, Fields::default()));
        node.tend(&ALL, NOW);
    }
    let now = page_files(&disk);
    assert!(
        before.iter().all(|it| !now.contains(it)),
        "{before:?} {now:?}"
    );
    let mut seen = Vec::new();
    let visit = &mut |visited: Visited<'_>| {
        seen.push(visited.body.len());
        Flow::Continue
    };
    let filter = FoldFilter::unexpired(NOW);
    let folded = snapshot.fold(FoldDetail::Entries, &FoldRange::all(), &filter, visit);
    folded.unwrap();
    let expected: Vec<usize> = (0..KEYS).map(|number| 20 + number * 37 % 300).collect();
    assert_eq!(seen, expected);
    assert!(node.store.status().pinned_bytes > 0);
    drop(snapshot);
    assert_eq!(node.store.status().pinned_bytes, 0);
}

/// Regression: a rewrite that empties a file may fail on a full disk while a put pays for upkeep. The
/// file counted as one with pages that cannot be moved, and stayed until the next start.
#[test]
fn a_file_that_could_not_be_left_on_a_full_disk_is_left_later() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let node = Node::open_on(Arc::new(disk.clone()), &settings());
    (0..KEYS).for_each(|number| node.put(number, 150, Fields::default()));
    node.tend(&[TaskKind::Flush], NOW);
    let due = || {
        let due = node.store.maintenance_due(NOW);
        due.into_iter().find(|it| it.kind == TaskKind::Collect)
    };
    let mut number = 0;
    let task = loop {
        node.put(number % KEYS, 151, Fields::default());
        node.tend(&[TaskKind::Flush], NOW);
        if let Some(task) = due() {
            break task;
        }
        number += 7;
    };
    let before = page_files(&memory).len();
    while page_files(&memory).len() == before {
        node.store.maintenance_step(&task, BUDGET, NOW).unwrap();
    }
    let full = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    let rule = Rule::new(full).on(Operation::Write);
    disk.add_rule(rule.path_ends_with(".pages"));
    // Elsewhere, so that the file keeps live pages.
    (KEYS..2 * KEYS).for_each(|number| node.put(number, 150, Fields::default()));
    assert_eq!(page_files(&memory).len(), before, "puts do not pay");
    disk.heal();
    node.tend(&[TaskKind::Collect, TaskKind::Flush], NOW);
    let left = format!("{:010}.pages", task.subject);
    let files = page_files(&memory);
    assert!(!files.contains(&left), "{left} of {files:?}");
    assert_eq!(node.keys_folded(NOW), 2 * KEYS);
}

/// Regression: a backup failed while memory waited for room, though the log has all of it.
#[test]
fn a_backup_needs_no_room_for_pages() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let node = Node::open_on(Arc::new(disk.clone()), &settings());
    (0..KEYS).for_each(|number| node.put(number, 150, Fields::default()));
    node.tend(&[TaskKind::Flush], NOW);
    let full = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    let rule = Rule::new(full).on(Operation::Write);
    disk.add_rule(rule.path_ends_with(".pages"));
    (0..KEYS).for_each(|number| node.put(number, 151, Fields::default()));
    let [copy, log] = ["copy", "copy_of_log"].map(Path::new);
    let made = node.store.backups().unwrap().backup(copy).unwrap();
    assert!(made.held.is_some());
    node.log.backup(log).unwrap();
    let copied = Node::open_in(Arc::new(memory.clone()), log, copy, &settings());
    assert!(copied.replayed > 0);
    assert_eq!(copied.keys_folded(NOW), KEYS);
    for number in 0..KEYS {
        assert_eq!(copied.get(number, NOW), Ok(Some(151)), "key {number}");
    }
}

/// A read that must not wait reports that the page is not in memory.
#[test]
fn a_read_that_must_not_wait_says_so() {
    let (disk, node) = filled(&settings());
    node.store.close().unwrap();
    drop(node);
    let node = Node::open(&disk, &settings());
    let at = |reading| ReadAt { reading, now: NOW };
    let cached = || node.store.head(&key(1), at(Reading::CachedOnly));
    let found = cached().unwrap();
    assert!(!matches!(found, Lookup::Absent), "{found:?}");
    node.store.head(&key(1), at(Reading::MayBlock)).unwrap();
    assert!(matches!(cached(), Ok(Lookup::Found(_))));
    node.store.close().unwrap();
    let write = Write::remove(key(1));
    let refused = node.store.put(&Batch::of(write), Durability::Grouped);
    assert_eq!(refused.err().map(|it| it.kind()), Some(ErrorKind::Closed));
}

/// A store of which the device can read no present page.
fn unread(memory: &MemoryDisk) -> (FaultyDisk, Node) {
    let disk = FaultyDisk::over_memory(memory);
    let node = Node::open_on(Arc::new(disk.clone()), &settings());
    let fault = Fault::Error(kvorum_disk::ErrorKind::Device);
    for file in page_files(memory) {
        let rule = Rule::new(fault).on(Operation::Read);
        disk.add_rule(rule.path_ends_with(&file));
    }
    (disk, node)
}

/// A step of moving entries from memory to the tree.
fn flush(node: &Node, now: Timestamp) -> Result<()> {
    let due = node.store.maintenance_due(now);
    let task = due.iter().find(|it| it.kind == TaskKind::Flush);
    let step = node.store.maintenance_step(task.unwrap(), BUDGET, now);
    step.map(drop)
}

/// Regression: a rewrite omitted a leaf that the device had failed to read once, and the leaf's
/// entries were lost.
#[test]
fn what_a_device_fails_to_give_for_a_while_is_there_afterwards() {
    let (memory, node) = filled(&settings());
    drop(node);
    let (disk, node) = unread(&memory);
    assert_eq!(node.get(7, NOW).unwrap_err().kind(), ErrorKind::Unread);
    node.put(0, 10, Fields::default());
    for _ in 0..3 {
        assert_eq!(flush(&node, NOW).unwrap_err().kind(), ErrorKind::Unread);
    }
    disk.heal();
    node.tend(&ALL, NOW);
    assert_eq!(node.keys_folded(NOW), KEYS);
    assert!(node.store.status().lost.is_empty());
}

/// Regression: upkeep stopped for ever at a sector that stays unreadable.
#[test]
fn what_a_device_never_gives_counts_as_damaged_after_a_while() {
    let (memory, node) = filled(&settings());
    drop(node);
    let (_disk, node) = unread(&memory);
    node.put(0, 10, Fields::default());
    // A step every four minutes.
    let steps = (0..1_000).take_while(|step| {
        let now = Timestamp(NOW.0 + step * 240_000_000);
        let due = node.store.maintenance_due(now);
        let is_due = due.iter().any(|it| it.kind == TaskKind::Flush);
        if is_due && let Err(error) = flush(&node, now) {
            assert_eq!(error.kind(), ErrorKind::Unread);
        }
        is_due
    });
    let steps = steps.count();
    assert!((8..1_000).contains(&steps), "{steps} steps");
    assert!(!node.store.status().lost.is_empty());
    assert_eq!(node.get(0, NOW), Ok(Some(10)));
}

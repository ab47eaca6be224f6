//! Missing files of the value log: their records are reported as lost, and dropped segments never
//! are.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, Fields, Lookup, ReadAt, Reading, Result, StepBudget, Timestamp, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{
    CrashOptions, Disk, EntryKind, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule,
    read_file,
};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::tenants::{Opened, bitcask_settings, tenants_of};

const LOG: &str = "log";
const STORES: usize = 3;
const NOW: Timestamp = Timestamp(1_000_000);

/// Stores of bitcask over one value log, with or without damage.
struct Node {
    log: ValueLog,
    stores: Vec<Opened>,
    /// Damage that opening the log found.
    damage: Vec<String>,
}

impl Node {
    fn open(disk: &(impl Disk + Clone + 'static), root: &Path) -> Result<Self> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let log_settings = ValueLogSettings {
            segment_bytes: 1_500,
            garbage_percent_max: 20,
        };
        let (log, found) = ValueLog::open(disk.clone(), &root.join(LOG), 77, log_settings)?;
        let open = |number: usize| -> Result<Opened> {
            let drawn = AtomicU64::new(1 + 1_000 * number as u64);
            let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
            let settings = BitcaskSettings {
                file_bytes_max: 2_000,
                ..bitcask_settings()
            };
            let (directory, shared) = (store_of(root, number), log.clone());
            let store = Bitcask::open(disk.clone(), &directory, settings, draw, Some(shared))?;
            Ok(store.into())
        };
        let stores: Vec<_> = (0..STORES).map(open).collect::<Result<_>>()?;
        let admitted = log.admit(&tenants_of(&stores))?;
        Ok(Self {
            log,
            stores,
            damage: found.damage.into_iter().chain(admitted.damage).collect(),
        })
    }

    fn put(&self, store: usize, number: usize) {
        let body = Bytes::from(format!("{number:090}"));
        let write = Write::put(key(number), Fields::default(), Bytes::new(), body);
        let receipt = self.stores[store].put(&Batch::of(write), Durability::Grouped);
        receipt.unwrap().wait().unwrap();
    }

    fn has(&self, store: usize, number: usize) -> bool {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: NOW,
        };
        matches!(
            self.stores[store].get(&key(number), at).unwrap(),
            Lookup::Found(_)
        )
    }

    /// The lost files that each store reports.
    fn lost(&self) -> Vec<Vec<String>> {
        let lost = |store: &Opened| {
            let ranges = store.status().lost.into_iter();
            ranges.map(|range| range.file).collect()
        };
        self.stores.iter().map(lost).collect()
    }

    fn assert_nothing_lost(&self, story: &str) {
        assert_eq!(self.damage, Vec::<String>::new(), "{story}");
        assert_eq!(
            self.lost(),
            vec![Vec::<String>::new(); self.stores.len()],
            "{story}"
        );
    }

    /// Makes files and writes the small ones, without dropping segments.
    fn do_chores(&self) {
        while self.log.is_chore_due() && self.log.chore_step().unwrap() {}
    }

    /// Collects until no upkeep is due, stores' upkeep included.
    fn collect(&self) -> Result<()> {
        for _ in 0..200 {
            for store in &self.stores {
                for task in store.maintenance_due(NOW) {
                    let budget = StepBudget { bytes: 10_000 };
                    store.maintenance_step(&task, budget, NOW)?;
                }
            }
            if !self.log.is_upkeep_due() {
                break;
            }
            self.log.upkeep_step(StepBudget { bytes: 10_000 })?;
        }
        Ok(())
    }

    fn close(self) {
        self.stores.iter().for_each(|store| store.close().unwrap());
    }
}

fn store_of(root: &Path, number: usize) -> PathBuf {
    root.join(format!("stores/{number}"))
}

fn key(number: usize) -> StorageKey {
    StorageKey::from_encoded(format!("key {number}").into_bytes())
}

fn segment(number: u32) -> PathBuf {
    PathBuf::from(format!("node/{LOG}/{number:010}.segment"))
}

fn note() -> PathBuf {
    Path::new("node").join(LOG).join("dropped")
}

fn node(disk: &MemoryDisk) -> Node {
    Node::open(disk, Path::new("node")).unwrap()
}

/// Keys 0 and 1 of two stores are in the first segment, key 2 of the third store in the second, and
/// key 3 of all of them in the third.
fn three_segments(disk: &MemoryDisk) -> Node {
    let node = node(disk);
    node.put(0, 0);
    node.put(1, 0);
    node.put(1, 1);
    node.log.roll().unwrap();
    node.put(2, 2);
    node.log.roll().unwrap();
    (0..STORES).for_each(|store| node.put(store, 3));
    node.do_chores();
    node
}

/// Regression: a missing file of the log made its keys absent without any report.
#[test]
fn a_missing_log_segment_is_reported_by_each_store_that_had_something_in_it() {
    let disk = MemoryDisk::new();
    three_segments(&disk).close();
    disk.remove_file(&segment(1)).unwrap();
    let file = "value_log/0000000001.segment".to_owned();
    let lost = vec![vec![file.clone()], vec![file], Vec::new()];
    for opening in 0..3 {
        let node = node(&disk);
        assert_eq!(node.lost(), lost, "opening {opening}");
        let held = &node.stores[1].status().lost[0].held;
        assert!(held.starts_with("2 records in a missing"), "{held}");
        let reported = node.damage.iter().filter(|it| it.contains("segment 1 is"));
        assert_eq!(reported.count(), usize::from(opening == 0));
        assert!(!node.has(0, 0) && !node.has(1, 1));
        assert!(node.has(2, 2) && (0..STORES).all(|store| node.has(store, 3)));
        node.do_chores();
        if opening == 1 {
            node.close();
        }
    }
}

/// No checkpoint names the last puts: only the log can detect their loss.
#[test]
fn a_missing_segment_that_no_checkpoint_names_is_reported_by_the_log() {
    let disk = MemoryDisk::new();
    drop(three_segments(&disk));
    disk.remove_file(&segment(2)).unwrap();
    let node = node(&disk);
    assert_eq!(node.damage, ["node/log: segment 2 is missing"]);
    assert!(!node.has(2, 2) && node.has(2, 3));
}

/// The count of numbers is lost with the newest files, and numbers are issued again.
#[test]
fn a_segment_whose_number_was_given_out_again_is_reported() {
    let disk = MemoryDisk::new();
    three_segments(&disk).close();
    for entry in disk.list(&Path::new("node").join(LOG)).unwrap() {
        if entry.name.as_str() >= "0000000003" && entry.name.ends_with(".segment") {
            disk.remove_file(&Path::new("node").join(LOG).join(entry.name))
                .unwrap();
        }
    }
    let first = node(&disk);
    let file = "value_log/0000000003.segment".to_owned();
    assert_eq!(first.lost(), vec![vec![file]; STORES]);
    assert!(!first.has(0, 3));
    // The segment with this number now has no record of these two.
    first.put(2, 4);
    drop(first);
    let second = node(&disk);
    assert!(second.has(0, 0) && !second.has(0, 3) && !second.has(1, 3));
    assert!(second.has(2, 4));
}

/// Most of the first segments is garbage, and the rest is needed.
fn overwritten(node: &Node) {
    (0..5).for_each(|number| node.put(0, number));
    for round in 0..40 {
        node.put(1, round % 3);
        node.put(2, 7);
    }
}

fn files_of(disk: &MemoryDisk, directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = disk.list(directory).unwrap().into_iter();
    let files = entries.filter(|it| it.kind == EntryKind::File && it.name != "lock");
    let path = |name: String| directory.join(name);
    files
        .map(|it| path(it.name))
        .map(|it| (it.clone(), read_file(disk, &it, 1 << 20).unwrap()))
        .collect()
}

fn put_back(disk: &MemoryDisk, (path, bytes): &(PathBuf, Vec<u8>)) {
    let file = disk.open(path, OpenMode::Create).unwrap();
    file.truncate(0).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

/// A node with a checkpoint of each store from before anything was collected.
fn with_old_checkpoints(disk: &MemoryDisk) -> (Node, Vec<(PathBuf, Vec<u8>)>) {
    let first = node(disk);
    overwritten(&first);
    first.do_chores();
    first.close();
    let checkpoint = |number: usize| {
        let files = files_of(disk, &store_of(Path::new("node"), number));
        files.into_iter().find(|it| it.0.ends_with("checkpoint"))
    };
    let old = (0..STORES).map(|it| checkpoint(it).unwrap()).collect();
    (node(disk), old)
}

#[test]
fn a_collected_segment_that_an_old_checkpoint_names_is_not_reported() {
    let disk = MemoryDisk::new();
    let (first, old) = with_old_checkpoints(&disk);
    let segments = first.log.status().segments;
    first.collect().unwrap();
    assert!(first.log.status().segments < segments);
    drop(first);
    old.iter().for_each(|it| put_back(&disk, it));
    let second = node(&disk);
    second.assert_nothing_lost("with old checkpoints");
    (0..5).for_each(|number| assert!(second.has(0, number)));
}

#[test]
fn no_crash_on_the_way_of_a_segment_makes_it_reported() {
    for options in CrashOptions::extremes() {
        for cut in 0.. {
            let disk = MemoryDisk::new();
            let (first, old) = with_old_checkpoints(&disk);
            disk.cut_after(disk.operations() + cut);
            let is_cut = first.collect().is_err();
            drop(first);
            let disk = disk.crash_image(options);
            node(&disk).assert_nothing_lost(&format!("cut after {cut}, {options:?}"));
            old.iter().for_each(|it| put_back(&disk, it));
            let after = node(&disk);
            after.assert_nothing_lost(&format!("cut after {cut}, {options:?}, old checkpoints"));
            if !is_cut {
                break;
            }
        }
    }
}

/// A note takes space, and dropping segments frees some.
#[test]
fn a_full_disk_lets_segments_go_and_none_of_them_is_reported() {
    let memory = MemoryDisk::new();
    let (_, old) = with_old_checkpoints(&memory);
    let faulty = FaultyDisk::over_memory(&memory);
    let first = Node::open(&faulty, Path::new("node")).unwrap();
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    let rule = Rule::new(no_space).on(Operation::Write);
    faulty.add_rule(rule.path_contains("log/dropped"));
    let segments = first.log.status().segments;
    first.collect().unwrap();
    assert!(first.log.status().segments < segments);
    assert!(memory.info(&note()).unwrap().is_none());
    let image = memory.crash_image(CrashOptions::nothing_unsynced());
    old.iter().for_each(|it| put_back(&image, it));
    node(&image).assert_nothing_lost("without space for the note");
    // With space for the note, losses from now on are reported again.
    faulty.heal();
    first.put(0, 9);
    (0..40).for_each(|_| first.put(1, 1));
    first.do_chores();
    first.close();
    assert!(memory.info(&note()).unwrap().is_some());
    let there = files_of(&memory, &Path::new("node").join(LOG));
    let number = there
        .iter()
        .find(|it| it.0.extension() == Some("segment".as_ref()));
    memory.remove_file(&number.unwrap().0).unwrap();
    assert_eq!(node(&memory).damage.len(), 1);
}

/// Directories of earlier versions have no note, and a note may be corrupt.
#[test]
fn without_a_note_nothing_is_reported_and_one_is_written() {
    for is_damaged in [false, true] {
        let disk = MemoryDisk::new();
        three_segments(&disk).close();
        disk.remove_file(&segment(1)).unwrap();
        if is_damaged {
            let file = disk.open(&note(), OpenMode::ReadWrite).unwrap();
            file.write_at(b"!", 20).unwrap();
        } else {
            disk.remove_file(&note()).unwrap();
        }
        let first = node(&disk);
        first.assert_nothing_lost("without a note");
        first.do_chores();
        first.close();
        disk.remove_file(&segment(2)).unwrap();
        let second = node(&disk);
        assert_eq!(second.damage, ["node/log: segment 2 is missing"]);
        assert_eq!(second.lost()[2], ["value_log/0000000002.segment"]);
        assert!(second.lost()[0].is_empty());
    }
}

#[test]
fn what_a_backup_leaves_out_is_not_reported_and_what_it_lost_is() {
    let disk = MemoryDisk::new();
    let (node, _) = with_old_checkpoints(&disk);
    let backup = Path::new("backup");
    disk.create_directory(backup).unwrap();
    disk.create_directory(&backup.join("stores")).unwrap();
    let mut held = Vec::new();
    for (number, store) in node.stores.iter().enumerate() {
        let made = store.backups().unwrap().backup(&store_of(backup, number));
        held.extend(made.unwrap().held);
    }
    node.log.backup(&backup.join(LOG)).unwrap();
    let there = |directory: &Path| -> Vec<PathBuf> {
        let files = files_of(&disk, directory).into_iter().map(|it| it.0);
        files
            .filter(|it| it.extension() == Some("segment".as_ref()))
            .collect()
    };
    let kept = there(&backup.join(LOG));
    assert!(kept.len() < there(&Path::new("node").join(LOG)).len());
    let copy = || Node::open(&disk, backup).unwrap();
    copy().assert_nothing_lost("a backup");
    disk.remove_file(&kept[0]).unwrap();
    let damaged = copy();
    assert_eq!(damaged.damage.len(), 1);
    assert!(damaged.lost().iter().any(|files| files.len() == 1));
}

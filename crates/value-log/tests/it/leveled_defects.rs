//! Losses of the original of this engine, each in a test of that name: this engine has none of them.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kvorum_backend::{ErrorKind, Lookup, ReadAt, Reading, TaskKind};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};

use crate::leveled_node::{
    BODY_BYTES, KEYS, NOW, Node, SMALL, close, files, flip, key_of, read_file, remove_files,
};

/// The most that a step may exceed its budget: its two current records, and a table's end.
const STEP_BYTES_MAX: u64 = SMALL.bytes + 8 * BODY_BYTES as u64;

fn value_of(key: usize) -> u8 {
    u8::try_from(key + 1).unwrap()
}

fn expected() -> BTreeMap<usize, u8> {
    (0..KEYS).map(|key| (key, value_of(key))).collect()
}

/// Overwrites values once, so that most of the log's first segments is garbage, and moves all
/// entries to tables.
fn put_over(node: &Node) {
    (0..KEYS).for_each(|key| node.put(key, 200));
    (0..KEYS)
        .filter(|key| !key.is_multiple_of(8))
        .for_each(|key| node.put(key, value_of(key)));
    node.flush();
    node.keep_store();
}

fn put_over_values() -> BTreeMap<usize, u8> {
    let value = |key: usize| {
        if key.is_multiple_of(8) {
            200
        } else {
            value_of(key)
        }
    };
    (0..KEYS).map(|key| (key, value(key))).collect()
}

/// The files of a directory with this suffix that contain the body of this value, and its offset.
fn bodies(disk: &MemoryDisk, directory: &str, suffix: &str, value: u8) -> Vec<(PathBuf, usize)> {
    let names = disk.list(Path::new(directory)).unwrap().into_iter();
    let paths = names
        .filter(|it| it.name.ends_with(suffix))
        .map(|it| Path::new(directory).join(it.name));
    let body = [value; BODY_BYTES];
    let found = paths.filter_map(|path| {
        let bytes = read_file(disk, &path);
        let at = bytes.windows(BODY_BYTES).position(|it| it == body)?;
        Some((path, at))
    });
    found.collect()
}

fn head_is_there(node: &Node, key: usize) -> bool {
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    matches!(node.store.head(&key_of(key), at), Ok(Lookup::Found(_)))
}

/// Checks all other keys.
fn check_others(node: &Node, damaged: &[usize], expected: &BTreeMap<usize, u8>) {
    for key in (0..KEYS).filter(|key| !damaged.contains(key)) {
        assert_eq!(
            node.value(key).unwrap(),
            expected.get(&key).copied(),
            "key {key}"
        );
    }
}

/// In the original, the first put of each journal file ignores the requested sync.
#[test]
fn sync_lost_after_the_journal_rolls() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    let mut expected = BTreeMap::new();
    let first = node.log.newest_segment();
    for key in 0..KEYS {
        node.put(key, value_of(key));
        expected.insert(key, value_of(key));
        for options in CrashOptions::extremes() {
            let again = Node::open(&disk.crash_image(options));
            assert_eq!(again.values(), expected, "{options:?}");
        }
    }
    assert!(
        node.log.newest_segment() > first + 3,
        "the journal did not roll"
    );
}

/// In the original, the active journal is cut off at the first unreadable record.
#[test]
fn truncation_at_the_first_bad_record() {
    for damaged in [0, 3, KEYS / 2, KEYS - 2] {
        for is_in_front in [false, true] {
            let disk = MemoryDisk::new();
            let node = Node::open(&disk);
            (0..KEYS).for_each(|key| node.put(key, value_of(key)));
            let killed = disk.crash_image(CrashOptions::everything());
            let (path, at) = bodies(&killed, "log", "", value_of(damaged)).remove(0);
            let offset = match is_in_front {
                true => at - 8,
                false => at + BODY_BYTES / 2,
            };
            flip(&killed, &path, offset);
            check_that_one_is_lost(&killed, damaged);
        }
    }
}

fn check_that_one_is_lost(disk: &MemoryDisk, damaged: usize) {
    let node = Node::open(disk);
    check_others(&node, &[damaged], &expected());
    match node.value(damaged) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
        // Its key is unknown, and the loss is reported.
        Ok(value) => {
            assert_eq!(value, None);
            assert!(
                !node.damage.is_empty(),
                "key {damaged} is lost without a word"
            );
        }
    }
    node.flush();
    node.keep_all();
    check_others(&node, &[damaged], &expected());
    close(node);
    // The ledger is rebuilt from the records behind the damage too.
    remove_files(disk, ".sst");
    let node = Node::open(disk);
    node.keep_store();
    check_others(&node, &[damaged], &expected());
    assert!(!matches!(node.value(damaged), Ok(Some(_))));
}

/// In the original, a complete journal file is renamed, and neither it nor its directory is synced.
#[test]
fn renames_that_were_not_synced() {
    let prepared = MemoryDisk::new();
    put_over(&Node::open(&prepared));
    let expected = put_over_values();
    let (mut cut, mut is_cut) = (0, true);
    while is_cut {
        let disk = prepared.crash_image(CrashOptions::everything());
        let node = Node::open(&disk);
        disk.cut_after(disk.operations() + cut);
        // Only the power cut can cause a failure.
        let collected = node.try_to_collect();
        while collected.is_ok()
            && let Some(Ok(_)) = node.upkeep_step(NOW)
        {}
        is_cut = disk.is_cut();
        for options in CrashOptions::extremes() {
            let image = disk.crash_image(options);
            let again = Node::open(&image);
            assert_eq!(again.values(), expected, "cut after {cut}, {options:?}");
            assert_eq!(
                again.store.status().lost,
                [],
                "cut after {cut}, {options:?}"
            );
        }
        cut += 3;
    }
    assert!(cut > 60, "few operations: {cut}");
}

/// The original's compaction drops a journal record that cannot be read, without a report.
#[test]
fn compaction_that_drops_records_with_a_bad_checksum_in_silence() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    put_over(&node);
    close(node);
    // In the value log.
    let (path, at) = bodies(&disk, "log", "", 200).remove(0);
    flip(&disk, &path, at + BODY_BYTES / 2);
    let node = Node::open(&disk);
    node.keep_all();
    let (in_log, reported) = (damaged_keys(&node), lost_in(&node, "value_log"));
    assert_eq!(in_log.len(), 1, "{reported:?}");
    assert!(!reported.is_empty(), "{in_log:?} went without a word");
    // In a journal file, half of which is then dropped.
    let kept = (0..KEYS).find(|key| key % 8 == 1).unwrap();
    close(node);
    let (path, at) = bodies(&disk, "store", ".journal", value_of(kept)).remove(0);
    flip(&disk, &path, at + BODY_BYTES / 2);
    let node = Node::open(&disk);
    (0..KEYS)
        .filter(|key| key % 8 != 1)
        .for_each(|key| node.put(key, value_of(key)));
    node.flush();
    node.keep_all();
    assert!(disk.info(&path).unwrap().is_none(), "it was not collected");
    assert_eq!(damaged_keys(&node), BTreeSet::from([kept]));
    assert!(
        !lost_in(&node, ".journal").is_empty(),
        "it went without a word"
    );
}

fn damaged_keys(node: &Node) -> BTreeSet<usize> {
    let is_damaged = |key: &usize| {
        let error = node.value(*key).err();
        error.is_some_and(|it| it.kind() == ErrorKind::Corrupt) && head_is_there(node, *key)
    };
    (0..KEYS).filter(is_damaged).collect()
}

fn lost_in(node: &Node, file: &str) -> Vec<String> {
    let lost = node.store.status().lost.into_iter();
    lost.map(|it| it.file)
        .filter(|it| it.contains(file))
        .collect()
}

/// In the original, a block of the ledger with a bad checksum counts as one without keys.
#[test]
fn an_unreadable_block_of_the_ledger_is_not_taken_for_an_empty_one() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    put_over(&node);
    close(node);
    let mut damaged = BTreeSet::new();
    for path in files(&disk, ".sst") {
        flip(&disk, &path, 40);
    }
    let node = Node::open(&disk);
    for key in 0..KEYS {
        match node.value(key) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                damaged.insert(key);
            }
            Ok(value) => assert_eq!(value, put_over_values().get(&key).copied(), "key {key}"),
        }
    }
    assert!(!damaged.is_empty() && damaged.len() < KEYS, "{damaged:?}");
    assert!(!lost_in(&node, ".sst").is_empty());
    // Merges drop the block, and its entries are rebuilt from the journal.
    (KEYS..2 * KEYS).for_each(|key| node.put(key, 1));
    node.keep_all();
    assert_eq!(node.values(), put_over_values());
}

/// The original's merge rewrites all files that overlap one, and no other work is done meanwhile.
#[test]
fn huge_merges() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    for round in 0..6 {
        (0..400).for_each(|key| node.put((key * 7 + round) % 400, value_of(round)));
        node.log.usage_changed();
        while let Some(step) = node.upkeep_step(NOW) {
            let cost = step.unwrap().cost_bytes;
            assert!(cost <= STEP_BYTES_MAX, "a step of {cost} bytes");
            // Reads and writes continue between any two steps.
            assert!(node.value(round).unwrap().is_some());
        }
        node.collect();
    }
    assert!(files(&disk, ".sst").len() > 3);
}

/// In the original, journals with little else than removals, which are never dropped, are collected
/// again and again.
#[test]
fn journals_of_removals_that_are_compacted_for_ever() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    // Entries that were put once stay in the log while their segment is full of live ones.
    (0..8 * KEYS).for_each(|key| node.put(key, 1));
    (0..8 * KEYS)
        .filter(|key| key.is_multiple_of(8))
        .for_each(|key| node.remove(key));
    (0..KEYS).for_each(|key| node.put(9 * KEYS + key, 2));
    (0..KEYS).for_each(|key| node.put(9 * KEYS + key, 3));
    node.flush();
    node.keep_all();
    check_that_it_rests(&disk, &node);
}

/// The same if the use of records is unknown.
#[test]
fn journals_of_unknown_use_that_are_compacted_for_ever() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    put_over(&node);
    node.keep_all();
    close(node);
    for path in files(&disk, ".sst") {
        flip(&disk, &path, 40);
    }
    let node = Node::open(&disk);
    (0..KEYS)
        .filter(|key| key.is_multiple_of(3))
        .for_each(|key| node.put(key, 9));
    node.flush();
    node.keep_all();
    check_that_it_rests(&disk, &node);
}

fn check_that_it_rests(disk: &MemoryDisk, node: &Node) {
    let before = files(disk, ".journal");
    node.keep_all();
    assert_eq!(files(disk, ".journal"), before);
    let due = node.store.maintenance_due(NOW);
    assert!(due.iter().all(|it| it.kind == TaskKind::Sync), "{due:?}");
}

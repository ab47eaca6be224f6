//! Every `leveled.*` key of riak.conf has its effect, seen in a store or in the node's sizes.

use std::collections::BTreeSet;
use std::path::Path;

use kvorum_backend::{StepBudget, TaskKind, Timestamp};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_settings::{Family, Fate, honoured_keys, riak_families};

use super::*;
use crate::engines::running::{NOW, Running, loaded, text};

const GIGABYTE: u64 = 1 << 30;
const STORE: &str = "/stores/0";
const BODY_BYTES: usize = 2_000;
const HOUR_MICROS: u64 = 3_600_000_000;

fn run_node(disk: &MemoryDisk, lines: &[&str]) -> Running {
    let of_node = [
        "storage_backend = leveled",
        "leveled.data_root = /stores",
        "value_log.segment_bytes = 64KB",
        "bitcask.merge.garbage_share_max = 5",
    ];
    Running::open(disk, &[&of_node, lines].concat())
}

fn memory(lines: &[&str], machine: Option<u64>) -> Memory {
    Memory::of(allowance(&loaded(lines).leveled), machine, 64)
}

fn store(lines: &[&str]) -> LeveledSettings {
    settings_of(&loaded(lines), &memory(lines, Some(GIGABYTE)), 5)
}

/// A key and a test of its effect.
type Effect = (&'static str, fn());

/// All honoured keys.
const EFFECTS: [Effect; 14] = [
    ("leveled.data_root", stores_are_where_data_root_says),
    ("leveled.sync_strategy", a_write_is_synced_as_configured),
    (
        "leveled.maximum_memory.percent",
        the_percentage_bounds_cache_and_buffers,
    ),
    (
        "leveled.maximum_memory",
        the_amount_bounds_cache_and_buffers,
    ),
    ("leveled.ledger_buffer", a_full_buffer_becomes_a_table),
    (
        "leveled.compression_method",
        bodies_are_packed_as_configured,
    ),
    (
        "leveled.compression_point",
        bodies_are_packed_when_they_are_put_or_moved,
    ),
    (
        "leveled.ledger_compression",
        tables_are_packed_as_configured,
    ),
    (
        "leveled.compression_level",
        tables_are_packed_from_the_level_on,
    ),
    (
        "leveled.max_run_length",
        so_many_files_are_rewritten_at_once,
    ),
    (
        "leveled.singlefile_compactionpercentage",
        one_file_is_rewritten_when_little_of_it_is_needed,
    ),
    (
        "leveled.maxrunlength_compactionpercentage",
        a_run_is_rewritten_when_its_part_is_needed,
    ),
    (
        "leveled.compaction_low_hour",
        files_are_rewritten_from_the_first_hour_on,
    ),
    (
        "leveled.compaction_top_hour",
        files_are_rewritten_until_the_last_hour_ends,
    ),
];

#[test]
fn every_key_has_its_effect() {
    for (_, effect) in EFFECTS {
        effect();
    }
}

#[test]
fn a_key_is_tested_here_or_listed_with_its_reason() {
    let tested: BTreeSet<&str> = EFFECTS.iter().map(|(name, _)| *name).collect();
    let is_ours = |name: &&str| name.starts_with("leveled.");
    let honoured: BTreeSet<&str> = honoured_keys()
        .map(|key| key.name)
        .filter(is_ours)
        .collect();
    assert_eq!(tested, honoured);
    let others = riak_families().iter().flat_map(Family::keys);
    for key in others.filter(|key| is_ours(&key.name)) {
        assert!(matches!(key.fate, Fate::Ignored(_)), "{}", key.name);
        assert!(!honoured.contains(key.name), "{}", key.name);
    }
}

/// Every put goes to the journal, so the node needs the value log at any durability.
#[test]
fn the_value_log_is_there_without_durability_too() {
    let running = run_node(&MemoryDisk::new(), &["durability = none"]);
    assert!(running.log.is_some());
}

impl Running {
    fn fill(&self, numbers: std::ops::Range<u32>) {
        numbers.for_each(|it| self.put(it, text(it, BODY_BYTES)));
    }

    /// Writes the ledger's memory to a table: a backup copies only tables, so it begins with a
    /// flush.
    fn flush(&self, disk: &MemoryDisk) {
        let copy = Path::new("/copy");
        self.store.backups().unwrap().backup(copy).unwrap();
        disk.remove_directory(copy).unwrap();
    }

    /// Merges all tables: older entries of a key count as needed until their tables are merged.
    fn merge_tables(&self) {
        let all = StepBudget { bytes: u64::MAX };
        for _ in 0..1_000 {
            let due = self.store.maintenance_due(NOW);
            let Some(task) = due.iter().find(|it| it.kind == TaskKind::Compact) else {
                return;
            };
            self.store.maintenance_step(task, all, NOW).unwrap();
        }
        unreachable!("merges do not end");
    }

    /// Moves entries that the value log releases to the journal's own files.
    fn collect(&self) {
        let log = self.log.as_ref().unwrap();
        let all = StepBudget { bytes: u64::MAX };
        for _ in 0..1_000 {
            log.usage_changed();
            while log.is_chore_due() && log.chore_step().unwrap() {}
            if log.collection_due().is_none() {
                return;
            }
            log.collection_step(all).unwrap();
        }
        unreachable!("collections do not end");
    }

    /// The cost of the rewriting of journal files that is due in this hour, in bytes.
    fn rewriting_at(&self, hour: u64) -> Option<u64> {
        let due = self.store.maintenance_due(Timestamp(hour * HOUR_MICROS));
        let task = due.iter().find(|it| it.kind == TaskKind::Collect);
        task.map(|it| it.cost_bytes)
    }
}

/// Bytes of a store's files with names that end so.
fn bytes(disk: &MemoryDisk, suffix: &str) -> Vec<u64> {
    let directory = Path::new(STORE);
    let entries = disk.list(directory).unwrap().into_iter();
    let named = entries.filter(|it| it.name.ends_with(suffix));
    let len = |name: &str| disk.info(&directory.join(name)).unwrap().unwrap().len;
    named.map(|it| len(&it.name)).collect()
}

fn stores_are_where_data_root_says() {
    let disk = MemoryDisk::new();
    let running = run_node(&disk, &["leveled.data_root = /elsewhere"]);
    assert_eq!(running.store.status().engine, "leveled");
    let manifest = Path::new("/elsewhere/0/manifest-0");
    assert!(disk.info(manifest).unwrap().is_some());
}

/// True if a value with an acknowledged put is there after a crash.
fn outlives(strategy: &str, crash: CrashOptions) -> bool {
    let disk = MemoryDisk::new();
    let line = format!("leveled.sync_strategy = {strategy}");
    let before = run_node(&disk, &[&line]);
    before.put(1, text(1, BODY_BYTES));
    let left = disk.crash_image(crash);
    run_node(&left, &[&line]).holds(1)
}

fn a_write_is_synced_as_configured() {
    for strategy in ["sync", "riak_sync"] {
        assert!(outlives(strategy, CrashOptions::nothing_unsynced()));
        assert!(outlives(strategy, CrashOptions::everything()));
    }
    assert!(!outlives("none", CrashOptions::nothing_unsynced()));
    // A crash of only the server loses nothing.
    assert!(outlives("none", CrashOptions::everything()));
}

/// Limit on cache and buffers together, in kilobytes: the cache rounds up less.
fn allowed(lines: &[&str], machine: Option<u64>) -> u64 {
    let shared = memory(lines, machine).shared();
    (shared.cache.bytes_max() + shared.memory.bytes_max()) / 1024
}

fn the_percentage_bounds_cache_and_buffers() {
    let machine = Some(100 * GIGABYTE);
    assert_eq!(allowed(&[], machine), 70 * GIGABYTE / 1024);
    let lines = ["leveled.maximum_memory.percent = 20"];
    assert_eq!(allowed(&lines, machine), 20 * GIGABYTE / 1024);
}

fn the_amount_bounds_cache_and_buffers() {
    let lines = ["leveled.maximum_memory = 3GB"];
    let machine = Some(100 * GIGABYTE);
    assert_eq!(allowed(&lines, machine), 3 * GIGABYTE / 1024);
    assert_eq!(allowed(&lines, Some(GIGABYTE)), GIGABYTE / 100 * 70 / 1024);
}

fn a_full_buffer_becomes_a_table() {
    let running = run_node(&MemoryDisk::new(), &["leveled.ledger_buffer = 128KB"]);
    let is_due = || {
        let due = running.store.maintenance_due(NOW);
        due.iter().any(|it| it.kind == TaskKind::Flush)
    };
    let mut number = 0;
    while !is_due() {
        // Bodies do not count.
        running.put(number, text(number, 20));
        number += 1;
    }
    let bytes = running.store.status().memory_bytes;
    assert!((96 << 10..=129 << 10).contains(&bytes), "{bytes}");
    assert_eq!(
        store(&["leveled.ledger_buffer = 8MB"]).ledger_buffer_bytes,
        (6 << 20) + 5
    );
}

/// Bytes that 300 bodies take of the journal.
fn journal_bytes(method: &str) -> u64 {
    let line = format!("leveled.compression_method = {method}");
    let running = run_node(&MemoryDisk::new(), &[&line]);
    let log = running.log.as_ref().unwrap();
    let before = log.status().bytes;
    running.fill(0..300);
    log.status().bytes - before
}

fn bodies_are_packed_as_configured() {
    let [none, lz4, zstd, native] = ["none", "lz4", "zstd", "native"].map(journal_bytes);
    assert!(none > 300 * BODY_BYTES as u64, "{none}");
    assert!(lz4 < none / 2 && zstd < lz4, "{lz4}, {zstd}");
    assert_eq!(native, zstd);
}

/// Bytes of bodies in the value log, and in files of the journal once they were moved.
fn logged_and_moved_bytes(lines: &[&str]) -> (u64, u64) {
    let disk = MemoryDisk::new();
    let running = run_node(&disk, lines);
    let log = running.log.as_ref().unwrap();
    let before = log.status().bytes;
    running.fill(0..100);
    let logged = log.status().bytes - before;
    // Other values make the segments worth collecting.
    (0..200).for_each(|_| running.put(u32::MAX, text(1, BODY_BYTES)));
    running.flush(&disk);
    running.collect();
    (logged, bytes(&disk, ".journal").iter().sum())
}

fn bodies_are_packed_when_they_are_put_or_moved() {
    let plain = logged_and_moved_bytes(&["leveled.compression_method = none"]);
    let receipt = logged_and_moved_bytes(&["leveled.compression_point = on_receipt"]);
    let compact = logged_and_moved_bytes(&["leveled.compression_point = on_compact"]);
    assert!(receipt.0 < plain.0 / 2, "{plain:?}, {receipt:?}");
    assert_eq!(compact.0, plain.0);
    assert!(
        compact.1 > 0 && compact.1 < plain.1 / 2,
        "{plain:?}, {compact:?}"
    );
}

/// The length of the table of a ledger with 2,000 keys.
fn table_bytes(lines: &[&str]) -> u64 {
    let disk = MemoryDisk::new();
    let running = run_node(&disk, lines);
    (0..2_000).for_each(|it| running.put(it, text(it, 20)));
    running.flush(&disk);
    bytes(&disk, ".sst").iter().sum()
}

fn tables_are_packed_as_configured() {
    let packed = |line: &str| table_bytes(&["leveled.compression_level = 0", line]);
    let with = |name: &str| packed(&format!("leveled.ledger_compression = {name}"));
    let [none, lz4, zstd, native] = ["none", "lz4", "zstd", "native"].map(with);
    assert!(lz4 < none && zstd < lz4, "{none}, {lz4}, {zstd}");
    assert_eq!(native, zstd);
    assert_eq!(packed("leveled.compression_method = zstd"), zstd);
    assert_eq!(packed("leveled.compression_method = none"), none);
}

fn tables_are_packed_from_the_level_on() {
    let none = table_bytes(&["leveled.ledger_compression = none"]);
    assert!(table_bytes(&["leveled.compression_level = 0"]) < none);
    // The table of a flush is on level 0.
    assert_eq!(table_bytes(&["leveled.compression_level = 1"]), none);
}

/// A node with some files of the journal, in each of which this many of ten bodies are needed.
fn journal(lines: &[&str], needed: u32) -> (MemoryDisk, Running) {
    let disk = MemoryDisk::new();
    let plain = ["leveled.compression_method = none"];
    let running = run_node(&disk, &[&plain, lines].concat());
    for round in 0..4 {
        running.fill(round * 100..round * 100 + 100);
        // Other values make the segments worth collecting.
        (0..200).for_each(|_| running.put(u32::MAX, text(1, BODY_BYTES)));
        running.flush(&disk);
        running.collect();
    }
    let again = (0..400).filter(|it| it % 10 >= needed);
    again.for_each(|it| running.put(it, text(it, BODY_BYTES)));
    running.flush(&disk);
    running.merge_tables();
    (disk, running)
}

/// A length that no run reaches, so that nothing is rewritten for being small.
const LONGEST: &str = "leveled.max_run_length = 64";

fn so_many_files_are_rewritten_at_once() {
    let cost = |length: &str| {
        let line = format!("leveled.max_run_length = {length}");
        let (disk, running) = journal(&[&line], 10);
        let files = bytes(&disk, ".journal");
        let largest = files.iter().copied().max().unwrap();
        (running.rewriting_at(0).unwrap() / 2, largest)
    };
    let ((two, largest), (four, _)) = (cost("2"), cost("4"));
    assert!(two <= 2 * largest && four > 2 * largest, "{two}, {four}");
    assert!(four <= 4 * largest, "{four}");
    assert_eq!(journal(&[LONGEST], 10).1.rewriting_at(0), None);
}

fn one_file_is_rewritten_when_little_of_it_is_needed() {
    let is_due = |percent: &str| {
        let line = format!("leveled.singlefile_compactionpercentage = {percent}");
        let run = "leveled.maxrunlength_compactionpercentage = 25";
        journal(&[LONGEST, run, &line], 4).1.rewriting_at(0)
    };
    assert_eq!(is_due("0.0"), None);
    assert!(is_due("55.0").is_some());
}

fn a_run_is_rewritten_when_its_part_is_needed() {
    let is_due = |percent: &str| {
        let line = format!("leveled.maxrunlength_compactionpercentage = {percent}");
        let single = "leveled.singlefile_compactionpercentage = 0";
        journal(&[LONGEST, single, &line], 2).1.rewriting_at(0)
    };
    // For a shorter run, the share is between 0 and this one.
    assert_eq!(is_due("30.0"), None);
    assert!(is_due("100.0").is_some());
}

/// Hours of two days in which a file is rewritten.
fn hours(low: &str, top: &str) -> Vec<u64> {
    let lines = [
        LONGEST,
        &format!("leveled.compaction_low_hour = {low}"),
        &format!("leveled.compaction_top_hour = {top}"),
    ];
    let (_disk, running) = journal(&lines, 1);
    let allowed = (0..48).filter(|hour| running.rewriting_at(*hour).is_some());
    allowed.collect()
}

fn files_are_rewritten_from_the_first_hour_on() {
    assert_eq!(hours("22", "23"), [22, 23, 46, 47]);
}

fn files_are_rewritten_until_the_last_hour_ends() {
    assert_eq!(hours("0", "1"), [0, 1, 24, 25]);
    assert_eq!(hours("23", "0"), [0, 23, 24, 47]);
}

//! Every `hanoidb.*` key of riak.conf has its effect, seen in a store or in the node's sizes.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, Reading, StepBudget, SyncStrategy,
    TaskKind, Timestamp, Write,
};
use kvorum_backend_hanoidb::{Hanoidb, Shared};
use kvorum_disk::{CrashOptions, FaultyDisk, MemoryDisk, OpenMode};
use kvorum_settings::{Family, Fate, honoured_keys, riak_families};

use super::*;
use crate::engines::running::{NOW, Running, key, loaded, text};

const GIGABYTE: u64 = 1 << 30;
const SECOND_MICROS: u64 = 1_000_000;

fn memory(lines: &[&str], machine: Option<u64>) -> Memory {
    Memory::of(allowance(&loaded(lines).hanoidb), machine, 64)
}

fn store(lines: &[&str]) -> HanoidbSettings {
    settings_of(&loaded(lines), &memory(lines, Some(GIGABYTE)), 5)
}

/// A key and a test of its effect.
type Effect = (&'static str, fn());

/// All honoured keys.
const EFFECTS: [Effect; 9] = [
    ("hanoidb.data_root", stores_are_where_data_root_says),
    ("hanoidb.sync_strategy", a_write_is_synced_as_configured),
    ("hanoidb.sync_interval", the_interval_is_that_of_syncs),
    (
        "hanoidb.maximum_memory.percent",
        the_percentage_bounds_cache_and_buffers,
    ),
    (
        "hanoidb.maximum_memory",
        the_amount_bounds_cache_and_buffers,
    ),
    ("hanoidb.top_level", the_unit_is_doubled_with_each_level),
    (
        "hanoidb.compress",
        values_and_tables_are_packed_as_configured,
    ),
    ("hanoidb.expiry_secs", objects_expire_after_their_time),
    ("hanoidb.block_size", blocks_are_as_large_as_configured),
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
    let is_ours = |name: &&str| name.starts_with("hanoidb.");
    let honoured: BTreeSet<&str> = honoured_keys()
        .map(|key| key.name)
        .filter(is_ours)
        .collect();
    assert_eq!(tested, honoured);
    let others = riak_families().iter().flat_map(Family::keys);
    let others: Vec<_> = others.filter(|key| is_ours(&key.name)).collect();
    assert_eq!(others.len(), 5);
    for key in others {
        assert!(!honoured.contains(key.name), "{}", key.name);
        match key.fate {
            Fate::Mapped(to) => {
                assert_eq!((key.name, to), ("hanoidb.page_size", "hanoidb.block_size"));
            }
            fate => assert!(matches!(fate, Fate::Ignored(_)), "{}", key.name),
        }
    }
}

fn run_node(disk: &MemoryDisk, lines: &[&str]) -> Running {
    let of_node = ["storage_backend = hanoidb", "hanoidb.data_root = /stores"];
    Running::open(disk, &[&of_node, lines].concat())
}

/// A store with these settings and a log of its own, on a disk that counts its operations.
struct Opened {
    disk: FaultyDisk,
    store: Hanoidb,
}

fn open(lines: &[&str]) -> Opened {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let shared = Shared::new(1 << 20, 1 << 30);
    let draw = Arc::new(|| 0x9e37_79b9_7f4a_7c15);
    let seam = Arc::new(disk.clone());
    let settings = store(lines);
    let store = Hanoidb::open(seam, Path::new("store"), &settings, shared, draw, None).unwrap();
    Opened { disk, store }
}

impl Opened {
    fn put(&self, number: u32, last_modified: Timestamp, body: Bytes) {
        let fields = Fields {
            last_modified,
            ..Fields::default()
        };
        let write = Write::put(key(number), fields, Bytes::from_static(b"head"), body);
        let batch = Batch::of(write);
        drop(self.store.put(&batch, Durability::Buffered).unwrap());
    }

    fn fill(&self, numbers: std::ops::Range<u32>, body_len: usize) {
        numbers.for_each(|it| self.put(it, NOW, text(it, body_len)));
    }

    /// Moves everything to tables: a backup copies only tables, so it begins with a flush.
    fn flush(&self) {
        let copy = Path::new("copy");
        self.store.backups().unwrap().backup(copy).unwrap();
        self.disk.remove_directory(copy).unwrap();
    }

    /// Does all upkeep.
    fn tend(&self) {
        for _ in 0..1000 {
            let Some(task) = self.store.maintenance_due(NOW).into_iter().next() else {
                return;
            };
            let budget = StepBudget { bytes: 1 << 20 };
            self.store.maintenance_step(&task, budget, NOW).unwrap();
        }
        unreachable!("upkeep does not end");
    }

    fn holds(&self, number: u32, now: Timestamp) -> bool {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now,
        };
        matches!(self.store.get(&key(number), at).unwrap(), Lookup::Found(_))
    }

    /// Bytes of all files with this suffix.
    fn bytes(&self, suffix: &str) -> u64 {
        let directory = Path::new("store");
        let entries = self.disk.list(directory).unwrap().into_iter();
        let named = entries.filter(|it| it.name.ends_with(suffix));
        named
            .map(|it| {
                self.disk
                    .info(&directory.join(it.name))
                    .unwrap()
                    .unwrap()
                    .len
            })
            .sum()
    }
}

fn stores_are_where_data_root_says() {
    let disk = MemoryDisk::new();
    let running = run_node(&disk, &[]);
    assert_eq!(running.store.status().engine, "hanoidb");
    let manifest = disk.info(Path::new("/stores/0/manifest-0"));
    assert!(manifest.unwrap().is_some());
}

/// Limit on cache and write buffers together, in kilobytes.
fn allowed(lines: &[&str], machine: Option<u64>) -> u64 {
    let shared = memory(lines, machine).shared();
    (shared.cache.bytes_max() + shared.memory.bytes_max()) / 1024
}

fn the_percentage_bounds_cache_and_buffers() {
    let machine = Some(100 * GIGABYTE);
    assert_eq!(allowed(&[], machine), 70 * GIGABYTE / 1024);
    let lines = ["hanoidb.maximum_memory.percent = 30"];
    assert_eq!(allowed(&lines, machine), 30 * GIGABYTE / 1024);
}

fn the_amount_bounds_cache_and_buffers() {
    let machine = Some(100 * GIGABYTE);
    let amount = |line| allowed(&[line], machine);
    assert_eq!(amount("hanoidb.maximum_memory = 3GB"), 3 * GIGABYTE / 1024);
    assert_eq!(
        amount("hanoidb.maximum_memory = 99GB"),
        70 * GIGABYTE / 1024
    );
}

/// Bytes in memory at which a store is due to write a table.
fn buffered(line: &str) -> u64 {
    let opened = open(&[line]);
    for number in 0..100_000 {
        opened.put(number, NOW, text(number, 200));
        let due = opened.store.maintenance_due(NOW);
        if due.iter().any(|it| it.kind == TaskKind::Flush) {
            return opened.store.status().memory_bytes;
        }
    }
    unreachable!("never full");
}

fn the_unit_is_doubled_with_each_level() {
    for (line, unit) in [
        ("hanoidb.top_level = 2", 64 << 10),
        ("hanoidb.top_level = 4", 256 << 10),
    ] {
        assert_eq!(store(&[line]).unit_bytes, unit);
        let found = buffered(line);
        assert!(
            (unit * 3 / 4..=unit + 1024).contains(&found),
            "{line}: {found}"
        );
    }
    assert_eq!(store(&[]).unit_bytes, 16 << 20);
    // Two flushes have more than a unit together, and are merged.
    let opened = open(&["hanoidb.top_level = 2"]);
    opened.fill(0..150, 200);
    opened.flush();
    opened.fill(150..300, 200);
    opened.flush();
    opened.tend();
    let details = opened.store.status().details;
    let levels = details.into_iter().find(|it| it.0 == "tables_per_level");
    let levels = levels.unwrap().1;
    assert!(levels.starts_with("0 0 0 1 "), "{levels}");
}

/// True if an acknowledged write is there after a crash.
fn outlives(line: &str, crash: CrashOptions) -> bool {
    let disk = MemoryDisk::new();
    let running = run_node(&disk, &[line]);
    running.put(3, text(3, 100));
    running.put(4, text(4, 2_000));
    let left = disk.crash_image(crash);
    drop(running);
    let running = run_node(&left, &[line]);
    assert_eq!(running.holds(3), running.holds(4));
    running.holds(3)
}

fn a_write_is_synced_as_configured() {
    let (sync, none) = (
        "hanoidb.sync_strategy = sync",
        "hanoidb.sync_strategy = none",
    );
    assert!(outlives(sync, CrashOptions::nothing_unsynced()));
    assert!(!outlives(none, CrashOptions::nothing_unsynced()));
    // A crash of only the server loses nothing.
    assert!(outlives(none, CrashOptions::everything()));
    let interval = store(&["hanoidb.sync_strategy = interval"]).sync;
    assert!(matches!(interval, SyncStrategy::Interval(_)));
}

fn the_interval_is_that_of_syncs() {
    let opened = open(&[
        "hanoidb.sync_strategy = interval",
        "hanoidb.sync_interval = 7s",
    ]);
    opened.fill(0..3, 100);
    let is_due = |seconds: u64| {
        let due = opened
            .store
            .maintenance_due(Timestamp(NOW.0 + seconds * SECOND_MICROS));
        due.iter().any(|it| it.kind == TaskKind::Sync)
    };
    assert!(!is_due(0) && !is_due(6) && is_due(8));
}

fn values_and_tables_are_packed_as_configured() {
    let taken = |compress: &str| {
        let line = format!("hanoidb.compress = {compress}");
        let opened = open(&[&line, "hanoidb.top_level = 2"]);
        // Flushes are not compressed, and the tables that they are merged to are.
        opened.fill(0..1_000, 300);
        opened.fill(1_000..1_200, 2_000);
        opened.flush();
        opened.tend();
        (opened.bytes(".sst"), opened.bytes(".blob"))
    };
    let (none, lz4, zstd) = (taken("none"), taken("lz4"), taken("zstd"));
    assert_eq!((taken("snappy"), taken("gzip")), (lz4, zstd));
    assert!(
        2 * lz4.1 < none.1 && zstd.1 < lz4.1,
        "{none:?} {lz4:?} {zstd:?}"
    );
    assert!(
        lz4.0 < none.0 && zstd.0 < lz4.0,
        "{none:?} {lz4:?} {zstd:?}"
    );
}

fn objects_expire_after_their_time() {
    let later = Timestamp(NOW.0 + 10 * SECOND_MICROS);
    let opened = open(&["hanoidb.expiry_secs = 9"]);
    opened.fill(0..1, 100);
    assert!(opened.holds(0, NOW) && !opened.holds(0, later));
    let opened = open(&["hanoidb.expiry_secs = 0"]);
    opened.fill(0..1, 100);
    assert!(opened.holds(0, later));
}

fn blocks_are_as_large_as_configured() {
    let bytes = |line| {
        let opened = open(&[line]);
        opened.fill(0..2_000, 30);
        opened.flush();
        opened.bytes(".sst")
    };
    let (small, large) = (
        bytes("hanoidb.block_size = 1KB"),
        bytes("hanoidb.block_size = 64KB"),
    );
    assert!(small > large + 2_000, "{small} {large}");
    assert_eq!(bytes("hanoidb.page_size = 1KB"), small);
    assert_eq!(store(&[]).block_bytes, 8 << 10);
}

#[test]
fn a_directory_of_the_original_is_refused_by_name() {
    let disk = MemoryDisk::new();
    let directory = Path::new("stores");
    refuse_original(&disk, directory).unwrap();
    disk.create_directory(directory).unwrap();
    for name in ["A-10.data", "nursery.log"] {
        let path = directory.join(name);
        drop(disk.open(&path, OpenMode::CreateNew).unwrap());
        let refusal = refuse_original(&disk, directory).unwrap_err().to_string();
        assert!(
            refusal.contains(name) && refusal.contains("HanoiDB"),
            "{refusal}"
        );
        disk.remove_file(&path).unwrap();
    }
    for name in ["manifest-0", "0000000012.sst", "A-x.data", "Z-1.data"] {
        assert!(!is_of_original(name), "{name}");
    }
}

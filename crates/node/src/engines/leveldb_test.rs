//! Every `leveldb.*` key of riak.conf has its effect, seen in a store or in the node's sizes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, Reading, StepBudget, SyncStrategy,
    TaskKind, Timestamp, Write,
};
use kvorum_backend_leveldb::{Leveldb, Shared};
use kvorum_disk::{CrashOptions, Disk, FaultyDisk, MemoryDisk};
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::SeededRandomness;
use kvorum_settings::{Family, Fate, honoured_keys, riak_families};

use super::*;
use crate::engines::Engines;
use crate::engines::running::{NOW, Running, key, loaded, text};
use crate::engines::tree_memory::MEMORY_BYTES_UNKNOWN;
use crate::store_roots::StoreRoots;

const GIGABYTE: u64 = 1 << 30;

fn memory(lines: &[&str], machine: Option<u64>) -> Memory {
    Memory::of(allowance(&loaded(lines).leveldb), machine, 64)
}

fn store(lines: &[&str]) -> LeveldbSettings {
    settings_of(&loaded(lines), &memory(lines, Some(GIGABYTE)), 5)
}

/// A key and a test of its effect.
type Effect = (&'static str, fn());

/// All honoured keys.
const EFFECTS: [Effect; 19] = [
    ("leveldb.data_root", stores_are_where_data_root_says),
    (
        "leveldb.maximum_memory.percent",
        the_percentage_bounds_cache_and_buffers,
    ),
    (
        "leveldb.maximum_memory",
        the_amount_bounds_cache_and_buffers,
    ),
    ("leveldb.limited_developer_mem", a_developer_needs_little),
    (
        "leveldb.write_buffer_size_min",
        a_buffer_is_written_from_its_least_size_on,
    ),
    (
        "leveldb.write_buffer_size_max",
        a_buffer_is_written_at_its_most_size,
    ),
    ("leveldb.sync_on_write", a_write_is_synced_as_configured),
    ("leveldb.bloomfilter", tables_have_filters_or_not),
    ("leveldb.block.size", blocks_are_as_large_as_configured),
    (
        "leveldb.block.restart_interval",
        more_keys_share_their_beginnings,
    ),
    ("leveldb.compression", values_are_packed_or_not),
    (
        "leveldb.compression.algorithm",
        values_are_packed_as_configured,
    ),
    (
        "leveldb.compaction.trigger.tombstone_count",
        removals_trigger_a_merge,
    ),
    ("leveldb.expiration", objects_expire_only_when_that_is_on),
    (
        "leveldb.expiration.retention_time",
        objects_expire_after_their_time,
    ),
    (
        "leveldb.expiration.mode",
        half_of_a_table_expired_is_enough_or_not,
    ),
    ("leveldb.tiered", old_tables_are_those_from_the_level_on),
    ("leveldb.tiered.path.fast", stores_are_behind_the_fast_path),
    (
        "leveldb.tiered.path.slow",
        old_tables_are_behind_the_slow_path,
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
    let is_ours = |name: &&str| name.starts_with("leveldb.");
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

fn run_node(disk: &MemoryDisk, lines: &[&str]) -> Running {
    let of_node = ["storage_backend = leveldb", "leveldb.data_root = /stores"];
    Running::open(disk, &[&of_node, lines].concat())
}

/// A store with these settings, on a disk that counts its operations.
struct Opened {
    disk: FaultyDisk,
    store: Leveldb,
}

fn open(lines: &[&str]) -> Opened {
    open_with(&store(lines))
}

/// Opens a store with its own log.
fn open_with(settings: &LeveldbSettings) -> Opened {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let shared = Shared::new(1 << 20, 1 << 30);
    let draw = Arc::new(|| 0x9e37_79b9_7f4a_7c15);
    let seam = Arc::new(disk.clone());
    let store = Leveldb::open(seam, Path::new("store"), settings, shared, draw, None).unwrap();
    Opened { disk, store }
}

impl Opened {
    fn put(&self, number: u32, last_modified: Timestamp, body: Bytes) {
        let fields = Fields {
            last_modified,
            ..Fields::default()
        };
        self.write(Write::put(
            key(number),
            fields,
            Bytes::from_static(b"head"),
            body,
        ));
    }

    fn write(&self, write: Write) {
        let batch = Batch::of(write);
        drop(self.store.put(&batch, Durability::Buffered).unwrap());
    }

    fn fill(&self, numbers: std::ops::Range<u32>, body_len: usize) {
        numbers.for_each(|it| self.put(it, NOW, text(it, body_len)));
    }

    /// Moves everything to tables: a backup copies only tables, so it begins with a flush.
    fn flush(&self) {
        let copy = Path::new("copy");
        let backups = self.store.backups().unwrap();
        backups.backup(copy).unwrap();
        self.disk.remove_directory(copy).unwrap();
    }

    fn is_due(&self, kind: TaskKind, now: Timestamp) -> bool {
        self.store
            .maintenance_due(now)
            .iter()
            .any(|it| it.kind == kind)
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

    fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let directory = Path::new("store");
        let entries = self.disk.list(directory).unwrap().into_iter();
        let named = entries.filter(|it| it.name.ends_with(suffix));
        named.map(|it| directory.join(it.name)).collect()
    }

    fn tables_per_level(&self) -> Vec<usize> {
        let details = self.store.status().details.into_iter();
        let levels = details.into_iter().find(|it| it.0 == "tables_per_level");
        let numbers = levels.unwrap().1;
        numbers.split(' ').map(|it| it.parse().unwrap()).collect()
    }

    /// Bytes of all files with this suffix.
    fn bytes(&self, suffix: &str) -> u64 {
        let files = self.files(suffix).into_iter();
        files
            .map(|it| self.disk.info(&it).unwrap().unwrap().len)
            .sum()
    }
}

/// Bytes that 300 longer values take of the value log.
fn log_bytes(lines: &[&str]) -> u64 {
    let grouped = ["leveldb.sync_on_write = on"];
    let running = run_node(&MemoryDisk::new(), &[&grouped, lines].concat());
    let log = running.log.as_ref().unwrap();
    let before = log.status().bytes;
    (0..300).for_each(|it| running.put(it, text(it, 2_000)));
    log.status().bytes - before
}

/// The length of all tables of a store with 2,000 short values.
fn table_bytes(lines: &[&str]) -> u64 {
    let opened = open(lines);
    opened.fill(0..2_000, 30);
    opened.flush();
    opened.bytes(".sst")
}

/// The bytes of 300 longer values apart from their keys.
fn value_bytes(lines: &[&str]) -> u64 {
    let opened = open(lines);
    opened.fill(0..300, 2_000);
    opened.flush();
    opened.bytes(".blob")
}

fn stores_are_where_data_root_says() {
    let disk = MemoryDisk::new();
    let lines = [
        "storage_backend = leveldb",
        "leveldb.data_root = /elsewhere",
    ];
    let ring_size = RingSize::new(8).unwrap();
    let randomness = Arc::new(SeededRandomness::new(1));
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let engines = Engines::new(seam, loaded(&lines), randomness);
    let partition: Partition = ring_size.partitions().next().unwrap();
    let store = engines.open(ring_size, partition, None, None).unwrap();
    assert_eq!(store.status().engine, "leveldb");
    assert!(
        disk.info(Path::new("/elsewhere/0/manifest-0"))
            .unwrap()
            .is_some()
    );
}

/// Files of the first partition's store behind the two paths, once its tables are on the last level.
fn tiered(level: &str) -> (Vec<String>, Vec<String>) {
    let disk = MemoryDisk::new();
    let level = format!("leveldb.tiered = {level}");
    let lines = [
        "storage_backend = leveldb",
        "leveldb.data_root = /stores",
        "leveldb.tiered.path.fast = /quick",
        "leveldb.tiered.path.slow = /large",
        &level,
    ];
    let ring_size = RingSize::new(8).unwrap();
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let randomness = Arc::new(SeededRandomness::new(1));
    let engines = Engines::new(seam, loaded(&lines), randomness);
    let partition: Partition = ring_size.partitions().next().unwrap();
    let open = || engines.open(ring_size, partition, None, None).unwrap();
    // Each is a table once the store is closed, and four are merged to the last level.
    for number in 0..4 {
        let store = open();
        let (head, body) = (Bytes::from_static(b"head"), text(number, 100));
        let write = Write::put(key(number), Fields::default(), head, body);
        drop(store.put(&Batch::of(write), Durability::Buffered).unwrap());
        store.close().unwrap();
    }
    let store = open();
    for task in store.maintenance_due(NOW) {
        let budget = StepBudget { bytes: u64::MAX };
        let _outcome = store.maintenance_step(&task, budget, NOW).unwrap();
    }
    drop(store);
    let names = |root: &str| match disk.list(&Path::new(root).join("0")) {
        Ok(entries) => entries.into_iter().map(|it| it.name).collect(),
        Err(_) => Vec::new(),
    };
    let found = (names("/quick/stores"), names("/large/stores"));
    engines.remove(ring_size, partition).unwrap();
    for root in ["/quick/stores/0", "/large/stores/0"] {
        assert!(disk.info(Path::new(root)).unwrap().is_none(), "{root}");
    }
    found
}

fn has(names: &[String], suffix: &str) -> bool {
    names.iter().any(|it| it.ends_with(suffix))
}

/// Numbers of tables of a store on each of many levels, and behind each of the two paths.
fn tables_by_tier(level: usize) -> (Vec<usize>, usize, usize) {
    let line = format!("leveldb.tiered = {level}");
    let lines = [
        "storage_backend = leveldb",
        "leveldb.data_root = /stores",
        "leveldb.tiered.path.fast = /quick",
        "leveldb.tiered.path.slow = /large",
        &line,
    ];
    let all = settings_of(&loaded(&lines), &memory(&lines, Some(GIGABYTE)), 5);
    let opened = open_with(&LeveldbSettings {
        tiers: StoreRoots::of(&loaded(&lines)).unwrap().tiers("0"),
        policy: small_levels(&all),
        ..all
    });
    for part in 0..6 {
        opened.fill(part * 1_000..part * 1_000 + 1_000, 30);
        opened.flush();
        opened.tend();
    }
    let large = Path::new("/large/stores/0");
    let listed = opened.disk.list(large).unwrap().into_iter();
    let slow = listed.filter(|it| it.name.ends_with(".sst")).count();
    (opened.tables_per_level(), opened.files(".sst").len(), slow)
}

fn old_tables_are_those_from_the_level_on() {
    let mut fast_counts = BTreeSet::new();
    for level in [1, 5, 6] {
        let (levels, fast, slow) = tables_by_tier(level);
        let (young, old) = levels.split_at(level);
        let expected = (young.iter().sum(), old.iter().sum());
        assert_eq!((fast, slow), expected, "{level}: {levels:?}");
        fast_counts.insert(fast);
    }
    assert_eq!(fast_counts.len(), 3, "{fast_counts:?}");
    let (fast, slow) = tiered("1");
    assert!(
        !has(&fast, ".sst") && has(&slow, ".sst"),
        "{fast:?} {slow:?}"
    );
    let lines = ["leveldb.tiered = off", "leveldb.tiered.path.fast = /quick"];
    assert_eq!(loaded(&lines).leveldb.tiers(), None);
}

fn stores_are_behind_the_fast_path() {
    let (fast, slow) = tiered("6");
    assert!(
        has(&fast, "manifest-0") && !has(&slow, "manifest-0"),
        "{slow:?}"
    );
}

fn old_tables_are_behind_the_slow_path() {
    let (_, slow) = tiered("6");
    assert!(has(&slow, "tier-fast") && has(&slow, ".sst"), "{slow:?}");
}

/// Kilobytes, so that the cache's rounding does not show.
fn kilobytes(bytes: u64) -> u64 {
    bytes / 1024
}

/// Limit on cache and write buffers together, in kilobytes.
fn allowed(lines: &[&str], machine: Option<u64>) -> u64 {
    let shared = memory(lines, machine).shared();
    kilobytes(shared.cache.bytes_max() + shared.memory.bytes_max())
}

fn the_percentage_bounds_cache_and_buffers() {
    let machine = Some(100 * GIGABYTE);
    assert_eq!(allowed(&[], machine), kilobytes(70 * GIGABYTE));
    let lines = ["leveldb.maximum_memory.percent = 30"];
    assert_eq!(allowed(&lines, machine), kilobytes(30 * GIGABYTE));
    // A container's limit counts as the machine's memory.
    assert_eq!(allowed(&[], Some(GIGABYTE)), kilobytes(GIGABYTE / 100 * 70));
    assert_eq!(allowed(&[], None), kilobytes(MEMORY_BYTES_UNKNOWN));
}

fn the_amount_bounds_cache_and_buffers() {
    let machine = Some(100 * GIGABYTE);
    let amount = |lines| allowed(&[lines], machine);
    assert_eq!(
        amount("leveldb.maximum_memory = 3GB"),
        kilobytes(3 * GIGABYTE)
    );
    // The smaller of both applies.
    assert_eq!(
        amount("leveldb.maximum_memory = 99GB"),
        kilobytes(70 * GIGABYTE)
    );
    let unknown = allowed(&["leveldb.maximum_memory = 1GB"], None);
    assert_eq!(unknown, kilobytes(GIGABYTE));
}

fn a_developer_needs_little() {
    let lines = ["leveldb.limited_developer_mem = on"];
    let machine = Some(100 * GIGABYTE);
    assert_eq!(allowed(&lines, machine), kilobytes(DEVELOPER_BYTES));
    for (lines, is_due) in [(&lines[..], true), (&[], false)] {
        let opened = open(lines);
        opened.fill(0..3_000, 1_000);
        assert_eq!(opened.is_due(TaskKind::Flush, NOW), is_due, "{lines:?}");
    }
}

/// Bytes that a store with these settings takes before it writes a table.
fn buffered(lines: &[&str], drawn: u64) -> u64 {
    let settings = settings_of(&loaded(lines), &memory(lines, Some(GIGABYTE)), drawn);
    let opened = open_with(&settings);
    for number in 0..100_000 {
        opened.put(number, NOW, text(number, 200));
        if opened.is_due(TaskKind::Flush, NOW) {
            return opened.store.status().memory_bytes;
        }
    }
    unreachable!("never full");
}

const SMALL_BUFFERS: [&str; 2] = [
    "leveldb.write_buffer_size_min = 128KB",
    "leveldb.write_buffer_size_max = 256KB",
];

fn a_buffer_is_written_from_its_least_size_on() {
    let found = buffered(&SMALL_BUFFERS, 0);
    assert!((128 << 10..129 << 10).contains(&found), "{found}");
    let large = store(&["leveldb.write_buffer_size_min = 90MB"]);
    assert_eq!(large.write_buffer_bytes, 90 << 20);
}

fn a_buffer_is_written_at_its_most_size() {
    let found = buffered(&SMALL_BUFFERS, 128 << 10);
    assert!((256 << 10..257 << 10).contains(&found), "{found}");
    for drawn in [1, u64::MAX, 77_777] {
        let settings = loaded(&SMALL_BUFFERS);
        let memory = memory(&SMALL_BUFFERS, None);
        let bytes = settings_of(&settings, &memory, drawn).write_buffer_bytes;
        assert!((128 << 10..=256 << 10).contains(&bytes), "{bytes}");
    }
}

/// Stores with equal writes do not flush in the same seconds.
#[test]
fn how_far_stores_may_lie_behind_the_log_differs_by_up_to_a_factor_of_two() {
    let lines = [
        "value_log.bytes_max = 64MB",
        "value_log.segment_bytes = 4MB",
    ];
    let (settings, memory) = (loaded(&lines), memory(&lines, None));
    let of_leveldb =
        |drawn: u64| settings_of(&settings, &memory, drawn << 32).log_segments_behind_max;
    let of_bitcask = |drawn| super::super::bitcask::settings_of(&settings, drawn);
    let drawn: BTreeSet<u32> = (0..100).map(of_leveldb).collect();
    assert_eq!(drawn, (8..=16).collect());
    let drawn: BTreeSet<u32> = (0..100)
        .map(|drawn| of_bitcask(drawn).log_segments_behind_max)
        .collect();
    assert_eq!(drawn, (8..=16).collect());
    let lines = [
        "value_log.bytes_max = 128KB",
        "value_log.segment_bytes = 64KB",
    ];
    let of_two = |drawn| super::segments_behind_max(&loaded(&lines), drawn);
    assert_eq!((of_two(6), of_two(7)), (2, 1));
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
    let (on, off) = ("leveldb.sync_on_write = on", "leveldb.sync_on_write = off");
    assert!(outlives(on, CrashOptions::nothing_unsynced()));
    assert!(!outlives(off, CrashOptions::nothing_unsynced()));
    // A crash of only the server loses nothing.
    assert!(outlives(on, CrashOptions::everything()));
    assert!(outlives(off, CrashOptions::everything()));
    // Without the value log a store has one of its own.
    let opened = open(&[off]);
    opened.fill(0..10, 100);
    assert_eq!(opened.files(".segment").len(), 1);
}

fn tables_have_filters_or_not() {
    let reads = |lines: &[&str]| {
        let opened = open(lines);
        (0..4_000)
            .step_by(2)
            .for_each(|it| opened.put(it, NOW, text(it, 30)));
        opened.flush();
        // The first reads read the index.
        (0..4_000)
            .step_by(400)
            .for_each(|it| assert!(opened.holds(it, NOW)));
        let before = opened.disk.operations();
        (1..4_000)
            .step_by(100)
            .for_each(|it| assert!(!opened.holds(it, NOW)));
        opened.disk.operations() - before
    };
    let (with, without) = (reads(&[]), reads(&["leveldb.bloomfilter = off"]));
    assert!(
        with < 3 && without > 5,
        "{with} and {without} reads for 40 absent keys"
    );
}

fn blocks_are_as_large_as_configured() {
    // Each block costs a frame and a place in the index.
    let small = table_bytes(&["leveldb.block.size = 1KB"]);
    let large = table_bytes(&["leveldb.block.size = 64KB"]);
    let middle = table_bytes(&[]);
    assert!(
        small > middle + 1_000 && middle > large + 1_000,
        "{small}, {middle}, {large}"
    );
}

fn more_keys_share_their_beginnings() {
    let each = table_bytes(&["leveldb.block.restart_interval = 1"]);
    let few = table_bytes(&["leveldb.block.restart_interval = 64"]);
    // The common prefixes are about as long as bucket and type.
    assert!(each > few + 2_000 * 10, "{each}, {few}");
}

/// In blob files, and in the value log if there is one.
fn values_are_packed_or_not() {
    for bytes in [value_bytes, log_bytes] {
        let plain = bytes(&["leveldb.compression = off"]);
        let packed = bytes(&["leveldb.compression = on"]);
        assert!(
            plain > 300 * 2_000 && packed < plain / 2,
            "{plain}, {packed}"
        );
    }
}

fn values_are_packed_as_configured() {
    for bytes in [value_bytes, log_bytes] {
        let algorithm = |name: &str| bytes(&[&format!("leveldb.compression.algorithm = {name}")]);
        let (lz4, zstd) = (algorithm("lz4"), algorithm("zstd"));
        assert!(zstd < lz4, "{zstd}, {lz4}");
        assert_eq!(algorithm("snappy"), lz4);
    }
}

/// Levels so small that a few thousand entries are on all of them.
fn small_levels(settings: &LeveldbSettings) -> PolicySettings {
    PolicySettings {
        level_zero_tables: 1,
        base_bytes: 4_000,
        multiplier: 2,
        table_bytes_max: 50_000,
        ..settings.policy.clone()
    }
}

/// Bytes of the tables of a store of short values: all on level 0, and all on the last levels.
fn young_and_old_bytes(lines: &[&str]) -> (u64, u64) {
    let all = store(lines);
    let opened = open_with(&LeveldbSettings {
        policy: small_levels(&all),
        ..all
    });
    opened.fill(0..6_000, 30);
    opened.flush();
    let young = opened.bytes(".sst");
    // Until the young levels are empty.
    for more in 0..100 {
        opened.tend();
        if opened.tables_per_level()[..2] == [0, 0] {
            return (young, opened.bytes(".sst"));
        }
        opened.fill(6_000 + more..6_001 + more, 30);
        opened.flush();
    }
    unreachable!("tables stay young");
}

/// Tables that are merged again soon are not compressed, the others as configured.
#[test]
fn old_tables_are_packed_as_configured_and_young_ones_are_not() {
    let with =
        |name: &str| young_and_old_bytes(&[&format!("leveldb.compression.algorithm = {name}")]);
    let (young, plain) = young_and_old_bytes(&["leveldb.compression = off"]);
    let (lz4, zstd) = (with("lz4"), with("zstd"));
    assert_eq!((lz4.0, zstd.0), (young, young));
    assert!(zstd.1 < lz4.1, "{zstd:?}, {lz4:?}");
    assert!(lz4.1 < plain * 4 / 5, "{lz4:?}, {plain}");
}

fn removals_trigger_a_merge() {
    let line = "leveldb.compaction.trigger.tombstone_count";
    let is_due = |value: &str| {
        let opened = open(&[&format!("{line} = {value}")]);
        for part in 0..4 {
            opened.fill(part * 1_000..part * 1_000 + 1_000, 30);
            opened.flush();
        }
        opened.tend();
        let before = opened.bytes(".sst");
        (0..1_500).for_each(|it| opened.write(Write::remove(key(it))));
        opened.flush();
        let is_due = opened.is_due(TaskKind::Compact, NOW);
        opened.tend();
        assert_eq!(opened.bytes(".sst") < before * 3 / 4, is_due);
        is_due
    };
    assert!(is_due("1000"));
    assert!(!is_due("2000"));
    assert!(!is_due("off"));
}

const HOUR: u64 = 3_600_000_000;

fn objects_expire_only_when_that_is_on() {
    let time = "leveldb.expiration.retention_time = 1h";
    for (switch, is_there) in [("on", false), ("off", true)] {
        let opened = open(&[time, &format!("leveldb.expiration = {switch}")]);
        opened.fill(0..1, 30);
        assert_eq!(opened.holds(0, Timestamp(NOW.0 + HOUR)), is_there);
    }
}

fn objects_expire_after_their_time() {
    for (text, micros) in [("1h", HOUR), ("30", HOUR / 2), ("2d", 48 * HOUR)] {
        let time = format!("leveldb.expiration.retention_time = {text}");
        let opened = open(&["leveldb.expiration = on", &time]);
        opened.fill(0..1, 30);
        opened.flush();
        assert!(opened.holds(0, Timestamp(NOW.0 + micros - 1)), "{text}");
        assert!(!opened.holds(0, Timestamp(NOW.0 + micros)), "{text}");
    }
    assert_eq!(store(&["leveldb.expiration = on"]).expiry, None);
}

fn half_of_a_table_expired_is_enough_or_not() {
    for (mode, is_due_early) in [("normal", true), ("whole_file", false)] {
        let opened = open(&[
            "leveldb.expiration = on",
            "leveldb.expiration.retention_time = 1h",
            &format!("leveldb.expiration.mode = {mode}"),
        ]);
        for number in 0..200 {
            let at = Timestamp(NOW.0 + u64::from(number) * HOUR / 200);
            opened.put(number, at, text(number, 30));
        }
        opened.flush();
        let is_due = |after: u64| opened.is_due(TaskKind::Expire, Timestamp(NOW.0 + after));
        assert!(!is_due(HOUR + HOUR / 4), "{mode}");
        assert_eq!(is_due(HOUR + HOUR * 3 / 4), is_due_early, "{mode}");
        assert!(is_due(2 * HOUR), "{mode}");
    }
}

#[test]
fn write_buffers_take_no_more_than_they_can_use_nor_the_whole_memory() {
    let small = memory(&[], Some(GIGABYTE));
    assert_eq!(small.write_buffers, GIGABYTE / 100 * 70 / 100 * 40);
    let large = memory(&[], Some(1000 * GIGABYTE));
    assert_eq!(large.write_buffers, 2 * 64 * (60 << 20));
}

/// Stores that fill alike would all be flushed at once, and merged at once later.
#[test]
fn partitions_of_a_node_write_their_buffers_at_different_sizes() {
    let lines = [
        &["storage_backend = leveldb", "leveldb.data_root = /stores"],
        &SMALL_BUFFERS[..],
    ]
    .concat();
    let ring_size = RingSize::new(8).unwrap();
    let seam: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let engines = Engines::new(seam, loaded(&lines), Arc::new(SeededRandomness::new(1)));
    let buffered = |partition: Partition| {
        let store = engines.open(ring_size, partition, None, None).unwrap();
        let wants_flush = || {
            let due = store.maintenance_due(NOW);
            due.iter().any(|it| it.kind == TaskKind::Flush)
        };
        let mut number = 0;
        while !wants_flush() {
            let (head, body) = (Bytes::from_static(b"head"), text(number, 200));
            let write = Write::put(key(number), Fields::default(), head, body);
            drop(store.put(&Batch::of(write), Durability::Buffered).unwrap());
            number += 1;
        }
        store.status().memory_bytes
    };
    let found: BTreeSet<u64> = ring_size.partitions().map(buffered).collect();
    assert!(found.len() > 6, "{found:?}");
    let span = found.last().unwrap() - found.first().unwrap();
    assert!(span > 32 << 10, "{found:?}");
    assert!(
        found.iter().all(|it| (128 << 10..=257 << 10).contains(it)),
        "{found:?}"
    );
}

/// A cache and a budget for each store would add up to many times the node's limit.
#[test]
fn all_stores_of_a_node_have_one_cache_and_one_budget_for_memtables() {
    let lines = ["storage_backend = leveldb", "leveldb.data_root = /stores"];
    let ring_size = RingSize::new(8).unwrap();
    let seam: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let engines = Engines::new(seam, loaded(&lines), Arc::new(SeededRandomness::new(1)));
    let shared = engines.trees_shared().unwrap();
    let open = |partition: Option<Partition>| match partition {
        Some(partition) => engines.open(ring_size, partition, None, None).unwrap(),
        None => engines.open_hints(None).unwrap(),
    };
    let of_all = || ring_size.partitions().map(Some).chain([None]);
    let stores: Vec<Arc<dyn Backend>> = of_all().map(open).collect();
    let mut in_memory = shared.memory.used();
    for store in &stores {
        for number in 0..100 {
            let (head, body) = (Bytes::from_static(b"head"), text(number, 200));
            let write = Write::put(key(number), Fields::default(), head, body);
            drop(store.put(&Batch::of(write), Durability::Buffered).unwrap());
        }
        let with_this = shared.memory.used();
        assert!(with_this > in_memory + 100 * 200, "{with_this}");
        in_memory = with_this;
    }
    stores.iter().for_each(|store| store.close().unwrap());
    drop(stores);
    let mut in_cache = shared.cache.bytes();
    for store in of_all().map(open) {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: NOW,
        };
        assert!(matches!(store.get(&key(7), at).unwrap(), Lookup::Found(_)));
        let with_this = shared.cache.bytes();
        assert!(with_this > in_cache + 200, "{with_this} after {in_cache}");
        in_cache = with_this;
    }
}

#[test]
fn with_syncs_in_intervals_the_stores_own_log_is_synced() {
    let lines = ["durability = interval", "durability.interval = 3s"];
    let settings = store(&lines);
    assert_eq!(
        settings.sync,
        SyncStrategy::Interval(Duration::from_secs(3))
    );
    let opened = open_with(&settings);
    opened.fill(0..10, 30);
    let is_due = |after: u64| opened.is_due(TaskKind::Sync, Timestamp(NOW.0 + after));
    assert!(!is_due(0) && !is_due(2_900_000) && is_due(3_000_000));
    opened.store.sync().unwrap();
    assert!(!is_due(9_000_000));
}

//! Every `bitcask.*` key of riak.conf has its effect, seen in a store, in the node's value log, or on
//! the disk below them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, Reading, Receipt, StepBudget, TaskKind,
    Timestamp, Write,
};
use kvorum_backend_bitcask::Bitcask;
use kvorum_disk::{Disk, FaultyDisk, MemoryDisk, Operation};
use kvorum_encoding::StorageKey;
use kvorum_maintenance::MaintainedLog as _;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::SeededRandomness;
use kvorum_settings::{Configuration, Family, Fate, honoured_keys, riak_families};
use kvorum_value_log::{Tenant, ValueLog};

use super::*;
use crate::engines::Engines;
use crate::maintained_value_log::{self, MaintainedValueLog};

const HOUR: u64 = 3_600_000_000;
/// Noon of a day, in microseconds: the time of entries and queries.
const NOW: Timestamp = Timestamp(19_000 * 24 * HOUR + 12 * HOUR);
/// Ten values of this length fill a file of the smallest size.
const VALUE_BYTES: usize = 6_200;
const SMALL_FILES: &str = "bitcask.max_file_size = 64KB";
/// Values keep their lengths; a later line overrides this one.
const NOT_PACKED: &str = "bitcask.compression = none";
const NO_SMALL: &str = "bitcask.merge.thresholds.small_file = disabled";
/// Leaves merging to the triggers.
const ANY_SHARE: &str = "bitcask.merge.garbage_share_max = 100";
/// Triggers that no fragmentation reaches.
const NOT_BY_KEYS: [&str; 2] = [
    "bitcask.merge.triggers.fragmentation = 100",
    "bitcask.merge.thresholds.fragmentation = 100",
];

/// A key and a test of its effect.
type Effect = (&'static str, fn());

/// All honoured keys.
const EFFECTS: [Effect; 18] = [
    ("bitcask.data_root", stores_are_where_data_root_says),
    ("bitcask.sync.strategy", a_put_is_synced_as_configured),
    ("bitcask.sync.interval", syncs_come_in_their_interval),
    ("bitcask.max_file_size", files_end_at_their_size),
    ("bitcask.compression", values_are_packed_as_configured),
    ("bitcask.read_cache", what_was_read_is_kept_or_not),
    ("bitcask.merge.policy", merges_run_always_or_never),
    ("bitcask.merge.window.start", no_merge_before_the_window),
    ("bitcask.merge.window.end", no_merge_after_the_window),
    (
        "bitcask.merge.garbage_share_max",
        too_large_a_share_of_garbage_is_freed,
    ),
    (
        "bitcask.merge.triggers.fragmentation",
        garbage_keys_of_a_file_trigger_a_merge,
    ),
    (
        "bitcask.merge.triggers.dead_bytes",
        garbage_bytes_of_a_file_trigger_a_merge,
    ),
    (
        "bitcask.merge.thresholds.fragmentation",
        files_with_garbage_keys_take_part,
    ),
    (
        "bitcask.merge.thresholds.dead_bytes",
        files_with_garbage_bytes_take_part,
    ),
    ("bitcask.merge.thresholds.small_file", small_files_take_part),
    ("bitcask.expiry", objects_expire_after_their_time),
    (
        "bitcask.expiry.grace_time",
        expired_objects_stay_on_disk_for_the_grace_time,
    ),
    ("bitcask.merge.window.start", a_window_may_go_past_midnight),
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
    let is_ours = |name: &&str| name.starts_with("bitcask.");
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

fn loaded(lines: &[&str]) -> Settings {
    let no_more: [&str; 0] = [];
    Configuration::load(&lines.join("\n"), &no_more)
        .unwrap()
        .settings
}

/// A store with these settings, on a disk that counts its operations.
struct Opened {
    disk: FaultyDisk,
    store: Arc<dyn Backend>,
    log: Option<MaintainedValueLog>,
}

/// Opens a store with only its own files, of the smallest size.
fn open(lines: &[&str]) -> Opened {
    open_on(FaultyDisk::over_memory(&MemoryDisk::new()), lines)
}

fn open_on(disk: FaultyDisk, lines: &[&str]) -> Opened {
    let settings = loaded(&[&[SMALL_FILES, NOT_PACKED], lines].concat());
    let seam = Arc::new(disk.clone());
    let own = settings_of(&settings, 0);
    let store = Bitcask::open(seam, Path::new("store"), own, Arc::new(|| 7), None).unwrap();
    let store = match read_cache(&settings, None) {
        Some(cache) => store.with_cache(cache),
        None => store,
    };
    Opened {
        disk,
        store: Arc::new(store),
        log: None,
    }
}

/// Opens a store with its entries in the value log, whose files have the smallest size.
fn open_logged(lines: &[&str]) -> Opened {
    let small_segments = "value_log.segment_bytes = 64KB";
    let settings = loaded(&[&[small_segments, NOT_PACKED], lines].concat());
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let log: ValueLog =
        maintained_value_log::open_value_log(&seam, Path::new("log"), &settings, 5).unwrap();
    let own = settings_of(&settings, 0);
    let (draw, shared) = (Arc::new(|| 7), log.clone());
    let store = Bitcask::open(seam, Path::new("store"), own, draw, Some(shared)).unwrap();
    let store = Arc::new(store);
    let tenant: Arc<dyn Tenant> = store.clone();
    log.admit(&[tenant]).unwrap();
    Opened {
        disk,
        store,
        log: Some(MaintainedValueLog {
            values: log,
            merges: merge_policy(&settings),
        }),
    }
}

fn key(number: u32) -> StorageKey {
    StorageKey::from_encoded(format!("{number:08}").into_bytes())
}

/// Words, as values often are.
fn text(number: u32, len: usize) -> Bytes {
    let words = (0..).map(|at| format!("value {} of key {number}; ", at * 7919 % 1000));
    let text: Vec<u8> = words.flat_map(String::into_bytes).take(len).collect();
    text.into()
}

impl Opened {
    /// Closes the store, which has only its own files, and opens it with these settings.
    fn open_again(self, lines: &[&str]) -> Self {
        self.store.close().unwrap();
        drop(self.store);
        open_on(self.disk, lines)
    }

    fn put(&self, number: u32) -> Receipt {
        let fields = Fields {
            last_modified: NOW,
            ..Fields::default()
        };
        let body = text(number, VALUE_BYTES);
        let write = Write::put(key(number), fields, Bytes::from_static(b"head"), body);
        let batch = Batch::of(write);
        self.store.put(&batch, Durability::BackendDefault).unwrap()
    }

    fn fill(&self, numbers: std::ops::Range<u32>) {
        numbers.for_each(|it| {
            self.put(it).wait().unwrap();
        });
    }

    fn is_due(&self, kind: TaskKind, now: Timestamp) -> bool {
        let tasks = self.store.maintenance_due(now);
        tasks.iter().any(|it| it.kind == kind)
    }

    /// Does all upkeep, the log's included. Returns the kinds of the store's tasks.
    fn tend(&self, now: Timestamp) -> Vec<TaskKind> {
        let mut done = Vec::new();
        let budget = StepBudget { bytes: 1 << 20 };
        for _ in 0..1000 {
            let due = self.log.as_ref().map(|log| (log, log.due(now).tasks));
            if let Some((log, [task, ..])) = due.as_ref().map(|(log, tasks)| (log, &tasks[..])) {
                log.step(task, budget).unwrap();
            } else if let Some(task) = self.store.maintenance_due(now).into_iter().next() {
                self.store.maintenance_step(&task, budget, now).unwrap();
                done.push(task.kind);
            } else {
                return done;
            }
        }
        unreachable!("upkeep does not end: {done:?}");
    }

    fn holds(&self, number: u32, now: Timestamp) -> bool {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now,
        };
        matches!(self.store.get(&key(number), at).unwrap(), Lookup::Found(_))
    }

    fn count(&self, operation: Operation) -> usize {
        let log = self.disk.log();
        log.iter().filter(|it| it.operation == operation).count()
    }

    /// Bytes of all files of records.
    fn data_bytes(&self) -> u64 {
        let directory = Path::new("store");
        let entries = self.disk.list(directory).unwrap().into_iter();
        let data = entries.filter(|it| it.name.ends_with(".segment"));
        let lens = data.map(|it| {
            self.disk
                .info(&directory.join(it.name))
                .unwrap()
                .unwrap()
                .len
        });
        lens.sum()
    }
}

/// Two full files of ten values, with this many garbage values each.
fn two_files(lines: &[&str], garbage: [u32; 2]) -> Opened {
    let opened = open(lines);
    opened.fill(0..20);
    opened.fill(0..garbage[0]);
    opened.fill(10..10 + garbage[1]);
    // The second file is full, and new values of old keys are in later files.
    opened.fill(20..40);
    // Both are finished before anything is merged.
    let tasks = opened.store.maintenance_due(NOW).into_iter();
    for task in tasks.filter(|it| it.kind == TaskKind::Hint) {
        let budget = StepBudget { bytes: u64::MAX };
        opened.store.maintenance_step(&task, budget, NOW).unwrap();
    }
    opened
}

/// Number of garbage values after a merge was due and upkeep was done; `None` if no merge was due.
fn garbage_after_merge(lines: &[&str], garbage: [u32; 2]) -> Option<u64> {
    let opened = two_files(&[&[NO_SMALL, ANY_SHARE], lines].concat(), garbage);
    let done = opened.tend(NOW);
    let left = opened.store.status().garbage_bytes / VALUE_BYTES as u64;
    done.contains(&TaskKind::Merge).then_some(left)
}

fn garbage_keys_of_a_file_trigger_a_merge() {
    let line = "bitcask.merge.triggers.fragmentation = 50";
    assert_eq!(garbage_after_merge(&[line], [4, 0]), None);
    assert_eq!(garbage_after_merge(&[line], [5, 0]), Some(0));
    // Riak's default.
    assert_eq!(garbage_after_merge(&[], [5, 5]), None);
    assert_eq!(garbage_after_merge(&[], [6, 0]), Some(0));
}

fn garbage_bytes_of_a_file_trigger_a_merge() {
    let lines = [
        &NOT_BY_KEYS[..],
        &["bitcask.merge.triggers.dead_bytes = 20KB"],
    ]
    .concat();
    let lines = [&lines[..], &["bitcask.merge.thresholds.dead_bytes = 1KB"]].concat();
    assert_eq!(garbage_after_merge(&lines, [3, 3]), None);
    assert_eq!(garbage_after_merge(&lines, [4, 0]), Some(0));
}

fn files_with_garbage_keys_take_part() {
    assert_eq!(garbage_after_merge(&[], [6, 3]), Some(3));
    assert_eq!(garbage_after_merge(&[], [6, 4]), Some(0));
    let line = "bitcask.merge.thresholds.fragmentation = 30";
    assert_eq!(garbage_after_merge(&[line], [6, 3]), Some(0));
}

fn files_with_garbage_bytes_take_part() {
    let lines = [
        "bitcask.merge.thresholds.fragmentation = 60",
        "bitcask.merge.thresholds.dead_bytes = 20KB",
    ];
    assert_eq!(garbage_after_merge(&lines, [6, 3]), Some(3));
    assert_eq!(garbage_after_merge(&lines, [6, 4]), Some(0));
}

/// A file is small compared with the limit on its store's files: here the limit was raised after
/// they were written. Small files are not merged if the limit allows no larger ones.
fn small_files_take_part() {
    let merged_bytes = |lines: &[&str]| {
        let opened = two_files(&[ANY_SHARE], [6, 0]);
        let opened = opened.open_again(&[lines, &[ANY_SHARE]].concat());
        let before = opened.store.status().live_bytes;
        let written = opened.store.status().written_bytes;
        opened.tend(NOW);
        assert_eq!(opened.store.status().live_bytes, before);
        opened.store.status().written_bytes - written
    };
    let raised = "bitcask.max_file_size = 1MB";
    let taken = "bitcask.merge.thresholds.small_file = 1MB";
    // Four values are copied, or all of the finished files.
    let alone = merged_bytes(&[raised, NO_SMALL]);
    let with_small = merged_bytes(&[raised, taken]);
    assert!(
        alone < 40_000 && with_small > 150_000,
        "{alone}, {with_small}"
    );
    let at_their_limit = merged_bytes(&[taken]);
    assert!(at_their_limit < 40_000, "{at_their_limit}");
}

fn too_large_a_share_of_garbage_is_freed() {
    // No single file is a reason for a merge: ten of all fifty values are garbage.
    let is_merged = |line| {
        let opened = two_files(&[line, NO_SMALL], [5, 5]);
        opened.tend(NOW).contains(&TaskKind::Merge)
    };
    assert!(is_merged("bitcask.merge.garbage_share_max = 20"));
    assert!(!is_merged("bitcask.merge.garbage_share_max = 21"));
    assert!(!is_merged(ANY_SHARE));
    // A third of the log is garbage.
    let copied = |line| copied_out_of_the_log(&[line], NOW);
    assert!(copied("bitcask.merge.garbage_share_max = 30") > 0);
    assert_eq!(copied("bitcask.merge.garbage_share_max = 35"), 0);
    assert_eq!(copied(ANY_SHARE), 0);
}

/// Bytes that upkeep at this time copies out of a log with a third of garbage.
fn copied_out_of_the_log(lines: &[&str], now: Timestamp) -> u64 {
    let opened = open_logged(lines);
    opened.fill(0..100);
    (0..100).step_by(2).for_each(|it| opened.fill(it..it + 1));
    opened.tend(now);
    opened.data_bytes()
}

/// True if a store merges its files, and true if anything is copied out of the log.
fn merges_at(lines: &[&str], hour: u64) -> (bool, bool) {
    let now = Timestamp(NOW.0 / (24 * HOUR) * (24 * HOUR) + hour * HOUR + 1);
    let opened = two_files(&[&[NO_SMALL], lines].concat(), [6, 6]);
    let own = opened.tend(now).contains(&TaskKind::Merge);
    (own, copied_out_of_the_log(lines, now) > 0)
}

fn merges_run_always_or_never() {
    assert_eq!(merges_at(&[], 12), (true, true));
    assert_eq!(
        merges_at(&["bitcask.merge.policy = always"], 3),
        (true, true)
    );
    for hour in [0, 12] {
        let never = merges_at(&["bitcask.merge.policy = never"], hour);
        assert_eq!(never, (false, false));
    }
}

const WINDOW: [&str; 3] = [
    "bitcask.merge.policy = window",
    "bitcask.merge.window.start = 9",
    "bitcask.merge.window.end = 11",
];

fn no_merge_before_the_window() {
    assert_eq!(merges_at(&WINDOW, 8), (false, false));
    assert_eq!(merges_at(&WINDOW, 9), (true, true));
    // Without the policy, the hours have no effect.
    assert_eq!(merges_at(&WINDOW[1..], 8), (true, true));
}

fn no_merge_after_the_window() {
    assert_eq!(merges_at(&WINDOW, 11), (true, true));
    assert_eq!(merges_at(&WINDOW, 12), (false, false));
    // A merge that waits for the window runs when it opens.
    let at = |hour| Timestamp(NOW.0 + hour * HOUR);
    let opened = two_files(&WINDOW, [6, 6]);
    assert!(!opened.tend(at(0)).contains(&TaskKind::Merge));
    assert!(opened.tend(at(21)).contains(&TaskKind::Merge));
    // A file in which everything has expired is removed without a merge.
    let expiring = open(&[&WINDOW[..], &["bitcask.expiry = 1h"]].concat());
    expiring.fill(0..20);
    assert!(expiring.tend(at(2)).contains(&TaskKind::Expire));
}

fn a_window_may_go_past_midnight() {
    let lines = [
        "bitcask.merge.policy = window",
        "bitcask.merge.window.start = 22",
        "bitcask.merge.window.end = 1",
    ];
    for (hour, allowed) in [(21, false), (22, true), (1, true), (2, false)] {
        assert_eq!(merges_at(&lines, hour), (allowed, allowed), "{hour}");
    }
}

fn stores_are_where_data_root_says() {
    let disk = MemoryDisk::new();
    let ring_size = RingSize::new(8).unwrap();
    let randomness = Arc::new(SeededRandomness::new(1));
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let engines = Engines::new(
        seam,
        loaded(&["bitcask.data_root = /elsewhere"]),
        randomness,
    );
    let partition: Partition = ring_size.partitions().next().unwrap();
    let store = engines.open(ring_size, partition, None, None).unwrap();
    assert_eq!(store.status().engine, "bitcask");
    let found = disk.info(Path::new("/elsewhere/0/store-0")).unwrap();
    assert!(found.is_some());
}

/// True if stores put to the value log, and the number of syncs of a put that is waited for.
fn syncs_of_a_put(lines: &[&str]) -> (bool, usize) {
    let randomness = Arc::new(SeededRandomness::new(1));
    let seam: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let is_logged = Engines::new(seam, loaded(lines), randomness).use_value_log(false);
    let opened = if is_logged {
        open_logged(lines)
    } else {
        open(lines)
    };
    // The first put creates the file.
    opened.fill(0..1);
    let before = opened.count(Operation::Sync);
    opened.fill(1..2);
    (is_logged, opened.count(Operation::Sync) - before)
}

fn a_put_is_synced_as_configured() {
    assert_eq!(
        syncs_of_a_put(&["bitcask.sync.strategy = o_sync"]),
        (true, 1)
    );
    assert_eq!(
        syncs_of_a_put(&["bitcask.sync.strategy = none"]),
        (false, 0)
    );
    let interval = syncs_of_a_put(&["bitcask.sync.strategy = interval"]);
    assert_eq!(interval, (false, 0));
    // `durability` decides if the key is not set.
    assert_eq!(syncs_of_a_put(&[]), (true, 1));
    assert_eq!(syncs_of_a_put(&["durability = none"]), (false, 0));
    let lines = ["durability = none", "bitcask.sync.strategy = o_sync"];
    assert_eq!(syncs_of_a_put(&lines), (true, 1));
}

fn syncs_come_in_their_interval() {
    let lines = [
        "bitcask.sync.strategy = interval",
        "bitcask.sync.interval = 3s",
    ];
    for opened in [open(&lines), open_logged(&lines)] {
        opened.fill(0..1);
        let is_due = |after: u64| opened.is_due(TaskKind::Sync, Timestamp(NOW.0 + after));
        assert!(!is_due(0) && !is_due(2_900_000) && is_due(3_000_000));
        opened.store.sync().unwrap();
        assert!(!is_due(9_000_000));
    }
}

fn files_end_at_their_size() {
    let files = |line| {
        let opened = open(&[line]);
        opened.fill(0..100);
        opened.tend(NOW);
        opened.store.status().details[0].1.clone()
    };
    assert_eq!(files("bitcask.max_file_size = 64KB"), "10");
    assert_eq!(files("bitcask.max_file_size = 320KB"), "2");
    assert_eq!(files("bitcask.max_file_size = 1MB"), "1");
}

fn values_are_packed_as_configured() {
    let bytes = |name: &str| {
        let opened = open(&[&format!("bitcask.compression = {name}")]);
        opened.fill(0..100);
        opened.data_bytes()
    };
    let (none, lz4, zstd) = (bytes("none"), bytes("lz4"), bytes("zstd"));
    assert!(none > 100 * VALUE_BYTES as u64 && lz4 < none / 2 && zstd < lz4);
    // A head is read without the body, compressed or not.
    for line in ["bitcask.compression = none", "bitcask.compression = zstd"] {
        let opened = open(&[line]);
        opened.fill(0..1);
        opened.disk.clear_log();
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: NOW,
        };
        let head = opened.store.head(&key(0), at).unwrap();
        assert!(matches!(head, Lookup::Found(_)));
        let read: usize = opened.disk.log().iter().map(|it| it.bytes).sum();
        assert!(read < 300, "{read} bytes were read, {line}");
    }
    let by_default = settings_of(&loaded(&[]), 0).compression;
    assert_eq!(by_default, Compression::Lz4);
}

fn what_was_read_is_kept_or_not() {
    let reads_of_third = |line: &str| {
        let opened = open(&[line]);
        opened.fill(0..1);
        assert!(opened.holds(0, NOW) && opened.holds(0, NOW));
        let before = opened.count(Operation::Read);
        assert!(opened.holds(0, NOW));
        opened.count(Operation::Read) - before
    };
    assert_eq!(reads_of_third("bitcask.read_cache = 1MB"), 0);
    assert!(reads_of_third("bitcask.read_cache = 0") > 0);
    let bytes_max = |lines: &[&str], machine| {
        let cache = read_cache(&loaded(lines), machine);
        cache.map(|cache| cache.bytes_max())
    };
    assert_eq!(bytes_max(&[], Some(64 << 30)), Some(2 << 30));
    assert_eq!(bytes_max(&[], None), None);
    let five = bytes_max(&["bitcask.read_cache = 5MB"], Some(64 << 30));
    assert_eq!(five, Some(5 << 20));
}

fn objects_expire_after_their_time() {
    for (line, hours) in [
        ("bitcask.expiry = 2h", 2),
        ("bitcask.expiry = off", 1 << 20),
    ] {
        for opened in [open(&[line]), open_logged(&[line])] {
            opened.fill(0..1);
            let holds = |after: u64| opened.holds(0, Timestamp(NOW.0 + after));
            assert!(holds(0) && holds(hours * HOUR - 1), "{line}");
            assert_eq!(holds(2 * HOUR), hours > 2, "{line}");
        }
    }
}

fn expired_objects_stay_on_disk_for_the_grace_time() {
    let lines = ["bitcask.expiry = 2h", "bitcask.expiry.grace_time = 1h"];
    for opened in [open(&lines), open_logged(&lines)] {
        opened.fill(0..20);
        opened.tend(NOW);
        let keys_after = |after: Duration| {
            let micros = u64::try_from(after.as_micros()).unwrap();
            opened.tend(Timestamp(NOW.0 + micros));
            assert!(!opened.holds(0, Timestamp(NOW.0 + micros)));
            opened.store.status().keys
        };
        assert_eq!(keys_after(Duration::from_secs(3 * 3600 - 1)), 20);
        assert!(keys_after(Duration::from_secs(3 * 3600)) < 20);
    }
}

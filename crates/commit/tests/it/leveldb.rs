//! The suite over leveldb without a log of its own, behind the commit log: a sync of the engine is then
//! a flush. And what a full disk does to it, which the suite has no words for.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Capabilities, Durability, ErrorKind, Fields, Lookup, ReadAt, Reading, Receipt,
    Result, Sequence, StepBudget, Timestamp, Write,
};
use kvorum_backend_conformance::{EngineUnderTest, Opening, conformance_suite};
use kvorum_backend_leveldb::{Compression, Leveldb, LeveldbSettings, Shared, SyncStrategy};
use kvorum_disk::{CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_encoding::StorageKey;
use kvorum_lsm::policy::PolicySettings;

use crate::suite::Logged;

struct LoggedLeveldb;

impl EngineUnderTest for LoggedLeveldb {
    fn name(&self) -> &str {
        "leveldb behind the commit log"
    }

    /// Own segments, into which the log's batches are applied.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &["*.segment"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: true,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let (disk, draw) = (opening.disk.clone(), opening.draw.clone());
        let shared = Shared::new(64 << 10, 1 << 20);
        let engine = Leveldb::open(disk, &opening.directory, &small_settings(), shared, draw)?;
        Logged::open(Arc::new(engine), opening)
    }

    fn keys_lost_per_flip_max(&self) -> usize {
        10
    }

    /// The log notices when it writes, and what it refuses then is in the memtable already: visible,
    /// and not acknowledged. What holds all the same is shown below.
    fn works_on_a_full_disk(&self) -> bool {
        false
    }

    fn slowness(&self) -> usize {
        6
    }
}

/// So small that a few dozen writes fill memtables, tables and blob files.
pub(crate) fn small_settings() -> LeveldbSettings {
    LeveldbSettings {
        has_log: false,
        sync: SyncStrategy::None,
        write_buffer_bytes: 3_000,
        block_bytes: 300,
        block_restart_interval: 2,
        blob_threshold_bytes: 600,
        compression: Compression::Lz4,
        policy: PolicySettings {
            levels: 4,
            level_zero_tables: 2,
            base_bytes: 6_000,
            multiplier: 3,
            table_bytes_max: 3_000,
            slow_from_tables: 3,
            slowest_at_tables: 6,
            ..PolicySettings::default()
        },
        ..LeveldbSettings::default()
    }
}

conformance_suite!(LoggedLeveldb);

const NOW: Timestamp = Timestamp(1_000_000);
const KEYS: u8 = 30;

fn opened(disk: Arc<dyn Disk>) -> Box<dyn Backend> {
    try_open(disk).unwrap()
}

fn try_open(disk: Arc<dyn Disk>) -> Result<Box<dyn Backend>> {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let opening = Opening {
        disk,
        directory: Path::new("store").to_owned(),
        variation: 0,
        draw: Arc::new(|| NUMBERS.fetch_add(1, Ordering::Relaxed)),
    };
    LoggedLeveldb.open(&opening)
}

/// A put of 400 bytes that is waited for.
fn put(store: &dyn Backend, key: u8, value: u8) -> Result<Sequence> {
    let key = StorageKey::from_encoded(vec![key]);
    let body = Bytes::from(vec![value; 400]);
    let batch = Batch::of(Write::put(key, Fields::default(), Bytes::new(), body));
    store
        .put(&batch, Durability::Grouped)
        .and_then(Receipt::wait)
}

/// The value of a key, by its first byte.
fn value(store: &dyn Backend, key: u8) -> Option<u8> {
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    match store.get(&StorageKey::from_encoded(vec![key]), at).unwrap() {
        Lookup::Found(entry) => entry.body.first().copied(),
        _ => None,
    }
}

/// Upkeep until nothing is due, or nothing can be done.
fn keep_up(store: &dyn Backend) -> Result<()> {
    for _ in 0..1_000 {
        let due = store.maintenance_due(NOW);
        let Some(task) = due.first() else {
            return Ok(());
        };
        store.maintenance_step(task, StepBudget { bytes: 10_000 }, NOW)?;
    }
    Ok(())
}

fn fill(disk: &FaultyDisk) {
    for operation in [Operation::Write, Operation::Allocate] {
        let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
        disk.add_rule(Rule::new(no_space).on(operation));
    }
}

/// A refused put may be visible. What was read of it was gone after a crash also long after there was room
/// again, unless something else was put to the store meanwhile.
#[test]
fn what_a_full_log_refused_and_the_store_shows_stays_once_there_is_room() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = opened(Arc::new(disk.clone()));
    put(&*store, 1, 1).unwrap();
    fill(&disk);
    put(&*store, 1, 2).unwrap_err();
    assert_eq!(value(&*store, 1), Some(2), "the test shows something else");
    keep_up(&*store).unwrap_err();
    disk.heal();
    keep_up(&*store).unwrap();
    assert!(store.maintenance_due(NOW).is_empty());
    let image = memory.crash_image(CrashOptions::nothing_unsynced());
    assert_eq!(value(&*opened(Arc::new(image)), 1), Some(2));
}

#[test]
fn r28_a_full_disk_behind_the_log_refuses_puts_loses_nothing_and_puts_resume() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = opened(Arc::new(disk.clone()));
    let (old, new) = (0..KEYS / 2, KEYS / 2..KEYS);
    for key in old.clone() {
        put(&*store, key, 1).unwrap();
    }
    keep_up(&*store).unwrap();
    for key in new.clone() {
        put(&*store, key, 1).unwrap();
    }
    fill(&disk);
    for key in 0..KEYS {
        let refused = put(&*store, 100 + key, 2).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    }
    if let Err(error) = keep_up(&*store) {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    }
    let are_there = |store: &dyn Backend, old_value| {
        for key in old.clone() {
            assert_eq!(value(store, key), Some(old_value), "key {key}");
        }
        for key in new.clone() {
            assert_eq!(value(store, key), Some(1), "key {key}");
        }
    };
    are_there(&*store, 1);
    comes_up_when_there_is_room(&memory, |store| are_there(store, 1));
    disk.heal();
    for key in old.clone() {
        put(&*store, key, 3).unwrap();
    }
    are_there(&*store, 3);
    keep_up(&*store).unwrap();
    let image = memory.crash_image(CrashOptions::nothing_unsynced());
    are_there(&*opened(Arc::new(image)), 3);
}

/// The power fails while the disk is full. What the log alone has needs room to be given to the store:
/// until there is some, the store does not open, and the log keeps it all; then puts go on.
fn comes_up_when_there_is_room(disk: &MemoryDisk, are_there: impl Fn(&dyn Backend)) {
    let image = disk.crash_image(CrashOptions::nothing_unsynced());
    let full = FaultyDisk::over_memory(&image);
    fill(&full);
    for _ in 0..3 {
        let refused = try_open(Arc::new(full.clone())).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    }
    full.heal();
    let store = opened(Arc::new(full.clone()));
    are_there(&*store);
    put(&*store, 201, 4).unwrap();
    drop(store);
    let again = image.crash_image(CrashOptions::nothing_unsynced());
    let store = opened(Arc::new(again));
    are_there(&*store);
    assert_eq!(value(&*store, 201), Some(4));
}

/// A store that was closed needs nothing of the log.
#[test]
fn r28_a_store_that_was_closed_opens_on_a_full_disk_behind_the_log() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = opened(Arc::new(disk.clone()));
    for key in 0..KEYS {
        put(&*store, key, 1).unwrap();
    }
    store.close().unwrap();
    drop(store);
    fill(&disk);
    let store = opened(Arc::new(disk.clone()));
    for key in 0..KEYS {
        assert_eq!(value(&*store, key), Some(1), "key {key}");
    }
    let refused = put(&*store, 100, 2).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    disk.heal();
    put(&*store, 100, 3).unwrap();
    assert_eq!(value(&*store, 100), Some(3));
}

//! Disks that fail: what a failed append, a failed sync and a failed erasure cost.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, ErrorKind, Fields, Receipt, Sequence, StoreId, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed, Recovery, recover};
use kvorum_disk::{CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_encoding::StorageKey;

use crate::history_engine::{HistoryEngine, Kept};
use crate::node::{SETTINGS as NODE_SETTINGS, World};

const SETTINGS: CommitLogSettings = CommitLogSettings {
    segment_bytes: 4 << 10,
    bytes_max: 1 << 20,
};

fn batch(number: u8) -> Batch {
    let key = StorageKey::from_encoded(vec![number]);
    Batch::of(Write::put(
        key,
        Fields::default(),
        Bytes::new(),
        vec![number; 100].into(),
    ))
}

fn large_batch() -> Batch {
    let key = StorageKey::from_encoded(vec![200]);
    let body = vec![200; 5 << 20].into();
    Batch::of(Write::put(key, Fields::default(), Bytes::new(), body))
}

fn kind(outcome: kvorum_backend::Result<Sequence>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

struct Rig {
    memory: MemoryDisk,
    faulty: FaultyDisk,
    engine: Arc<HistoryEngine>,
    store: Committed,
    log: CommitLog,
}

impl Rig {
    fn new() -> Self {
        let memory = MemoryDisk::new();
        let faulty = FaultyDisk::over_memory(&memory);
        let kept = Kept {
            identity: 7,
            batches: Vec::new(),
        };
        let engine = HistoryEngine::open(&kept, &memory);
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let log = CommitLog::create(disk, Path::new("log"), 9, SETTINGS).unwrap();
        let store = Committed::new(engine.clone(), log.clone(), Durability::Grouped);
        Self {
            memory,
            faulty,
            engine,
            store,
            log,
        }
    }

    fn put(&self, number: u8) -> kvorum_backend::Result<Sequence> {
        self.store.put(&batch(number), Durability::Grouped)?.wait()
    }

    fn fail(&self, kind: kvorum_disk::ErrorKind, operation: Operation) {
        self.faulty
            .add_rule(Rule::new(Fault::Error(kind)).on(operation));
    }

    /// The batches that are back after a power cut, empty ones left out.
    fn recovered(&self) -> Vec<Batch> {
        let image = self.memory.crash_image(CrashOptions::nothing_unsynced());
        let engine = HistoryEngine::open(&self.engine.crash(0), &image);
        recover(
            &image,
            Path::new("log"),
            &[engine.clone() as Arc<dyn Backend>],
        )
        .unwrap();
        let is_full = |batch: &Batch| !batch.writes.is_empty();
        engine.batches().into_iter().filter(is_full).collect()
    }
}

#[test]
fn a_full_disk_fails_its_groups_and_later_ones_go_on() {
    let rig = Rig::new();
    rig.put(1).unwrap();
    rig.fail(kvorum_disk::ErrorKind::NoSpace, Operation::Write);
    for number in 2..5 {
        assert_eq!(kind(rig.put(number)), Some(ErrorKind::Full));
    }
    rig.faulty.heal();
    rig.put(5).unwrap();
    assert_eq!(rig.recovered(), [1, 2, 3, 4, 5].map(batch));
}

#[test]
fn nothing_is_acknowledged_over_what_the_log_could_not_take() {
    let rig = Rig::new();
    rig.put(1).unwrap();
    rig.fail(kvorum_disk::ErrorKind::NoSpace, Operation::Write);
    assert_eq!(kind(rig.put(2)), Some(ErrorKind::Full));
    rig.faulty.heal();
    // Whoever wants what is there already asks for no more than a place behind it.
    let nothing = rig.store.put(&Batch::default(), Durability::Grouped);
    nothing.unwrap().wait().unwrap();
    assert_eq!(rig.recovered(), [batch(1), batch(2)]);
}

#[test]
fn what_is_queued_behind_a_failed_append_fails_with_it() {
    let rig = Rig::new();
    rig.put(1).unwrap();
    rig.fail(kvorum_disk::ErrorKind::NoSpace, Operation::Write);
    // Larger together than a group.
    let queued: Vec<_> = (0..3)
        .map(|_| rig.store.put(&large_batch(), Durability::Grouped))
        .collect();
    let nothing = rig.store.put(&Batch::default(), Durability::Grouped);
    for receipt in queued {
        assert_eq!(kind(receipt.unwrap().wait()), Some(ErrorKind::Full));
        rig.faulty.heal();
    }
    assert_eq!(kind(nothing.unwrap().wait()), Some(ErrorKind::Full));
    rig.put(2).unwrap();
}

#[test]
fn a_torn_append_leaves_nothing_in_the_way() {
    for bytes in [0, 1, 50, 100, 140] {
        let rig = Rig::new();
        rig.put(1).unwrap();
        rig.faulty
            .add_rule(Rule::new(Fault::TornWrite { bytes }).nth(1));
        assert!(rig.put(2).is_err());
        rig.put(3).unwrap();
        assert_eq!(rig.recovered(), [1, 2, 3].map(batch));
    }
}

#[test]
fn a_segment_that_cannot_be_made_fails_groups_until_it_can() {
    let rig = Rig::new();
    rig.fail(kvorum_disk::ErrorKind::NoSpace, Operation::Open);
    let mut durable = Vec::new();
    let mut number = 0;
    while rig.put(number).is_ok() {
        durable.push(batch(number));
        number += 1;
    }
    assert_eq!(kind(rig.put(number)), Some(ErrorKind::Full));
    rig.faulty.heal();
    rig.put(200).unwrap();
    // The store shows what the log refused, and is synced for whatever it acknowledges next.
    durable.extend([number, number, 200].map(batch));
    assert_eq!(rig.recovered(), durable);
}

#[test]
fn a_failed_sync_is_final_and_takes_nothing_acknowledged() {
    let rig = Rig::new();
    rig.put(1).unwrap();
    rig.fail(kvorum_disk::ErrorKind::Device, Operation::Sync);
    assert_eq!(kind(rig.put(2)), Some(ErrorKind::Failed));
    rig.faulty.heal();
    for number in 3..6 {
        assert_eq!(kind(rig.put(number)), Some(ErrorKind::Failed));
    }
    assert_eq!(rig.recovered()[..1], [batch(1)]);
}

#[test]
fn a_failed_sync_is_not_escaped_into_the_next_segment() {
    let rig = Rig::new();
    rig.put(1).unwrap();
    rig.fail(kvorum_disk::ErrorKind::Device, Operation::Sync);
    let mut large = batch(2);
    large.writes.extend((0..40).flat_map(|_| batch(2).writes));
    let receipt = rig.store.put(&large, Durability::Grouped).unwrap();
    assert_eq!(kind(receipt.wait()), Some(ErrorKind::Failed));
    rig.faulty.heal();
    let receipt = rig.store.put(&large, Durability::Grouped);
    assert_eq!(
        kind(receipt.and_then(Receipt::wait)),
        Some(ErrorKind::Failed)
    );
}

#[test]
fn a_failed_sync_fails_what_is_queued_behind_it() {
    let rig = Rig::new();
    let put = |number| rig.store.put(&batch(number), Durability::Grouped).unwrap();
    let receipts = [put(1), put(2)];
    rig.fail(kvorum_disk::ErrorKind::Device, Operation::Sync);
    for receipt in receipts {
        assert_eq!(kind(receipt.wait()), Some(ErrorKind::Failed));
    }
}

#[test]
fn a_failed_erasure_that_changed_the_identity_is_logged_under_the_new_one() {
    let rig = Rig::new();
    rig.put(1).unwrap();
    rig.engine.fail_erasures_late();
    assert!(rig.store.erase().is_err());
    assert_ne!(rig.store.identity(), StoreId(7));
    rig.put(2).unwrap();
    assert_eq!(rig.recovered(), [batch(2)]);
}

#[test]
fn a_log_is_not_removed_while_a_store_needs_it() {
    let rig = Rig::new();
    rig.put(1).unwrap();
    assert_eq!(rig.log.remove().unwrap_err().kind(), ErrorKind::Misuse);
    assert_eq!(rig.recovered(), [batch(1)]);
    rig.store.close().unwrap();
    rig.log.remove().unwrap();
    assert_eq!(rig.memory.list(Path::new("log")).unwrap(), vec![]);
}

fn bitcask(disk: &Arc<dyn Disk>, directory: &str) -> Arc<dyn Backend> {
    let drawn = AtomicU64::new(directory.len() as u64);
    let draw = Arc::new(move || drawn.fetch_add(100, Ordering::Relaxed));
    let settings = BitcaskSettings::default();
    Arc::new(Bitcask::open(disk.clone(), Path::new(directory), settings, draw).unwrap())
}

/// Stores behind one log, of which the first stops to sync.
struct Partitions {
    memory: MemoryDisk,
    faulty: FaultyDisk,
    log: CommitLog,
    stores: [Committed; 3],
}

impl Partitions {
    const DIRECTORIES: [&str; 3] = ["failed", "sound one", "sound, too"];
    const SETTINGS: CommitLogSettings = CommitLogSettings {
        bytes_max: 32 << 10,
        ..SETTINGS
    };

    fn open() -> Self {
        let memory = MemoryDisk::new();
        let faulty = FaultyDisk::over_memory(&memory);
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let directory = Path::new("log");
        let log = CommitLog::create(disk.clone(), directory, 9, Self::SETTINGS).unwrap();
        let stores = Self::DIRECTORIES.map(|directory| {
            let engine = bitcask(&disk, directory);
            Committed::new(engine, log.clone(), Durability::Grouped)
        });
        Self {
            memory,
            faulty,
            log,
            stores,
        }
    }

    fn put(&self, store: usize, number: u8) {
        let put = self.stores[store].put(&batch(number), Durability::Grouped);
        put.unwrap().wait().unwrap();
    }

    fn fail_first(&self) {
        let device = Fault::Error(kvorum_disk::ErrorKind::Device);
        let rule = Rule::new(device).on(Operation::Sync);
        self.faulty
            .add_rule(rule.path_contains(Self::DIRECTORIES[0]));
    }

    fn do_upkeep(&self) {
        // The failed store is told, again and again.
        while self.log.upkeep_step().is_ok_and(|step| !step.is_done) {}
    }

    fn is_bounded(&self) -> bool {
        self.log.status().bytes <= Self::SETTINGS.bytes_max
    }

    /// What recovery finds after a power cut, and how many keys each store has then.
    fn recovered(&self) -> (Recovery, [u64; 3]) {
        let image = self.memory.crash_image(CrashOptions::nothing_unsynced());
        let disk: Arc<dyn Disk> = Arc::new(image.clone());
        let engines = Self::DIRECTORIES.map(|directory| bitcask(&disk, directory));
        let found = recover(&image, Path::new("log"), &engines).unwrap();
        (found, engines.map(|engine| engine.status().keys))
    }
}

/// The oldest segment stayed for a store that had failed, and all others behind it, so that the log grew
/// until the disk was full. What the failed store lacks is still there after all that.
#[test]
fn a_store_that_failed_keeps_its_own_segments_and_no_others() {
    const PUTS: u8 = 250;
    let partitions = Partitions::open();
    partitions.put(0, 0);
    partitions.fail_first();
    for number in 1..=PUTS {
        partitions.put(1, number);
        partitions.put(2, number);
        partitions.do_upkeep();
    }
    assert!(partitions.is_bounded(), "{:?}", partitions.log.status());
    let (found, keys) = partitions.recovered();
    assert_eq!(found.batches_missing, 0);
    assert_eq!(keys, [1, PUTS.into(), PUTS.into()]);
}

/// Without that record recovery would keep what was erased, for a store that it takes to be elsewhere.
#[test]
fn the_record_of_an_erasure_stays_with_what_it_speaks_of() {
    let partitions = Partitions::open();
    partitions.put(0, 0);
    (1..50).for_each(|number| partitions.put(1, number));
    partitions.stores[1].erase().unwrap();
    partitions.fail_first();
    for number in 1..=250 {
        partitions.put(2, number);
        partitions.do_upkeep();
    }
    assert!(partitions.is_bounded(), "{:?}", partitions.log.status());
    let (found, keys) = partitions.recovered();
    assert_eq!(found.batches_of_unknown_stores, 0);
    assert_eq!(keys, [1, 0, 250]);
}

/// Delayed allocation finds a full disk at the sync only.
#[test]
fn a_store_that_closes_unsynced_on_a_full_disk_keeps_the_log() {
    let memory = MemoryDisk::new();
    let faulty = FaultyDisk::over_memory(&memory);
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let open = |disk: Arc<dyn Disk>| {
        let drawn = AtomicU64::new(40);
        let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let engine = Bitcask::open(disk, Path::new("store"), BitcaskSettings::default(), draw);
        Arc::new(engine.unwrap())
    };
    let engine = open(disk.clone());
    let log = CommitLog::create(disk, Path::new("log"), 9, SETTINGS).unwrap();
    let store = Committed::new(engine, log.clone(), Durability::Grouped);
    store
        .put(&batch(1), Durability::Grouped)
        .unwrap()
        .wait()
        .unwrap();
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    faulty.add_rule(
        Rule::new(no_space)
            .on(Operation::Sync)
            .path_contains("store"),
    );
    let closed = store.close();
    if closed.is_ok() {
        let _kept_or_not = log.remove();
    }
    let image = memory.crash_image(CrashOptions::nothing_unsynced());
    let engine = open(Arc::new(image.clone()));
    recover(
        &image,
        Path::new("log"),
        &[engine.clone() as Arc<dyn Backend>],
    )
    .unwrap();
    assert!(!engine.is_empty(kvorum_backend::Timestamp(0)).unwrap());
}

/// On a full disk no spare segment can be made, and only dropping segments makes room.
#[test]
fn a_log_without_room_for_a_spare_segment_is_trimmed() {
    let memory = MemoryDisk::new();
    let faulty = FaultyDisk::over_memory(&memory);
    let node = World::default()
        .open_with(&faulty, &[0], NODE_SETTINGS)
        .unwrap();
    let number_of_segments = || node.log.status().segments;
    let mut value = 0;
    while number_of_segments() < 4 {
        node.put_durably(0, 1, value).unwrap();
        value += 1;
    }
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    let created = Rule::new(no_space)
        .on(Operation::Open)
        .path_contains("commit_log");
    faulty.add_rule(created);
    let mut steps = 0;
    while node.log.upkeep_step().is_ok() {
        steps += 1;
        assert!(steps < 100, "upkeep never says that the disk is full");
    }
    assert_eq!(number_of_segments(), 1);
    assert!(node.log.is_upkeep_due());
    faulty.heal();
    node.do_upkeep().unwrap();
    node.put_durably(0, 1, value).unwrap();
}

/// All stores were synced in one go when the log had grown to a quarter of what it may be: a node that
/// was loaded evenly had all its memtables written within the same few seconds.
#[test]
fn stores_are_synced_one_after_the_other_while_the_log_grows() {
    const STORES: usize = 4;
    let settings = CommitLogSettings {
        bytes_max: 30_000,
        ..NODE_SETTINGS
    };
    let memory = MemoryDisk::new();
    let world = World::default();
    let engines = [0, 1, 2, 3].map(|number| world.engine(&memory, number).unwrap());
    let disk: Arc<dyn Disk> = Arc::new(memory);
    let log = CommitLog::create(disk, Path::new("log"), 9, settings).unwrap();
    let committed = |engine: &Arc<dyn Backend>| {
        Committed::new(engine.clone(), log.clone(), Durability::Grouped)
    };
    let stores = engines.each_ref().map(committed);
    let mut newest = [Sequence(0); STORES];
    let mut put = |store: usize| {
        let put = stores[store].put(&batch(1), Durability::Grouped);
        newest[store] = put.unwrap().wait().unwrap();
        newest
    };
    let do_upkeep = || {
        for _ in 0..100 {
            if !log.is_upkeep_due() && !log.is_upkeep_due() {
                return;
            }
            log.upkeep_step().unwrap();
        }
    };
    let mut at_start = [Sequence(0); STORES];
    while log.status().bytes < 8_800 {
        for store in 0..STORES {
            at_start = put(store);
        }
    }
    let synced = || {
        (0..STORES)
            .filter(|it| engines[*it].durable() >= at_start[*it])
            .count()
    };
    assert_eq!(synced(), 0);
    do_upkeep();
    assert_eq!(synced(), 1);
    do_upkeep();
    assert_eq!(synced(), 1);
    let (mut most_at_once, mut before) = (0, 1);
    for store in (0..STORES).cycle().take(15 * STORES) {
        let _newest = put(store);
        do_upkeep();
        most_at_once = most_at_once.max(synced() - before);
        before = synced();
    }
    assert_eq!((before, most_at_once), (STORES, 1));
}

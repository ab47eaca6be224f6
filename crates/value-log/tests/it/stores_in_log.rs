//! Known failures of stores with their entries in the value log: corruption and full disks.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, ErrorKind, Fields, Lookup, ReadAt, Reading, Result, StepBudget, Timestamp,
    Write,
};
use kvorum_backend_bitcask::{BitcaskSettings, Compression};
use kvorum_backend_leveldb::{Compression as LeveldbCompression, LeveldbSettings};
use kvorum_disk::{CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::tenants::{Engine, Opened, bitcask_settings, leveldb_settings, tenants_of};

const KEYS: usize = 24;
const LOG: &str = "value_log";
const NOW: Timestamp = Timestamp(1_000_000);

/// The engine.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Bitcask,
    Leveldb,
}

impl Kind {
    fn engine(self) -> Engine {
        match self {
            Self::Bitcask => Engine::Bitcask(BitcaskSettings {
                compression: Compression::None,
                ..bitcask_settings()
            }),
            Self::Leveldb => Engine::Leveldb(LeveldbSettings {
                blob_threshold_bytes: 100,
                compression: LeveldbCompression::None,
                log_segments_behind_max: 3,
                // No put pays for a flush.
                write_buffer_bytes: 50_000,
                ..leveldb_settings()
            }),
        }
    }
}

struct Store {
    log: ValueLog,
    engine: Opened,
    /// Damage that opening the log found.
    damage: Vec<String>,
}

impl Store {
    fn open(disk: &(impl Disk + Clone + 'static), kind: Kind) -> Result<Self> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let log_settings = ValueLogSettings {
            segment_bytes: 1_500,
            garbage_percent_max: 20,
        };
        let (log, found) = ValueLog::open(disk.clone(), Path::new(LOG), 77, log_settings)?;
        let drawn = AtomicU64::new(1);
        let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let shared: ValueLog = log.clone();
        let store = Path::new("store");
        let engine = kind.engine().open(disk, store, draw, shared)?;
        let admitted = log.admit(&tenants_of(std::slice::from_ref(&engine)))?;
        Ok(Self {
            log,
            engine,
            damage: found.damage.into_iter().chain(admitted.damage).collect(),
        })
    }

    fn filled(disk: &MemoryDisk, kind: Kind) -> Self {
        let store = Self::open(disk, kind).unwrap();
        (0..KEYS).for_each(|number| store.put(number, 1).unwrap());
        store
    }

    fn put(&self, number: usize, round: usize) -> Result<()> {
        self.put_body(number, body(number, round))
    }

    fn put_body(&self, number: usize, body: Bytes) -> Result<()> {
        let write = Write::put(key(number), Fields::default(), Bytes::new(), body);
        let receipt = self.engine.put(&Batch::of(write), Durability::Grouped)?;
        receipt.wait().map(drop)
    }

    fn remove(&self, number: usize) {
        let batch = Batch::of(Write::remove(key(number)));
        let receipt = self.engine.put(&batch, Durability::Grouped).unwrap();
        receipt.wait().unwrap();
    }

    /// `None` for a key that is absent.
    fn get(&self, number: usize) -> Result<Option<Bytes>> {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: NOW,
        };
        match self.engine.get(&key(number), at)? {
            Lookup::Found(entry) => Ok(Some(entry.body)),
            Lookup::Absent => Ok(None),
            Lookup::WouldBlock => panic!("it may block"),
        }
    }

    /// Absent keys, and keys whose reads report damage. The others have the right values.
    fn gone_and_damaged(&self) -> (Vec<usize>, Vec<usize>) {
        let (mut gone, mut damaged) = (Vec::new(), Vec::new());
        for number in 0..KEYS {
            match self.get(number) {
                Ok(Some(found)) => assert_eq!(found, body(number, 1), "{number}"),
                Ok(None) => gone.push(number),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    damaged.push(number);
                }
            }
        }
        (gone, damaged)
    }

    fn is_reported(&self) -> bool {
        !self.damage.is_empty() || !self.engine.status().lost.is_empty()
    }

    /// Does all due upkeep, as far as a full disk allows.
    fn do_upkeep(&self) {
        for _ in 0..100 {
            for task in self.engine.maintenance_due(NOW) {
                let budget = StepBudget { bytes: 10_000 };
                let _done_or_full = self.engine.maintenance_step(&task, budget, NOW);
            }
            let _done_or_full = self.log.upkeep_step(StepBudget { bytes: 10_000 });
        }
    }
}

fn key(number: usize) -> StorageKey {
    StorageKey::from_encoded(format!("key {number:02}").into_bytes())
}

fn body(number: usize, round: usize) -> Bytes {
    Bytes::from(format!("{number:050}-{round:050}"))
}

fn segments(disk: &MemoryDisk) -> Vec<PathBuf> {
    let numbers = kvorum_segment::list_segments(disk, Path::new(LOG)).unwrap();
    let name = |number| Path::new(LOG).join(kvorum_segment::file_name(number));
    numbers.into_iter().map(name).collect()
}

fn flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    let read = file.read_at(&mut byte, offset, kvorum_disk::Reading::MayBlock);
    assert_eq!(read.unwrap(), 1);
    file.write_at(&[byte[0] ^ 0x40], offset).unwrap();
    file.sync().unwrap();
}

#[test]
fn r24_a_flipped_byte_of_the_value_log_costs_one_key_which_says_so() {
    flip_bytes(Kind::Bitcask);
}

#[test]
fn r24_a_flipped_byte_of_the_value_log_costs_leveldb_one_key_which_says_so() {
    flip_bytes(Kind::Leveldb);
}

fn flip_bytes(kind: Kind) {
    let mut hit = 0;
    for is_clean in [true, false] {
        let disk = MemoryDisk::new();
        let store = Store::filled(&disk, kind);
        while store.log.is_chore_due() && store.log.chore_step().unwrap() {}
        if is_clean {
            store.engine.close().unwrap();
        }
        drop(store);
        let all = segments(&disk);
        assert!(all.len() > 3);
        for path in &all[..2] {
            let len = disk.info(path).unwrap().unwrap().len;
            for offset in (0..len).step_by(7) {
                let disk = disk.crash_image(CrashOptions::everything());
                flip(&disk, path, offset);
                let store = Store::open(&disk, kind).unwrap();
                let (gone, damaged) = store.gone_and_damaged();
                let lost = gone.len() + damaged.len();
                assert!(lost <= 1, "{} at {offset}", path.display());
                assert!(
                    gone.is_empty() || store.is_reported(),
                    "{gone:?} at {offset}"
                );
                hit += lost;
            }
        }
    }
    assert!(hit > 20, "{hit} flips cost something");
}

#[test]
fn r25_corruption_in_the_value_log_before_what_was_synced_is_reported_and_not_cut() {
    corrupt(Kind::Bitcask);
}

#[test]
fn r25_corruption_under_leveldb_before_what_was_synced_is_reported_and_not_cut() {
    corrupt(Kind::Leveldb);
}

fn corrupt(kind: Kind) {
    let disk = MemoryDisk::new();
    let store = Store::filled(&disk, kind);
    let used = store.log.newest_segment() as usize;
    drop(store);
    let all = segments(&disk);
    // In the first file, which is full, and in the last one, before its last record.
    flip(&disk, &all[0], 100);
    flip(&disk, &all[used - 1], 100);
    let disk = disk.crash_image(CrashOptions::everything());
    let store = Store::open(&disk, kind).unwrap();
    let (gone, damaged) = store.gone_and_damaged();
    // The damaged place is in the front of a record of bitcask, and in the back of one of
    // leveldb, whose key is known.
    let expected = match kind {
        Kind::Bitcask => (2, 0),
        Kind::Leveldb => (0, 2),
    };
    assert_eq!((gone.len(), damaged.len()), expected);
    for path in [&all[0], &all[used - 1]] {
        let name = path.display().to_string();
        assert!(
            store.damage.iter().any(|it| it.starts_with(&name)),
            "{name}"
        );
    }
    store.put(KEYS, 1).unwrap();
    drop(store);
    let store = Store::open(&disk, kind).unwrap();
    assert_eq!(store.gone_and_damaged(), (gone, damaged));
    assert_eq!(store.get(KEYS).unwrap(), Some(body(KEYS, 1)));
}

/// The disk fills up, and no work of the store on the full disk loses data.
#[test]
fn r28_a_full_disk_refuses_puts_to_the_value_log_serves_reads_and_resumes_by_itself() {
    fill_the_disk(Kind::Bitcask);
}

#[test]
fn r28_a_full_disk_refuses_puts_to_leveldb_over_the_value_log_and_they_resume() {
    fill_the_disk(Kind::Leveldb);
}

fn fill_the_disk(kind: Kind) {
    for filled_bytes in (20_000..40_000).step_by(517) {
        let disk = MemoryDisk::with_capacity(50_000);
        let filler = disk.open(Path::new("filler"), OpenMode::CreateNew).unwrap();
        filler.write_at(&vec![0; filled_bytes], 0).unwrap();
        let store = Store::open(&disk, kind).unwrap();
        let mut acknowledged = [None; KEYS];
        let (refused, refused_round) = fill(&store, &mut acknowledged);
        let check = |store: &Store, acknowledged: &[Option<usize>; KEYS]| {
            for (number, round) in acknowledged.iter().enumerate() {
                let found = store.get(number).unwrap();
                let is_right = found == round.map(|round| body(number, round));
                // A put that found no room may be visible: it is neither acknowledged nor excluded.
                let is_refused = number == refused && found == Some(body(number, refused_round));
                assert!(is_right || is_refused, "{number}: {found:?}, {round:?}");
            }
        };
        check(&store, &acknowledged);
        store.do_upkeep();
        check(&store, &acknowledged);
        drop(store);
        disk.crash(CrashOptions::nothing_unsynced());
        let store = Store::open(&disk, kind).unwrap();
        check(&store, &acknowledged);
        store.do_upkeep();
        check(&store, &acknowledged);
        disk.remove_file(Path::new("filler")).unwrap();
        // Upkeep may first have to do the work that ends the refusal.
        store.do_upkeep();
        for (number, round) in acknowledged.iter_mut().enumerate() {
            store.put(number, 1_000).unwrap();
            *round = Some(1_000);
        }
        store.do_upkeep();
        check(&store, &acknowledged);
        drop(store);
        disk.crash(CrashOptions::nothing_unsynced());
        let store = Store::open(&disk, kind).unwrap();
        check(&store, &acknowledged);
        assert!(!store.is_reported(), "{:?}", store.engine.status().lost);
    }
}

/// Puts, with upkeep now and then, until one is refused for want of space. Returns its key and its round.
fn fill(store: &Store, acknowledged: &mut [Option<usize>; KEYS]) -> (usize, usize) {
    for round in 2..500 {
        for (number, latest) in acknowledged.iter_mut().enumerate() {
            match store.put(number, round) {
                Ok(()) => *latest = Some(round),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Full);
                    return (number, round);
                }
            }
        }
        let task = store.engine.maintenance_due(NOW).into_iter().next();
        if let Some(task) = task {
            let budget = StepBudget { bytes: 10_000 };
            let _done_or_full = store.engine.maintenance_step(&task, budget, NOW);
        }
    }
    panic!("the disk does not fill up")
}

/// Regression: the first chore on a full disk was to write the log's identity. It failed, and no
/// later chore was done, not even those that free space.
#[test]
fn a_log_without_room_for_its_small_files_lets_segments_go() {
    leave_no_room_for_small_files(Kind::Bitcask);
}

#[test]
fn a_log_under_leveldb_without_room_for_its_small_files_lets_segments_go() {
    leave_no_room_for_small_files(Kind::Leveldb);
}

fn leave_no_room_for_small_files(kind: Kind) {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    for name in ["value_log/log", "value_log/dropped"] {
        let rule = Rule::new(no_space).on(Operation::Write);
        disk.add_rule(rule.path_contains(name));
    }
    let store = Store::open(&disk, kind).unwrap();
    for round in 0..10 {
        (0..KEYS).for_each(|number| store.put(number, round).unwrap());
    }
    let segments = store.log.status().segments;
    store.do_upkeep();
    assert!(store.log.status().segments < segments / 2);
    disk.heal();
    (0..KEYS).for_each(|number| store.put(number, 10).unwrap());
    store.do_upkeep();
    for name in ["value_log/log", "value_log/dropped"] {
        assert!(disk.info(Path::new(name)).unwrap().is_some(), "{name}");
    }
}

/// Regression: removals append very little, and the log was surveyed only after enough appends.
#[test]
fn a_removal_of_much_has_the_log_looked_through() {
    let store = Store::open(&MemoryDisk::new(), Kind::Bitcask).unwrap();
    store.put_body(0, vec![1; 1_000].into()).unwrap();
    while store.log.is_chore_due() && store.log.chore_step().unwrap() {}
    assert!(!store.log.is_chore_due());
    store.remove(0);
    assert!(store.log.is_chore_due());
}

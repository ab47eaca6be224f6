//! Stores over one value log on threads: puts and removals, reads, folds, merges and collections at once.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease, Lookup, ReadAt,
    Reading, Receipt, StepBudget, TaskKind, Timestamp, Write,
};
use kvorum_backend_bitcask::{BitcaskSettings, SyncStrategy};
use kvorum_backend_leveldb::LeveldbSettings;
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::tenants::{Engine, Opened, bitcask_settings, leveldb_settings, tenants_of};

const STORES: usize = 2;
const KEYS: usize = 80;
const NOW: Timestamp = Timestamp(1_000_000);
/// The least number of rounds, and of collections and merges meanwhile.
const ROUNDS: u64 = 150;
const DONE_MIN: [u64; 2] = [20, 3];
/// Enough for any machine; beyond it the test fails.
const ROUNDS_MAX: u64 = 20 * ROUNDS;
/// A quarter of the keys is written in every round, the others in one of this many: they outlive segments.
const LAZY_ROUNDS: u64 = 12;
/// Some twenty records to a segment.
const LOG: ValueLogSettings = ValueLogSettings {
    segment_bytes: 3_000,
    garbage_percent_max: 20,
};

/// The round that a key gets in a round of its writer; `None` if the key is not written in it.
fn round_for(key: usize, round: u64) -> Option<u64> {
    match key < KEYS / 4 {
        true => Some(round),
        false => {
            let turn = round + key as u64 % LAZY_ROUNDS;
            turn.is_multiple_of(LAZY_ROUNDS)
                .then_some(turn / LAZY_ROUNDS)
        }
    }
}

/// The progress of a key's writer: a read finds a round between the two.
#[derive(Default)]
struct Witness {
    begun: AtomicU64,
    finished: AtomicU64,
}

/// Before the first round there is no value, as after a removal.
fn removes(key: usize, round: u64) -> bool {
    round == 0 || (round + key as u64).is_multiple_of(3)
}

impl Witness {
    fn check(&self, key: usize, seen: Option<u64>, finished: u64, begun: u64) {
        let mut between = finished..=begun;
        let may_be = match seen {
            Some(round) => between.contains(&round) && !removes(key, round),
            None => between.any(|round| removes(key, round)),
        };
        assert!(may_be, "{key}: {seen:?} is not of {finished} to {begun}");
    }
}

/// A store and the progress of its writers.
struct Racing {
    store: Opened,
    witnesses: [Witness; KEYS],
}

fn key_of(key: usize) -> StorageKey {
    StorageKey::from_encoded(vec![b'k', u8::try_from(key).unwrap()])
}

fn round_of(body: &Bytes) -> u64 {
    assert_eq!(body.len(), 80);
    u64::from_le_bytes(*body.first_chunk().unwrap())
}

impl Racing {
    fn write(&self, key: usize, round: u64) {
        let write = match removes(key, round) {
            true => Write::remove(key_of(key)),
            false => {
                let body = Bytes::from(round.to_le_bytes().repeat(10));
                Write::put(key_of(key), Fields::default(), Bytes::new(), body)
            }
        };
        let witness = &self.witnesses[key];
        witness.begun.store(round, Ordering::Release);
        let put = self.store.put(&Batch::of(write), Durability::Grouped);
        put.and_then(Receipt::wait).unwrap();
        witness.finished.store(round, Ordering::Release);
    }

    fn value(&self, key: usize) -> Option<u64> {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: NOW,
        };
        match self.store.get(&key_of(key), at).unwrap() {
            Lookup::Found(entry) => Some(round_of(&entry.body)),
            _ => None,
        }
    }

    fn gets(&self) {
        for (key, witness) in self.witnesses.iter().enumerate() {
            let finished = witness.finished.load(Ordering::Acquire);
            let seen = self.value(key);
            let begun = witness.begun.load(Ordering::Acquire);
            witness.check(key, seen, finished, begun);
        }
    }

    /// A fold shows the state of its snapshot, and so does a later fold of the same snapshot.
    fn folds(&self) {
        let rounds = |of: fn(&Witness) -> &AtomicU64| {
            let loaded = self
                .witnesses
                .iter()
                .map(|it| of(it).load(Ordering::Acquire));
            loaded.collect::<Vec<u64>>()
        };
        let finished = rounds(|it| &it.finished);
        let snapshot = self.store.snapshot(Lease::Unlimited).unwrap();
        let begun = rounds(|it| &it.begun);
        let fold = || {
            let mut shown = BTreeMap::new();
            let filter = FoldFilter::unexpired(NOW);
            let visitor = &mut |visited: kvorum_backend::Visited<'_>| {
                shown.insert(visited.key.clone(), round_of(&visited.body));
                Flow::Continue
            };
            let folded = snapshot.fold(FoldDetail::Entries, &FoldRange::all(), &filter, visitor);
            folded.unwrap();
            shown
        };
        let shown = fold();
        for (key, witness) in self.witnesses.iter().enumerate() {
            let seen = shown.get(&key_of(key)).copied();
            witness.check(key, seen, finished[key], begun[key]);
        }
        assert_eq!(fold(), shown);
    }
}

fn bitcask() -> Engine {
    Engine::Bitcask(BitcaskSettings {
        sync: SyncStrategy::Grouped,
        log_segments_behind_max: 2,
        ..bitcask_settings()
    })
}

fn leveldb() -> Engine {
    Engine::Leveldb(LeveldbSettings {
        sync: SyncStrategy::Grouped,
        log_segments_behind_max: 2,
        // All bodies stay in the log.
        blob_threshold_bytes: 80,
        ..leveldb_settings()
    })
}

fn open(disk: &MemoryDisk, engine: &Engine) -> (ValueLog, Vec<Racing>) {
    let drawn = Arc::new(AtomicU64::new(1 + disk.operations()));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let log_id = drawn.fetch_add(1, Ordering::Relaxed);
    let (log, found) = ValueLog::open(disk.clone(), Path::new("log"), log_id, LOG).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    let store = |number| -> Opened {
        let shared: ValueLog = log.clone();
        let drawn = drawn.clone();
        let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let directory = PathBuf::from(format!("stores/{number}"));
        let opened = engine.open(disk.clone(), &directory, draw, shared);
        opened.unwrap()
    };
    let stores: Vec<_> = (0..STORES).map(store).collect();
    log.admit(&tenants_of(&stores)).unwrap();
    let racing = stores.into_iter().map(|store| Racing {
        store,
        witnesses: std::array::from_fn(|_| Witness::default()),
    });
    (log, racing.collect())
}

/// Does due upkeep of the log and of a store; counts collections and merges.
fn keep_up(log: &ValueLog, racing: &Racing, counts: &[AtomicU64; 2]) {
    let budget = StepBudget { bytes: 3_000 };
    log.chore_step().unwrap();
    let is_due = log.collection_due().is_some();
    if log.collection_step(budget).unwrap().is_done && is_due {
        counts[0].fetch_add(1, Ordering::AcqRel);
    }
    for task in racing.store.maintenance_due(NOW) {
        let stepped = racing.store.maintenance_step(&task, budget, NOW).unwrap();
        let is_merge = matches!(
            task.kind,
            TaskKind::Merge | TaskKind::Collect | TaskKind::Compact
        );
        if stepped.is_done && is_merge {
            counts[1].fetch_add(1, Ordering::AcqRel);
        }
    }
}

fn is_enough(counts: &[AtomicU64; 2]) -> bool {
    let done = counts.iter().map(|it| it.load(Ordering::Acquire));
    done.zip(DONE_MIN).all(|(done, least)| done >= least)
}

#[test]
fn r14_reads_and_folds_see_every_finished_put_and_removal_beside_collections_and_merges() {
    race(&bitcask());
}

#[test]
fn r14_over_leveldb_they_see_them_too() {
    race(&leveldb());
}

fn race(engine: &Engine) {
    let disk = MemoryDisk::new();
    let (log, all) = &open(&disk, engine);
    let counts: &[AtomicU64; 2] = &Default::default();
    let is_over = &AtomicBool::new(false);
    let until_over = |work: &dyn Fn()| {
        while !is_over.load(Ordering::Acquire) {
            work();
        }
    };
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for racing in all {
            for half in [0, 1] {
                writers.push(scope.spawn(move || {
                    for round in 1..=ROUNDS_MAX {
                        for key in (half..KEYS).step_by(2) {
                            if let Some(round) = round_for(key, round) {
                                racing.write(key, round);
                            }
                        }
                        // Here too, so that upkeep does not depend on the turns of the other thread.
                        keep_up(log, racing, counts);
                        if round >= ROUNDS && is_enough(counts) {
                            break;
                        }
                    }
                }));
            }
            scope.spawn(move || until_over(&|| racing.gets()));
            scope.spawn(move || until_over(&|| racing.folds()));
            scope.spawn(move || until_over(&|| keep_up(log, racing, counts)));
        }
        let ended: Vec<_> = writers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Release);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    assert!(is_enough(counts), "{counts:?}");
    // Acknowledged puts survive a power cut, and so do removals.
    let (_log, again) = open(&disk.crash_image(CrashOptions::nothing_unsynced()), engine);
    for (racing, reopened) in all.iter().zip(again) {
        racing.gets();
        for key in 0..KEYS {
            assert_eq!(reopened.value(key), racing.value(key), "{key}");
        }
    }
}

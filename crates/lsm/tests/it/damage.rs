//! Rot: what it hits is told and set aside, everything else is served, and upkeep comes to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use kvorum_backend::{ErrorKind, StepBudget, TaskKind, Timestamp};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_lsm::{Lsm, LsmSettings, Op};

use crate::support::{
    do_all, everything, files, flip, get, key, open, put, put_op, scanned, settings, write,
};

const KEYS: usize = 60;

fn body(number: usize) -> Vec<u8> {
    format!("body {number} ").repeat(8).into_bytes()
}

/// Everything on one level below 0, closed.
fn filled(disk: &MemoryDisk, settings: &LsmSettings) {
    let store = open(disk, settings.clone());
    (0..KEYS).for_each(|number| put(&store, number, b"an older value that must not return"));
    do_all(&store);
    store.sync().unwrap();
    (0..KEYS).for_each(|number| put(&store, number, &body(number)));
    do_all(&store);
    store.close().unwrap();
    drop(store);
    let store = open(disk, settings.clone());
    do_all(&store);
    store.close().unwrap();
}

/// How many keys are right and how many say that they are damaged; anything else is wrong.
fn right_and_damaged(store: &Lsm) -> (usize, usize) {
    let (mut right, mut damaged) = (0, 0);
    for number in 0..KEYS {
        match get(store, number) {
            Ok(Some(got)) if got == body(number) => right += 1,
            Ok(got) => panic!("key {number} is {got:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                damaged += 1;
            }
        }
    }
    (right, damaged)
}

#[test]
fn r24_a_flipped_byte_is_told_and_costs_a_block_at_most() {
    let settings = settings();
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    for path in files(&whole, "") {
        let Some(info) = whole.info(&path).unwrap() else {
            continue;
        };
        if info.kind == kvorum_disk::EntryKind::Directory {
            continue;
        }
        for offset in (0..info.len).step_by(11) {
            let disk = whole.crash_image(CrashOptions::everything());
            flip(&disk, &path, offset);
            let store = open(&disk, settings.clone());
            let (right, damaged) = right_and_damaged(&store);
            assert!(damaged <= 8, "{damaged} at {offset} of {path:?}");
            let shown = scanned(&store);
            assert!(shown.len() >= right);
            for (at, shown) in shown {
                let number = (0..KEYS).find(|it| key(*it) == at).unwrap();
                assert_eq!(shown, body(number), "{at:?} at {offset} of {path:?}");
            }
            if damaged > 0 {
                assert!(!store.status(&everything()).lost.is_empty());
            }
        }
    }
}

#[test]
fn r25_rot_in_the_log_is_reported_and_not_cut() {
    let settings = LsmSettings {
        memtable_bytes: 1 << 20,
        ..settings()
    };
    let disk = MemoryDisk::new();
    let store = open(&disk, settings.clone());
    for number in 0..KEYS {
        put(&store, number, &body(number));
        if number % 20 == 19 {
            store.sync().unwrap();
        }
    }
    drop(store);
    let log = files(&disk, ".segment").pop().unwrap();
    flip(&disk, &log, 300);
    disk.crash(CrashOptions::everything());
    let store = open(&disk, settings.clone());
    assert_eq!(scanned(&store).len(), KEYS - 1);
    assert_eq!(store.status(&everything()).lost.len(), 1);
    store.close().unwrap();
    drop(store);
    let store = open(&disk, settings);
    assert_eq!(scanned(&store).len(), KEYS - 1);
    assert_eq!(store.status(&everything()).lost.len(), 1);
}

/// What stands in a log when the power goes: how it was filled, and what may be found of each key.
struct Logged {
    disk: MemoryDisk,
    settings: LsmSettings,
    /// What each key ever held, the latest last.
    ever: BTreeMap<usize, Vec<Option<Vec<u8>>>>,
    /// Keys whose latest value was synced.
    synced: BTreeSet<usize>,
    /// Keys that one record, or the records of one batch, have at most.
    together: usize,
}

/// How a log is filled.
#[derive(Clone, Copy, Debug)]
enum Filling {
    Single,
    Batches,
    RemovedRanges,
    TwoLogs,
}

impl Logged {
    fn new(filling: Filling) -> Self {
        let settings = LsmSettings {
            memtable_bytes: 1 << 20,
            ..settings()
        };
        let disk = MemoryDisk::new();
        let store = open(&disk, settings.clone());
        let mut logged = Self {
            disk: disk.clone(),
            settings,
            ever: BTreeMap::new(),
            synced: BTreeSet::new(),
            together: match filling {
                Filling::Batches => 4,
                Filling::RemovedRanges => 6,
                _ => 1,
            },
        };
        for number in 0..KEYS + 5 {
            logged.write(&store, filling, number);
            if number % 20 == 19 {
                store.sync().unwrap();
                logged.synced.extend(logged.ever.keys());
            }
        }
        drop(store);
        disk.crash(CrashOptions::everything());
        logged
    }

    fn write(&mut self, store: &Lsm, filling: Filling, number: usize) {
        let mut ops = vec![put_op(number, &body(number))];
        self.note(number, Some(body(number)));
        match filling {
            Filling::Batches => {
                for other in 1..4 {
                    let key = 100 * other + number;
                    ops.push(put_op(key, &body(key)));
                    self.note(key, Some(body(key)));
                }
            }
            // Of keys that are synced; the next sync is of the removal.
            Filling::RemovedRanges if number % 20 == 10 && number > 20 => {
                let (from, to) = (number - 20, number - 14);
                let (from_key, to_key) = (key(from), key(to));
                ops.push(Op::RemoveRange {
                    from: from_key,
                    to: to_key,
                });
                (from..to).for_each(|key| self.note(key, None));
            }
            Filling::TwoLogs if number == 40 => {
                // Begun and not finished: what is put from now on is in another log.
                let begun = store.flush_part(1, Timestamp(1)).unwrap();
                assert!(!begun.is_done);
            }
            _ => {}
        }
        write(store, &ops);
    }

    fn note(&mut self, number: usize, value: Option<Vec<u8>>) {
        let ever = self.ever.entry(number).or_insert_with(|| vec![None]);
        ever.push(value);
        self.synced.remove(&number);
    }

    /// Opens a copy with a damaged byte.
    fn check(&self, log: &Path, offset: u64) {
        let disk = self.disk.crash_image(CrashOptions::everything());
        flip(&disk, log, offset);
        let store = open(&disk, self.settings.clone());
        let story = format!("byte {offset} of {log:?}");
        let mut lost = 0;
        for (number, ever) in &self.ever {
            let got = get(&store, *number).unwrap().map(|it| it.to_vec());
            assert!(ever.contains(&got), "key {number} is {got:?}, {story}");
            lost += usize::from(ever.last() != Some(&got) && self.synced.contains(number));
        }
        assert!(lost <= self.together, "{lost} keys, {story}");
        let is_told = !store.status(&everything()).lost.is_empty();
        assert!(lost == 0 || is_told, "{lost} keys are gone untold, {story}");
        // What is shown is what gets show.
        for (key, value) in scanned(&store) {
            let number: usize = std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
            assert_eq!(get(&store, number).unwrap(), Some(value), "{story}");
        }
    }
}

#[test]
fn r25_any_flip_of_a_log_that_was_not_closed_costs_a_batch_at_most_and_is_told() {
    for filling in [
        Filling::Single,
        Filling::Batches,
        Filling::RemovedRanges,
        Filling::TwoLogs,
    ] {
        let logged = Logged::new(filling);
        let logs = files(&logged.disk, ".segment");
        let expected = if matches!(filling, Filling::TwoLogs) {
            2
        } else {
            1
        };
        assert_eq!(logs.len(), expected, "{filling:?}");
        for log in logs {
            let len = logged.disk.info(&log).unwrap().unwrap().len;
            // Odd, so that all parts of records are met.
            let step = if matches!(filling, Filling::Single) {
                5
            } else {
                17
            };
            (0..len).step_by(step).for_each(|at| logged.check(&log, at));
        }
    }
}

#[test]
fn r27_a_merge_passes_over_a_bad_block_in_one_attempt_and_nothing_older_returns() {
    let settings = settings();
    let disk = MemoryDisk::new();
    filled(&disk, &settings);
    let tables = files(&disk, ".sst");
    for table in &tables {
        flip(&disk, table, 100);
    }
    let store = open(&disk, settings.clone());
    let (_, damaged) = right_and_damaged(&store);
    assert!(damaged > 0);
    let lost = store.status(&everything()).lost.len();
    // New entries on all sides, so that everything is merged.
    for round in 0..4 {
        (100..220).for_each(|number| put(&store, number, &[round; 80]));
        write(
            &store,
            &[
                Op::Remove { key: key(0) },
                Op::Remove { key: key(KEYS - 1) },
            ],
        );
        do_all(&store);
    }
    for number in 1..KEYS - 1 {
        match get(&store, number) {
            Ok(Some(got)) => assert_eq!(got, body(number)),
            Ok(None) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
    }
    let status = store.status(&everything());
    assert_eq!(status.lost.len(), lost, "{:?}", status.lost);
    assert!(
        status
            .lost
            .iter()
            .any(|it| it.held.contains("with the keys from"))
    );
    let kept = disk.list(Path::new("store/lost")).unwrap();
    assert!(
        kept.iter().any(|it| it.name == "BLOCKS.bad") && kept.len() > 1,
        "{kept:?}"
    );
    // A put repairs what it writes.
    put(&store, 3, &body(3));
    assert_eq!(get(&store, 3).unwrap().unwrap(), body(3));
}

#[test]
fn a_missing_or_foreign_table_degrades_the_store_and_is_merged_away() {
    let settings = settings();
    let disk = MemoryDisk::new();
    filled(&disk, &settings);
    let tables = files(&disk, ".sst");
    assert!(tables.len() > 1, "{tables:?}");
    disk.remove_file(&tables[0]).unwrap();
    let store = open(&disk, settings.clone());
    let (right, damaged) = right_and_damaged(&store);
    assert!(right > 0 && damaged > 0);
    assert_eq!(scanned(&store).len(), right);
    let lost = store.status(&everything()).lost;
    assert!(
        lost.len() == 1 && lost[0].held.contains("the keys from"),
        "{lost:?}"
    );
    for round in 0..4 {
        (0..KEYS).for_each(|number| put(&store, number, &body(number)));
        (100..200).for_each(|number| put(&store, number, &[round; 80]));
        do_all(&store);
    }
    assert_eq!(right_and_damaged(&store), (KEYS, 0));
}

#[test]
fn a_store_without_its_manifest_is_not_guessed_at() {
    let disk = MemoryDisk::new();
    filled(&disk, &settings());
    for name in ["manifest-0", "manifest-1"] {
        flip(&disk, &Path::new("store").join(name), 20);
    }
    let refused = crate::support::try_open(&disk, settings()).err();
    assert_eq!(refused.map(|it| it.kind()), Some(ErrorKind::Corrupt));
}

#[test]
fn one_bad_copy_of_the_manifest_costs_nothing() {
    for name in ["manifest-0", "manifest-1"] {
        let disk = MemoryDisk::new();
        filled(&disk, &settings());
        flip(&disk, &Path::new("store").join(name), 40);
        let store = open(&disk, settings());
        assert_eq!(right_and_damaged(&store), (KEYS, 0));
        assert_eq!(store.status(&everything()).lost.len(), 1);
    }
}

#[test]
fn a_scrub_finds_rot_in_tables_and_blob_files_before_a_reader_does() {
    let scrub = |store: &Lsm, now: Timestamp| {
        let scrub_of = || store.maintenance_due(now).into_iter();
        while let Some(task) = scrub_of().find(|it| it.kind == TaskKind::Scrub) {
            let budget = StepBudget { bytes: 300 };
            store.maintenance_step(&task, budget, now).unwrap();
        }
    };
    let settings = LsmSettings {
        scrub_period: Some(Duration::from_secs(100)),
        blob_threshold_bytes: 60,
        ..settings()
    };
    let disk = MemoryDisk::new();
    filled(&disk, &settings);
    let store = open(&disk, settings);
    // What is read is in the cache, and rots on the disk.
    assert_eq!(right_and_damaged(&store), (KEYS, 0));
    let names = files(&disk, "");
    for suffix in ["sst", "blob"] {
        let damaged = names
            .iter()
            .find(|it| it.extension().is_some_and(|it| it == suffix));
        flip(&disk, damaged.unwrap(), 60);
    }
    scrub(&store, Timestamp(1_000));
    assert_eq!(store.status(&everything()).lost, []);
    scrub(&store, Timestamp(101_000_000));
    let status = store.status(&everything());
    let mut suffixes: Vec<&str> = status
        .lost
        .iter()
        .filter_map(|it| it.file.split_once('.').map(|(_, suffix)| suffix))
        .collect();
    suffixes.sort_unstable();
    assert_eq!(suffixes, ["blob", "sst"], "{:?}", status.lost);
    assert_eq!(status.corrupt_reads, 2);
}

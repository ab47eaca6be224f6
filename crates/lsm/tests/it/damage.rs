//! Corruption: the damaged parts are reported and set aside, all others are served, and upkeep
//! finishes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvorum_backend::{ErrorKind, StepBudget, TaskKind, Timestamp};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_lsm::policy::PolicySettings;
use kvorum_lsm::{Lsm, LsmSettings, Op, OrderedTree};

use crate::support::{
    NOW, do_all, everything, files, flip, get, key, open, put, put_op, scanned, settings, write,
};

const KEYS: usize = 60;

fn body(number: usize) -> Vec<u8> {
    format!("body {number} ").repeat(8).into_bytes()
}

/// A closed store with everything on one level below 0.
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

/// The numbers of right keys and of keys reported as damaged; any other result fails.
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

/// The distance between flips; long runs flip every byte.
fn stride(quick: usize) -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a test may take comes from who runs it"
    )]
    let is_long = std::env::var("KVORUM_TEST_LONG").is_ok();
    if is_long { 1 } else { quick }
}

/// Flips bytes of all files of a store. Returns the numbers of keys that a flip cost, for each kind
/// of file.
fn flip_everywhere(settings: &LsmSettings, step: usize) -> BTreeMap<String, BTreeSet<usize>> {
    let whole = MemoryDisk::new();
    filled(&whole, settings);
    let mut costs = BTreeMap::<String, BTreeSet<usize>>::new();
    for path in files(&whole, "") {
        let Some(info) = whole.info(&path).unwrap() else {
            continue;
        };
        if info.kind == kvorum_disk::EntryKind::Directory {
            continue;
        }
        let extension = path.extension().unwrap_or_default();
        let costs = costs
            .entry(extension.to_string_lossy().into_owned())
            .or_default();
        for offset in (0..info.len).step_by(step) {
            let disk = whole.crash_image(CrashOptions::everything());
            flip(&disk, &path, offset);
            let store = open(&disk, settings.clone());
            let (right, damaged) = right_and_damaged(&store);
            let shown = scanned(&store);
            assert!(shown.len() >= right);
            for (at, shown) in shown {
                let number = (0..KEYS).find(|it| key(*it) == at).unwrap();
                assert_eq!(shown, body(number), "{at:?} at {offset} of {path:?}");
            }
            if damaged > 0 {
                let lost = store.status(&everything()).lost;
                assert!(!lost.is_empty(), "{offset} of {path:?}");
            }
            costs.insert(damaged);
        }
    }
    costs
}

#[test]
fn r24_a_flipped_byte_is_reported_and_costs_a_block_at_most() {
    let costs = flip_everywhere(&settings(), stride(11));
    let most = costs.values().flatten().max();
    assert!(most.is_some_and(|it| (1..=8).contains(it)), "{costs:?}");
}

#[test]
fn r24_a_flipped_byte_of_a_store_with_bodies_in_blob_files_costs_a_block_at_most() {
    let settings = LsmSettings {
        blob_threshold_bytes: 50,
        ..settings()
    };
    let costs = flip_everywhere(&settings, stride(7));
    // A body has a block of its own. A block of entries has more of them without bodies.
    assert_eq!(costs["blob"], BTreeSet::from([0, 1]), "{costs:?}");
    assert!(costs["sst"].iter().all(|it| *it <= 16), "{costs:?}");
    assert!(costs["sst"].len() > 1, "{costs:?}");
}

#[test]
fn r25_corruption_in_the_log_is_reported_and_not_cut() {
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

/// A log at a power cut, and the possible values of each key.
struct Logged {
    disk: MemoryDisk,
    settings: LsmSettings,
    /// All values of each key, the latest last.
    ever: BTreeMap<usize, Vec<Option<Vec<u8>>>>,
    /// Keys whose latest value was synced.
    synced: BTreeSet<usize>,
    /// The most keys of one record or batch.
    together: usize,
}

/// Kinds of filling for a log.
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
            // Synced keys; the next sync covers the removal.
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
                // An unfinished flush: later puts are in another log.
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
        let is_reported = !store.status(&everything()).lost.is_empty();
        assert!(
            lost == 0 || is_reported,
            "{lost} keys are gone unreported, {story}"
        );
        // A scan shows the same values as gets.
        for (key, value) in scanned(&store) {
            let number: usize = std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
            assert_eq!(get(&store, number).unwrap(), Some(value), "{story}");
        }
    }
}

#[test]
fn r25_any_flip_of_a_log_that_was_not_closed_costs_a_batch_at_most_and_is_reported() {
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
            // Odd, so that all parts of records are hit.
            let step = if matches!(filling, Filling::Single) {
                5
            } else {
                17
            };
            (0..len).step_by(step).for_each(|at| logged.check(&log, at));
        }
    }
}

/// The result of merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Merging {
    /// Steps of merges of any length.
    attempts: u64,
    /// Finished merges and moves.
    ended: u64,
    /// Bytes read and written.
    cost_bytes: u64,
}

fn merges_ended(store: &Lsm) -> u64 {
    let details = store.status(&everything()).details;
    let of = |name| details.iter().find(|it| it.0 == name);
    let count = |name| of(name).map_or(0, |it| it.1.parse().unwrap());
    count("merges") + count("moves")
}

/// Does all upkeep, each merge in one step, and counts the merges.
fn merge_all(store: &Lsm, merging: &mut Merging) {
    let before = merges_ended(store);
    for _ in 0..100 {
        let Some(task) = store.maintenance_due(NOW).into_iter().next() else {
            merging.ended += merges_ended(store) - before;
            return;
        };
        let budget = StepBudget { bytes: u64::MAX };
        let outcome = store.maintenance_step(&task, budget, NOW).unwrap();
        if matches!(task.kind, TaskKind::Compact) {
            merging.attempts += 1;
            merging.cost_bytes += outcome.cost_bytes;
        }
    }
    panic!("upkeep never ends: {:?}", store.maintenance_due(NOW));
}

/// Settings with this last level. `base_bytes` decides whether all levels are in use or only the
/// last.
fn deep(last_level: usize, base_bytes: u64) -> LsmSettings {
    let all = settings();
    LsmSettings {
        memtable_bytes: 2_000,
        policy: PolicySettings {
            levels: last_level + 1,
            base_bytes,
            multiplier: 2,
            ..all.policy.clone()
        },
        ..all
    }
}

/// Fills the last level with older values, and other entries so that level 1 may hold all the rest,
/// and level 0 with one table of newer values. Returns the path of this table.
fn two_layers(disk: &MemoryDisk, last_level: usize) -> PathBuf {
    let at_once = LsmSettings {
        memtable_bytes: 1 << 20,
        ..deep(last_level, 1 << 30)
    };
    for _ in 0..2 {
        let store = open(disk, at_once.clone());
        (0..KEYS).for_each(|number| put(&store, number, b"an older value that must not return"));
        (300..400).for_each(|number| put(&store, number, &[7; 390]));
        store.close().unwrap();
    }
    do_all(&open(disk, at_once.clone()));
    let old = files(disk, ".sst");
    let store = open(disk, at_once);
    (0..KEYS).for_each(|number| put(&store, number, &body(number)));
    store.close().unwrap();
    let between = "0 ".repeat(last_level - 1);
    assert_eq!(
        tables_per_level(&store),
        format!("1 {between}{}", old.len())
    );
    let mut tables = files(disk, ".sst");
    tables.retain(|it| !old.contains(it));
    assert_eq!((tables.len(), old.is_empty()), (1, false), "{tables:?}");
    tables.remove(0)
}

fn tables_per_level(store: &Lsm) -> String {
    let details = store.status(&everything()).details;
    let found = details.into_iter().find(|it| it.0 == "tables_per_level");
    found.unwrap().1
}

/// Keys of a damaged store after its tables were merged.
#[derive(Debug)]
struct Merged {
    /// Keys reported as damaged before.
    damaged: usize,
    /// Keys reported as damaged afterwards.
    still_damaged: usize,
    /// Keys that are absent afterwards.
    absent: usize,
    merging: Merging,
}

/// Merges level 0 and level 1, with new entries on all sides.
fn merge_down(disk: &MemoryDisk, last_level: usize) -> Merged {
    let store = open(disk, deep(last_level, 1));
    let (_, damaged) = right_and_damaged(&store);
    let mut merging = Merging::default();
    for round in 0..2 {
        (100..130).for_each(|number| put(&store, number, &[round; 80]));
        let ends = [key(0), key(KEYS - 1)].map(|key| Op::Remove { key });
        write(&store, &ends);
        merge_all(&store, &mut merging);
    }
    let is_on_level_one = !tables_per_level(&store).starts_with("0 0");
    assert!(is_on_level_one, "{}", tables_per_level(&store));
    let (mut still_damaged, mut absent) = (0, 0);
    for number in 1..KEYS - 1 {
        match get(&store, number) {
            Ok(Some(got)) => assert_eq!(got, body(number), "key {number}"),
            Ok(None) => absent += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                still_damaged += 1;
            }
        }
    }
    Merged {
        damaged,
        still_damaged,
        absent,
        merging,
    }
}

#[test]
fn r27_a_merge_passes_over_a_bad_block_in_one_attempt_and_nothing_older_returns() {
    for last_level in [1, 2] {
        let whole = MemoryDisk::new();
        let newer = two_layers(&whole, last_level);
        let image = || whole.crash_image(CrashOptions::everything());
        let clean = merge_down(&image(), last_level).merging;
        let mut costs = BTreeSet::new();
        let older = files(&whole, ".sst").remove(0);
        for table in [newer.clone(), older] {
            let len = whole.info(&table).unwrap().unwrap().len;
            // Odd, so that all parts of blocks are hit.
            for offset in (0..len).step_by(91) {
                let disk = image();
                flip(&disk, &table, offset);
                let merged = merge_down(&disk, last_level);
                let story = format!("{merged:?}, {clean:?}, byte {offset} of {table:?}");
                assert!(disk.info(&newer).unwrap().is_none(), "{story}");
                let (gone, merging) = (merged.still_damaged + merged.absent, merged.merging);
                assert!(gone <= merged.damaged, "{story}");
                assert!(merged.damaged == 0 || table == newer, "{story}");
                // If there is nothing older to hide, the marks are dropped.
                assert!(last_level == 1 || merged.absent == 0, "{story}");
                let is_once = merging.attempts == clean.attempts && merging.ended == clean.ended;
                assert!(
                    is_once && merging.cost_bytes <= clean.cost_bytes + 100,
                    "{story}"
                );
                costs.insert(gone);
            }
        }
        assert!(costs.contains(&0) && costs.contains(&4), "{costs:?}");
    }
}

#[test]
fn r27_what_is_known_of_a_bad_block_stays_when_its_table_is_merged_away() {
    let disk = MemoryDisk::new();
    let newer = two_layers(&disk, 1);
    flip(&disk, &newer, 100);
    let store = open(&disk, deep(1, 1));
    assert!(right_and_damaged(&store).1 > 0);
    let lost = store.status(&everything()).lost;
    let is_reported = lost.len() == 1 && lost[0].held.contains("with the keys from");
    assert!(is_reported, "{lost:?}");
    drop(store);
    assert!(merge_down(&disk, 1).absent > 0);
    let store = open(&disk, deep(1, 1));
    assert_eq!(store.status(&everything()).lost, lost);
    let kept = disk.list(Path::new("store/lost")).unwrap();
    assert!(
        kept.iter().any(|it| it.name == "BLOCKS.bad") && kept.len() > 1,
        "{kept:?}"
    );
    // A put repairs its key.
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
fn a_scrub_finds_corruption_in_tables_and_blob_files_before_a_reader_does() {
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
    // The blocks are cached, and damaged on the disk.
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

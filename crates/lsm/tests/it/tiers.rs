//! Stores over two directories: the places of files, and changes of one directory.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{ErrorKind, StepBudget};
use kvorum_disk::{
    CrashOptions, Disk, ErrorKind as DiskErrorKind, Fault, FaultyDisk, MemoryDisk, OpenMode,
    Operation, Rule,
};
use kvorum_lsm::policy::PolicySettings;
use kvorum_lsm::{Lsm, LsmSettings, Shared};
use kvorum_lsm_repair::{Repair, RepairOptions, RepairReport, RepairVerdict};
use kvorum_tiers::{CARD_OF_FAST, CARD_OF_SLOW, Tiers, remove_store};

use crate::support::{
    NOW, do_all, everything, flip, get, key, open, put, remove, scanned, settings, try_open,
};

const KEYS: usize = 150;
const FAST: &str = "store";
const SLOW: &str = "mnt/slow/store";

/// Five levels with small targets, so that the deeper levels are soon in use.
fn one_directory() -> LsmSettings {
    LsmSettings {
        policy: PolicySettings {
            levels: 5,
            base_bytes: 3_000,
            multiplier: 2,
            table_bytes_max: 2_000,
            ..settings().policy
        },
        ..settings()
    }
}

fn tiered_at(from_level: usize, slow: &str) -> LsmSettings {
    LsmSettings {
        tiers: Some(Tiers {
            slow_directory: slow.into(),
            from_level,
        }),
        ..one_directory()
    }
}

fn tiered(from_level: usize) -> LsmSettings {
    tiered_at(from_level, SLOW)
}

/// Puts bodies on both sides of the threshold for blob files, in several rounds, so that levels
/// fill.
fn fill(store: &Lsm) {
    for round in 0..3 {
        for number in (0..KEYS).filter(|it| (it + round) % 4 != 3) {
            let body = format!("{round} {number} ").repeat(5 + 70 * usize::from(number % 5 == 0));
            put(store, number, body.as_bytes());
        }
        (0..KEYS)
            .filter(|it| it % 13 == round)
            .for_each(|number| remove(store, number));
        do_all(store);
    }
}

/// A store that was filled and closed, and its entries.
fn filled(disk: &MemoryDisk, settings: LsmSettings) -> Vec<(bytes::Bytes, bytes::Bytes)> {
    let store = open(disk, settings);
    fill(&store);
    let shown = scanned(&store);
    store.close().unwrap();
    shown
}

fn names(disk: &MemoryDisk, directory: &str, suffix: &str) -> BTreeSet<String> {
    let entries = disk.list(Path::new(directory)).unwrap().into_iter();
    let named = entries.filter(|it| it.name.ends_with(suffix));
    named.map(|it| it.name).collect()
}

fn tables(disk: &MemoryDisk, directory: &str) -> usize {
    names(disk, directory, ".sst").len()
}

/// The number of tables of a store on each level.
fn levels(store: &Lsm) -> Vec<usize> {
    let status = store.status(&everything());
    let details = status.details.iter();
    let mut levels = details.filter(|it| it.0 == "tables_per_level");
    let text = &levels.next().unwrap().1;
    text.split(' ').map(|it| it.parse().unwrap()).collect()
}

/// Each table is in its level's directory, and no file is left over.
fn assert_placed(disk: &MemoryDisk, store: &Lsm, from_level: usize) {
    let levels = levels(store);
    let (fast, slow) = levels.split_at(from_level);
    let expected: (usize, usize) = (fast.iter().sum(), slow.iter().sum());
    let got = (tables(disk, FAST), tables(disk, SLOW));
    assert_eq!(got, expected, "border {from_level}, levels {levels:?}");
    let details = store.status(&everything()).details;
    let reported = details.iter().find(|it| it.0 == "slow_tier_bytes").unwrap();
    let bytes: u64 = [".sst", ".blob"]
        .iter()
        .flat_map(|suffix| names(disk, SLOW, suffix))
        .map(|name| disk.info(&Path::new(SLOW).join(name)).unwrap().unwrap().len)
        .sum();
    assert_eq!(reported.1, bytes.to_string());
}

fn move_directory(disk: &MemoryDisk, from: &str, to: &str) {
    let parent = Path::new(to).parent().unwrap();
    disk.create_directory(parent).unwrap();
    disk.rename(Path::new(from), Path::new(to)).unwrap();
}

fn refusal(disk: &MemoryDisk, settings: LsmSettings) -> String {
    match try_open(disk, settings) {
        Ok(_) => panic!("it was opened"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            error.to_string()
        }
    }
}

#[test]
fn tables_of_the_border_and_below_it_lie_in_the_slow_directory() {
    let expected = filled(&MemoryDisk::new(), one_directory());
    let mut in_slow = Vec::new();
    for from_level in 1..5 {
        let disk = MemoryDisk::new();
        let store = open(&disk, tiered(from_level));
        fill(&store);
        assert_placed(&disk, &store, from_level);
        assert!(levels(&store).iter().filter(|it| **it > 0).count() > 2);
        in_slow.push(tables(&disk, SLOW));
        assert_eq!(scanned(&store), expected);
        store.close().unwrap();
        drop(store);
        let store = open(&disk, tiered(from_level));
        assert_eq!(scanned(&store), expected);
        assert!(store.status(&everything()).lost.is_empty());
        assert_eq!(names(&disk, SLOW, "manifest-0").len(), 0);
        assert_eq!(names(&disk, SLOW, ".segment").len(), 0);
    }
    assert!(in_slow.is_sorted_by(|a, b| a >= b), "{in_slow:?}");
    assert!(in_slow[0] > in_slow[3] && in_slow[3] > 0, "{in_slow:?}");
}

#[test]
fn a_table_that_only_moves_down_goes_over_the_border_too() {
    let disk = MemoryDisk::new();
    let store = open(&disk, tiered(4));
    // Tables of keys in order do not overlap.
    for number in 0..400 {
        put(&store, number, &[7; 60]);
        for task in store.maintenance_due(NOW) {
            let budget = StepBudget { bytes: u64::MAX };
            let _outcome = store.maintenance_step(&task, budget, NOW).unwrap();
            // At once, and not only when no other work is due.
            assert_placed(&disk, &store, 4);
        }
    }
    assert!(levels(&store)[4] > 0);
}

#[test]
fn bodies_follow_the_tables_that_use_them() {
    let disk = MemoryDisk::new();
    let store = open(&disk, tiered(1));
    (0..8).for_each(|number| put(&store, number, &[1; 600]));
    let backup = store.backup(Path::new("copy"));
    assert!(backup.is_ok(), "it flushes");
    let young = names(&disk, FAST, ".blob");
    assert!(!young.is_empty());
    assert_eq!(names(&disk, SLOW, ".blob").len(), 0);
    (0..60).for_each(|number| put(&store, number, &[2; 600]));
    do_all(&store);
    let zero = levels(&store)[0];
    let (fast, slow) = (names(&disk, FAST, ".blob"), names(&disk, SLOW, ".blob"));
    assert!(fast.len() <= zero, "{fast:?}, {zero} young tables");
    assert!(!slow.is_empty());
    (0..60).for_each(|number| assert_eq!(get(&store, number).unwrap().unwrap()[..], [2; 600]));
}

#[test]
fn a_border_that_was_moved_is_followed_by_upkeep_and_reads_go_on_meanwhile() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, one_directory());
    assert!(tables(&disk, FAST) > 0);
    for from_level in [3, 1, 4, 2] {
        let store = open(&disk, tiered(from_level));
        assert_eq!(scanned(&store), expected, "border {from_level}");
        do_all(&store);
        assert_placed(&disk, &store, from_level);
        assert_eq!(scanned(&store), expected, "border {from_level}");
        assert!(store.status(&everything()).lost.is_empty());
        store.close().unwrap();
    }
}

#[test]
fn without_tiers_the_slow_directory_is_read_and_emptied_and_then_not_needed() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, tiered(1));
    let store = open(&disk, one_directory());
    assert_eq!(scanned(&store), expected);
    do_all(&store);
    assert_eq!(
        (tables(&disk, SLOW), names(&disk, SLOW, ".blob").len()),
        (0, 0)
    );
    store.close().unwrap();
    drop(store);
    let store = open(&disk, one_directory());
    assert!(disk.info(Path::new(SLOW)).unwrap().is_none());
    assert_eq!(scanned(&store), expected);
    drop(store);
    // And with the settings again.
    let store = open(&disk, tiered(2));
    do_all(&store);
    assert_placed(&disk, &store, 2);
}

#[test]
fn a_slow_directory_that_is_not_mounted_is_refused_and_nothing_is_lost() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, tiered(2));
    let before = names(&disk, FAST, "");
    move_directory(&disk, SLOW, "away/store");
    for settings in [tiered(2), one_directory()] {
        // A missing directory, and an empty mount point.
        let said = refusal(&disk, settings.clone());
        assert!(
            said.contains("not mounted") && said.contains(SLOW),
            "{said}"
        );
        disk.create_directory(Path::new(SLOW)).unwrap();
        let said = refusal(&disk, settings);
        assert!(
            said.contains("not mounted") && said.contains(SLOW),
            "{said}"
        );
        disk.remove_directory(Path::new(SLOW)).unwrap();
    }
    assert_eq!(names(&disk, FAST, ""), before);
    move_directory(&disk, "away/store", SLOW);
    let store = open(&disk, tiered(2));
    assert_eq!(scanned(&store), expected);
    assert!(store.status(&everything()).lost.is_empty());
}

#[test]
fn a_slow_device_that_fails_is_no_store_without_its_tables() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, tiered(2));
    for operation in [Operation::Open, Operation::Read, Operation::Info] {
        let faulty = FaultyDisk::over_memory(&disk);
        let rule = Rule::new(Fault::Error(DiskErrorKind::Device)).on(operation);
        faulty.add_rule(rule.path_contains("mnt/slow"));
        assert!(try_open(&faulty, tiered(2)).is_err(), "{operation:?}");
    }
    for first in 1..12 {
        let faulty = FaultyDisk::over_memory(&disk);
        let rule = Rule::new(Fault::Error(DiskErrorKind::Device)).on(Operation::Read);
        faulty.add_rule(rule.path_contains("mnt/slow").from_nth(first));
        if let Ok(store) = try_open(&faulty, tiered(2)) {
            assert!(store.status(&everything()).lost.is_empty(), "from {first}");
        }
    }
    assert_eq!(scanned(&open(&disk, tiered(2))), expected);
}

#[test]
fn the_slow_directory_of_another_store_is_refused() {
    let disk = MemoryDisk::new();
    let _shown = filled(&disk, tiered(2));
    move_directory(&disk, SLOW, "away/store");
    move_directory(&disk, FAST, "other/store");
    // Another store replaces both directories, and gets the first store's entries.
    let shared = Shared::new(1 << 20, 1 << 30);
    let draw = Arc::new(|| 4_711);
    let other = Lsm::open(
        Arc::new(disk.clone()),
        Path::new(FAST),
        tiered(2),
        shared,
        draw,
        None,
    );
    fill(&other.unwrap());
    disk.remove_directory(Path::new(SLOW)).unwrap();
    move_directory(&disk, "away/store", SLOW);
    let said = refusal(&disk, tiered(2));
    assert!(said.contains("another store's"), "{said}");
}

#[test]
fn two_stores_do_not_share_a_slow_directory_even_an_empty_one() {
    let disk = MemoryDisk::new();
    drop(open(&disk, tiered(2)));
    let shared = Shared::new(1 << 20, 1 << 30);
    let (seam, draw) = (Arc::new(disk.clone()), Arc::new(|| 4_711));
    let other = Lsm::open(seam, Path::new("other"), tiered(2), shared, draw, None);
    let said = other.err().unwrap().to_string();
    assert!(said.contains("of the store in store"), "{said}");
    drop(open(&disk, tiered(2)));
}

#[test]
fn a_new_store_does_not_take_the_old_tables_of_another() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, tiered(2));
    move_directory(&disk, FAST, "away/store");
    let before = names(&disk, SLOW, "");
    let said = refusal(&disk, tiered(2));
    assert!(said.contains("move mnt/slow/store away"), "{said}");
    assert_eq!(names(&disk, SLOW, ""), before);
    disk.remove_directory(Path::new(FAST)).unwrap();
    move_directory(&disk, "away/store", FAST);
    assert_eq!(scanned(&open(&disk, tiered(2))), expected);
}

#[test]
fn a_slow_directory_that_was_moved_is_found_by_the_settings_and_no_other_is_taken() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, tiered(2));
    let new = "mnt/new/store";
    let said = refusal(&disk, tiered_at(2, new));
    assert!(said.contains("move that directory there"), "{said}");
    move_directory(&disk, SLOW, "away/store");
    let said = refusal(&disk, tiered_at(2, new));
    assert!(said.contains("they are in neither"), "{said}");
    move_directory(&disk, "away/store", new);
    let store = open(&disk, tiered_at(2, new));
    assert_eq!(scanned(&store), expected);
    drop(store);
    // Tools and nodes without the settings find the slow directory too.
    assert_eq!(scanned(&open(&disk, one_directory())), expected);
}

#[test]
fn a_fast_directory_that_was_moved_keeps_its_slow_one() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, tiered(2));
    move_directory(&disk, FAST, "elsewhere/store");
    for _ in 0..2 {
        let shared = Shared::new(1 << 20, 1 << 30);
        let directory = Path::new("elsewhere/store");
        let opened = Lsm::open(
            Arc::new(disk.clone()),
            directory,
            tiered(2),
            shared,
            Arc::new(|| 5),
            None,
        );
        assert_eq!(scanned(&opened.unwrap()), expected);
    }
}

#[test]
fn damage_to_a_card_costs_nothing_where_the_settings_say_the_same() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, tiered(2));
    let cards = [
        Path::new(FAST).join(CARD_OF_SLOW),
        Path::new(SLOW).join(CARD_OF_FAST),
    ];
    for card in &cards {
        let len = disk.info(card).unwrap().unwrap().len;
        for at in 0..len {
            flip(&disk, card, at);
            let store = open(&disk, tiered(2));
            assert_eq!(scanned(&store), expected, "byte {at} of {}", card.display());
        }
    }
    flip(&disk, &cards[0], 20);
    let said = refusal(&disk, one_directory());
    assert!(said.contains("tier-slow is damaged"), "{said}");
    assert_eq!(scanned(&open(&disk, tiered(2))), expected);
}

/// Regression: a store with another store's card used the other's slow directory as its own, and
/// removed unlisted tables there.
#[test]
fn a_card_of_another_store_counts_as_damaged() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, tiered(2));
    let open_other = || {
        let state = std::sync::atomic::AtomicU64::new(5_000);
        let draw = Arc::new(move || state.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let settings = tiered_at(2, "mnt/slow/other");
        let shared = Shared::new(1 << 20, 1 << 30);
        Lsm::open(
            Arc::new(disk.clone()),
            Path::new("other"),
            settings,
            shared,
            draw,
            None,
        )
        .unwrap()
    };
    let other = open_other();
    fill(&other);
    do_all(&other);
    let expected_of_other = scanned(&other);
    drop(other);
    assert!(tables(&disk, "mnt/slow/other") > 0);
    let [card, theirs] = [FAST, "other"].map(|it| Path::new(it).join(CARD_OF_SLOW));
    disk.remove_file(&card).unwrap();
    kvorum_disk::copy_file(&disk, &theirs, &card).unwrap();

    let said = refusal(&disk, one_directory());
    assert!(said.contains("another store's"), "{said}");
    assert_eq!(scanned(&open(&disk, tiered(2))), expected);
    assert_eq!(scanned(&open_other()), expected_of_other);
}

#[test]
fn a_backup_is_whole_in_one_directory_whatever_filesystems_there_are() {
    let disk = MemoryDisk::new();
    let _shown = filled(&disk, tiered(2));
    for is_other in [false, true] {
        let faulty = FaultyDisk::over_memory(&disk);
        if is_other {
            let rule = Rule::new(Fault::Error(DiskErrorKind::OtherFilesystem));
            faulty.add_rule(rule.on(Operation::Link).path_contains("mnt/slow"));
        }
        let store = open(&faulty, tiered(2));
        (0..20).for_each(|number| put(&store, number, b"young"));
        let expected = scanned(&store);
        let directory = format!("copies/{is_other}");
        let made = store.backup(Path::new(&directory)).unwrap().files;
        // Copied are the two copies of the manifest, and the files that cannot be linked.
        let in_slow = tables(&disk, SLOW) + names(&disk, SLOW, ".blob").len();
        let copied = 2 + if is_other { in_slow as u64 } else { 0 };
        assert_eq!(made.copied_files, copied);
        assert!(made.linked_files > 0 && in_slow > 0);
        drop(store);
        let copy = disk.crash_image(CrashOptions::nothing_unsynced());
        let shared = Shared::new(1 << 20, 1 << 30);
        let (seam, draw) = (Arc::new(copy), Arc::new(|| 77));
        let directory = Path::new(&directory);
        let copy = Lsm::open(seam, directory, one_directory(), shared, draw, None).unwrap();
        assert_eq!(scanned(&copy), expected);
        assert!(copy.status(&everything()).lost.is_empty());
    }
}

#[test]
fn erasing_leaves_no_table_in_either_directory() {
    let disk = MemoryDisk::new();
    let store = open(&disk, tiered(2));
    fill(&store);
    store.erase().unwrap();
    for directory in [FAST, SLOW] {
        assert_eq!(tables(&disk, directory), 0);
        assert_eq!(names(&disk, directory, ".blob").len(), 0);
    }
    put(&store, 3, b"after");
    drop(store);
    let store = open(&disk, tiered(2));
    assert_eq!(scanned(&store).len(), 1);
    assert_eq!(scanned(&store)[0].0, key(3));
}

#[test]
fn removing_a_store_removes_both_directories_however_often_it_is_cut_short() {
    let whole = MemoryDisk::new();
    let _shown = filled(&whole, tiered(2));
    let operations = {
        let disk = whole.crash_image(CrashOptions::everything());
        let before = disk.operations();
        remove_store(&disk, Path::new(FAST)).unwrap();
        for directory in [FAST, SLOW] {
            assert!(disk.info(Path::new(directory)).unwrap().is_none());
        }
        disk.operations() - before
    };
    for cut in 0..operations {
        for options in [CrashOptions::everything(), CrashOptions::drawn(cut)] {
            let disk = whole.crash_image(CrashOptions::everything());
            disk.cut_after(disk.operations() + cut);
            let _cut = remove_store(&disk, Path::new(FAST));
            let disk = disk.crash_image(options);
            // An opening instead may miss a manifest, and never the slow directory.
            let image = disk.crash_image(CrashOptions::everything());
            let opened = try_open(&image, tiered(2)).map(drop);
            let is_refused = |error| matches!(error, ErrorKind::Denied | ErrorKind::Failed);
            assert!(!opened.is_err_and(|it| is_refused(it.kind())), "cut {cut}");
            // A node that starts continues the removal.
            if disk.info(Path::new(FAST)).unwrap().is_some() {
                remove_store(&disk, Path::new(FAST)).unwrap();
            }
            let store = open(&disk, tiered(2));
            assert!(scanned(&store).is_empty(), "cut {cut}");
            if cut % 8 == 0 {
                fill(&store);
                assert_placed(&disk, &store, 2);
            }
        }
    }
}

fn repair(disk: &MemoryDisk) -> kvorum_backend::Result<RepairReport> {
    let options = RepairOptions {
        unit_bytes: 4_000,
        settings: one_directory(),
        ..RepairOptions::default()
    };
    let repair = Repair::begin(Arc::new(disk.clone()), Path::new(FAST), options)?;
    loop {
        for unit in repair.units() {
            repair.run(unit, &|_| {})?;
        }
        if !repair.next_stage()? {
            return Ok(repair.report());
        }
    }
}

#[test]
fn a_repair_knows_both_directories_and_keeps_each_file_on_its_side() {
    let disk = MemoryDisk::new();
    let expected = filled(&disk, tiered(2));
    assert_eq!(repair(&disk).unwrap().verdict, RepairVerdict::Sound);
    let len_of = |name: &String| {
        let info = disk.info(&Path::new(SLOW).join(name)).unwrap();
        info.unwrap().len
    };
    let old = names(&disk, SLOW, ".sst").into_iter();
    let damaged = old.max_by_key(|it| len_of(it)).unwrap();
    flip(&disk, &Path::new(SLOW).join(&damaged), 200);
    let before = (tables(&disk, FAST), tables(&disk, SLOW));
    assert_eq!(repair(&disk).unwrap().verdict, RepairVerdict::Repaired);
    assert_eq!((tables(&disk, FAST), tables(&disk, SLOW)), before);
    let aside = Path::new(SLOW).join("lost").join(&damaged);
    assert!(disk.info(&aside).unwrap().is_some());
    let store = open(&disk, tiered(2));
    let kept = scanned(&store);
    let (left, all) = (kept.len(), expected.len());
    let changed: Vec<_> = kept.iter().filter(|it| !expected.contains(it)).collect();
    assert!(
        left < all && changed.is_empty(),
        "{left} of {all}, {changed:?}"
    );
    let before = kept;
    store.close().unwrap();
    drop(store);

    // Without a manifest everything is merged again, into the slow directory.
    for name in ["manifest-0", "manifest-1"] {
        disk.remove_file(&Path::new(FAST).join(name)).unwrap();
    }
    let report = repair(&disk).unwrap();
    assert_eq!(report.verdict, RepairVerdict::Repaired);
    let store = open(&disk, tiered(2));
    let rebuilt = scanned(&store);
    // Without levels, an entry above a lost range may be older than the lost entries.
    let is_doubtful = |key: &bytes::Bytes| {
        let mut doubts = report.doubts.iter();
        doubts.any(|it| it.from <= *key && *key < it.to)
    };
    let mut kept = before.iter().filter(|it| !is_doubtful(&it.0));
    assert!(kept.all(|it| rebuilt.contains(it)) && rebuilt.len() > before.len() / 2);
    drop(store);
    move_directory(&disk, SLOW, "away/store");
    assert_eq!(repair(&disk).unwrap_err().kind(), ErrorKind::Denied);
}

#[test]
fn what_a_killed_job_left_in_the_slow_directory_goes_at_the_next_opening() {
    let disk = MemoryDisk::new();
    let _shown = filled(&disk, tiered(2));
    let left = Path::new(SLOW).join("0000099999.sst");
    disk.open(&left, OpenMode::CreateNew).unwrap();
    let store = open(&disk, tiered(2));
    assert!(disk.info(&left).unwrap().is_none());
    fill(&store);
    assert_placed(&disk, &store, 2);
}

//! Damage to each part of a file: its cost, its report, and the upkeep afterwards.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kvorum_backend::{Durability, ErrorKind, StepBudget, TaskKind, Timestamp};
use kvorum_disk::anatomy::Piece;
use kvorum_disk::{CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule};
use kvorum_lsm::{Lsm, LsmSettings};
use kvorum_sst::anatomy::TableAnatomy;

use crate::support::{
    AsDisk, NOW, do_all, everything, files, get, key, open, put, put_op, scanned, settings,
    try_open, try_scanned,
};

const KEYS: usize = 60;

fn body(number: usize) -> Vec<u8> {
    // Every fourth body goes to a blob file.
    let times = if number.is_multiple_of(4) { 60 } else { 8 };
    format!("body {number} ").repeat(times).into_bytes()
}

/// Everything is on one level below 0, over older entries that must not return.
fn filled(disk: &MemoryDisk, settings: &LsmSettings) {
    let store = open(disk, settings.clone());
    (0..KEYS).for_each(|number| put(&store, number, b"an older value that must not return"));
    do_all(&store);
    (0..KEYS).for_each(|number| put(&store, number, &body(number)));
    do_all(&store);
    store.close().unwrap();
    drop(store);
    let store = open(disk, settings.clone());
    do_all(&store);
    store.close().unwrap();
}

/// The numbers of the keys reported as damaged; all others are right.
fn damaged(store: &Lsm, story: &str) -> Vec<usize> {
    let is_damaged = |number: &usize| match get(store, *number) {
        Ok(got) => {
            assert_eq!(got.as_deref(), Some(&body(*number)[..]), "{number} {story}");
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}, {story}");
            true
        }
    };
    (0..KEYS).filter(is_damaged).collect()
}

/// Writes on all sides until everything was merged: no wrong value appears, and upkeep ends.
fn merge_all(store: &Lsm, story: &str) {
    for round in 0..4 {
        (100..220).for_each(|number| put(store, number, &[round; 80]));
        put(store, 0, &body(0));
        put(store, KEYS - 1, &body(KEYS - 1));
        do_all(store);
    }
    for number in 0..KEYS {
        match get(store, number) {
            Ok(Some(got)) => assert_eq!(got, body(number), "{story}"),
            // The last level keeps no marks over lost keys.
            Ok(None) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{story}"),
        }
    }
    (0..KEYS).for_each(|number| put(store, number, &body(number)));
    do_all(store);
    assert_eq!(damaged(store, story), [0; 0]);
}

fn pieces(disk: &MemoryDisk, path: &Path) -> Vec<Piece> {
    let show = |key: &[u8]| key.escape_ascii().to_string();
    let anatomy = TableAnatomy::open(disk, path, None, 0, show).unwrap();
    anatomy.map(Result::unwrap).collect()
}

fn zero(disk: &MemoryDisk, path: &Path, piece: &Piece) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let len = usize::try_from(piece.end() - piece.offset()).unwrap();
    file.write_at(&vec![0; len], piece.offset()).unwrap();
}

fn len_of(disk: &MemoryDisk, path: &Path) -> u64 {
    disk.info(path).unwrap().unwrap().len
}

fn lost_of(store: &Lsm, path: &Path) -> Vec<String> {
    let lost = store.status(&everything()).lost.into_iter();
    let name = path.file_name().unwrap().to_str().unwrap();
    lost.filter(|it| it.file == name)
        .map(|it| it.held)
        .collect()
}

/// The opening detects a table that is cut between two blocks or inside one, and reports the
/// missing keys before the first read.
#[test]
fn a_cut_table_degrades_the_store_reports_its_keys_and_is_merged_away() {
    let settings = settings();
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    let mut most = 0;
    for path in files(&whole, ".sst") {
        let mut cuts: Vec<u64> = pieces(&whole, &path).iter().map(Piece::offset).collect();
        cuts.extend((1..len_of(&whole, &path)).step_by(397));
        for len in cuts {
            let story = format!("{path:?} cut to {len}");
            let disk = whole.crash_image(CrashOptions::everything());
            let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
            file.truncate(len).unwrap();
            let store = open(&disk, settings.clone());
            let reported = lost_of(&store, &path);
            let missing = damaged(&store, &story);
            assert!(
                reported
                    .iter()
                    .any(|it| it.contains("the file ends at byte"))
            );
            if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
                let last = format!("up to \"key {last:04}");
                let has_range = |it: &String| it.contains("the keys from") && it.contains(&last);
                assert!(reported.iter().any(has_range), "{reported:?}, {story}");
                assert_eq!(
                    missing,
                    (*first..*first + missing.len()).collect::<Vec<_>>()
                );
            }
            assert_eq!(scanned(&store).len(), KEYS - missing.len(), "{story}");
            most = most.max(missing.len());
            merge_all(&store, &story);
        }
    }
    assert!(most > 5);
}

#[test]
fn a_cut_blob_file_costs_the_bodies_that_it_no_longer_has() {
    let settings = settings();
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    let paths = files(&whole, ".blob");
    assert!(!paths.is_empty());
    for path in paths {
        let cuts: Vec<u64> = pieces(&whole, &path).iter().map(Piece::offset).collect();
        let mut before = KEYS;
        for len in cuts {
            let story = format!("{path:?} cut to {len}");
            let disk = whole.crash_image(CrashOptions::everything());
            let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
            file.truncate(len).unwrap();
            let store = open(&disk, settings.clone());
            let missing = damaged(&store, &story);
            assert!(missing.iter().all(|it| it.is_multiple_of(4)), "{story}");
            assert!(missing.len() <= before, "{story}");
            before = missing.len();
            assert!(!lost_of(&store, &path).is_empty(), "{story}");
            merge_all(&store, &story);
        }
        assert_eq!(before, 0);
    }
}

/// Only blocks of entries hold keys. All other parts are rebuilt, not needed, or stored elsewhere
/// too.
#[test]
fn each_part_of_a_table_has_its_answer() {
    let settings = settings();
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    let mut hit = std::collections::BTreeSet::new();
    for path in files(&whole, ".sst") {
        for piece in pieces(&whole, &path) {
            let story = format!("{} of {path:?} at {}", piece.title, piece.offset());
            let disk = whole.crash_image(CrashOptions::everything());
            zero(&disk, &path, &piece);
            let store = open(&disk, settings.clone());
            let missing = damaged(&store, &story);
            assert_eq!(missing.is_empty(), piece.title != "data block", "{story}");
            assert_eq!(scanned(&store).len(), KEYS - missing.len(), "{story}");
            // Only repair reads the table's copy of the properties, and only anti-entropy's folds
            // read segment sets.
            let is_unread = ["properties", "segment sets"].contains(&&*piece.title);
            let reported = lost_of(&store, &path);
            assert_eq!(reported.is_empty(), is_unread, "{reported:?}, {story}");
            merge_all(&store, &story);
            hit.insert(piece.title);
        }
    }
    let hit: Vec<String> = hit.into_iter().collect();
    let expected = [
        "data block",
        "filter block",
        "footer",
        "index block",
        "properties",
        "segment sets",
        "table",
        "top index",
    ];
    assert_eq!(hit, expected);
}

fn scrub(store: &Lsm) {
    for now in [Timestamp(1_000), Timestamp(101_000_000)] {
        let due = || store.maintenance_due(now).into_iter();
        while let Some(task) = due().find(|it| it.kind == TaskKind::Scrub) {
            let budget = StepBudget { bytes: 300 };
            store.maintenance_step(&task, budget, now).unwrap();
        }
    }
}

#[test]
fn a_scrub_reads_every_part_of_every_file() {
    let settings = LsmSettings {
        scrub_period: Some(Duration::from_secs(100)),
        ..settings()
    };
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    let mut paths = files(&whole, ".sst");
    paths.extend(files(&whole, ".blob"));
    for path in paths {
        for piece in pieces(&whole, &path) {
            let disk = whole.crash_image(CrashOptions::everything());
            let store = open(&disk, settings.clone());
            zero(&disk, &path, &piece);
            scrub(&store);
            let (reported, reads) = (lost_of(&store, &path), store.status(&everything()));
            let title = &piece.title;
            assert!(
                !reported.is_empty() && reads.corrupt_reads > 0,
                "{title} of {path:?}"
            );
        }
    }
}

fn faulty(disk: &MemoryDisk, rule: Rule) -> FaultyDisk {
    let faulty = FaultyDisk::over_memory(disk);
    faulty.add_rule(rule);
    faulty
}

/// A key that the device fails to read is neither absent nor damaged: its gets fail, nothing is
/// skipped or merged away, and all is readable again once the device is. Neighbouring keys are
/// served meanwhile.
#[test]
fn what_a_device_fails_to_read_is_never_passed_over_and_is_back_with_it() {
    let settings = settings();
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    let mut paths = files(&whole, ".sst");
    paths.extend(files(&whole, ".blob"));
    let mut refused = 0;
    for path in paths {
        for at in (0..len_of(&whole, &path)).step_by(1_021) {
            let story = format!("byte {at} of {path:?}");
            let memory = whole.crash_image(CrashOptions::everything());
            let store_before = open(&memory, settings.clone());
            let expected = scanned(&store_before);
            drop(store_before);
            let disk = FaultyDisk::over_memory(&memory);
            let store = open(&disk, settings.clone());
            let device = Fault::Error(kvorum_disk::ErrorKind::Device);
            let rule = Rule::new(device).on(Operation::Read).path(&path);
            disk.add_rule(rule.over(at..at + 1));
            for number in 0..KEYS {
                match get(&store, number) {
                    Ok(got) => assert_eq!(got.as_deref(), Some(&body(number)[..]), "{story}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Failed, "{error}, {story}");
                        refused += 1;
                    }
                }
            }
            if let Ok(seen) = try_scanned(&store) {
                assert!(seen == expected, "{story}");
            }
            (100..220).for_each(|number| put(&store, number, &[1; 80]));
            for task in store.maintenance_due(NOW) {
                let budget = StepBudget { bytes: 5_000 };
                while store
                    .maintenance_step(&task, budget, NOW)
                    .is_ok_and(|step| !step.is_done)
                {}
            }
            disk.heal();
            do_all(&store);
            let seen = scanned(&store);
            for entry in &expected {
                assert!(seen.contains(entry), "{story}");
            }
        }
    }
    assert!(refused > 0);
}

/// Does upkeep as an arbiter that retries failed tasks: this many times, a minute apart.
fn try_for_minutes(store: &Lsm, minutes: u64) {
    for minute in 0..minutes {
        try_at(store, Timestamp(NOW.0 + minute * 60_000_000));
    }
}

fn try_at(store: &Lsm, now: Timestamp) {
    for task in store.maintenance_due(now) {
        let budget = StepBudget { bytes: 5_000 };
        while store
            .maintenance_step(&task, budget, now)
            .is_ok_and(|step| !step.is_done)
        {}
    }
}

fn level_zero_tables(store: &Lsm) -> usize {
    let details = store.status(&everything()).details;
    let (_, levels) = details
        .iter()
        .find(|(name, _)| *name == "tables_per_level")
        .unwrap();
    levels.split(' ').next().unwrap().parse().unwrap()
}

/// A sector that stays unreadable does not stop merges for ever: the rest of its table is merged,
/// its keys are reported, and the file is kept.
#[test]
fn a_bad_sector_holds_up_merges_for_minutes_and_not_for_ever() {
    let settings = settings();
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    for path in files(&whole, ".sst") {
        let blocks = pieces(&whole, &path);
        let blocks = blocks.iter().filter(|it| it.title == "data block");
        for block in blocks.step_by(3) {
            let story = format!("{} of {path:?}", block.offset());
            let memory = whole.crash_image(CrashOptions::everything());
            let disk = FaultyDisk::over_memory(&memory);
            let store = open(&disk, settings.clone());
            let device = Fault::Error(kvorum_disk::ErrorKind::Device);
            let rule = Rule::new(device).on(Operation::Read).path(&path);
            disk.add_rule(rule.over(block.offset()..block.end()));
            // Both ends of the key range, so that each merge overlaps every table.
            for round in 0..6 {
                put(&store, 0, &body(0));
                (100..160).for_each(|number| put(&store, number, &[round; 80]));
                put(&store, KEYS - 1, &body(KEYS - 1));
                try_for_minutes(&store, 1);
            }
            assert!(level_zero_tables(&store) >= 4, "{story}");
            try_for_minutes(&store, 30);
            assert!(level_zero_tables(&store) < 2, "{story}");
            assert!(!lost_of(&store, &path).is_empty(), "{story}");
            let mut sound = 0;
            for number in 0..KEYS {
                match get(&store, number) {
                    Ok(Some(got)) => {
                        assert_eq!(got, body(number), "{story}");
                        sound += 1;
                    }
                    // The last level keeps no marks over lost keys.
                    Ok(None) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{story}"),
                }
            }
            assert!(sound > KEYS / 2, "{sound} {story}");
            let kept = Path::new("store/lost").join(path.file_name().unwrap());
            assert!(memory.info(&kept).unwrap().is_some(), "{story}");
        }
    }
}

/// Regression: puts that paid for merges ran them at time 0. So for callers with a clock a table
/// had failed since 1970, and its blocks were given up after seconds.
#[test]
fn what_fails_while_writers_pay_is_not_given_up_before_its_time() {
    let settings = settings();
    let memory = MemoryDisk::new();
    filled(&memory, &settings);
    let expected = scanned(&open(&memory, settings.clone()));
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, settings.clone());
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    for path in files(&memory, ".sst") {
        let rule = Rule::new(device).on(Operation::Read).path(&path);
        let blocks = pieces(&memory, &path);
        let block = blocks.iter().find(|it| it.title == "data block").unwrap();
        disk.add_rule(rule.over(block.offset()..block.end()));
    }
    for round in 0..20 {
        for number in [0].into_iter().chain(100..160).chain([KEYS - 1]) {
            let op = put_op(number, &[round; 80]);
            let put = store.write(&[op], Durability::Buffered, Timestamp(0));
            let _receipt = put.unwrap();
        }
    }
    assert!(level_zero_tables(&store) >= settings.policy.slow_from_tables);
    try_at(&store, Timestamp(1_700_000_000_000_000));
    assert_eq!(store.status(&everything()).lost, []);
    disk.heal();
    do_all(&store);
    let seen = scanned(&store);
    let is_kept = |(it, _): &(bytes::Bytes, _)| seen.iter().any(|(key, _)| key == it);
    assert!(expected.iter().all(is_kept));
}

/// No data are given up when a device fails as a whole for any time.
#[test]
fn a_device_that_fails_as_a_whole_gives_nothing_up() {
    let settings = settings();
    let memory = MemoryDisk::new();
    filled(&memory, &settings);
    let expected = scanned(&open(&memory, settings.clone()));
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, settings.clone());
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    disk.add_rule(Rule::new(device).on(Operation::Read));
    (100..220).for_each(|number| put(&store, number, &[1; 80]));
    try_for_minutes(&store, 60);
    assert_eq!(store.status(&everything()).lost, []);
    disk.heal();
    do_all(&store);
    let seen = scanned(&store);
    assert!(expected.iter().all(|entry| seen.contains(entry)));
}

/// If opening fails for one file, its contents count as lost; if it fails for all files, none do.
#[test]
fn a_table_that_cannot_be_opened_degrades_the_store_unless_none_can() {
    let settings = settings();
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    let path: PathBuf = files(&whole, ".sst").remove(0);
    for kind in [
        kvorum_disk::ErrorKind::Device,
        kvorum_disk::ErrorKind::Denied,
    ] {
        let memory = whole.crash_image(CrashOptions::everything());
        let refused = || Rule::new(Fault::Error(kind)).on(Operation::Open);
        let disk = faulty(&memory, refused().path(&path));
        let store = open(&disk, settings.clone());
        let missing = damaged(&store, "refused");
        let reported = lost_of(&store, &path);
        assert!(!missing.is_empty() && reported[0].contains("the keys from"));
        merge_all(&store, "refused");
        drop(store);
        let kept = Path::new("store/lost").join(path.file_name().unwrap());
        assert!(memory.info(&kept).unwrap().is_some());
        let memory = whole.crash_image(CrashOptions::everything());
        // Both copies of the manifest are read first, and then no file opens.
        let disk = faulty(&memory, refused().path_ends_with(".sst"));
        disk.add_rule(refused().path_contains("manifest-").from_nth(3));
        let error = try_open(&disk as &dyn AsDisk, settings.clone()).err();
        assert!(error.is_some_and(|it| it.kind() != ErrorKind::Corrupt));
        let store = open(&memory, settings.clone());
        assert_eq!(damaged(&store, "again"), [0; 0]);
    }
}

/// The same for a footer that the device cannot read; header and properties are not needed.
#[test]
fn a_table_with_an_unreadable_part_is_opened_without_it_or_not_at_all() {
    let settings = settings();
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    let path: PathBuf = files(&whole, ".sst").remove(0);
    for piece in pieces(&whole, &path) {
        let memory = whole.crash_image(CrashOptions::everything());
        let device = || Rule::new(Fault::Error(kvorum_disk::ErrorKind::Device)).on(Operation::Read);
        let rule = device().path(&path).over(piece.offset()..piece.end());
        let store = open(&faulty(&memory, rule), settings.clone());
        let is_needed = ["footer", "top index"].contains(&&piece.title[..]);
        assert_eq!(
            !lost_of(&store, &path).is_empty(),
            is_needed,
            "{}",
            piece.title
        );
        for number in 0..KEYS {
            match get(&store, number) {
                Ok(got) => assert_eq!(got.as_deref(), Some(&body(number)[..]), "{}", piece.title),
                Err(error) if is_needed => assert_eq!(error.kind(), ErrorKind::Corrupt),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Failed, "{error}"),
            }
        }
        drop(store);
        // The device had failed for a while.
        let store = open(&memory, settings.clone());
        assert_eq!(damaged(&store, &piece.title), [0; 0]);
    }
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    let disk = faulty(
        &whole,
        Rule::new(device).on(Operation::Read).path_ends_with(".sst"),
    );
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    disk.add_rule(
        Rule::new(device)
            .on(Operation::Read)
            .path_contains("manifest-")
            .from_nth(3),
    );
    assert!(try_open(&disk as &dyn AsDisk, settings).is_err());
}

/// All known facts of a lost key are in `lost/BLOCKS.bad`, also after a restart.
#[test]
fn what_was_lost_is_listed_with_its_keys_after_a_restart() {
    let settings = settings();
    let disk = MemoryDisk::new();
    filled(&disk, &settings);
    let path = files(&disk, ".sst").remove(0);
    let all = pieces(&disk, &path);
    let block = all.iter().find(|it| it.title == "data block").unwrap();
    zero(&disk, &path, block);
    let store = open(&disk, settings.clone());
    let missing = damaged(&store, "zeroed");
    do_all(&store);
    store.close().unwrap();
    drop(store);
    let list = kvorum_lsm_repair::check::contents(&disk, Path::new("store")).unwrap();
    let first = key(missing[0]);
    let first = format!("the keys from \"{}", first.escape_ascii());
    let of_block = list.lost.iter().find(|it| it.offset == block.offset());
    let of_block = of_block.unwrap();
    assert!(of_block.held.contains(&first), "{of_block:?}");
    let copy = format!("{}-{}", of_block.file, of_block.offset);
    assert!(
        disk.info(&Path::new("store/lost").join(copy))
            .unwrap()
            .is_some()
    );
    let store = open(&disk, settings);
    assert_eq!(store.status(&everything()).lost, list.lost);
    assert_eq!(damaged(&store, "again"), missing);
}

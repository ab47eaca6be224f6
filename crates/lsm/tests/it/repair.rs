//! Repair: entries outside damaged bytes survive, and no removed entry comes back without a report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use kvorum_backend::ErrorKind;
use kvorum_disk::{CrashOptions, Disk, EntryKind, MemoryDisk, OpenMode};
use kvorum_lsm::policy::PolicySettings;
use kvorum_lsm::{Lsm, LsmSettings, Op};
use kvorum_lsm_repair::{Repair, RepairOptions, RepairReport, RepairVerdict};

use crate::support::{
    do_all, everything, files, flip, get, key, open, put, remove, scanned, settings, try_do_all,
    try_open, write,
};

const KEYS: usize = 90;

/// The value of each key, and all of its earlier values.
#[derive(Default)]
struct Model {
    now: BTreeMap<usize, Option<Vec<u8>>>,
    ever: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl Model {
    fn put(&mut self, store: &Lsm, number: usize, round: usize) {
        // Some bodies go to blob files.
        let body =
            format!("{round} {number} ").repeat(if number.is_multiple_of(3) { 90 } else { 8 });
        put(store, number, body.as_bytes());
        self.ever
            .entry(number)
            .or_default()
            .push(body.clone().into());
        self.now.insert(number, Some(body.into()));
    }

    fn remove(&mut self, store: &Lsm, number: usize) {
        remove(store, number);
        self.now.insert(number, None);
    }

    fn remove_range(&mut self, store: &Lsm, from: usize, to: usize) {
        write(
            store,
            &[Op::RemoveRange {
                from: key(from),
                to: key(to),
            }],
        );
        (from..to).for_each(|number| {
            self.now.insert(number, None);
        });
    }
}

/// A store with several levels, removals of keys and ranges above the removed entries, and blob
/// files, of which some were collected.
fn filled(disk: &MemoryDisk, settings: &LsmSettings) -> Model {
    let mut model = Model::default();
    let store = open(disk, settings.clone());
    (0..KEYS).for_each(|number| model.put(&store, number, 0));
    do_all(&store);
    for round in 1..4 {
        (0..KEYS)
            .filter(|it| (it + round) % 4 != 0)
            .for_each(|number| model.put(&store, number, round));
        do_all(&store);
    }
    (0..KEYS)
        .filter(|it| it % 7 == 5)
        .for_each(|number| model.remove(&store, number));
    model.remove_range(&store, 40, 50);
    (0..KEYS)
        .filter(|it| it % 11 == 3)
        .for_each(|number| model.put(&store, number, 9));
    store.close().unwrap();
    drop(store);
    model
}

fn options(settings: &LsmSettings) -> RepairOptions {
    RepairOptions {
        unit_bytes: 4_000,
        settings: settings.clone(),
        ..RepairOptions::default()
    }
}

fn try_repair(disk: &MemoryDisk, options: &RepairOptions) -> kvorum_backend::Result<RepairReport> {
    let disk = Arc::new(disk.clone());
    let repair = Repair::begin(disk, Path::new("store"), options.clone())?;
    loop {
        for unit in repair.units() {
            repair.run(unit, &|_| {})?;
        }
        if !repair.next_stage()? {
            return Ok(repair.report());
        }
    }
}

/// Repairs with several threads.
fn repair_by(disk: &MemoryDisk, options: &RepairOptions, threads: usize) -> RepairReport {
    let disk = Arc::new(disk.clone());
    let repair = Repair::begin(disk, Path::new("store"), options.clone()).unwrap();
    loop {
        let units = Mutex::new(repair.units());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(unit) = { units.lock().unwrap().pop() } {
                        repair.run(unit, &|_| {}).unwrap();
                    }
                });
            }
        });
        if !repair.next_stage().unwrap() {
            return repair.report();
        }
    }
}

pub(crate) fn repair(disk: &MemoryDisk, settings: &LsmSettings) -> RepairReport {
    try_repair(disk, &options(settings)).unwrap()
}

/// Every file below the store, with its bytes.
fn image(disk: &MemoryDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut image = BTreeMap::new();
    let mut directories = vec![PathBuf::from("store")];
    while let Some(directory) = directories.pop() {
        for entry in disk.list(&directory).unwrap() {
            let path = directory.join(&entry.name);
            match entry.kind {
                EntryKind::Directory => directories.push(path),
                EntryKind::File if entry.name == "lock" => {}
                EntryKind::File => {
                    let bytes = kvorum_disk::read_file(disk, &path, 1 << 30).unwrap();
                    image.insert(path, bytes);
                }
            }
        }
    }
    image
}

#[derive(Clone, Copy, Debug)]
enum Harm {
    Flip(u64),
    Cut(u64),
    Delete,
}

fn harm(disk: &MemoryDisk, path: &Path, harm: Harm) {
    match harm {
        Harm::Flip(at) => flip(disk, path, at),
        Harm::Cut(len) => {
            let file = disk.open(path, OpenMode::ReadWrite).unwrap();
            file.truncate(len).unwrap();
        }
        Harm::Delete => disk.remove_file(path).unwrap(),
    }
}

/// Damages both copies of the manifest.
pub(crate) fn lose_manifests(disk: &MemoryDisk) {
    harm_manifests(disk, Harm::Flip(33));
}

fn harm_manifests(disk: &MemoryDisk, done: Harm) {
    for name in ["manifest-0", "manifest-1"] {
        harm(disk, &Path::new("store").join(name), done);
    }
}

fn harms(disk: &MemoryDisk, path: &Path, step: usize) -> Vec<Harm> {
    let len = disk.info(path).unwrap().unwrap().len;
    let mut harms = vec![Harm::Delete, Harm::Cut(0)];
    harms.extend((5..len).step_by(step).map(Harm::Flip));
    harms.extend((7..len).step_by(2 * step).map(Harm::Cut));
    harms
}

/// The number of keys with wrong values, which all have to be reported.
fn check(store: &Lsm, model: &Model, report: &RepairReport, keeps: bool, story: &str) -> usize {
    let mut changed = 0;
    for (number, expected) in &model.now {
        let name = key(*number);
        let got = match get(store, *number) {
            Ok(got) => Ok(got.map(|it| it.to_vec())),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error} {story}");
                Err(error)
            }
        };
        if got.as_ref().is_ok_and(|got| got == expected) {
            continue;
        }
        changed += 1;
        let is_reported = report
            .doubts
            .iter()
            .any(|it| it.from <= name && name < it.to)
            || report.bodiless.contains(&name)
            || report
                .problems
                .iter()
                .any(|it| it.what.contains("may have come back"));
        assert!(
            is_reported,
            "key {number} is {got:?} and nobody says so, {story}: {report:?}"
        );
        if let Ok(Some(value)) = &got {
            assert!(keeps, "key {number} came back, {story}: {report:?}");
            assert!(model.ever[number].contains(value), "{story}");
        }
    }
    for (name, _) in scanned(store) {
        let number = (0..KEYS).find(|it| key(*it) == name);
        assert!(number.is_some(), "{name:?} {story}");
    }
    changed
}

fn store_files(disk: &MemoryDisk) -> Vec<PathBuf> {
    let mut all = files(disk, ".sst");
    all.extend(files(disk, ".blob"));
    all
}

#[test]
fn a_sound_store_is_left_as_it_is() {
    let settings = settings();
    let disk = MemoryDisk::new();
    filled(&disk, &settings);
    let before = image(&disk);
    let report = repair(&disk, &settings);
    assert_eq!(
        (report.verdict, report.problems),
        (RepairVerdict::Sound, vec![])
    );
    assert!(report.files > 3 && report.bytes > 0);
    assert_eq!(image(&disk), before);
}

#[test]
fn a_dry_run_reports_the_same_and_writes_nothing() {
    let settings = settings();
    let disk = MemoryDisk::new();
    filled(&disk, &settings);
    flip(&disk, &files(&disk, ".sst")[0], 200);
    let before = image(&disk);
    let options = RepairOptions {
        is_dry_run: true,
        ..options(&settings)
    };
    let report = try_repair(&disk, &options).unwrap();
    assert_eq!(report.verdict, RepairVerdict::WouldRepair);
    assert_eq!(image(&disk), before);
    assert_eq!(report.problems, repair(&disk, &settings).problems);
}

#[test]
fn any_damaged_file_is_replaced_and_a_second_repair_finds_nothing() {
    let settings = settings();
    let whole = MemoryDisk::new();
    let model = filled(&whole, &settings);
    let mut most = 0;
    for path in store_files(&whole) {
        for harm_done in harms(&whole, &path, 97) {
            let story = format!("{harm_done:?} of {path:?}");
            let disk = whole.crash_image(CrashOptions::everything());
            harm(&disk, &path, harm_done);
            let before = image(&disk);
            let report = repair(&disk, &settings);
            assert_eq!(report.verdict, RepairVerdict::Repaired, "{story}");
            let after = image(&disk);
            for (path, bytes) in &before {
                let name = path.file_name().unwrap();
                let lost = Path::new("store/lost").join(name);
                let kept = after.get(path).or_else(|| after.get(&lost));
                let is_manifest = path.to_string_lossy().contains("manifest");
                assert!(
                    is_manifest || kept == Some(bytes),
                    "{path:?} is gone, {story}"
                );
            }
            let again = repair(&disk, &settings);
            assert_eq!(again.verdict, RepairVerdict::Sound, "{story}: {again:?}");
            let store = open(&disk, settings.clone());
            let changed = check(&store, &model, &report, false, &story);
            most = most.max(changed);
            do_all(&store);
            put(&store, 3, b"goes on");
            assert_eq!(get(&store, 3).unwrap().unwrap(), b"goes on"[..]);
        }
    }
    assert!(most > 0);
}

#[test]
fn a_damaged_log_is_left_to_the_next_opening() {
    let settings = LsmSettings {
        memtable_bytes: 1 << 20,
        ..settings()
    };
    let whole = MemoryDisk::new();
    let mut model = filled(&whole, &settings);
    let store = open(&whole, settings.clone());
    for number in 0..KEYS {
        model.put(&store, number, 30);
        store.sync().unwrap();
    }
    drop(store);
    let log = files(&whole, ".segment").pop().unwrap();
    for harm_done in [Harm::Flip(900), Harm::Cut(2_000), Harm::Delete] {
        let disk = whole.crash_image(CrashOptions::everything());
        harm(&disk, &log, harm_done);
        assert_eq!(repair(&disk, &settings).verdict, RepairVerdict::Sound);
        let store = open(&disk, settings.clone());
        let is_flip = matches!(harm_done, Harm::Flip(_));
        for (number, expected) in &model.now {
            let got = get(&store, *number).unwrap().map(|it| it.to_vec());
            let is_older = got
                .as_ref()
                .is_none_or(|it| model.ever[number].contains(it));
            assert!(got == *expected || is_older, "key {number} is {got:?}");
        }
        assert_eq!(store.status(&everything()).lost.is_empty(), !is_flip);
    }
}

#[test]
fn what_is_not_in_damaged_bytes_is_served_where_doubts_are_kept() {
    let settings = settings();
    let whole = MemoryDisk::new();
    let model = filled(&whole, &settings);
    for path in files(&whole, ".sst") {
        let disk = whole.crash_image(CrashOptions::everything());
        disk.remove_file(&path).unwrap();
        let options = RepairOptions {
            keeps_doubtful: true,
            ..options(&settings)
        };
        let report = try_repair(&disk, &options).unwrap();
        let store = open(&disk, settings.clone());
        check(&store, &model, &report, true, &format!("{path:?}"));
        for number in 0..KEYS {
            let is_served = get(&store, number).is_ok();
            assert!(is_served || report.bodiless.contains(&key(number)));
        }
    }
}

#[test]
fn a_store_without_its_manifest_is_rebuilt_with_every_key_and_no_removed_one() {
    let settings = settings();
    for harm_done in [Harm::Flip(20), Harm::Cut(30), Harm::Cut(0), Harm::Delete] {
        let disk = MemoryDisk::new();
        let model = filled(&disk, &settings);
        harm_manifests(&disk, harm_done);
        assert!(try_open(&disk, settings.clone()).is_err());
        let report = repair(&disk, &settings);
        assert_eq!(report.verdict, RepairVerdict::Repaired);
        assert!(
            report.rebuilt.is_some() && report.doubts.is_empty(),
            "{report:?}"
        );
        assert_eq!(repair(&disk, &settings).verdict, RepairVerdict::Sound);
        let store = open(&disk, settings.clone());
        assert_eq!(check(&store, &model, &report, false, "rebuilt"), 0);
        let lost = store.status(&everything()).lost;
        let damaged = usize::from(!matches!(harm_done, Harm::Delete)) * 2;
        assert_eq!(lost.len(), damaged, "{lost:?}");
        (0..KEYS).for_each(|number| put(&store, number, b"new"));
        do_all(&store);
        assert_eq!(scanned(&store).len(), KEYS);
    }
}

#[test]
fn logs_are_replayed_where_no_manifest_says_what_they_are_for() {
    let settings = LsmSettings {
        memtable_bytes: 8_000,
        ..settings()
    };
    let disk = MemoryDisk::new();
    let mut model = filled(&disk, &settings);
    let store = open(&disk, settings.clone());
    (0..KEYS)
        .filter(|it| it % 5 == 0)
        .for_each(|number| model.put(&store, number, 20));
    model.remove(&store, 6);
    model.remove_range(&store, 20, 24);
    model.put(&store, 22, 21);
    store.sync().unwrap();
    drop(store);
    assert!(!files(&disk, ".segment").is_empty());
    harm_manifests(&disk, Harm::Delete);
    let report = repair(&disk, &settings);
    assert!(files(&disk, ".segment").is_empty());
    let store = open(&disk, settings.clone());
    assert_eq!(check(&store, &model, &report, false, "replayed"), 0);
}

#[test]
fn a_store_that_lost_its_manifest_and_more_reports_what_it_cannot_know() {
    let settings = settings();
    let whole = MemoryDisk::new();
    let model = filled(&whole, &settings);
    for path in store_files(&whole) {
        for harm_done in harms(&whole, &path, 211) {
            let story = format!("{harm_done:?} of {path:?}, and no manifest");
            if matches!(harm_done, Harm::Delete) {
                // Then nothing refers to the lost file.
                continue;
            }
            let disk = whole.crash_image(CrashOptions::everything());
            harm(&disk, &path, harm_done);
            harm_manifests(&disk, Harm::Flip(33));
            let report = repair(&disk, &settings);
            let again = repair(&disk, &settings);
            assert_eq!(again.verdict, RepairVerdict::Sound, "{story}: {again:?}");
            let store = open(&disk, settings.clone());
            let is_unknown = report
                .problems
                .iter()
                .any(|it| it.what.contains("come back"));
            check(&store, &model, &report, is_unknown, &story);
        }
    }
}

/// Settings with which each flush stays a table of its own for a long time.
fn hardly_merging(memtable_bytes: u64) -> LsmSettings {
    LsmSettings {
        memtable_bytes,
        policy: PolicySettings {
            level_zero_tables: 9,
            ..settings().policy
        },
        ..settings()
    }
}

/// The properties of the unreadable table have its range of keys.
#[test]
fn a_table_of_which_nothing_can_be_read_hides_what_is_older_when_the_manifest_is_lost() {
    let settings = hardly_merging(500);
    let disk = MemoryDisk::new();
    let mut model = Model::default();
    {
        let store = open(&disk, settings.clone());
        for round in 0..2 {
            (22..24).for_each(|number| model.put(&store, number, round));
            do_all(&store);
        }
        store.close().unwrap();
    }
    let tables = files(&disk, ".sst");
    assert_eq!(tables.len(), 2, "{tables:?}");
    flip(&disk, tables.last().unwrap(), 40);
    harm_manifests(&disk, Harm::Flip(33));
    let report = repair(&disk, &settings);
    assert_eq!(report.doubts.len(), 1, "{report:?}");
    let store = open(&disk, settings.clone());
    assert_eq!(check(&store, &model, &report, false, "one block"), 2);
}

/// Then only the table's index has its range of keys.
#[test]
fn a_table_that_lost_its_properties_too_hides_what_is_older_when_the_manifest_is_lost() {
    let settings = hardly_merging(4_000);
    let whole = MemoryDisk::new();
    let mut model = Model::default();
    for round in 0..2 {
        let store = open(&whole, settings.clone());
        (20..60).for_each(|number| model.put(&store, number, round));
        store.close().unwrap();
    }
    let table = files(&whole, ".sst").pop().unwrap();
    let len = whole.info(&table).unwrap().unwrap().len;
    let repaired = |flips: &[u64]| {
        let disk = whole.crash_image(CrashOptions::everything());
        flips
            .iter()
            .for_each(|at| harm(&disk, &table, Harm::Flip(*at)));
        lose_manifests(&disk);
        let report = repair(&disk, &settings);
        let mut problems = report.problems.iter();
        let has_lost_them = problems.any(|it| {
            it.what
                .contains("keys of damaged blocks may have older values")
        });
        (has_lost_them, report, disk)
    };
    let mut from_end = (0..len).rev();
    let properties = from_end.find(|at| repaired(&[*at]).0).unwrap();
    let mut lost = 0;
    for block in (0..properties).step_by(40) {
        let (_, report, disk) = repaired(&[block, properties]);
        let store = open(&disk, settings.clone());
        let story = format!("{block} and {properties} of {len}");
        lost += check(&store, &model, &report, false, &story);
    }
    // Each loss at least once.
    assert!(lost >= 40, "{lost}");
}

/// Entries that a power cut saved from removal by a merge still exist when both manifests are lost.
#[test]
fn keys_stay_removed_wherever_a_merge_was_cut_before_the_manifest_was_lost() {
    let settings = LsmSettings {
        memtable_bytes: 500,
        ..settings()
    };
    let merged = |cut: Option<u64>| {
        let disk = MemoryDisk::new();
        let store = open(&disk, settings.clone());
        (0..30).for_each(|number| put(&store, number, &[1; 90]));
        do_all(&store);
        (0..30).for_each(|number| write(&store, &[Op::Remove { key: key(number) }]));
        let before = disk.operations();
        if let Some(cut) = cut {
            disk.cut_after(before + cut);
        }
        let done = try_do_all(&store);
        assert!(done.is_ok() || cut.is_some());
        (disk.operations() - before, disk)
    };
    let (operations, _) = merged(None);
    assert!(operations > 30, "{operations}");
    for cut in 0..operations {
        let disk = merged(Some(cut)).1.crash_image(CrashOptions::everything());
        lose_manifests(&disk);
        repair(&disk, &settings);
        let store = open(&disk, settings.clone());
        let found: Vec<usize> = (0..30)
            .filter(|it| get(&store, *it).unwrap().is_some())
            .collect();
        assert!(
            found.is_empty(),
            "cut after {cut} of {operations}: {found:?}"
        );
    }
}

/// A repair that is cut at every operation and started again ends as an uncut repair.
fn resumed(settings: &LsmSettings, broken: &MemoryDisk) {
    let straight = broken.crash_image(CrashOptions::everything());
    let before = straight.operations();
    let report = repair(&straight, settings);
    let operations = straight.operations() - before;
    let expected = image(&straight);
    assert!(operations > 30, "{operations}");
    for cut in 0..operations {
        let disk = broken.crash_image(CrashOptions::everything());
        disk.cut_after(disk.operations() + cut);
        let _cut_somewhere = try_repair(&disk, &options(settings));
        for survival in [
            CrashOptions::nothing_unsynced(),
            CrashOptions::everything(),
            CrashOptions::drawn(cut),
        ] {
            let story = format!("cut after {cut} of {operations}, {survival:?}");
            let image_after = disk.crash_image(survival);
            let again = try_repair(&image_after, &options(settings)).unwrap();
            assert_eq!(image(&image_after), expected, "{story}");
            let is_over = again.verdict == RepairVerdict::Sound;
            assert!(
                is_over || again == report,
                "{story}: {again:?} and not {report:?}"
            );
        }
    }
}

#[test]
fn a_repair_that_is_killed_goes_on_where_it_was_and_ends_the_same() {
    let settings = settings();
    let disk = MemoryDisk::new();
    filled(&disk, &settings);
    let tables = files(&disk, ".sst");
    flip(&disk, &tables[0], 120);
    disk.remove_file(&tables[1]).unwrap();
    flip(&disk, &files(&disk, ".blob")[0], 500);
    resumed(&settings, &disk);
}

#[test]
fn a_rebuilding_that_is_killed_goes_on_where_it_was_and_ends_the_same() {
    let settings = settings();
    let disk = MemoryDisk::new();
    filled(&disk, &settings);
    let store = open(&disk, settings.clone());
    put(&store, 1, b"only in the log");
    store.sync().unwrap();
    drop(store);
    flip(&disk, &files(&disk, ".sst")[0], 120);
    harm_manifests(&disk, Harm::Flip(20));
    resumed(&settings, &disk);
}

#[test]
fn several_threads_repair_as_one_does() {
    let settings = settings();
    let whole = MemoryDisk::new();
    filled(&whole, &settings);
    for is_rebuilt in [false, true] {
        let broken = whole.crash_image(CrashOptions::everything());
        for table in files(&broken, ".sst")
            .iter()
            .chain(&files(&broken, ".blob"))
        {
            flip(&broken, table, 100);
        }
        if is_rebuilt {
            for name in ["manifest-0", "manifest-1"] {
                broken.remove_file(&Path::new("store").join(name)).unwrap();
            }
        }
        let repaired = |threads| {
            let disk = broken.crash_image(CrashOptions::everything());
            let report = repair_by(&disk, &options(&settings), threads);
            let again = repair(&disk, &settings);
            assert_eq!(again.verdict, RepairVerdict::Sound, "{:?}", again.problems);
            (report, scanned(&open(&disk, settings.clone())))
        };
        let alone = repaired(1);
        assert_eq!(alone.0.verdict, RepairVerdict::Repaired);
        assert_eq!(alone.0.rebuilt.is_some(), is_rebuilt);
        assert!(alone.0.files > 4 && !alone.1.is_empty());
        for _ in 0..3 {
            assert_eq!(repaired(4), alone, "rebuilt: {is_rebuilt}");
        }
    }
}

#[test]
fn what_was_done_is_not_read_again() {
    let settings = settings();
    let disk = MemoryDisk::new();
    filled(&disk, &settings);
    harm_manifests(&disk, Harm::Flip(20));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let all = {
        let begun = Repair::begin(shared.clone(), Path::new("store"), options(&settings)).unwrap();
        let units = begun.units();
        for unit in units.iter().take(3) {
            begun.run(*unit, &|_| {}).unwrap();
        }
        units
    };
    let resumed = Repair::begin(shared, Path::new("store"), options(&settings)).unwrap();
    assert_eq!(resumed.units(), all[3..]);
}

#[test]
fn flips_in_the_journal_cost_time_and_nothing_else() {
    let settings = settings();
    let broken = MemoryDisk::new();
    filled(&broken, &settings);
    harm_manifests(&broken, Harm::Flip(20));
    let straight = broken.crash_image(CrashOptions::everything());
    repair(&straight, &settings);
    let expected = scanned(&open(&straight, settings.clone()));
    let shared: Arc<dyn Disk> = Arc::new(broken.clone());
    let begun = Repair::begin(shared, Path::new("store"), options(&settings)).unwrap();
    for _stage in 0..2 {
        for unit in begun.units() {
            begun.run(unit, &|_| {}).unwrap();
        }
        begun.next_stage().unwrap();
    }
    drop(begun);
    let journal = Path::new("store/repair.progress");
    let len = broken.info(journal).unwrap().unwrap().len;
    for at in (0..len).step_by(23) {
        let disk = broken.crash_image(CrashOptions::everything());
        flip(&disk, journal, at);
        let report = repair(&disk, &settings);
        assert_eq!(report.verdict, RepairVerdict::Repaired, "byte {at}");
        assert_eq!(
            repair(&disk, &settings).verdict,
            RepairVerdict::Sound,
            "byte {at}"
        );
        assert_eq!(
            scanned(&open(&disk, settings.clone())),
            expected,
            "byte {at}"
        );
    }
}

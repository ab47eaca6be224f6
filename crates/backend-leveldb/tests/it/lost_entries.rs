//! Index entries lost to damage: folds report the loss, and upkeep rebuilds the entries from their
//! objects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, ErrorKind, Flow, FoldDetail, FoldFilter, FoldRange, Lease, Lookup,
    ReadAt, Reading, StepBudget, TaskKind, Timestamp, Write,
};
use kvorum_backend_leveldb::repair::{Repair, options};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk, OpenMode};
use kvorum_encoding::StorageKey;

use crate::engine::small_settings;
use crate::indexes::{do_all, key, lasting, open, put, range, terms};

const OBJECTS: usize = 60;
/// An object of "aachen", far from index entries in any file.
const MIDDLE: usize = 31;
const NOW: Timestamp = Timestamp(1);

/// Settings without bodies apart, so that a flipped byte costs keys.
fn settings() -> LeveldbSettings {
    LeveldbSettings {
        blob_threshold_bytes: usize::MAX,
        ..small_settings(0)
    }
}

fn name(number: usize) -> String {
    format!("{number:02}")
}

/// A closed store of objects with one index entry each, all in tables.
fn filled(settings: &LeveldbSettings) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let store = open(&disk, settings);
    for number in 0..OBJECTS {
        put(&store, &name(number), lasting(1), terms(&[term(number)]));
    }
    do_all(&store, 1);
    store.close().unwrap();
    disk
}

fn term(number: usize) -> &'static str {
    ["berlin", "aachen", "cottbus"][number % 3]
}

fn expected() -> Vec<(String, StorageKey)> {
    let all = (0..OBJECTS).map(|it| (term(it).to_owned(), key(&name(it))));
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

/// The entries that a fold of the index shows; `None` if the fold reports missing entries.
fn try_folded(store: &Leveldb, from: Option<&str>) -> Option<Vec<(String, StorageKey)>> {
    let mut seen = Vec::new();
    let indexes = store.indexes().unwrap();
    let range = range(from, from);
    let end = indexes.fold_index(&range, Lease::Unlimited, NOW, &mut |term, key| {
        seen.push((String::from_utf8_lossy(term).into_owned(), key.clone()));
        Flow::Continue
    });
    match end {
        Ok(_) => Some(seen),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            None
        }
    }
}

fn is_readable(store: &Leveldb, name: &str) -> bool {
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    matches!(store.get(&key(name), at), Ok(Lookup::Found(_)))
}

fn tables(disk: &MemoryDisk) -> Vec<(PathBuf, u64)> {
    let store = Path::new("store");
    let files = disk.list(store).unwrap().into_iter();
    let tables = files.filter(|it| it.name.ends_with(".sst"));
    let paths = tables.map(|it| store.join(it.name));
    paths
        .map(|it| {
            let len = disk.info(&it).unwrap().unwrap().len;
            (it, len)
        })
        .collect()
}

fn flip(disk: &MemoryDisk, (path, offset): &(PathBuf, u64)) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, *offset, kvorum_disk::Reading::MayBlock)
        .unwrap();
    file.write_at(&[byte[0] ^ 0x40], *offset).unwrap();
}

/// A copy of the store with these bytes flipped.
fn damaged(whole: &MemoryDisk, places: &[(PathBuf, u64)]) -> MemoryDisk {
    let disk = whole.crash_image(CrashOptions::everything());
    places.iter().for_each(|place| flip(&disk, place));
    disk
}

fn places(disk: &MemoryDisk) -> Vec<(PathBuf, u64)> {
    let tables = tables(disk).into_iter();
    tables
        .flat_map(|(path, len)| (0..len).step_by(23).map(move |at| (path.clone(), at)))
        .collect()
}

/// Places where a flipped byte costs index entries and no object.
fn places_of_entries(whole: &MemoryDisk, settings: &LeveldbSettings) -> Vec<(PathBuf, u64)> {
    let mut found = places(whole);
    found.retain(|place| {
        let store = open(&damaged(whole, std::slice::from_ref(place)), settings);
        try_folded(&store, None).is_none() && (0..OBJECTS).all(|it| is_readable(&store, &name(it)))
    });
    assert!(found.len() > 5, "{found:?}");
    found
}

/// A place where a flipped byte costs this object and no index entry.
fn place_of_object(whole: &MemoryDisk, settings: &LeveldbSettings, name: &str) -> (PathBuf, u64) {
    let is_it = |place: &(PathBuf, u64)| {
        let store = open(&damaged(whole, std::slice::from_ref(place)), settings);
        !is_readable(&store, name) && try_folded(&store, None).is_some()
    };
    places(whole).into_iter().find(is_it).unwrap()
}

/// Regression: a damaged block of index entries cost results of queries for ever, without a report.
/// The objects were whole, so nothing repaired the entries, and a put of the same entries wrote
/// none.
#[test]
fn a_damaged_index_block_fails_the_fold_and_is_made_again_from_its_objects() {
    let settings = settings();
    let whole = filled(&settings);
    for place in places(&whole) {
        let disk = damaged(&whole, std::slice::from_ref(&place));
        let store = open(&disk, &settings);
        let before = try_folded(&store, None);
        assert!(before.is_none_or(|it| it == expected()), "{place:?}");
        do_all(&store, 1);
        let has_objects = (0..OBJECTS).all(|it| is_readable(&store, &name(it)));
        let after = try_folded(&store, None);
        match has_objects {
            true => assert_eq!(after, Some(expected()), "{place:?}"),
            // If an object is lost too, its entries are unknown.
            false => assert!(after.is_none_or(|it| it == expected()), "{place:?}"),
        }
    }
    let all = places_of_entries(&whole, &settings);
    let disk = damaged(&whole, &all);
    let store = open(&disk, &settings);
    assert_eq!(try_folded(&store, None), None);
    do_all(&store, 1);
    assert_eq!(try_folded(&store, None), Some(expected()));
    store.close().unwrap();
    drop(store);
    let store = open(&disk, &settings);
    assert_eq!(try_folded(&store, None), Some(expected()));
    let due = store.maintenance_due(NOW);
    assert!(due.iter().all(|it| it.kind != TaskKind::Reindex), "{due:?}");
}

#[test]
fn folds_over_other_terms_go_on_meanwhile() {
    let settings = settings();
    let whole = filled(&settings);
    let place = places_of_entries(&whole, &settings).swap_remove(0);
    let store = open(&damaged(&whole, &[place]), &settings);
    assert_eq!(try_folded(&store, None), None);
    let of_term = |term: &str| expected().into_iter().filter(|it| it.0 == term).collect();
    let terms = ["aachen", "berlin", "cottbus"];
    let served = terms.map(|term| try_folded(&store, Some(term)));
    assert!(served.iter().any(Option::is_some), "{served:?}");
    for (term, seen) in terms.iter().zip(served) {
        assert!(seen.is_none_or(|it| it == Vec::from_iter::<Vec<_>>(of_term(term))));
    }
}

#[test]
fn a_merge_that_forgets_the_block_does_not_forget_that_entries_are_missing() {
    let settings = settings();
    let whole = filled(&settings);
    let disk = damaged(&whole, &places_of_entries(&whole, &settings));
    let before = tables(&disk);
    let store = open(&disk, &settings);
    for round in 0..200 {
        // Keys of another bucket, on all sides.
        put(
            &store,
            &format!("a filler {round}"),
            lasting(1),
            terms(&["aachen"]),
        );
        put(
            &store,
            &format!("z filler {round}"),
            lasting(1),
            terms(&["z"]),
        );
        for task in store.maintenance_due(NOW) {
            let budget = StepBudget { bytes: u64::MAX };
            if task.kind != TaskKind::Reindex {
                store.maintenance_step(&task, budget, NOW).unwrap();
            }
        }
    }
    store.close().unwrap();
    drop(store);
    let left = tables(&disk);
    assert!(before.iter().all(|it| !left.contains(it)), "{left:?}");
    let store = open(&disk, &settings);
    assert_eq!(try_folded(&store, Some("berlin")), None);
    do_all(&store, 1);
    let of_berlin = expected().into_iter().filter(|it| it.0 == "berlin");
    assert_eq!(
        try_folded(&store, Some("berlin")),
        Some(of_berlin.collect())
    );
}

/// Regression: a put over an unreadable object treated it as one without entries. The old entries
/// stayed, and named an object that did not have them.
#[test]
fn entries_of_an_object_that_was_damaged_when_it_was_replaced_do_not_stay() {
    let settings = settings();
    let whole = filled(&settings);
    let place = place_of_object(&whole, &settings, &name(MIDDLE));
    for (is_removed, reopens) in [(false, false), (false, true), (true, false), (true, true)] {
        let disk = damaged(&whole, std::slice::from_ref(&place));
        let mut store = open(&disk, &settings);
        match is_removed {
            true => {
                let batch = Batch::of(Write::remove(key(&name(MIDDLE))));
                let _receipt = store.put(&batch, Durability::Buffered).unwrap();
            }
            false => put(&store, &name(MIDDLE), lasting(1), terms(&["dresden"])),
        }
        if reopens {
            drop(store);
            store = open(&disk, &settings);
        }
        do_all(&store, 1);
        let aachen = try_folded(&store, Some("aachen")).unwrap();
        assert_eq!(aachen.len(), OBJECTS / 3 - 1, "{is_removed} {reopens}");
        assert!(aachen.iter().all(|it| it.1 != key(&name(MIDDLE))));
        let dresden = try_folded(&store, Some("dresden")).unwrap();
        assert_eq!(dresden.len(), usize::from(!is_removed));
    }
}

#[test]
fn an_object_that_is_damaged_keeps_its_entries_until_more_is_known() {
    let settings = settings();
    let whole = filled(&settings);
    let place = place_of_object(&whole, &settings, &name(MIDDLE));
    let store = open(&damaged(&whole, &[place]), &settings);
    assert!(!is_readable(&store, &name(MIDDLE)));
    do_all(&store, 1);
    assert_eq!(try_folded(&store, None), Some(expected()));
    // No task continues for ever.
    let due = store.maintenance_due(NOW);
    assert!(due.iter().all(|it| it.kind != TaskKind::Reindex), "{due:?}");
}

#[test]
fn what_is_put_while_entries_are_made_again_counts() {
    let settings = settings();
    let whole = filled(&settings);
    let mut all = places_of_entries(&whole, &settings);
    all.push(place_of_object(&whole, &settings, &name(MIDDLE)));
    let store = open(&damaged(&whole, &all), &settings);
    assert_eq!(try_folded(&store, None), None);
    assert!(!is_readable(&store, &name(MIDDLE)));
    let mut model: BTreeMap<usize, Option<String>> = (0..OBJECTS)
        .map(|it| (it, Some(term(it).to_owned())))
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut round = 0;
            let mut written = BTreeMap::new();
            while !is_over.load(Ordering::Relaxed) || round < 4 * OBJECTS {
                let number = round * 7 % OBJECTS;
                let term = format!("t{}", round % 5);
                let is_removed = round % 4 == 3;
                match is_removed {
                    true => {
                        let batch = Batch::of(Write::remove(key(&name(number))));
                        let _receipt = store.put(&batch, Durability::Buffered).unwrap();
                    }
                    false => put(&store, &name(number), lasting(1), terms(&[&term])),
                }
                written.insert(number, (!is_removed).then_some(term));
                round += 1;
            }
            written
        });
        for _ in 0..3_000 {
            for task in store.maintenance_due(NOW) {
                let budget = StepBudget { bytes: 200 };
                store.maintenance_step(&task, budget, NOW).unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        model.extend(writing.join().unwrap());
    });
    do_all(&store, 1);
    do_all(&store, 1);
    let mut expected: Vec<(String, StorageKey)> = model
        .into_iter()
        .filter_map(|(number, term)| Some((term?, key(&name(number)))))
        .collect();
    expected.sort();
    assert_eq!(try_folded(&store, None), Some(expected));
}

#[test]
fn a_repaired_store_makes_its_entries_again() {
    let settings = settings();
    let whole = filled(&settings);
    let disk = damaged(&whole, &places_of_entries(&whole, &settings));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let repair = Repair::begin(shared, Path::new("store"), options(false, false)).unwrap();
    loop {
        for unit in repair.units() {
            repair.run(unit, &|_| {}).unwrap();
        }
        if !repair.next_stage().unwrap() {
            break;
        }
    }
    drop(repair);
    let store = open(&disk, &settings);
    assert_eq!(try_folded(&store, None), None);
    do_all(&store, 1);
    assert_eq!(try_folded(&store, None), Some(expected()));
}

#[test]
fn a_backup_knows_what_is_in_doubt() {
    let settings = settings();
    let whole = filled(&settings);
    let disk = damaged(&whole, &places_of_entries(&whole, &settings));
    let store = open(&disk, &settings);
    assert_eq!(try_folded(&store, None), None);
    let backups = store.backups().unwrap();
    backups.backup(Path::new("copy")).unwrap();
    let copy = crate::indexes::open_at(&disk, "copy", &settings);
    let due = copy.maintenance_due(NOW);
    assert!(due.iter().any(|it| it.kind == TaskKind::Reindex), "{due:?}");
    do_all(&copy, 1);
    assert_eq!(try_folded(&copy, None), Some(expected()));
}

#[test]
fn a_fold_over_keys_says_whether_it_came_by_damage() {
    let settings = settings();
    let whole = filled(&settings);
    let place = place_of_object(&whole, &settings, &name(MIDDLE));
    let store = open(&damaged(&whole, &[place]), &settings);
    let fold = |from: &str| {
        let view = store.snapshot(Lease::Unlimited).unwrap();
        let range = FoldRange {
            from: std::ops::Bound::Included(Bytes::copy_from_slice(key(from).as_bytes())),
            ..FoldRange::all()
        };
        let mut keys = 0;
        let filter = FoldFilter::unexpired(NOW);
        let end = view.fold(FoldDetail::Keys, &range, &filter, &mut |_| {
            keys += 1;
            Flow::Continue
        });
        end.unwrap();
        (keys, view.has_met_damage())
    };
    let (keys, has_met_damage) = fold("00");
    assert!(keys < OBJECTS && has_met_damage, "{keys}");
    assert_eq!(fold("50"), (10, false));
}

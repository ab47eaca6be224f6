//! Large bodies: stored apart from their keys, and collected without rewriting a key.

use kvorum_backend::{StepBudget, TaskKind};
use kvorum_disk::{CrashOptions, FaultyDisk, MemoryDisk, Operation};
use kvorum_lsm::{Compression, LsmSettings};

use crate::support::{
    NOW, do_all, everything, files, flip, get, is_due, open, put, remove, scanned, settings,
};

fn body(number: usize) -> Vec<u8> {
    format!("body {number} ").repeat(60).into_bytes()
}

#[test]
fn a_body_is_found_again_when_its_file_was_rewritten() {
    for compression in [Compression::None, Compression::Lz4] {
        let disk = MemoryDisk::new();
        let settings = LsmSettings {
            blob_compression: compression,
            ..settings()
        };
        let store = open(&disk, settings.clone());
        (0..40).for_each(|number| put(&store, number, &body(number)));
        do_all(&store);
        let before = files(&disk, ".blob");
        assert!(!before.is_empty());
        // Two of three keys are overwritten with bodies that stay with their keys.
        (0..40)
            .filter(|it| it % 3 != 0)
            .for_each(|it| put(&store, it, b"small"));
        (100..140).for_each(|it| put(&store, it, b"filler, so that a flush is due, and a merge"));
        store.sync().unwrap();
        while is_due(&store, TaskKind::Flush) || is_due(&store, TaskKind::Collect) {
            collect_alone(&disk, &store);
            do_all(&store);
        }
        do_all(&store);
        let check = |store: &kvorum_lsm::Lsm| {
            for number in 0..40 {
                let expected = if number % 3 == 0 {
                    body(number)
                } else {
                    b"small".to_vec()
                };
                assert_eq!(get(store, number).unwrap().unwrap(), expected, "{number}");
            }
        };
        check(&store);
        store.close().unwrap();
        drop(store);
        let store = open(&disk, settings.clone());
        do_all(&store);
        check(&store);
        let after = files(&disk, ".blob");
        assert!(after.iter().any(|it| !before.contains(it)), "{after:?}");
        drop(store);
        check(&open(&disk, settings));
    }
}

/// Does the due collections, which write no table.
fn collect_alone(disk: &MemoryDisk, store: &kvorum_lsm::Lsm) {
    let tables = files(disk, ".sst");
    for task in store.maintenance_due(NOW) {
        let budget = StepBudget { bytes: 5_000 };
        while task.kind == TaskKind::Collect
            && !store.maintenance_step(&task, budget, NOW).unwrap().is_done
        {}
    }
    assert_eq!(files(disk, ".sst"), tables);
}

#[test]
fn a_blob_file_goes_with_its_last_key() {
    let disk = MemoryDisk::new();
    let store = open(&disk, settings());
    (0..40).for_each(|number| put(&store, number, &body(number)));
    do_all(&store);
    assert!(!files(&disk, ".blob").is_empty());
    (0..40).for_each(|number| remove(&store, number));
    store.close().unwrap();
    drop(store);
    let store = open(&disk, settings());
    // One more flush, so that level 0 is merged.
    put(&store, 50, b"small");
    store.close().unwrap();
    drop(store);
    let store = open(&disk, settings());
    do_all(&store);
    assert_eq!(scanned(&store).len(), 1);
    assert_eq!(files(&disk, ".blob"), Vec::<std::path::PathBuf>::new());
    assert_eq!(store.status(&everything()).keys, 1);
}

/// Regression: a collection read memory, where an entry that hides a body may be lost in a crash.
#[test]
fn an_overwrite_that_a_crash_loses_does_not_take_the_body_with_it() {
    let disk = MemoryDisk::new();
    let store = open(&disk, settings());
    (0..40).for_each(|number| put(&store, number, &body(number)));
    do_all(&store);
    (10..40).for_each(|number| put(&store, number, b"small"));
    store.close().unwrap();
    drop(store);
    let store = open(&disk, settings());
    (0..10).for_each(|number| put(&store, number, b"in memory only"));
    do_all(&store);
    disk.crash(CrashOptions::nothing_unsynced());
    drop(store);
    let store = open(&disk, settings());
    for number in 0..10 {
        let got = get(&store, number).unwrap().unwrap();
        assert!(
            got == body(number) || got == b"in memory only"[..],
            "{number}: {got:?}"
        );
    }
}

/// Regression: a read of the file for each body made walks over large stores several times as long.
#[test]
fn a_walk_reads_many_bodies_at_once_and_loses_none_but_a_damaged_one() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let settings = LsmSettings {
        memtable_bytes: 1 << 20,
        ..settings()
    };
    let store = open(&disk, settings.clone());
    (0..200).for_each(|number| put(&store, number, &body(number)));
    store.close().unwrap();
    drop(store);
    let store = open(&disk, settings);
    let blobs = files(&memory, ".blob");
    assert_eq!(blobs.len(), 1);
    disk.clear_log();
    let seen = scanned(&store);
    assert!(
        seen.iter()
            .enumerate()
            .all(|(number, it)| it.1 == body(number))
    );
    assert_eq!(seen.len(), 200);
    let log = disk.log().into_iter();
    let reads = log.filter(|it| it.operation == Operation::Read && it.path == blobs[0]);
    let reads = reads.count();
    assert!((1..12).contains(&reads), "{reads} reads for 200 bodies");
    flip(&memory, &blobs[0], 50_000);
    assert_eq!(scanned(&store).len(), 199);
}

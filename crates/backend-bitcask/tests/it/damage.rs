//! Rot: what it hits is reported and lost, everything else is served.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot damage its store has failed"
)]

use std::path::{Path, PathBuf};

use kvorum_backend::{Backend, ErrorKind, TaskKind};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk, OpenMode, Reading};

use crate::store::{NOW, at, body_of, do_all, do_task, folded, key, open, put, try_open};

fn settings() -> BitcaskSettings {
    BitcaskSettings {
        file_bytes_max: 1500,
        ..BitcaskSettings::default()
    }
}

fn segment(number: u64) -> PathBuf {
    Path::new("store").join(format!("{number:010}.segment"))
}

fn flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    assert_eq!(
        file.read_at(&mut byte, offset, Reading::MayBlock).unwrap(),
        1
    );
    file.write_at(&[byte[0] ^ 0x40], offset).unwrap();
}

fn filled(disk: &MemoryDisk) -> Bitcask {
    let store = open(disk, settings());
    for number in 0..30 {
        put(
            &store,
            &format!("key {number:02}"),
            &format!("body {number}"),
        );
    }
    store
}

fn readable(store: &Bitcask) -> usize {
    let names = (0..30).map(|number| format!("key {number:02}"));
    names
        .filter(|name| {
            store
                .get(&key(name), at(NOW))
                .is_ok_and(|it| matches!(it, kvorum_backend::Lookup::Found(_)))
        })
        .count()
}

#[test]
fn r24_a_flipped_byte_costs_one_key_which_says_so() {
    for offset in [40, 70, 90, 150, 400, 1000] {
        let disk = MemoryDisk::new();
        let store = filled(&disk);
        do_all(&store, NOW);
        store.close().unwrap();
        drop(store);
        flip(&disk, &segment(1), offset);
        let store = open(&disk, settings());
        assert!(readable(&store) >= 29, "{offset}");
        assert!(folded(&store, NOW).len() >= 29, "{offset}");
        let errors = (0..30)
            .filter_map(|number| store.get(&key(&format!("key {number:02}")), at(NOW)).err())
            .map(|error| error.kind());
        let expected = if readable(&store) == 29 { 1 } else { 0 };
        assert_eq!(
            errors.collect::<Vec<_>>(),
            vec![ErrorKind::Corrupt; expected]
        );
    }
}

#[test]
fn r25_rot_before_what_was_synced_is_reported_and_not_cut() {
    let disk = MemoryDisk::new();
    drop(filled(&disk));
    let last = disk
        .list(Path::new("store"))
        .unwrap()
        .into_iter()
        .filter_map(|entry| kvorum_segment::parse_file_name(&entry.name))
        .max()
        .unwrap();
    flip(&disk, &segment(last), 100);
    flip(&disk, &segment(1), 300);
    disk.crash(CrashOptions::everything());
    let store = open(&disk, settings());
    assert_eq!(readable(&store), 28);
    assert_eq!(folded(&store, NOW).len(), 28);
    let status = store.status();
    assert_eq!(status.lost.len(), 2, "{:?}", status.lost);
    put(&store, "key 30", "goes on");
    drop(store);
    let store = open(&disk, settings());
    assert_eq!(readable(&store), 28);
    assert_eq!(store.status().lost, status.lost);
    assert_eq!(body_of(&store, "key 30").as_deref(), Some("goes on"));
}

#[test]
fn r27_a_merge_passes_over_rot_and_comes_to_its_end() {
    let disk = MemoryDisk::new();
    let store = filled(&disk);
    do_task(&store, TaskKind::Hint, 2, NOW);
    flip(&disk, &segment(1), 300);
    flip(&disk, &segment(2), 600);
    for number in [1, 2] {
        do_task(&store, TaskKind::Merge, number, NOW);
    }
    assert_eq!(readable(&store), 28);
    assert_eq!(folded(&store, NOW).len(), 28);
    let status = store.status();
    assert_eq!((status.keys, status.lost.len()), (28, 2));
    let kept = disk.list(Path::new("store/lost")).unwrap();
    assert_eq!(kept.len(), 3);
}

#[test]
fn damage_to_what_only_saves_time_costs_nothing_but_time() {
    for name in [
        "checkpoint",
        "store-0",
        "store-1",
        "0000000001.hint",
        "0000000002.hint",
        "lock",
    ] {
        for offset in [0, 9, 13, 20, 60, 100] {
            let disk = MemoryDisk::new();
            let store = filled(&disk);
            do_all(&store, NOW);
            store.close().unwrap();
            drop(store);
            let path = Path::new("store").join(name);
            if disk.info(&path).unwrap().unwrap().len > offset {
                flip(&disk, &path, offset);
            }
            let store = open(&disk, settings());
            assert_eq!(readable(&store), 30, "{name} at {offset}");
            assert_eq!(folded(&store, NOW).len(), 30, "{name} at {offset}");
        }
    }
}

#[test]
fn a_missing_segment_is_told() {
    let disk = MemoryDisk::new();
    let store = filled(&disk);
    store.close().unwrap();
    drop(store);
    disk.remove_file(&segment(2)).unwrap();
    let store = open(&disk, settings());
    assert!(readable(&store) < 30);
    let lost = store.status().lost;
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].file, "0000000002.segment");
}

#[test]
fn a_store_without_its_identity_is_not_guessed_at() {
    let disk = MemoryDisk::new();
    drop(filled(&disk));
    for name in ["store-0", "store-1"] {
        flip(&disk, &Path::new("store").join(name), 30);
    }
    let refused = try_open(&disk, settings()).err().map(|it| it.kind());
    assert_eq!(refused, Some(ErrorKind::Corrupt));
}

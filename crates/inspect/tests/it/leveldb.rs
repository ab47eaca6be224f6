//! A store of the leveldb engine: every byte of every file.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, IndexEntry, OldEntry, StepBudget, Timestamp, Write,
};
use kvorum_backend_leveldb::{
    Compression, Leveldb, LeveldbSettings, PolicySettings, Shared, Tiers,
};
use kvorum_disk::anatomy::Piece;
use kvorum_disk::{Disk, EntryKind, MemoryDisk, OpenMode, read_file};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_inspect::{InspectError, Kind, Plan, VerifyOptions, recognise};

use crate::store::{covers, harmless, is_lock, pieces, verify, with_each_flip};

const STORE: &str = "data/leveldb/0";
const SLOW: &str = "data/slow/0";

fn open(disk: &MemoryDisk) -> Leveldb {
    open_over(disk, None)
}

fn open_over(disk: &MemoryDisk, tiers: Option<Tiers>) -> Leveldb {
    let draws = AtomicU64::new(7);
    let draw = move || draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let settings = LeveldbSettings {
        write_buffer_bytes: 1 << 20,
        block_bytes: 120,
        block_restart_interval: 2,
        blob_threshold_bytes: 100,
        compression: Compression::Lz4,
        policy: PolicySettings {
            level_zero_tables: 2,
            ..PolicySettings::default()
        },
        tiers,
        ..LeveldbSettings::default()
    };
    let (disk, draw) = (Arc::new(disk.clone()), Arc::new(draw));
    let shared = Shared::new(1 << 20, 1 << 30);
    Leveldb::open(disk, Path::new(STORE), &settings, shared, draw, None).unwrap()
}

fn key(number: u32) -> StorageKey {
    let key = Key::from(format!("key {number}").into_bytes());
    StorageKey::new(&BucketType::default_type(), &Bucket::from("b"), &key)
}

fn put(store: &Leveldb, write: Write) {
    let receipt = store.put(&Batch::of(write), Durability::Grouped).unwrap();
    receipt.wait().unwrap();
}

fn put_body(store: &Leveldb, number: u32, body: &str) {
    let body = Bytes::from(body.to_owned());
    let head = Bytes::from_static(b"head");
    let write = Write::put(key(number), Fields::default(), head, body);
    put(store, write);
}

/// Moves everything to tables. The memtable goes as a whole.
fn flush(disk: &MemoryDisk) {
    open(disk).close().unwrap();
}

/// A table on the last level, one on level 0, blob files, and records in the log if requested.
fn filled(has_tail: bool) -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new("data")).unwrap();
    for part in 0..2u32 {
        let store = open(&disk);
        for number in part * 2..part * 2 + 3 {
            put_body(&store, number, &"body ".repeat(number as usize * 8));
        }
        put(&store, Write::remove(key(part)));
        if part == 1 {
            for _ in 0..20 {
                let budget = StepBudget { bytes: 1 << 20 };
                for task in store.maintenance_due(Timestamp(1)) {
                    let _outcome = store.maintenance_step(&task, budget, Timestamp(1)).unwrap();
                }
            }
        }
        store.close().unwrap();
    }
    let store = open(&disk);
    let entry = IndexEntry {
        field: Bytes::from_static(b"color_bin"),
        term: Bytes::from_static(b"red"),
    };
    put(
        &store,
        Write::Put {
            key: key(50),
            fields: Fields::default(),
            head: Bytes::from_static(b"head"),
            body: Bytes::from_static(b"indexed"),
            index_entries: vec![entry],
            old: OldEntry::UNKNOWN,
        },
    );
    store.close().unwrap();
    if has_tail {
        let store = open(&disk);
        put_body(&store, 1, "in the log alone");
        put(&store, Write::remove(key(2)));
    }
    disk
}

/// The same over two directories, with everything but level 0 in the slow one.
fn filled_over_two() -> MemoryDisk {
    let disk = filled(false);
    let tiers = Tiers {
        slow_directory: SLOW.into(),
        from_level: 1,
    };
    let store = open_over(&disk, Some(tiers));
    for _ in 0..20 {
        let budget = StepBudget { bytes: 1 << 20 };
        for task in store.maintenance_due(Timestamp(1)) {
            let _outcome = store.maintenance_step(&task, budget, Timestamp(1)).unwrap();
        }
    }
    store.close().unwrap();
    disk
}

fn files(disk: &MemoryDisk) -> Vec<PathBuf> {
    files_in(disk, STORE)
}

fn files_in(disk: &MemoryDisk, directory: &str) -> Vec<PathBuf> {
    let entries = disk.list(Path::new(directory)).unwrap();
    let files = entries.into_iter().filter(|it| it.kind == EntryKind::File);
    files.map(|it| Path::new(directory).join(it.name)).collect()
}

fn files_named(disk: &MemoryDisk, suffix: &str) -> Vec<PathBuf> {
    let named = |path: &PathBuf| path.to_string_lossy().ends_with(suffix);
    files(disk).into_iter().filter(named).collect()
}

#[test]
fn a_whole_store_has_no_findings() {
    for has_tail in [false, true] {
        let disk = filled(has_tail);
        for (suffix, least) in [
            (".sst", 2),
            (".blob", 1),
            (".segment", usize::from(has_tail)),
        ] {
            let found = files_named(&disk, suffix).len();
            assert!(found >= least, "{found} files with {suffix}");
        }
        let checked = verify(&disk, Path::new(STORE));
        assert_eq!(checked.findings, []);
        assert!(checked.records > 7, "{checked:?}");
        assert_eq!(verify(&disk, Path::new("data")), checked);
    }
}

#[test]
fn every_byte_of_every_file_is_in_one_field() {
    let disk = filled(true);
    for path in files(&disk) {
        let len = disk.info(&path).unwrap().unwrap().len;
        let pieces = pieces(&disk, &path);
        covers(&pieces, len, &path);
        assert!(!pieces.iter().any(Piece::is_damaged), "{}", path.display());
    }
}

#[test]
fn a_store_over_two_directories_is_checked_as_one() {
    let disk = filled_over_two();
    let slow = files_in(&disk, SLOW);
    assert!(slow.len() > 1, "{slow:?}");
    for path in files(&disk).into_iter().chain(slow.clone()) {
        let len = disk.info(&path).unwrap().unwrap().len;
        let pieces = pieces(&disk, &path);
        covers(&pieces, len, &path);
        assert!(!pieces.iter().any(Piece::is_damaged), "{}", path.display());
    }
    let checked = verify(&disk, Path::new(STORE));
    assert_eq!(
        (&checked.findings[..], &checked.notes[..]),
        (&[][..], &[][..])
    );
    assert_eq!(checked.files, (files(&disk).len() + slow.len()) as u64 - 1);
    assert_eq!(verify(&disk, Path::new("data")), checked);
    for directory in [SLOW, "data/slow"] {
        let refused = Plan::new(&disk, Path::new(directory), VerifyOptions::default());
        let is_named = |fast: &Path| fast == Path::new(STORE);
        assert!(matches!(refused, Err(InspectError::Slow { fast, .. }) if is_named(&fast)));
    }
    let cards = files(&disk).into_iter().chain(slow);
    for path in cards.filter(|it| !is_lock(it)) {
        let whole = pieces(&disk, &path);
        with_each_flip(&disk, &path, |at| {
            let what = format!("{} at {at}", path.display());
            assert!(pieces(&disk, &path).iter().any(Piece::is_damaged), "{what}");
            let is_found = !verify(&disk, Path::new(STORE)).findings.is_empty();
            assert!(is_found || harmless(&path, &whole, at).is_some(), "{what}");
        });
    }
    disk.rename(Path::new(SLOW), Path::new("away")).unwrap();
    let findings = verify(&disk, Path::new(STORE)).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].what.contains("not mounted"), "{findings:?}");
}

#[test]
fn every_flipped_byte_is_shown_as_damage_and_what_follows_is_still_shown() {
    let disk = filled(true);
    for path in files(&disk).into_iter().filter(|path| !is_lock(path)) {
        let whole = pieces(&disk, &path);
        let len = disk.info(&path).unwrap().unwrap().len;
        with_each_flip(&disk, &path, |at| {
            let now = pieces(&disk, &path);
            covers(&now, len, &path);
            let what = format!("{} at {at}", path.display());
            assert!(now.iter().any(Piece::is_damaged), "{what}");
            let is_log = path.extension().is_some_and(|it| it == "segment");
            if !is_log || at >= 32 {
                let kept = whole.iter().filter(|piece| now.contains(piece)).count();
                assert!(kept + 1 >= whole.len(), "{what}");
            }
        });
    }
}

#[test]
fn every_flipped_byte_is_found_by_a_check_or_harms_nobody() {
    // The tables are the same with and without a tail.
    for (has_tail, suffix) in [(false, "manifest-0"), (true, "")] {
        let disk = filled(has_tail);
        for path in files_named(&disk, suffix) {
            let whole = pieces(&disk, &path);
            with_each_flip(&disk, &path, |at| {
                let is_found = !verify(&disk, Path::new(STORE)).findings.is_empty();
                let why = harmless(&path, &whole, at);
                assert!(is_found || why.is_some(), "{} at {at}", path.display());
            });
        }
    }
}

#[test]
fn every_cut_of_a_table_or_a_blob_file_is_found_and_shown() {
    let disk = filled(false);
    for path in [".sst", ".blob"]
        .iter()
        .flat_map(|it| files_named(&disk, it))
    {
        let bytes = read_file(&disk, &path, 1 << 20).unwrap();
        let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
        for len in 0..bytes.len() {
            file.truncate(len as u64).unwrap();
            covers(&pieces(&disk, &path), len as u64, &path);
            let findings = verify(&disk, Path::new(STORE)).findings;
            assert!(!findings.is_empty(), "{} cut to {len}", path.display());
        }
        file.write_at(&bytes, 0).unwrap();
    }
}

#[test]
fn a_damaged_block_names_the_keys_that_it_costs() {
    let disk = filled(false);
    let path = &files_named(&disk, ".sst")[0];
    let whole = pieces(&disk, path);
    let block = whole.iter().find(|it| it.title == "data block").unwrap();
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    file.write_at(b"!", block.end() - 2).unwrap();
    let checked = verify(&disk, Path::new(STORE));
    let [finding] = &checked.findings[..] else {
        unreachable!("{checked:?}");
    };
    assert!(path.ends_with(&finding.file), "{finding:?}");
    assert_eq!(finding.offset, block.offset());
    assert!(finding.keys[0].contains("key "), "{finding:?}");
}

#[test]
fn a_missing_file_is_found_with_the_keys_that_it_held() {
    for suffix in [".sst", ".blob"] {
        let disk = filled(false);
        disk.remove_file(&files_named(&disk, suffix)[0]).unwrap();
        let findings = verify(&disk, Path::new(STORE)).findings;
        let missing = |it: &&kvorum_inspect::Finding| it.what.contains("missing");
        let finding = findings.iter().find(missing).unwrap();
        assert_eq!(finding.keys.is_empty(), suffix == ".blob", "{finding:?}");
    }
}

#[test]
fn a_table_in_the_place_of_another_is_found() {
    let disk = filled(false);
    let tables = files_named(&disk, ".sst");
    let foreign = read_file(&disk, &tables[1], 1 << 20).unwrap();
    let file = disk.open(&tables[0], OpenMode::ReadWrite).unwrap();
    file.truncate(foreign.len() as u64).unwrap();
    file.write_at(&foreign, 0).unwrap();
    let findings = verify(&disk, Path::new(STORE)).findings;
    assert!(
        findings.iter().any(|it| it.what.contains("is table")),
        "{findings:?}"
    );
}

#[test]
fn what_was_lost_before_is_reported_and_its_list_is_checked() {
    let disk = filled(false);
    let path = &files_named(&disk, ".sst")[0];
    let whole = pieces(&disk, path);
    let block = whole.iter().find(|it| it.title == "data block").unwrap();
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    file.write_at(b"!", block.end() - 2).unwrap();
    // A fold finds the damage, and closing writes the list.
    let store = open(&disk);
    let _keys = store.is_empty(Timestamp(1)).unwrap();
    store.close().unwrap();
    let index = Path::new(STORE).join("lost/BLOCKS.bad");
    let checked = verify(&disk, Path::new(STORE));
    assert_eq!(checked.findings.len(), 1, "{checked:?}");
    let is_reported = checked.notes.iter().any(|it| it.contains("BLOCKS.bad"));
    assert!(is_reported, "{checked:?}");
    let len = disk.info(&index).unwrap().unwrap().len;
    with_each_flip(&disk, &index, |at| {
        let now = pieces(&disk, &index);
        covers(&now, len, &index);
        assert!(now.iter().any(Piece::is_damaged), "{at}");
        let findings = verify(&disk, Path::new(STORE)).findings;
        assert!(
            findings.iter().any(|it| it.file == "lost/BLOCKS.bad"),
            "{at}"
        );
    });
}

#[test]
fn a_store_in_use_is_checked_only_where_it_is_finished_and_nothing_is_written() {
    let disk = filled(true);
    let image = || -> Vec<_> {
        let names = files(&disk).into_iter().filter(|path| !is_lock(path));
        names
            .map(|path| (read_file(&disk, &path, 1 << 20).unwrap(), path))
            .collect()
    };
    let store = open(&disk);
    assert!(Plan::new(&disk, Path::new(STORE), VerifyOptions::default()).is_err());
    let before = image();
    let live = VerifyOptions { is_live: true };
    let plan = Plan::new(&disk, Path::new(STORE), live).unwrap();
    let checked = plan.run(&disk, &plan.units[0], &|_| {});
    assert_eq!(checked.findings, []);
    assert_eq!(image(), before);
    drop(store);
    flush(&disk);
    let _found = verify(&disk, Path::new("data"));
}

/// Regression: the file's kind was unknown.
#[test]
fn the_progress_of_a_repair_is_known_for_what_it_is() {
    let disk = filled(false);
    let path = Path::new(STORE).join("repair.progress");
    let file = disk.open(&path, OpenMode::CreateNew).unwrap();
    // The file is valid up to the first incomplete record, here the first of all.
    file.write_at(b"KVlsmrpr and what a crash left", 0).unwrap();
    assert_eq!(recognise(&disk, &path).unwrap(), Kind::RepairProgress);
    let pieces = pieces(&disk, &path);
    covers(&pieces, file.len().unwrap(), &path);
    assert!(!pieces.iter().any(Piece::is_damaged));
    let checked = verify(&disk, Path::new(STORE));
    assert_eq!(checked.findings, []);
    let mut notes = checked.notes.iter();
    assert!(notes.any(|note| note.contains("repair")), "{checked:?}");
}

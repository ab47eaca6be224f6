//! A store of the leveled engine: the files of its journal and the manifest that lists them, byte by byte.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, Fields, StepBudget, Write};
use kvorum_backend_leveled::{Leveled, LeveledSettings, Shared};
use kvorum_disk::anatomy::Piece;
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::store::{covers, harmless, pieces, verify, with_each_flip};

const DATA: &str = "data";
const STORE: &str = "data/leveled/0";
const LOG: &str = "data/value_log";
const ALL: StepBudget = StepBudget { bytes: u64::MAX };

fn open(disk: &MemoryDisk) -> (ValueLog, Leveled) {
    let settings = ValueLogSettings {
        segment_bytes: 1_000,
        garbage_percent_max: 10,
    };
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let (log, _) = ValueLog::open(seam.clone(), Path::new(LOG), 0x77, settings).unwrap();
    let draws = AtomicU64::new(7);
    let draw = Arc::new(move || draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed));
    let (own, shared) = (LeveledSettings::default(), Shared::new(1 << 20, 1 << 30));
    let directory = Path::new(STORE);
    let store =
        kvorum_backend_leveled::open(seam, directory, &own, shared, draw, log.clone()).unwrap();
    log.admit(&[store.tenant()]).unwrap();
    (log, store)
}

fn put(store: &Leveled, number: u32, round: u8) {
    let key = Key::from(format!("key {number}").into_bytes());
    let key = StorageKey::new(&BucketType::default_type(), &Bucket::from("b"), &key);
    let (head, body) = (Bytes::from_static(b"head"), Bytes::from(vec![round; 90]));
    let write = Write::put(key, Fields::default(), head, body);
    let receipt = store.put(&Batch::of(write), Durability::Grouped).unwrap();
    receipt.wait().unwrap();
}

/// A table, and files of the journal with records of dropped segments.
fn filled() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new(DATA)).unwrap();
    let (log, store) = open(&disk);
    (0..12).for_each(|number| put(&store, number, 1));
    (0..12)
        .filter(|number| number % 4 != 0)
        .for_each(|number| put(&store, number, 2));
    store.close().unwrap();
    drop((log, store));
    let (log, store) = open(&disk);
    for _ in 0..100 {
        log.usage_changed();
        while log.is_chore_due() && log.chore_step().unwrap() {}
        if log.collection_due().is_some() {
            log.collection_step(ALL).unwrap();
        }
    }
    store.close().unwrap();
    log.sync().unwrap();
    disk
}

fn files_named(disk: &MemoryDisk, suffix: &str) -> Vec<PathBuf> {
    let entries = disk.list(Path::new(STORE)).unwrap().into_iter();
    let named = entries.filter(|it| it.name.ends_with(suffix));
    named.map(|it| Path::new(STORE).join(it.name)).collect()
}

#[test]
fn a_whole_store_has_no_findings_and_its_journal_is_shown_to_its_last_byte() {
    let disk = filled();
    let checked = verify(&disk, Path::new(DATA));
    assert_eq!(checked.findings, []);
    let journal = files_named(&disk, ".journal");
    assert!(!journal.is_empty());
    for path in journal.iter().chain(&files_named(&disk, "manifest-0")) {
        let len = disk.info(path).unwrap().unwrap().len;
        let pieces = pieces(&disk, path);
        covers(&pieces, len, path);
        assert!(!pieces.iter().any(Piece::is_damaged), "{}", path.display());
    }
    let shown = format!("{:?}", pieces(&disk, &journal[0]));
    assert!(shown.contains("segment 2, byte "), "{shown}");
}

#[test]
fn every_flipped_byte_of_the_journal_is_found() {
    let disk = filled();
    for path in [".journal", "manifest-0"]
        .iter()
        .flat_map(|it| files_named(&disk, it))
    {
        let whole = pieces(&disk, &path);
        with_each_flip(&disk, &path, |at| {
            let is_found = !verify(&disk, Path::new(STORE)).findings.is_empty();
            let why = harmless(&path, &whole, at);
            assert!(is_found || why.is_some(), "{} at {at}", path.display());
        });
    }
}

#[test]
fn a_missing_file_of_the_journal_is_found() {
    let disk = filled();
    let path = &files_named(&disk, ".journal")[0];
    disk.remove_file(path).unwrap();
    let findings = verify(&disk, Path::new(STORE)).findings;
    assert!(
        findings.iter().any(|it| it.what == "the file is missing"),
        "{findings:?}"
    );
}

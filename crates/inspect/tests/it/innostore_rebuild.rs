//! A store of innostore that has lost both copies of its manifest gets another one from its files of pages:
//! what it serves then is what was acknowledged, or an error.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, StepBudget, Timestamp, Write,
};
use kvorum_backend_innostore::rebuild::{lacks_manifest, rebuild_manifest};
use kvorum_backend_innostore::{Innostore, InnostoreSettings, Shared};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_value_log::{ValueLog, ValueLogSettings};

const STORE: &str = "data/innostore/0";
const KEYS: u64 = 40;

struct Opened {
    store: Innostore,
    /// The log lacks batches of the store.
    is_lossy: bool,
}

fn open(disk: &MemoryDisk, seed: u64) -> kvorum_backend::Result<Opened> {
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let settings = ValueLogSettings {
        segment_bytes: 2_000,
        dead_percent_max: 10,
    };
    let log = Path::new("data/value_log");
    kvorum_disk::create_directory_durably(&*seam, Path::new("data"))?;
    let (log, _) = ValueLog::open(seam.clone(), log, 0x77, settings)?;
    let draws = AtomicU64::new(7 + seed);
    let draw = Arc::new(move || draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed));
    let own = InnostoreSettings {
        page_bytes: 200,
        body_apart_bytes: 150,
        dirty_bytes_max: 800,
        file_bytes_max: 3_000,
        small_files_max: 3,
        ..InnostoreSettings::default()
    };
    let (directory, shared) = (Path::new(STORE), Shared::new(1 << 20));
    let store = Innostore::open(seam, directory, &own, shared, draw, log.clone())?;
    let admission = log.admit(&[store.tenant()])?;
    Ok(Opened {
        store,
        is_lossy: !admission.lost.is_empty(),
    })
}

fn key(number: u64) -> StorageKey {
    let key = Key::from(format!("key {number:03}").into_bytes());
    StorageKey::new(&BucketType::default_type(), &Bucket::from("b"), &key)
}

/// The values that each key may have; none stands for a removed one.
type May = BTreeMap<u64, Vec<Option<u64>>>;

/// Puts and removes keys with upkeep in between, until the disk fails.
fn write(store: &Innostore, may: &mut May, turns: std::ops::Range<u64>) {
    for turn in turns {
        let number = turn * 7 % KEYS;
        let value = (!turn.is_multiple_of(4)).then_some(turn);
        let write = match value {
            None => Write::remove(key(number)),
            Some(value) => {
                let len = 20 + usize::try_from(value % 9).unwrap() * 20;
                let head = Bytes::from(value.to_le_bytes().to_vec());
                Write::put(key(number), Fields::default(), head, vec![1; len].into())
            }
        };
        let put = store.put(&Batch::of(write), Durability::Grouped);
        let is_ok = put.is_ok_and(|it| it.wait().is_ok());
        let values = may.entry(number).or_insert_with(|| vec![None]);
        if is_ok {
            values.clear();
        }
        values.push(value);
        for task in store.maintenance_due(Timestamp(turn)).iter().take(2) {
            let budget = StepBudget { bytes: 1_000 };
            let stepped = store.maintenance_step(task, budget, Timestamp(turn));
            if stepped.is_err() {
                return;
            }
        }
    }
}

fn value(store: &Innostore, number: u64) -> kvorum_backend::Result<Option<u64>> {
    let found = store.get(&key(number), ReadAt::may_block(Timestamp(1)))?;
    Ok(match found {
        Lookup::Found(entry) => Some(u64::from_le_bytes(entry.head[..8].try_into().unwrap())),
        _ => None,
    })
}

fn remove_manifest(disk: &MemoryDisk) {
    for name in ["root-0", "root-1"] {
        let path: PathBuf = Path::new(STORE).join(name);
        if disk.info(&path).unwrap().is_some() {
            disk.remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_closed_store_serves_its_values_without_its_manifest() {
    let (disk, mut may) = (MemoryDisk::new(), May::new());
    for round in 0..3 {
        let opened = open(&disk, round).unwrap();
        write(&opened.store, &mut may, round * 100..round * 100 + 90);
        opened.store.close().unwrap();
    }
    assert!(!lacks_manifest(&disk, Path::new(STORE)).unwrap());
    remove_manifest(&disk);
    assert!(lacks_manifest(&disk, Path::new(STORE)).unwrap());
    assert!(open(&disk, 5).is_err());
    let would = rebuild_manifest(&disk, Path::new(STORE), true).unwrap();
    assert!(
        lacks_manifest(&disk, Path::new(STORE)).unwrap(),
        "a dry run"
    );
    let rebuilt = rebuild_manifest(&disk, Path::new(STORE), false).unwrap();
    assert_eq!(would, rebuilt);
    let opened = open(&disk, 6).unwrap();
    let mut there = 0;
    for (number, values) in &may {
        match (value(&opened.store, *number), values[0]) {
            (Ok(Some(found)), Some(expected)) => assert_eq!(found, expected),
            // Nothing says that a key which is not found is not lost.
            (Err(_), None) => {}
            (found, expected) => panic!("key {number}: {found:?}, expected {expected:?}"),
        }
        there += u64::from(values[0].is_some());
    }
    assert_eq!(rebuilt.keys, there);
}

/// After a crash at any point, with the manifest lost as well, no key has a value from before an
/// acknowledged write, unless the store counts as one that has lost writes.
#[test]
fn no_outdated_value_is_served_after_a_crash_without_a_manifest() {
    let first = {
        let (disk, mut may) = (MemoryDisk::new(), May::new());
        let opened = open(&disk, 0).unwrap();
        write(&opened.store, &mut may, 0..120);
        disk.operations()
    };
    let (mut rebuilt, mut checked) = (0, 0);
    for cut in (30..first).step_by(usize::try_from(first / 60).unwrap().max(1)) {
        let (disk, mut may) = (MemoryDisk::new(), May::new());
        let Ok(opened) = open(&disk, 0) else { continue };
        disk.cut_after(cut);
        write(&opened.store, &mut may, 0..120);
        let options = match cut % 2 {
            0 => CrashOptions::everything(),
            _ => CrashOptions::drawn(cut),
        };
        let disk = disk.crash_image(options);
        remove_manifest(&disk);
        if rebuild_manifest(&disk, Path::new(STORE), false).is_err() {
            continue;
        }
        rebuilt += 1;
        let opened = open(&disk, 9).unwrap();
        if opened.is_lossy {
            continue;
        }
        checked += 1;
        for (number, values) in &may {
            if let Ok(found) = value(&opened.store, *number) {
                assert!(
                    values.contains(&found),
                    "cut {cut}, key {number}: {found:?} of {values:?}"
                );
            }
        }
    }
    assert!(
        rebuilt > 10 && checked > 5,
        "{rebuilt} rebuilt, {checked} checked"
    );
}

#[test]
fn a_store_without_a_whole_tree_is_refused_and_keeps_its_files() {
    let (disk, mut may) = (MemoryDisk::new(), May::new());
    let opened = open(&disk, 0).unwrap();
    write(&opened.store, &mut may, 0..90);
    opened.store.close().unwrap();
    remove_manifest(&disk);
    let files = || {
        let mut files = disk.list(Path::new(STORE)).unwrap();
        files.retain(|it| it.name.ends_with(".pages"));
        files
    };
    for entry in files() {
        let path = Path::new(STORE).join(&entry.name);
        let file = disk.open(&path, kvorum_disk::OpenMode::ReadWrite).unwrap();
        file.write_at(&[0xff; 4], 60).unwrap();
    }
    let before = files();
    let error = rebuild_manifest(&disk, Path::new(STORE), false).unwrap_err();
    assert!(error.to_string().contains("root-0"), "{error}");
    assert_eq!(files(), before);
}

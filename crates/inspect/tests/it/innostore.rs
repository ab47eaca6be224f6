//! A store of the innostore engine: its pages and its manifest, byte by byte.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, Fields, Write};
use kvorum_backend_innostore::{Innostore, InnostoreSettings, Shared};
use kvorum_disk::anatomy::Piece;
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::store::{covers, pieces, verify, with_each_flip};

const DATA: &str = "data";
const STORE: &str = "data/innostore/0";

/// A few leaves below branches, and bodies of their own.
fn filled() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let settings = ValueLogSettings {
        segment_bytes: 4_000,
        garbage_percent_max: 10,
    };
    let log = Path::new("data/value_log");
    kvorum_disk::create_directory_durably(&*seam, Path::new(DATA)).unwrap();
    let (log, _) = ValueLog::open(seam.clone(), log, 0x77, settings).unwrap();
    let draws = AtomicU64::new(7);
    let draw = Arc::new(move || draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed));
    let own = InnostoreSettings {
        page_bytes: 200,
        body_apart_bytes: 150,
        ..InnostoreSettings::default()
    };
    let (directory, shared) = (Path::new(STORE), Shared::new(1 << 20));
    let store = Innostore::open(seam, directory, &own, shared, draw, log.clone()).unwrap();
    log.admit(&[store.tenant()]).unwrap();
    for number in 0..9 {
        let key = Key::from(format!("key {number}").into_bytes());
        let key = StorageKey::new(&BucketType::default_type(), &Bucket::from("b"), &key);
        let body = Bytes::from(vec![1; 20 + 20 * number]);
        let write = Write::put(key, Fields::default(), Bytes::from_static(b"head"), body);
        let receipt = store.put(&Batch::of(write), Durability::Grouped).unwrap();
        receipt.wait().unwrap();
    }
    store.close().unwrap();
    disk
}

fn files_named(disk: &MemoryDisk, suffix: &str) -> Vec<PathBuf> {
    let entries = disk.list(Path::new(STORE)).unwrap().into_iter();
    let named = entries.filter(|it| it.name.ends_with(suffix));
    named.map(|it| Path::new(STORE).join(it.name)).collect()
}

#[test]
fn a_whole_store_has_no_findings_and_its_pages_are_shown_to_the_last_byte() {
    let disk = filled();
    for directory in [DATA, STORE] {
        let checked = verify(&disk, Path::new(directory));
        assert_eq!(checked.findings, []);
        assert_eq!(checked.keys, 9);
    }
    for path in [".pages", "root-0"]
        .iter()
        .flat_map(|it| files_named(&disk, it))
    {
        let len = disk.info(&path).unwrap().unwrap().len;
        let pieces = pieces(&disk, &path);
        covers(&pieces, len, &path);
        assert!(!pieces.iter().any(Piece::is_damaged), "{}", path.display());
    }
}

/// All pages of a store that was written once are used.
#[test]
fn every_flipped_byte_is_found() {
    let disk = filled();
    for path in [".pages", "root-1"]
        .iter()
        .flat_map(|it| files_named(&disk, it))
    {
        with_each_flip(&disk, &path, |at| {
            let findings = verify(&disk, Path::new(STORE)).findings;
            assert!(!findings.is_empty(), "{} at {at}", path.display());
            let is_shown = pieces(&disk, &path).iter().any(Piece::is_damaged);
            assert!(is_shown, "{} at {at} is shown as whole", path.display());
        });
    }
}

#[test]
fn a_missing_file_is_found() {
    let disk = filled();
    let path = files_named(&disk, ".pages").remove(0);
    disk.remove_file(&path).unwrap();
    let findings = verify(&disk, Path::new(STORE)).findings;
    assert!(
        findings.iter().any(|it| it.what == "missing"),
        "{findings:?}"
    );
}

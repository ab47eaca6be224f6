//! A copy of a store's identity or manifest that is missing or belongs to another store.
//! Regression: the check ignored both, since every file that existed was intact.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Belonging, Durability, Fields, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_disk::{Disk, MemoryDisk, create_directory_durably, read_file, replace_file};
use kvorum_encoding::StorageKey;
use kvorum_inspect::Checked;

use crate::store::verify;

const STORES: [&str; 2] = ["data/100", "data/200"];

fn write(store: &dyn Backend) {
    for number in 0..9 {
        let key = StorageKey::from_encoded(format!("key {number}").into_bytes());
        let body = Bytes::from(vec![b'v'; 100]);
        let write = Write::put(key, Fields::default(), Bytes::new(), body);
        let put = store.put(&Batch::of(write), Durability::Grouped);
        put.unwrap().wait().unwrap();
    }
    store.close().unwrap();
}

/// Two stores of an engine, closed and opened a few times.
fn filled(is_bitcask: bool) -> MemoryDisk {
    let memory = MemoryDisk::new();
    create_directory_durably(&memory, Path::new("data")).unwrap();
    let drawn = Arc::new(AtomicU64::new(7));
    for directory in STORES.map(Path::new).into_iter().cycle().take(6) {
        let drawn = drawn.clone();
        let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let (disk, belonging) = (Arc::new(memory.clone()), Belonging::by_directory(directory));
        if is_bitcask {
            let settings = BitcaskSettings {
                belonging,
                ..BitcaskSettings::default()
            };
            write(&Bitcask::open(disk, directory, settings, draw, None).unwrap());
        } else {
            let settings = LeveldbSettings {
                belonging,
                ..LeveldbSettings::default()
            };
            let shared = Shared::new(64 << 10, 1 << 20);
            write(&Leveldb::open(disk, directory, &settings, shared, draw, None).unwrap());
        }
    }
    memory
}

fn found(disk: &MemoryDisk) -> Vec<(String, String)> {
    let Checked { findings, .. } = verify(disk, Path::new("data"));
    let found = findings.into_iter().map(|it| (it.file, it.what));
    found.collect()
}

#[test]
fn a_missing_copy_and_one_of_another_store_are_findings() {
    for (is_bitcask, names) in [
        (true, ["store-0", "store-1"]),
        (false, ["manifest-0", "manifest-1"]),
    ] {
        let disk = filled(is_bitcask);
        assert_eq!(found(&disk), []);
        let [own, other] = STORES.map(|it| Path::new(it).join(names[0]));
        let copy = Path::new(STORES[0]).join(names[1]);
        let (kept, foreign) = (
            read_file(&disk, &copy, 1 << 20).unwrap(),
            read_file(&disk, &other, 1 << 20).unwrap(),
        );

        replace_file(&disk, &copy, &foreign).unwrap();
        let all = found(&disk);
        let is_it = |it: &&(String, String)| it.0 == format!("100/{}", names[1]);
        let what = &all.iter().find(is_it).unwrap().1;
        assert!(what.contains("belongs to the store 200"), "{what}");

        disk.remove_file(&copy).unwrap();
        let all = found(&disk);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(is_it(&&all[0]) && all[0].1.contains("missing"), "{all:?}");

        // Both copies are another store's, as after an exchange of directories.
        replace_file(&disk, &copy, &foreign).unwrap();
        replace_file(&disk, &own, &foreign).unwrap();
        let all = found(&disk);
        let is_refused = |it: &(String, String)| it.1.contains("put back the directory");
        assert!(all.iter().any(is_refused), "{all:?}");
        replace_file(&disk, &copy, &kept).unwrap();
        replace_file(&disk, &own, &kept).unwrap();
        assert_eq!(found(&disk), []);
    }
}

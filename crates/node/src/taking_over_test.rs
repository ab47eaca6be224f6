//! Stores of one backend become parts of stores of several, whichever operation of the disk fails on the
//! way, and everything that names them stays right.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, Sequence, Timestamp, Write,
};
use kvorum_disk::{CrashOptions, FaultyDisk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_ring::RingSize;
use kvorum_runtime::SeededRandomness;
use kvorum_settings::Configuration;
use kvorum_value_log::ValueLog;

use super::*;
use crate::engines::Engines;
use crate::maintained_value_log::open_value_log;

const DATA: &str = "/data";
const PARTITIONS: usize = 2;

fn loaded(lines: &[&str]) -> Settings {
    let no_more: [&str; 0] = [];
    let own = ["platform_data_dir = /data", "leveldb.maximum_memory = 64MB"];
    let lines = [&own[..], lines].concat();
    Configuration::load(&lines.join("\n"), &no_more)
        .unwrap()
        .settings
}

fn single(engine: &str) -> Settings {
    loaded(&[&format!("storage_backend = {engine}")])
}

/// `old` is the default.
fn several(old: &str, new: &str) -> Settings {
    loaded(&[
        "storage_backend = multi",
        "multi_backend.default = old",
        &format!("multi_backend.old.storage_backend = {old}"),
        &format!("multi_backend.new.storage_backend = {new}"),
    ])
}

/// The identity of each store, and the sequence at which it ends.
type Names = Vec<(StoreId, Sequence)>;

/// The open stores of a node: of partitions, and then of hints.
struct Opened {
    stores: Vec<Arc<dyn Backend>>,
    _log: Option<ValueLog>,
}

impl Opened {
    fn open(disk: &MemoryDisk, settings: &Settings, known: &Names, seed: u64) -> Self {
        let seam: Arc<dyn Disk> = Arc::new(disk.clone());
        let data = data(disk);
        let randomness = Arc::new(SeededRandomness::new(seed));
        let engines = Engines::new(seam.clone(), settings.clone(), randomness);
        let has_log = data.has_value_log(&*seam).unwrap();
        let log = engines.use_value_log(has_log).then(|| {
            data.create_value_log(&*seam).unwrap();
            open_value_log(&seam, &data.value_log(), settings, seed).unwrap()
        });
        let size = RingSize::new(8).unwrap();
        let mut stores = Vec::new();
        for (number, partition) in size.partitions().take(PARTITIONS).enumerate() {
            let known = known.get(number).map(|it| it.0);
            let store = engines.open(size, partition, known, log.as_ref());
            stores.push(store.unwrap());
        }
        stores.push(engines.open_hints(log.as_ref()).unwrap());
        if let Some(log) = &log {
            let _given = log.admit(&engines.tenants_of(&stores)).unwrap();
        }
        Self { stores, _log: log }
    }

    fn names(&self) -> Names {
        let names = self.stores.iter().map(|it| (it.identity(), it.durable()));
        names.collect()
    }

    fn put(&self) {
        for (number, store) in self.stores.iter().enumerate() {
            let body = Bytes::from(format!("body {number}"));
            let write = Write::put(key(), Fields::default(), Bytes::from("head"), body);
            let receipt = store.put(&Batch::of(write), Durability::Grouped);
            receipt.unwrap().wait().unwrap();
        }
    }

    fn check(&self) {
        for (number, store) in self.stores.iter().enumerate() {
            let found = store.get(&key(), ReadAt::may_block(Timestamp(1))).unwrap();
            let Lookup::Found(entry) = found else {
                panic!("store {number} lacks its entry");
            };
            assert_eq!(entry.body, format!("body {number}").as_bytes());
        }
    }

    fn close(self) -> Names {
        self.stores.iter().for_each(|it| it.close().unwrap());
        self.names()
    }
}

fn key() -> StorageKey {
    StorageKey::new(
        &BucketType::default_type(),
        &Bucket::from("bucket"),
        &Key::from(b"key".to_vec()),
    )
}

fn data(disk: &MemoryDisk) -> DataDirectory {
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    DataDirectory::open(&seam, Path::new(DATA)).unwrap()
}

/// A data directory as a node with one backend leaves it, and the names of its stores.
fn left_by(engine: &str) -> (MemoryDisk, Names) {
    let (disk, settings) = (MemoryDisk::new(), single(engine));
    let opened = Opened::open(&disk, &settings, &Names::new(), 1);
    opened.put();
    let names = opened.close();
    let data = data(&disk);
    let parts = data.parts(&disk, &settings).unwrap();
    data.note_engine(&disk, engine, Some(0), &parts).unwrap();
    (disk, names)
}

fn settled(disk: &MemoryDisk, settings: &Settings) -> anyhow::Result<()> {
    settle(disk, &data(disk), settings)
}

fn refusal(disk: &MemoryDisk, settings: &Settings) -> String {
    format!("{:#}", settled(disk, settings).unwrap_err())
}

#[test]
fn stores_of_each_engine_continue_under_their_names() {
    for (engine, new) in [
        ("bitcask", "leveldb"),
        ("leveldb", "innostore"),
        ("leveled", "bitcask"),
        ("hanoidb", "leveled"),
        ("innostore", "bitcask"),
    ] {
        let (disk, names) = left_by(engine);
        let settings = several(engine, new);
        settled(&disk, &settings).unwrap();
        let opened = Opened::open(&disk, &settings, &names, 2);
        assert_eq!(opened.names(), names, "{engine}");
        opened.check();
        opened.close();
        // The next start finds them as the last run left them.
        settled(&disk, &settings).unwrap();
        let opened = Opened::open(&disk, &settings, &names, 3);
        opened.check();
        for store in &opened.stores {
            assert_eq!(store.engine_of(b""), engine);
        }
    }
}

#[test]
fn an_interrupted_change_is_continued_by_the_next_start() {
    let (left, names) = left_by("bitcask");
    let settings = several("bitcask", "leveldb");
    for number in 1.. {
        let disk = left.crash_image(CrashOptions::everything());
        let faulty = FaultyDisk::over_memory(&disk);
        let data = data(&disk);
        faulty.fail_operation_number(number);
        let first = settle(&faulty, &data, &settings);
        if faulty.faults() == 0 {
            first.unwrap();
            assert!(number > 30, "{number}");
            break;
        }
        let options = match number.is_multiple_of(2) {
            true => CrashOptions::everything(),
            false => CrashOptions::nothing_unsynced(),
        };
        let disk = disk.crash_image(options);
        settled(&disk, &settings).unwrap();
        let opened = Opened::open(&disk, &settings, &names, number + 5);
        assert_eq!(opened.names(), names, "{number}");
        opened.check();
    }
}

#[test]
fn another_configuration_is_refused_in_the_middle_of_the_change() {
    let (disk, _) = left_by("bitcask");
    let settings = several("bitcask", "leveldb");
    let faulty = FaultyDisk::over_memory(&disk);
    let no_rename = kvorum_disk::Fault::Error(kvorum_disk::ErrorKind::Device);
    let of_second = kvorum_disk::Rule::new(no_rename).on(kvorum_disk::Operation::Rename);
    faulty.add_rule(of_second.path_contains("bitcask/").nth(2));
    let error = settle(&faulty, &data(&disk), &settings).unwrap_err();
    let reason = format!("{error:#}");
    assert!(
        reason.contains("move each directory of a partition by hand"),
        "{reason}"
    );
    for other in [single("bitcask"), several("leveldb", "innostore")] {
        let reason = refusal(&disk, &other);
        assert!(reason.contains("was interrupted half way"), "{reason}");
    }
    settled(&disk, &settings).unwrap();
    settled(&disk, &settings).unwrap();
}

#[test]
fn stores_that_cannot_become_parts_are_refused_with_the_steps() {
    let (disk, names) = left_by("bitcask");
    let other_default = loaded(&[
        "storage_backend = multi",
        "multi_backend.default = ldb",
        "multi_backend.bc.storage_backend = bitcask",
        "multi_backend.ldb.storage_backend = leveldb",
    ]);
    let reason = refusal(&disk, &other_default);
    assert!(reason.contains("multi_backend.default = bc"), "{reason}");
    // Without a backend of its engine they are left alone, as with any other engine.
    settled(&disk, &several("leveldb", "innostore")).unwrap();
    assert!(disk.info(Path::new("/data/multi")).unwrap().is_none());
    let settings = several("bitcask", "leveldb");
    let earlier = Opened::open(&disk, &settings, &names, 9);
    earlier.close();
    let reason = refusal(&disk, &settings);
    assert!(
        reason.contains("an earlier time with several backends"),
        "{reason}"
    );
}

#[test]
fn the_note_reads_back_and_a_damaged_one_is_refused() {
    let (disk, _) = left_by("bitcask");
    let note = TakingOver {
        engine: "bitcask",
        backend: "old".to_owned(),
        engine_root: "/data/bitcask".into(),
    };
    note.write_note(&disk, &data(&disk)).unwrap();
    assert_eq!(TakingOver::noted(&disk, &data(&disk)).unwrap(), Some(note));
    let path = Path::new("/data/taking_over");
    let mut bytes = read_file(&disk, path, NOTE_BYTES_MAX).unwrap();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    replace_file(&disk, path, &bytes).unwrap();
    let reason = refusal(&disk, &several("bitcask", "leveldb"));
    assert!(reason.contains("taking_over is damaged"), "{reason}");
}

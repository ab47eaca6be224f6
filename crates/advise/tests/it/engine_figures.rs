//! The figures of the tables are those of the engines.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_advise::{CapacityQuestion, EngineTable, capacity};
use kvorum_backend::{Backend, Batch, Durability, Fields, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, Compression};
use kvorum_backend_hanoidb::{Hanoidb, HanoidbSettings};
use kvorum_backend_innostore::{Innostore, InnostoreSettings};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_backend_leveled::LeveledSettings;
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_object::{Clock, Content, Metadata, Object, Timestamp};
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};

const KEYS: u32 = 20_000;
const KEY_BYTES: u64 = 67;
const VALUE_BYTES: usize = 400;

fn key(number: u32) -> StorageKey {
    let bucket = Bucket::from("sessions");
    let key = format!("{number:0width$}", width = 67);
    StorageKey::new(
        &BucketType::default_type(),
        &bucket,
        &Key::from(key.into_bytes()),
    )
}

fn object() -> Object {
    let metadata = Metadata {
        last_modified: Timestamp::from_micros(1_700_000_000_000_000),
        content_type: Bytes::from_static(b"application/json"),
        ..Metadata::default()
    };
    let value = Bytes::from(vec![7; VALUE_BYTES]);
    let content = Content { metadata, value };
    let mut clock = Clock::new();
    let dot = kvorum_object::Dot {
        actor: kvorum_object::ActorId(u64::MAX / 3),
        counter: 1 << 40,
    };
    clock.observe(dot, Timestamp::from_micros(1_700_000_000_000_000));
    Object::as_is(clock, content, Timestamp::ZERO)
}

fn total_len(disk: &MemoryDisk, directory: &Path) -> u64 {
    let entries = disk.list(directory).unwrap();
    let lens = entries.iter().map(|entry| {
        let path = directory.join(&entry.name);
        match entry.kind {
            kvorum_disk::EntryKind::Directory => total_len(disk, &path),
            kvorum_disk::EntryKind::File => disk.info(&path).unwrap().unwrap().len,
        }
    });
    lens.sum()
}

#[test]
fn the_head_of_an_object_is_as_long_as_declared() {
    let declared = EngineTable::built_in().unwrap().object.head.value;
    let head = object().encode().head.len() as f64;
    assert!(
        head <= declared * 1.15 && head >= declared * 0.8,
        "{head} for {declared}"
    );
}

#[test]
fn a_stored_key_is_framed_as_declared() {
    let declared = EngineTable::built_in().unwrap().object.key_framing.value;
    let framing = key(1).as_bytes().len() - 67 - "sessions".len();
    assert!((declared - framing as f64).abs() < 0.5, "{framing}");
}

#[test]
fn the_memory_engines_overhead_is_as_declared() {
    let table = EngineTable::built_in().unwrap();
    let declared = table
        .engine("memory")
        .unwrap()
        .costs
        .as_ref()
        .unwrap()
        .memory_per_key
        .value;
    let counted = kvorum_backend_memory::ENTRY_OVERHEAD_BYTES as f64;
    assert!((declared - counted).abs() < 0.5);
}

/// Puts all objects.
fn fill(store: &dyn Backend) {
    let encoded = object().encode();
    for number in 0..KEYS {
        let fields = Fields::default();
        let (head, body) = (encoded.head.clone(), encoded.body.clone());
        let batch = Batch::of(Write::put(key(number), fields, head, body));
        let _receipt = store.put(&batch, Durability::Buffered).unwrap();
    }
}

/// The predicted capacity for the objects that [`fill`] puts.
fn predicted(backend: &str) -> kvorum_advise::CapacityAnswer {
    let question = CapacityQuestion {
        backend: backend.to_owned(),
        keys: u64::from(KEYS),
        key_bytes: KEY_BYTES,
        bucket_bytes: "sessions".len() as u64,
        value_bytes: VALUE_BYTES as u64,
        n_val: 1,
        nodes: 1,
    };
    capacity(&EngineTable::built_in().unwrap(), question).unwrap()
}

#[test]
fn leveldb_takes_the_disk_that_capacity_says() {
    for threshold in [usize::MAX, 1] {
        let disk = MemoryDisk::new();
        let settings = LeveldbSettings {
            compression: kvorum_backend_leveldb::Compression::None,
            blob_threshold_bytes: threshold,
            ..LeveldbSettings::default()
        };
        let draw = Arc::new(|| 0x9e37_79b9_7f4a_7c15);
        let seam: Arc<dyn Disk> = Arc::new(disk.clone());
        let shared = Shared::new(1 << 20, 1 << 30);
        let store = Leveldb::open(seam, Path::new("store"), &settings, shared, draw, None).unwrap();
        fill(&store);
        store.close().unwrap();
        let declared = predicted("leveldb").disk_live_bytes_per_node as f64;
        let found = total_len(&disk, Path::new("store")) as f64;
        assert!(
            found < declared * 1.05 && found > declared * 0.75,
            "{found} bytes on disk where {declared} are declared"
        );
    }
}

/// Bodies in tables and apart.
#[test]
fn hanoidb_takes_the_disk_that_capacity_says() {
    for threshold in [usize::MAX, 1] {
        let disk = MemoryDisk::new();
        let settings = HanoidbSettings {
            blob_threshold_bytes: threshold,
            ..HanoidbSettings::default()
        };
        let draw = Arc::new(|| 0x9e37_79b9_7f4a_7c15);
        let seam: Arc<dyn Disk> = Arc::new(disk.clone());
        let shared = Shared::new(1 << 20, 1 << 30);
        let store = Hanoidb::open(seam, Path::new("store"), &settings, shared, draw, None).unwrap();
        fill(&store);
        store.close().unwrap();
        let declared = predicted("hanoidb").disk_live_bytes_per_node as f64;
        let found = total_len(&disk, Path::new("store")) as f64;
        assert!(
            found < declared * 1.05 && found > declared * 0.75,
            "{found} bytes on disk where {declared} are declared"
        );
    }
}

/// Bodies of this size are in leaves.
#[test]
fn innostore_takes_the_disk_that_capacity_says() {
    let memory = MemoryDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let log_settings = ValueLogSettings {
        segment_bytes: 1 << 20,
        garbage_percent_max: 30,
    };
    let (log, _) = ValueLog::open(disk.clone(), Path::new("log"), 1, log_settings).unwrap();
    let settings = InnostoreSettings::default();
    let draw = Arc::new(|| 0x9e37_79b9_7f4a_7c15);
    let shared = kvorum_backend_innostore::Shared::new(1 << 20);
    let store = Innostore::open(disk, Path::new("store"), &settings, shared, draw, log);
    let store = store.unwrap();
    fill(&store);
    store.close().unwrap();
    let declared = predicted("innostore").disk_live_bytes_per_node as f64;
    let found = total_len(&memory, Path::new("store")) as f64;
    assert!(
        found < declared * 1.05 && found > declared * 0.75,
        "{found} bytes on disk where {declared} are declared"
    );
}

/// The journal consists of the writes to the value log.
#[test]
fn leveled_takes_the_disk_that_capacity_says() {
    let memory = MemoryDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    let settings = ValueLogSettings {
        segment_bytes: 1 << 20,
        garbage_percent_max: 30,
    };
    let (log, _) = ValueLog::open(disk.clone(), Path::new("log"), 1, settings).unwrap();
    let settings = LeveledSettings {
        compression: kvorum_backend_leveled::Compression::None,
        ledger_compression: kvorum_backend_leveled::Compression::None,
        ..LeveledSettings::default()
    };
    let (shared, draw) = (
        Shared::new(1 << 20, 1 << 30),
        Arc::new(|| 0x9e37_79b9_7f4a_7c15),
    );
    let directory = Path::new("store");
    let journal = log.clone();
    let store = kvorum_backend_leveled::open(disk, directory, &settings, shared, draw, journal);
    let store = store.unwrap();
    log.admit(&[store.tenant()]).unwrap();
    let before = log.status().bytes;
    fill(&store);
    store.close().unwrap();
    let declared = predicted("leveled").disk_live_bytes_per_node as f64;
    let journal = (log.status().bytes - before) as f64;
    let ledger = total_len(&memory, directory) as f64;
    let found = journal + ledger;
    assert!(
        found < declared * 1.05 && found > declared * 0.75,
        "{journal} and {ledger} bytes on disk where {declared} are declared"
    );
}

/// The declared memory for each key of a node with many keys; a store by itself takes no more with
/// few.
fn keydir_bytes_per_key() -> f64 {
    let table = EngineTable::built_in().unwrap();
    let costs = table.engine("bitcask").unwrap().costs.as_ref();
    costs.unwrap().memory_per_key.value
}

#[test]
fn bitcask_takes_the_disk_and_memory_that_capacity_says() {
    let disk = MemoryDisk::new();
    let settings = BitcaskSettings {
        compression: Compression::None,
        ..BitcaskSettings::default()
    };
    let draw = Arc::new(|| 0x9e37_79b9_7f4a_7c15);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store = Bitcask::open(shared, Path::new("store"), settings, draw, None).unwrap();
    fill(&store);
    let memory = store.status().memory_bytes;
    store.close().unwrap();
    let answer = predicted("bitcask");
    let declared = answer.disk_live_bytes_per_node as f64;
    let found = total_len(&disk, Path::new("store")) as f64;
    assert!(
        found < declared * 1.05,
        "{found} bytes on disk where {declared} are declared"
    );
    assert!(
        found > declared * 0.75,
        "{found} bytes on disk where {declared} are declared"
    );
    let per_key = memory as f64 / f64::from(KEYS);
    assert!(
        per_key < 1.05 * keydir_bytes_per_key(),
        "{per_key} bytes of memory a key"
    );
}

/// Runs as a server does by default, so the memory for entries in the log counts.
#[test]
fn bitcask_over_the_value_log_takes_the_memory_that_capacity_says() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let settings = ValueLogSettings {
        segment_bytes: 1 << 20,
        garbage_percent_max: 30,
    };
    let (log, _) = ValueLog::open(disk.clone(), Path::new("log"), 1, settings).unwrap();
    let (shared, draw) = (log.clone(), Arc::new(|| 0x9e37_79b9_7f4a_7c15));
    let settings = BitcaskSettings::default();
    let store = Bitcask::open(disk, Path::new("store"), settings, draw, Some(shared));
    let store = Arc::new(store.unwrap());
    let tenant: Arc<dyn Tenant> = store.clone();
    log.admit(&[tenant]).unwrap();
    fill(&*store);
    store.sync().unwrap();
    let per_key = store.status().memory_bytes as f64 / f64::from(KEYS);
    assert!(
        per_key < 1.05 * keydir_bytes_per_key(),
        "{per_key} bytes of memory a key"
    );
}

//! The engines that `kvorum bench` can open in its own process, at their defaults.
//!
//! The bench crate names no engine, and gets this table.

use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use kvorum_backend::{Backend, StepBudget};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_backend_hanoidb::{Hanoidb, HanoidbSettings};
use kvorum_backend_innostore::{Innostore, InnostoreSettings};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_backend_leveled::LeveledSettings;
use kvorum_backend_memory::MemoryBackend;
use kvorum_bench::Engine;
use kvorum_disk::{Disk, RealDisk, create_directory_durably};
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};

use crate::data_directory::VALUE_LOG_NAME;

/// Every built-in engine, with basho_bench's names of its driver and keys.
pub(crate) const EMBEDDED: [Engine; 6] = [
    Engine {
        name: "bitcask",
        other_driver: None,
        directory_key: Some("bitcask_dir"),
        instances_key: None,
        open: open_bitcask,
    },
    Engine {
        name: "leveldb",
        other_driver: Some("eleveldb"),
        directory_key: Some("eleveldb_dir"),
        instances_key: Some("eleveldb_num_instances"),
        open: open_leveldb,
    },
    Engine {
        name: "leveled",
        other_driver: None,
        directory_key: None,
        instances_key: None,
        open: open_leveled,
    },
    Engine {
        name: "hanoidb",
        other_driver: None,
        directory_key: Some("hanoidb_dir"),
        instances_key: None,
        open: open_hanoidb,
    },
    Engine {
        name: "innostore",
        other_driver: None,
        directory_key: None,
        instances_key: None,
        open: open_innostore,
    },
    Engine {
        name: "memory",
        other_driver: Some("ets"),
        directory_key: None,
        instances_key: None,
        open: open_memory,
    },
];

fn open_bitcask(directory: &Path) -> Result<Arc<dyn Backend>, String> {
    let settings = BitcaskSettings::default();
    let disk = Arc::new(RealDisk);
    let store = Bitcask::open(disk, directory, settings, Arc::new(draw), None);
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(error.to_string()),
    }
}

/// Parts that all stores of this process share, as in a node.
static TREES_SHARED: LazyLock<Shared> = LazyLock::new(|| Shared::new(1 << 30, 1 << 30));

fn open_leveldb(directory: &Path) -> Result<Arc<dyn Backend>, String> {
    let settings = LeveldbSettings::default();
    let shared = TREES_SHARED.clone();
    let draw = Arc::new(draw);
    let store = Leveldb::open(Arc::new(RealDisk), directory, &settings, shared, draw, None);
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(error.to_string()),
    }
}

fn open_hanoidb(directory: &Path) -> Result<Arc<dyn Backend>, String> {
    let settings = HanoidbSettings::default();
    let (shared, draw) = (TREES_SHARED.clone(), Arc::new(draw));
    let store = Hanoidb::open(Arc::new(RealDisk), directory, &settings, shared, draw, None);
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(error.to_string()),
    }
}

fn text_of(error: &dyn std::fmt::Display) -> String {
    error.to_string()
}

/// Each store has a value log of its own, in a directory beside its files: it is the store's journal, or its
/// redo log.
fn open_log(disk: &Arc<dyn Disk>, directory: &Path) -> Result<ValueLog, String> {
    let log_directory = directory.join(VALUE_LOG_NAME);
    create_directory_durably(&**disk, &log_directory).map_err(|it| text_of(&it))?;
    let opened = ValueLog::open(disk.clone(), &log_directory, draw(), OWN_LOG);
    opened.map(|(log, _found)| log).map_err(|it| text_of(&it))
}

/// Gives a store its logged writes. Threads commit puts to its log and collect its garbage, as in a
/// node.
fn run_log(log: &ValueLog, tenant: Arc<dyn Tenant>) -> Result<(), String> {
    log.admit(&[tenant]).map_err(|it| text_of(&it))?;
    let (driven, collected) = (log.clone(), log.clone());
    spawn("bench-log", move || driven.drive())?;
    spawn("bench-collect", move || collect(&collected))
}

fn open_leveled(directory: &Path) -> Result<Arc<dyn Backend>, String> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let log = open_log(&disk, directory)?;
    let settings = LeveledSettings::default();
    let (shared, draw) = (TREES_SHARED.clone(), Arc::new(draw));
    let store = kvorum_backend_leveled::open(disk, directory, &settings, shared, draw, log.clone());
    let store = Arc::new(store.map_err(|it| text_of(&it))?);
    run_log(&log, store.tenant())?;
    Ok(store)
}

/// Pages of all stores of this process.
static PAGES_SHARED: LazyLock<kvorum_backend_innostore::Shared> =
    LazyLock::new(|| kvorum_backend_innostore::Shared::new(1 << 30));

fn open_innostore(directory: &Path) -> Result<Arc<dyn Backend>, String> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let log = open_log(&disk, directory)?;
    let settings = InnostoreSettings::default();
    let (shared, draw) = (PAGES_SHARED.clone(), Arc::new(draw));
    let store = Innostore::open(disk, directory, &settings, shared, draw, log.clone());
    let store = Arc::new(store.map_err(|it| text_of(&it))?);
    run_log(&log, store.tenant())?;
    Ok(store)
}

/// The default settings of a node.
const OWN_LOG: ValueLogSettings = ValueLogSettings {
    segment_bytes: 64 << 20,
    garbage_percent_max: 30,
};
/// Time between two looks at the log's backlog.
const PAUSE: Duration = Duration::from_millis(50);

/// Does the log's backlog, until the process ends or the log fails.
fn collect(log: &ValueLog) {
    while log.failure().is_none() {
        while log.is_chore_due() && log.chore_step().is_ok_and(|it| it) {}
        let budget = StepBudget { bytes: 8 << 20 };
        let has_more = log.collection_due().is_some() && log.collection_step(budget).is_ok();
        if !has_more {
            std::thread::sleep(PAUSE);
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let spawned = thread.spawn(body).map(drop);
    spawned.map_err(|error| error.to_string())
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "an engine without files opens always, but the table's others may not"
)]
fn open_memory(_directory: &Path) -> Result<Arc<dyn Backend>, String> {
    let settings = kvorum_backend_memory::Settings::default();
    Ok(Arc::new(MemoryBackend::new(settings, draw)))
}

/// A number for the identity of a store, which only has to differ from others.
fn draw() -> u64 {
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kvorum_backend::{
        Batch, Durability, Fields, Lookup, ReadAt, Reading, StoreId, Timestamp, Write,
    };
    use kvorum_encoding::StorageKey;

    use super::*;

    #[test]
    fn every_engine_opens_and_takes_what_is_put() {
        let root = tempfile::tempdir().unwrap();
        let mut identities = Vec::new();
        for engine in &EMBEDDED {
            let directory = root.path().join(engine.name);
            std::fs::create_dir(&directory).unwrap();
            let store = (engine.open)(&directory).unwrap();
            assert_eq!(store.status().engine, engine.name);
            let key = StorageKey::from_encoded(b"key".to_vec());
            let (head, body) = (Bytes::from_static(b"head"), Bytes::from_static(b"body"));
            let write = Write::put(key.clone(), Fields::default(), head, body.clone());
            let receipt = store.put(&Batch::of(write), Durability::Grouped);
            receipt.unwrap().wait().unwrap();
            let at = ReadAt {
                reading: Reading::MayBlock,
                now: Timestamp(1),
            };
            let found = store.get(&key, at).unwrap();
            assert!(matches!(found, Lookup::Found(it) if it.body == body));
            identities.push(store.identity());
        }
        assert!(!identities.contains(&StoreId(0)), "{identities:?}");
    }
}

//! The engines that `kvorum bench` can open in its own process, at their defaults.
//!
//! The bench crate knows no engine; here is the table that it is handed.

use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use kvorum_backend::Backend;
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_backend_memory::MemoryBackend;
use kvorum_bench::Engine;
use kvorum_disk::RealDisk;

/// Every engine that is built in, with the names that basho_bench has for its driver and keys.
pub(crate) const EMBEDDED: [Engine; 3] = [
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

/// What all stores of this process share, as those of a node do.
static LEVELDB_SHARED: LazyLock<Shared> = LazyLock::new(|| Shared::new(1 << 30, 1 << 30));

fn open_leveldb(directory: &Path) -> Result<Arc<dyn Backend>, String> {
    let settings = LeveldbSettings::default();
    let shared = LEVELDB_SHARED.clone();
    let draw = Arc::new(draw);
    let store = Leveldb::open(Arc::new(RealDisk), directory, &settings, shared, draw, None);
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(error.to_string()),
    }
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

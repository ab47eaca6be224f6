//! The engines by name, and how each looks into a directory.

use std::path::Path;

use kvorum_backend::{BackendError, Belonging, FoundStore};
use kvorum_disk::Disk;
use kvorum_settings::StorageBackend;

/// The engines that are built in, as `storage_backend` names them.
pub(crate) const BUILT_IN: [&str; 3] = ["bitcask", "leveldb", "memory"];

/// The engine that keeps nothing over a stop.
pub(crate) const MEMORY: &str = "memory";

/// An engine's name, as in `storage_backend`.
pub(crate) fn name_of(engine: StorageBackend) -> &'static str {
    match engine {
        StorageBackend::Bitcask => "bitcask",
        StorageBackend::Leveldb => "leveldb",
        StorageBackend::Memory => MEMORY,
    }
}

/// How an engine's stores are looked at.
pub(crate) type Find = fn(&dyn Disk, &Path, &Belonging) -> Result<FoundStore, BackendError>;

/// How the stores of an engine are looked at, if it keeps files.
pub(crate) fn find_of(engine: StorageBackend) -> Option<Find> {
    match engine {
        StorageBackend::Bitcask => Some(kvorum_backend_bitcask::check::find_store),
        StorageBackend::Leveldb => Some(kvorum_backend_leveldb::find_store),
        StorageBackend::Memory => None,
    }
}

//! The engines by name, and how each looks into a directory.

use std::path::Path;

use kvorum_backend::{BackendError, Belonging, FoundStore};
use kvorum_backend_leveldb::repair::RepairOptions;
use kvorum_disk::Disk;
use kvorum_settings::StorageBackend;

/// The engines that are built in, as `storage_backend` names them.
pub(crate) const BUILT_IN: [&str; 5] = ["bitcask", "leveldb", "leveled", "hanoidb", "memory"];

/// Those that keep files.
pub(crate) const WITH_FILES: [StorageBackend; 4] = [
    StorageBackend::Bitcask,
    StorageBackend::Leveldb,
    StorageBackend::Leveled,
    StorageBackend::Hanoidb,
];

/// The engine that keeps nothing over a stop.
pub(crate) const MEMORY: &str = "memory";

/// An engine's name, as in `storage_backend`.
pub(crate) fn name_of(engine: StorageBackend) -> &'static str {
    match engine {
        StorageBackend::Bitcask => "bitcask",
        StorageBackend::Leveldb => "leveldb",
        StorageBackend::Leveled => "leveled",
        StorageBackend::Hanoidb => "hanoidb",
        StorageBackend::Memory => MEMORY,
    }
}

/// How an engine's stores are looked at.
pub(crate) type Find = fn(&dyn Disk, &Path, &Belonging) -> Result<FoundStore, BackendError>;

/// How the stores of an engine are looked at, if it keeps files.
pub(crate) fn find_of(engine: StorageBackend) -> Option<Find> {
    match engine {
        StorageBackend::Bitcask => Some(kvorum_backend_bitcask::check::find_store),
        StorageBackend::Leveldb | StorageBackend::Leveled | StorageBackend::Hanoidb => {
            Some(kvorum_backend_leveldb::find_store)
        }
        StorageBackend::Memory => None,
    }
}

/// Options of a repair: whether it writes nothing, and whether it keeps what is in doubt.
pub(crate) type RepairOptionsOf = fn(bool, bool) -> RepairOptions;

/// How stores of an engine over merge trees are repaired.
pub(crate) fn repair_options_of(engine: StorageBackend) -> RepairOptionsOf {
    match engine {
        StorageBackend::Leveled => kvorum_backend_leveled::repair::options,
        StorageBackend::Hanoidb => kvorum_backend_hanoidb::repair::options,
        _ => kvorum_backend_leveldb::repair::options,
    }
}

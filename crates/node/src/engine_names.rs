//! The engines by name, each with the inspection of its directories.

use std::path::Path;

use kvorum_backend::{BackendError, Belonging, FoundStore};
use kvorum_backend_leveldb::repair::RepairOptions;
use kvorum_backend_multi::KnownChild;
use kvorum_disk::Disk;
use kvorum_settings::StorageBackend;

/// The engines that are built in, as `storage_backend` names them.
pub(crate) const BUILT_IN: [&str; 7] = [
    "bitcask",
    "leveldb",
    "leveled",
    "hanoidb",
    "innostore",
    "memory",
    "multi",
];

/// The engines that keep files.
pub(crate) const WITH_FILES: [StorageBackend; 6] = [
    StorageBackend::Bitcask,
    StorageBackend::Leveldb,
    StorageBackend::Leveled,
    StorageBackend::Hanoidb,
    StorageBackend::Innostore,
    StorageBackend::Multi,
];

/// The engine whose data does not survive a stop.
pub(crate) const MEMORY: &str = "memory";

/// Several engines, each for some buckets.
pub(crate) const MULTI: &str = "multi";

/// An engine's name, as in `storage_backend`.
pub(crate) fn name_of(engine: StorageBackend) -> &'static str {
    engine.name()
}

/// The engine with this name.
pub(crate) fn engine_of(name: &str) -> Option<StorageBackend> {
    let engines = [StorageBackend::Memory].into_iter().chain(WITH_FILES);
    engines.into_iter().find(|it| name_of(*it) == name)
}

/// A function that inspects an engine's store.
pub(crate) type Find = fn(&dyn Disk, &Path, &Belonging) -> Result<FoundStore, BackendError>;

/// The function that inspects the stores of an engine, if it keeps files.
pub(crate) fn find_of(engine: StorageBackend) -> Option<Find> {
    match engine {
        StorageBackend::Bitcask => Some(kvorum_backend_bitcask::check::find_store),
        StorageBackend::Leveldb | StorageBackend::Leveled | StorageBackend::Hanoidb => {
            Some(kvorum_backend_leveldb::find_store)
        }
        StorageBackend::Innostore => Some(kvorum_backend_innostore::find_store),
        StorageBackend::Memory => None,
        StorageBackend::Multi => Some(find_several),
    }
}

fn find_several(
    disk: &dyn Disk,
    directory: &Path,
    belonging: &Belonging,
) -> Result<FoundStore, BackendError> {
    kvorum_backend_multi::find_store(disk, directory, belonging, &|child, place| {
        find_child(disk, child, place)
    })
}

/// One of the stores of a partition with several, in its directory.
pub(crate) fn find_child(
    disk: &dyn Disk,
    child: &KnownChild,
    place: &Path,
) -> Result<FoundStore, BackendError> {
    let belonging = Belonging {
        label: String::new(),
        identity: Some(child.identity),
    };
    match engine_of(&child.engine).and_then(find_of) {
        Some(find) => find(disk, place, &belonging),
        None => Ok(FoundStore::Unusable(format!(
            "{} is of the engine {}, which this version does not have",
            place.display(),
            child.engine
        ))),
    }
}

/// Options of a repair: true to write nothing, and true to keep doubtful entries.
pub(crate) type RepairOptionsOf = fn(bool, bool) -> RepairOptions;

/// The options for repairing stores of an engine over merge trees.
pub(crate) fn repair_options_of(engine: StorageBackend) -> RepairOptionsOf {
    match engine {
        StorageBackend::Leveled => kvorum_backend_leveled::repair::options,
        StorageBackend::Hanoidb => kvorum_backend_hanoidb::repair::options,
        _ => kvorum_backend_leveldb::repair::options,
    }
}

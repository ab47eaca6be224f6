//! The files of earlier runs in the data directory, found by looking.
//!
//! The file `engine` names the engine of the stores. If it is lost or damaged, the stores
//! themselves show their engine, and a start that would ignore them is refused. Stores also show
//! that a node was here, so that no new node is created over them.

use std::path::{Path, PathBuf};

use anyhow::bail;
use kvorum_backend_bitcask::check::is_store as is_bitcask;
use kvorum_backend_leveldb::repair::has_store_files;
use kvorum_backend_multi::is_store as is_multi;
use kvorum_disk::Disk;
use kvorum_member::ACCEPT_LOST_STORES;
use kvorum_settings::{Settings, StorageBackend};

use crate::data_directory::{DataDirectory, EngineLeft};
use crate::engine_names::{WITH_FILES, name_of};
use crate::store_roots::{StoreRoots, store_in};
use crate::value_log_check::ACCEPT_LOST_VALUE_LOG;

/// Name of a damaged file `engine` that is kept for inspection.
const DAMAGED: &str = "engine.damaged";

/// A store of any engine, if there is one.
pub(crate) fn any_store(
    disk: &dyn Disk,
    data: &DataDirectory,
    settings: &Settings,
) -> anyhow::Result<Option<PathBuf>> {
    for engine in WITH_FILES {
        if let Some(store) = store_of(disk, data, settings, engine)? {
            return Ok(Some(store));
        }
    }
    Ok(None)
}

/// Finds the engine of the stores if the file `engine` does not name it: the other engine, if only that has
/// any.
///
/// # Errors
/// The file is damaged, and only another engine has stores: objects may wait there for other nodes.
pub(crate) fn settle_unknown(
    disk: &dyn Disk,
    data: &DataDirectory,
    settings: &Settings,
    is_damaged: bool,
) -> anyhow::Result<Option<String>> {
    let configured = settings.node.storage_backend;
    let (file, mut other) = (data.engine_file(), None);
    let mut has_own = false;
    for engine in WITH_FILES {
        let Some(store) = store_of(disk, data, settings, engine)? else {
            continue;
        };
        match engine == configured {
            true => has_own = true,
            false => other = Some((name_of(engine), store)),
        }
    }
    if let Some((engine, store)) = other.filter(|_| !has_own) {
        if !is_damaged {
            return Ok(Some(engine.to_owned()));
        }
        bail!(
            "the file {} is damaged, which names the engine of the data directory's stores; {} is a store of \
             {engine}, and objects may wait there for other nodes: start with {engine} as storage_backend, \
             which writes the file anew (if that cannot be done, remove the file, and with it those objects)",
            file.display(),
            store.display()
        );
    }
    if is_damaged || has_own {
        tracing::warn!(
            event = "engine_file_written_anew",
            file = %file.display(),
            why = if is_damaged { "damaged" } else { "missing" },
            "the engine is known by the stores; the number of waiting hints is not",
        );
    }
    if is_damaged {
        put_aside(disk, data)?;
    }
    data.note_engine(disk, name_of(configured), None, &[])?;
    Ok(None)
}

/// Keeps a damaged file `engine` for inspection.
fn put_aside(disk: &dyn Disk, data: &DataDirectory) -> anyhow::Result<()> {
    disk.rename(&data.engine_file(), &data.path().join(DAMAGED))?;
    disk.sync_directory(data.path())?;
    Ok(())
}

/// Refuses to start without the value log or the stores that were there, and warns of missing
/// hints.
pub(crate) fn check_parts(
    disk: &dyn Disk,
    data: &DataDirectory,
    left: &EngineLeft,
    settings: &Settings,
) -> anyhow::Result<()> {
    let configured = name_of(settings.node.storage_backend);
    let roots = StoreRoots::of(settings).filter(|_| left.engine == configured);
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or(path.to_owned());
    let is_root = |path: &Path| {
        let mut all = roots.iter().flat_map(StoreRoots::all);
        all.any(|root| absolute(root) == absolute(path))
    };
    for part in &left.parts {
        let path = data.path().join(part);
        if disk.info(&path)?.is_some() {
            continue;
        }
        // With another engine, none of the checked stores needs it.
        if path == data.value_log() && left.engine == configured {
            let accepting = data.path().join(ACCEPT_LOST_VALUE_LOG);
            if disk.info(&accepting)?.is_some() {
                continue;
            }
            bail!(
                "{} is missing, the value log, in which acknowledged writes are that no other file has; \
                 put it back, or restore the data directory from a backup. If it is lost for good, make an \
                 empty file {} and start again: entries that only it had are lost then, unless other \
                 replicas have them",
                path.display(),
                accepting.display()
            );
        }
        if is_root(&path) {
            let accepting = data.path().join(ACCEPT_LOST_STORES);
            if disk.info(&accepting)?.is_some() {
                continue;
            }
            bail!(
                "{} is missing, in which the stores of this node's partitions are: put that directory back \
                 (is its disk mounted?). If it is lost for good, make an empty file {} and start again: in a \
                 cluster the partitions are repaired from the other replicas then; on a node alone they are \
                 refused until `kvorum admin cluster accept-loss` names them",
                path.display(),
                accepting.display()
            );
        }
        if path == data.hints(&left.engine) && left.hints != Some(0) {
            let waiting = left.hints.map_or("unknown".to_owned(), |it| it.to_string());
            tracing::error!(
                event = "hints_store_missing",
                directory = %path.display(),
                hints = %waiting,
                "objects that were kept here for other nodes are lost; those nodes have to get them from \
                 other replicas",
            );
        }
    }
    Ok(())
}

/// A store of an engine: of a partition, or of hints.
fn store_of(
    disk: &dyn Disk,
    data: &DataDirectory,
    settings: &Settings,
    engine: StorageBackend,
) -> anyhow::Result<Option<PathBuf>> {
    let mut settings = settings.clone();
    settings.node.storage_backend = engine;
    let roots = StoreRoots::of(&settings);
    let is_store = |directory: &Path| match engine {
        StorageBackend::Leveldb | StorageBackend::Leveled | StorageBackend::Hanoidb => {
            has_store_files(disk, directory)
        }
        StorageBackend::Innostore => {
            kvorum_backend_innostore::check::has_store_files(disk, directory)
        }
        StorageBackend::Multi => is_multi(disk, directory),
        _ => is_bitcask(disk, directory),
    };
    for root in roots.iter().flat_map(StoreRoots::all) {
        if let Some(store) = store_in(disk, root, is_store)? {
            return Ok(Some(store));
        }
    }
    let hints = data.hints(name_of(engine));
    let has_hints = disk.info(&hints)?.is_some() && is_store(&hints)?;
    Ok(has_hints.then_some(hints))
}

//! The places of partitions' stores, and a check that none are left behind elsewhere.
//!
//! With `leveldb.tiered` they are behind the two paths of that key, and not at `leveldb.data_root`.
//! A node that looks in the wrong place finds nothing and begins with empty stores, without an
//! error. So the place is noted, and a start that would miss stores is refused.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kvorum_backend_leveldb::Tiers;
use kvorum_backend_leveldb::repair::has_store_files;
use kvorum_cluster::checked_text::{decode, encode};
use kvorum_disk::{Disk, EntryKind, ErrorKind, read_file, replace_file};
use kvorum_settings::{Settings, StorageBackend};

use crate::engine_names::{MULTI, WITH_FILES, name_of};

/// The suffix, behind an engine's name, of the file with the place of the engine's stores, if that
/// is not the default.
const NOTE_SUFFIX: &str = "_stores";
const NOTE_TITLE: &str = "kvorum place of stores";
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// The places of an engine's partitions' stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreRoots {
    /// The engine, as `storage_backend` names it.
    engine: &'static str,
    /// The stores' own directories.
    pub(crate) own: PathBuf,
    /// The directories with their old tables, and the first level of these.
    slow: Option<(PathBuf, usize)>,
}

impl StoreRoots {
    /// The places by the settings; `None` for an engine without files.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let engine = settings.node.storage_backend;
        let several = settings.node.data_dir.join(MULTI);
        let own = match engine {
            StorageBackend::Memory => return None,
            StorageBackend::Bitcask => &settings.bitcask.data_root,
            StorageBackend::Leveldb => &settings.leveldb.data_root,
            StorageBackend::Leveled => &settings.leveled.data_root,
            StorageBackend::Hanoidb => &settings.hanoidb.data_root,
            StorageBackend::Innostore => &settings.innostore.data_home_dir,
            StorageBackend::Multi => &several,
        };
        let is_tiered = engine == StorageBackend::Leveldb;
        let tiers = settings.leveldb.tiers().filter(|_| is_tiered);
        let from_level = |level| usize::try_from(level).unwrap_or(usize::MAX);
        Some(match tiers {
            None => Self {
                engine: name_of(engine),
                own: own.clone(),
                slow: None,
            },
            Some(tiers) => Self {
                engine: name_of(engine),
                own: absolute(tiers.fast_root),
                slow: Some((absolute(tiers.slow_root), from_level(tiers.from_level))),
            },
        })
    }

    /// All directories.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Path> {
        let slow = self.slow.iter().map(|(slow, _)| &**slow);
        std::iter::once(&*self.own).chain(slow)
    }

    /// The tiers of the store of this name.
    pub(crate) fn tiers(&self, name: &str) -> Option<Tiers> {
        self.slow.as_ref().map(|(slow, from_level)| Tiers {
            slow_directory: slow.join(name),
            from_level: *from_level,
        })
    }
}

/// An absolute path: the directories name each other, and tools run in any directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Refuses to start if stores of leveldb are outside of the configured place, and notes a place
/// other than the default, since tools for data directories have no settings.
pub(crate) fn settle(disk: &dyn Disk, data: &Path, settings: &Settings) -> anyhow::Result<()> {
    let Some(roots) = StoreRoots::of(settings) else {
        return Ok(());
    };
    let engine = roots.engine;
    let noted = noted_root(disk, data, engine)?;
    let own = absolute(roots.own.clone());
    if settings.node.storage_backend == StorageBackend::Leveldb {
        let root = &settings.leveldb.data_root;
        for place in noted.iter().chain([root]) {
            check_none_left(disk, place, &own)?;
        }
    }
    let note = note_of(data, engine);
    let action = || format!("write {}", note.display());
    let is_elsewhere = own != absolute(data.join(engine));
    match (is_elsewhere || roots.slow.is_some(), &noted) {
        (true, noted) if noted.as_ref() != Some(&own) => {
            let bytes = encode(NOTE_TITLE, 1, &format!("{}\n", own.display()));
            match replace_file(disk, &note, &bytes) {
                // A node starts on a full disk. Only tools need the note.
                Err(error) if error.kind() == ErrorKind::NoSpace && roots.slow.is_none() => {}
                written => written.with_context(action)?,
            }
        }
        (false, Some(_)) => {
            disk.remove_file(&note).with_context(action)?;
            disk.sync_directory(data).with_context(action)?;
        }
        _ => {}
    }
    Ok(())
}

/// Notes of a data directory that are damaged.
pub(crate) fn check_notes(disk: &dyn Disk, data: &Path) -> Vec<(PathBuf, String)> {
    let notes = WITH_FILES.map(|engine| {
        let engine = name_of(engine);
        let error = noted_root(disk, data, engine).err()?;
        Some((note_of(data, engine), format!("{error:#}")))
    });
    notes.into_iter().flatten().collect()
}

fn note_of(data: &Path, engine: &str) -> PathBuf {
    data.join(format!("{engine}{NOTE_SUFFIX}"))
}

/// The place of an engine's stores at the last start, if not the default one. Earlier versions wrote it
/// without a checksum.
pub(crate) fn noted_root(
    disk: &dyn Disk,
    data: &Path,
    engine: &str,
) -> anyhow::Result<Option<PathBuf>> {
    let note = note_of(data, engine);
    if disk.info(&note)?.is_none() {
        return Ok(None);
    }
    let bytes = read_file(disk, &note, NOTE_BYTES_MAX)?;
    let checked = decode(NOTE_TITLE, &bytes).map(|(_, body)| body);
    let plain = || {
        String::from_utf8(bytes)
            .ok()
            .filter(|it| it.starts_with('/'))
    };
    let place = checked.or_else(plain).with_context(|| {
        format!(
            "the file {} is damaged, which says where the stores of {engine} are; see that they are where \
             the configuration says ({engine}.data_root), then remove the file and start again",
            note.display()
        )
    })?;
    Ok(Some(PathBuf::from(place.trim_end_matches('\n'))))
}

fn check_none_left(disk: &dyn Disk, place: &Path, own: &Path) -> anyhow::Result<()> {
    let place = absolute(place.to_owned());
    if place != own && store_in(disk, &place, |it| has_store_files(disk, it))?.is_some() {
        let (place, own) = (place.display(), own.display());
        bail!(
            "stores of leveldb are in {place}, and by leveldb.data_root and leveldb.tiered they are to \
             be in {own}: move the directories there (where both are on the same device, `mv` does \
             it), or set these keys as they were; if what is in {place} is to be left out, move it \
             away"
        );
    }
    Ok(())
}

/// The store of some partition in a root, which may be missing.
pub(crate) fn store_in<E>(
    disk: &dyn Disk,
    root: &Path,
    is_store: impl Fn(&Path) -> Result<bool, E>,
) -> anyhow::Result<Option<PathBuf>>
where
    anyhow::Error: From<E>,
{
    for path in partitions_in(disk, root)? {
        if is_store(&path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The directories of partitions in a root, which may be missing.
pub(crate) fn partitions_in(disk: &dyn Disk, root: &Path) -> kvorum_disk::Result<Vec<PathBuf>> {
    if disk.info(root)?.is_none() {
        return Ok(Vec::new());
    }
    let mut entries = disk.list(root)?;
    entries.retain(|it| {
        let is_partition = it.name.bytes().all(|it| it.is_ascii_digit());
        it.kind == EntryKind::Directory && is_partition
    });
    Ok(entries.iter().map(|it| root.join(&it.name)).collect())
}

#[cfg(test)]
#[path = "store_roots_test.rs"]
mod tests;

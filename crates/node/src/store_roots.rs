//! Where the stores of partitions are, and that none are left behind elsewhere.
//!
//! With `leveldb.tiered` they lie behind the two paths of that key and no longer at `leveldb.data_root`.
//! A node that looks in the wrong place finds nothing and begins with empty stores, and nothing says so:
//! so the place is noted, and a start that would pass stores by is refused.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kvorum_backend_leveldb::Tiers;
use kvorum_backend_leveldb::repair::has_store_files;
use kvorum_cluster::checked_text::{decode, encode};
use kvorum_disk::{Disk, EntryKind, read_file, replace_file};
use kvorum_settings::{Settings, StorageBackend};

/// In the data directory: where the stores of leveldb are, if not at its data root.
const NOTE_NAME: &str = "leveldb_stores";
const NOTE_TITLE: &str = "kvorum place of the stores of leveldb";
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// Where an engine has the stores of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreRoots {
    /// The stores' own directories.
    pub(crate) own: PathBuf,
    /// Those with their old tables, and from which level on.
    slow: Option<(PathBuf, usize)>,
}

impl StoreRoots {
    /// By the settings; `None` for an engine that has no files.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let leveldb = &settings.leveldb;
        match settings.node.storage_backend {
            StorageBackend::Memory => None,
            StorageBackend::Bitcask => Some(Self {
                own: settings.bitcask.data_root.clone(),
                slow: None,
            }),
            StorageBackend::Leveldb => Some(match leveldb.tiers() {
                None => Self {
                    own: leveldb.data_root.clone(),
                    slow: None,
                },
                Some(tiers) => Self {
                    own: absolute(tiers.fast_root),
                    slow: Some((
                        absolute(tiers.slow_root),
                        usize::try_from(tiers.from_level).unwrap_or(usize::MAX),
                    )),
                },
            }),
        }
    }

    /// All of them.
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

/// The directories name each other, and tools are called from anywhere.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Refuses to start where stores of leveldb are at another place than the settings say, and notes the
/// place.
pub(crate) fn settle(disk: &dyn Disk, data: &Path, settings: &Settings) -> anyhow::Result<()> {
    if settings.node.storage_backend != StorageBackend::Leveldb {
        return Ok(());
    }
    let Some(roots) = StoreRoots::of(settings) else {
        return Ok(());
    };
    let note = data.join(NOTE_NAME);
    let noted = noted(disk, &note)?;
    let root = &settings.leveldb.data_root;
    let own = absolute(roots.own.clone());
    for place in noted.iter().chain([root]) {
        let place = absolute(place.clone());
        if place != own && has_stores(disk, &place)? {
            let (place, own) = (place.display(), own.display());
            bail!(
                "stores of leveldb are in {place}, and by leveldb.data_root and leveldb.tiered they are to \
                 be in {own}: move the directories there (where both are on the same device, `mv` does \
                 it), or set these keys as they were; if what is in {place} is to be left out, move it \
                 away"
            );
        }
    }
    let told = || format!("write {}", note.display());
    match (&roots.slow, &noted) {
        (Some(_), noted) if noted.as_ref() != Some(&own) => {
            let bytes = encode(NOTE_TITLE, 1, &format!("{}\n", own.display()));
            replace_file(disk, &note, &bytes).with_context(told)?;
        }
        (None, Some(_)) => {
            disk.remove_file(&note).with_context(told)?;
            disk.sync_directory(data).with_context(told)?;
        }
        _ => {}
    }
    Ok(())
}

/// What is wrong with the note of a data directory, if there is one.
pub(crate) fn check_note(disk: &dyn Disk, data: &Path) -> Option<(PathBuf, String)> {
    let note = data.join(NOTE_NAME);
    let error = noted(disk, &note).err()?;
    Some((note, format!("{error:#}")))
}

/// The place that was noted. Earlier versions wrote it without a checksum.
fn noted(disk: &dyn Disk, note: &Path) -> anyhow::Result<Option<PathBuf>> {
    if disk.info(note)?.is_none() {
        return Ok(None);
    }
    let bytes = read_file(disk, note, NOTE_BYTES_MAX)?;
    let checked = decode(NOTE_TITLE, &bytes).map(|(_, body)| body);
    let plain = || {
        String::from_utf8(bytes)
            .ok()
            .filter(|it| it.starts_with('/'))
    };
    let place = checked.or_else(plain).with_context(|| {
        format!(
            "the file {} is damaged, which says where the stores of leveldb are; see that they are where \
             leveldb.data_root and leveldb.tiered say, then remove the file and start again",
            note.display()
        )
    })?;
    Ok(Some(PathBuf::from(place.trim_end_matches('\n'))))
}

fn has_stores(disk: &dyn Disk, root: &Path) -> anyhow::Result<bool> {
    if disk.info(root)?.is_none() {
        return Ok(false);
    }
    for entry in disk.list(root)? {
        let is_partition = entry.name.bytes().all(|it| it.is_ascii_digit());
        if entry.kind == EntryKind::Directory
            && is_partition
            && has_store_files(disk, &root.join(&entry.name))?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
#[path = "store_roots_test.rs"]
mod tests;

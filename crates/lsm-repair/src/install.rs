//! The end of a repair: new files replace old ones, which move to `lost/`.
//!
//! First files get their second name in `lost/`, then the manifest is written, and then the old
//! names are removed. So the store is always in either the old or the new state, and nothing is
//! lost.

use std::path::Path;

use kvorum_backend::{BackendError, ErrorKind, LOST_NAME, Result};
use kvorum_disk::{Disk, remove_if_there};
use kvorum_lsm::files::sync_directory;
use kvorum_lsm::lost::LostLog;
use kvorum_lsm::manifest::{self, Manifest};
use kvorum_storage_errors::IntoBackend;

use crate::decision::Decision;
use crate::journal::{self, Journal};

/// Writes the list of losses, and gives replaced files their names in `lost/`.
pub(crate) fn set_aside(
    disk: &dyn Disk,
    directory: &Path,
    decision: &Decision,
    replaced: &[String],
) -> Result<()> {
    let lost = directory.join(LOST_NAME);
    kvorum_disk::create_directory_durably(disk, &lost).into_backend()?;
    let log = LostLog::open(disk, directory);
    for range in &decision.lost {
        let mut range = range.clone();
        if let Some(info) = disk.info(&directory.join(&range.file)).into_backend()? {
            range.len = range.len.min(info.len.saturating_sub(range.offset));
        }
        log.note(range);
    }
    log.write(disk);
    for name in replaced {
        let from = directory.join(name);
        let Some(info) = disk.info(&from).into_backend()? else {
            continue;
        };
        for attempt in 0..u32::MAX {
            let to = match attempt {
                0 => lost.join(name),
                _ => lost.join(format!("{name}.{attempt}")),
            };
            match disk.info(&to).into_backend()? {
                None => {
                    disk.link(&from, &to).into_backend()?;
                    break;
                }
                // An earlier run's link to the same file.
                Some(there) if there.len == info.len => break,
                Some(_) => {}
            }
        }
    }
    sync_directory(disk, &lost)?;
    sync_directory(disk, directory)
}

/// Writes the manifest, if the directory does not have it yet.
pub(crate) fn write_manifest(
    disk: &dyn Disk,
    directory: &Path,
    journal: &Journal,
    manifest: &Manifest,
) -> Result<()> {
    journal.installing(manifest.generation)?;
    manifest::write(disk, directory, manifest).both()
}

/// Removes the old names, and then the journal.
pub(crate) fn clean_up(disk: &dyn Disk, directory: &Path, replaced: &[String]) -> Result<()> {
    let lost = directory.join(LOST_NAME);
    for name in replaced {
        let path = directory.join(name);
        if disk.info(&path).into_backend()?.is_none() {
            continue;
        }
        if disk.info(&lost.join(name)).into_backend()?.is_none() {
            let detail = format!("{} is not in {LOST_NAME}", path.display());
            return Err(BackendError::new(ErrorKind::Failed, detail));
        }
        disk.remove_file(&path).into_backend()?;
    }
    sync_directory(disk, directory)?;
    remove_journal(disk, directory)
}

pub(crate) fn remove_journal(disk: &dyn Disk, directory: &Path) -> Result<()> {
    if remove_if_there(disk, &journal::path(directory)).into_backend()? {
        sync_directory(disk, directory)?;
    }
    Ok(())
}

//! Recovery after a crash, and changes to the files of the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, Result, Sequence};
use kvorum_disk::{Disk, DiskFile, OpenMode};

use super::files::{Manifest, Table, disk_error, log_path, manifest_path, number_of, read_log};
use super::store::State;
use super::{Layers, Memtable};

/// Opens the manifest's tables and replays the logs.
pub(crate) fn recover(disk: &dyn Disk, directory: &Path, manifest: Manifest) -> Result<State> {
    let mut names = BTreeMap::new();
    for entry in disk.list(directory).map_err(disk_error)? {
        if let Some(number) = number_of(&entry.name) {
            names.insert((number, entry.name.clone()), directory.join(&entry.name));
        }
    }
    let next_number = names.keys().map(|(number, _)| number + 1).max();
    let next_number = next_number.unwrap_or(0).max(manifest.first_log);
    let mut tables = Vec::new();
    for number in &manifest.tables {
        tables.push(Arc::new(Table::open(disk, directory, *number)?));
    }
    let mut memtable = Memtable::new();
    let mut last_sequence = Sequence(manifest.sequence);
    let mut log_lens = BTreeMap::new();
    let mut logs = Vec::new();
    let mut last_logged = Sequence(0);
    for ((number, name), path) in &names {
        if !name.ends_with(".log") || *number < manifest.first_log {
            continue;
        }
        let bytes = kvorum_disk::read_file(disk, path, 1 << 30).map_err(disk_error)?;
        let info = disk.info(path).map_err(disk_error)?;
        if info.is_none_or(|info| info.len != bytes.len() as u64) {
            // A short read that counted as a torn end would lose the batches behind it.
            let detail = format!("log {number} was read short");
            return Err(BackendError::new(ErrorKind::Failed, detail));
        }
        let (batches, end) = read_log(&bytes)?;
        log_lens.insert(*number, end);
        for (sequence, changes) in batches {
            if sequence <= last_logged {
                // One log's bytes under another's name.
                let detail = format!("log {number} has {sequence:?} after {last_logged:?}");
                return Err(BackendError::new(ErrorKind::Corrupt, detail));
            }
            last_logged = sequence;
            memtable.extend(changes);
            last_sequence = last_sequence.max(sequence);
        }
        logs.push((path, bytes, end));
    }
    let log_bytes: u64 = log_lens.values().sum();
    if log_bytes < manifest.closed_log_bytes {
        let expected = manifest.closed_log_bytes;
        let detail = format!("logs of {log_bytes} bytes where {expected} were written");
        return Err(BackendError::new(ErrorKind::Corrupt, detail));
    }
    // Only now, since a damaged log must not be cut. The batches may be only in the page cache,
    // and after a failed sync even marked as written, so that another sync would not write them. So
    // they are written again. A store that was closed is whole on disk.
    let is_closed = manifest.closed_log_bytes > 0 && log_bytes == manifest.closed_log_bytes;
    for (path, bytes, end) in logs.iter().filter(|_| !is_closed) {
        let file = disk.open(path, OpenMode::ReadWrite).map_err(disk_error)?;
        let kept = usize::try_from(*end).unwrap_or(bytes.len());
        file.write_at(&bytes[..kept], 0).map_err(disk_error)?;
        file.truncate(*end).map_err(disk_error)?;
        file.sync().map_err(disk_error)?;
    }
    for ((number, name), path) in &names {
        let is_table = name.ends_with(".table") && manifest.tables.contains(number);
        let is_log = name.ends_with(".log") && *number >= manifest.first_log;
        if !is_table && !is_log {
            remove_if_there(disk, path)?;
        }
    }
    Ok(State {
        layers: Layers {
            memtable: Arc::new(memtable),
            frozen: None,
            tables,
        },
        manifest,
        log: None,
        log_lens,
        next_number,
        memtable_bytes: log_bytes,
        last_sequence,
        synced_to: last_sequence,
        job: None,
        failure: None,
        is_closed: false,
    })
}

/// Creates a directory and its parents, and makes their names durable.
pub(crate) fn create_durably(disk: &dyn Disk, directory: &Path) -> Result<()> {
    disk.create_directory(directory).map_err(disk_error)?;
    for above in directory.ancestors().skip(1) {
        disk.sync_directory(above).map_err(disk_error)?;
    }
    Ok(())
}

pub(crate) fn create_log(
    disk: &dyn Disk,
    directory: &Path,
    number: u64,
) -> Result<Arc<dyn DiskFile>> {
    let path = log_path(directory, number);
    let log = disk.open(&path, OpenMode::Create).map_err(disk_error)?;
    log.truncate(0).map_err(disk_error)?;
    disk.sync_directory(directory).map_err(disk_error)?;
    Ok(log)
}

pub(crate) fn write_manifest(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<()> {
    let path = manifest_path(directory);
    kvorum_disk::replace_file(disk, &path, &manifest.encode()).map_err(disk_error)
}

pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove_file(path) {
        Err(error) if error.kind() == kvorum_disk::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(disk_error),
    }
}

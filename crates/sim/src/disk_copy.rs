//! Copies a part of one machine's disk to another disk, durably.

use std::path::Path;

use kvorum_disk::{Disk, EntryKind, MemoryDisk, create_directory_durably, read_file, replace_file};

/// Larger than any file of a simulated node.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Copies a directory with all wanted entries below it. A missing directory is not an error.
pub(crate) fn copy_directory(
    from: &MemoryDisk,
    to: &MemoryDisk,
    path: &Path,
    is_wanted: &impl Fn(&Path) -> bool,
) -> kvorum_disk::Result<()> {
    if from.info(path)?.is_none() {
        return Ok(());
    }
    create_directory_durably(to, path)?;
    for entry in from.list(path)? {
        let path = path.join(&entry.name);
        if !is_wanted(&path) {
            continue;
        }
        match entry.kind {
            EntryKind::Directory => copy_directory(from, to, &path, is_wanted)?,
            EntryKind::File => replace_file(to, &path, &read_file(from, &path, FILE_BYTES_MAX)?)?,
        }
    }
    Ok(())
}

//! A small file in two copies, written one after the other: damage to one of them costs nothing, and a crash
//! between them leaves one that is whole. Whoever reads takes the newer.

use std::path::Path;

use kvorum_disk::{Disk, DiskError, Operation, replace_file};

use crate::{BackendError, ErrorKind, Result};

/// How far a write of two copies came.
#[derive(Debug)]
pub enum Written {
    /// Both are durable.
    Both,
    /// The change is durable, and the second copy is as it was or not there.
    First(BackendError),
    /// Both are as they were.
    None(BackendError),
    /// Nobody knows.
    Unknown(BackendError),
}

impl Written {
    /// An error unless both are durable.
    pub fn both(self) -> Result<()> {
        match self {
            Self::Both => Ok(()),
            Self::First(error) | Self::None(error) | Self::Unknown(error) => Err(error),
        }
    }
}

/// Writes both.
pub fn write_two_copies(
    disk: &dyn Disk,
    directory: &Path,
    names: [&str; 2],
    bytes: &[u8],
) -> Written {
    let put = |name: &str| replace_file(disk, &directory.join(name), bytes);
    // Space runs out before the old file is replaced, or when its directory is synced after that.
    let is_unchanged = |it: &DiskError| {
        it.kind() == kvorum_disk::ErrorKind::NoSpace && it.operation() != Operation::SyncDirectory
    };
    match put(names[0]) {
        Err(error) if is_unchanged(&error) => return Written::None((&error).into()),
        Err(error) => return Written::Unknown((&error).into()),
        Ok(()) => {}
    }
    match put(names[1]) {
        Ok(()) => Written::Both,
        Err(error) => Written::First((&error).into()),
    }
}

/// Writes both when a store is opened. A node has to come up on a full disk: there what is in the files
/// stays as it is, is made durable as it is read, and is written again with the next change.
pub fn settle_two_copies(
    disk: &dyn Disk,
    directory: &Path,
    names: [&str; 2],
    bytes: &[u8],
) -> Result<()> {
    match write_two_copies(disk, directory, names, bytes) {
        Written::First(error) | Written::None(error) if error.kind() == ErrorKind::Full => {
            // Their bytes were synced before they got their names.
            let synced = disk.sync_directory(directory);
            synced.map_err(|error| BackendError::from(&error))
        }
        written => written.both(),
    }
}

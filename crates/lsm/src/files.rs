//! Names of the files of a store, of any kind, and the sync that makes names durable.

use std::path::{Path, PathBuf};

use kvorum_backend::Result;
use kvorum_disk::Disk;

use kvorum_storage_errors::IntoBackend;

/// The lock of a store.
pub const LOCK_NAME: &str = "lock";

/// The number and the kind in the name of a file of the store.
pub fn number_of(name: &str) -> Option<(u64, &str)> {
    let (digits, suffix) = name.split_once('.')?;
    let is_ours = digits.len() == 10 && matches!(suffix, "sst" | "blob" | "journal" | "segment");
    let number = digits.parse().ok()?;
    is_ours.then_some((number, suffix))
}

/// The path of a table.
pub fn table_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.sst"))
}

/// Makes the names in a directory durable.
pub fn sync_directory(disk: &dyn Disk, directory: &Path) -> Result<()> {
    disk.sync_directory(directory).into_backend()
}

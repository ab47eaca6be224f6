//! The files in which the trees of a node's vnodes outlast the node: one for each partition.
//!
//! A file that is damaged or does not fit its store is removed. The trees are then built anew; nothing else
//! depends on them. Only a removal that does not reach the disk matters: after a rollback, the store could
//! fit the file again with other contents. Such a failure keeps the vnode closed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_backend::{Sequence, StoreId};
use kvorum_disk::{
    Disk, DiskError, ErrorKind, OpenMode, Reading, create_directory_durably, read_file,
    remove_if_there, replace_file,
};
use kvorum_ring::Partition;
use kvorum_tictac::Tree;

use crate::kept_trees::{KeptStamp, STAMP_BYTES, decode, decode_stamp};
use crate::tree_name::TreeName;

/// The name of the files' directory, in the data directory of the node.
pub const KEPT_TREES_NAME: &str = "hash_trees";
/// A bound on the memory that a file can make us allocate, in bytes: thirty trees of the largest size.
pub(crate) const FILE_BYTES_MAX: u64 = 512 << 20;

/// See the module's description. All calls block.
pub struct TreeFiles {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// A removal may not have reached the disk.
    is_unsynced: AtomicBool,
}

/// Trees that were read from a file.
pub(crate) type KeptTrees = (KeptStamp, BTreeMap<TreeName, Tree>);

impl TreeFiles {
    /// The files of the node that has its data in this directory.
    pub fn new(disk: Arc<dyn Disk>, data: &Path) -> Self {
        Self {
            disk,
            directory: data.join(KEPT_TREES_NAME),
            // A run before may have ended between a removal and its sync.
            is_unsynced: AtomicBool::new(true),
        }
    }

    /// Removes the file of a partition unless it belongs to the past of this store, opened with batches up
    /// to `sequence`. Must be called before the store is written to, with trees or without.
    ///
    /// # Errors
    /// Those of the disk. The store must not be written to then.
    pub fn sift(
        &self,
        partition: Partition,
        store: StoreId,
        sequence: Sequence,
    ) -> Result<(), DiskError> {
        self.sync_removals()?;
        let reason = match self.read_stamp(partition) {
            None => return Ok(()),
            Some(Err(reason)) => reason,
            Some(Ok(stamp)) => match stamp.foreign_to(store, sequence) {
                None => return Ok(()),
                Some(refusal) => refusal.reason().to_owned(),
            },
        };
        self.give_up(partition, &reason)
    }

    /// Durably removes the file of a partition.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove(&self, partition: Partition) -> Result<(), DiskError> {
        self.is_unsynced.store(true, Ordering::Release);
        remove_if_there(&*self.disk, &self.path(partition))?;
        self.sync_removals()
    }

    /// Removes the file of a partition, and logs why.
    pub(crate) fn give_up(&self, partition: Partition, reason: &str) -> Result<(), DiskError> {
        self.remove(partition)?;
        tracing::info!(
            event = "kept_trees_given_up",
            partition = partition.number(),
            reason,
            "the trees of the partition are built anew",
        );
        Ok(())
    }

    /// The trees of a partition, or the reason why its file is useless; `None` when there is no file.
    pub(crate) fn read(&self, partition: Partition) -> Option<Result<KeptTrees, String>> {
        self.read_with(partition, |path| {
            let bytes = read_file(&*self.disk, path, FILE_BYTES_MAX);
            let bytes = bytes.map_err(|error| error.to_string())?;
            decode(&bytes).map_err(|error| error.to_string())
        })
    }

    /// Replaces the file of a partition.
    pub(crate) fn write(&self, partition: Partition, bytes: &[u8]) -> Result<(), DiskError> {
        create_directory_durably(&*self.disk, &self.directory)?;
        replace_file(&*self.disk, &self.path(partition), bytes)
    }

    fn read_stamp(&self, partition: Partition) -> Option<Result<KeptStamp, String>> {
        self.read_with(partition, |path| {
            let mut bytes = [0; STAMP_BYTES];
            let file = self.disk.open(path, OpenMode::Read);
            let read = file.and_then(|it| it.read_at(&mut bytes, 0, Reading::MayBlock));
            let read = read.map_err(|error| error.to_string())?;
            let stamp = decode_stamp(&bytes[..read]);
            stamp.map(|it| it.0).map_err(|error| error.to_string())
        })
    }

    /// Reads the file of a partition, if there is one. An unreadable file counts as useless.
    fn read_with<T>(
        &self,
        partition: Partition,
        read: impl FnOnce(&Path) -> Result<T, String>,
    ) -> Option<Result<T, String>> {
        let path = self.path(partition);
        match self.disk.info(&path) {
            Ok(None) => None,
            Ok(Some(_)) => Some(read(&path)),
            Err(error) => Some(Err(error.to_string())),
        }
    }

    fn sync_removals(&self) -> Result<(), DiskError> {
        if !self.is_unsynced.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.disk.sync_directory(&self.directory) {
            // Without a directory nothing can come back.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.is_unsynced.store(false, Ordering::Release);
        Ok(())
    }

    fn path(&self, partition: Partition) -> PathBuf {
        self.directory.join(partition.number().to_string())
    }
}

/// Durably removes the tree files of a node whose stores were replaced.
///
/// # Errors
/// Those of the disk.
pub fn remove_kept_trees(disk: &dyn Disk, data: &Path) -> Result<(), DiskError> {
    let directory = data.join(KEPT_TREES_NAME);
    if disk.info(&directory)?.is_none() {
        return Ok(());
    }
    disk.remove_directory(&directory)?;
    disk.sync_directory(data)
}

#[cfg(test)]
#[path = "tree_files_test.rs"]
mod tests;

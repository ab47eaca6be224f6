//! The files of a node's notes about rounds: one for each vnode that has any.
//!
//! A file is replaced as a whole. Its form stands in `kvorum-reaping`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::{Disk, DiskError, create_directory_durably, read_file, replace_file};
use kvorum_reaping::{BatchName, Extent, VnodeNotes, decode_notes, encode_notes};
use kvorum_ring::Partition;

/// The name of the files' directory, in the data directory of the node.
pub const NOTES_NAME: &str = "round_notes";

/// A bound on the memory that a file can make us allocate; a note takes less than 200 bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;

/// See the module's description. All calls block.
pub struct NoteFiles {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
}

impl NoteFiles {
    /// The files of the node that has its data in this directory.
    pub fn new(disk: Arc<dyn Disk>, data: &Path) -> Self {
        Self {
            disk,
            directory: data.join(NOTES_NAME),
        }
    }

    /// The notes of a partition, for a store whose last durable batch is `last`. A file that is missing or
    /// damaged is none, and damage is logged. Neither is one that was written at a batch that the store
    /// lacks: the store was put back to an older copy.
    ///
    /// # Errors
    /// Those of the disk: the file may be there.
    pub fn read(
        &self,
        partition: Partition,
        last: BatchName,
    ) -> Result<Option<VnodeNotes>, DiskError> {
        let path = self.path(partition);
        if self.disk.info(&path)?.is_none() {
            return Ok(None);
        }
        let bytes = read_file(&*self.disk, &path, FILE_BYTES_MAX)?;
        match decode_notes(&bytes) {
            Ok(notes) => {
                let present = Extent::up_to([last]);
                Ok(Some(notes).filter(|it| present.has(it.written_at)))
            }
            Err(error) => {
                tracing::warn!(
                    event = "notes_of_rounds_unreadable",
                    file = %path.display(),
                    error = %error,
                );
                Ok(None)
            }
        }
    }

    /// Replaces the notes of a partition, durably.
    ///
    /// # Errors
    /// Those of the disk: the notes before or these are there.
    pub fn write(&self, partition: Partition, notes: &VnodeNotes) -> Result<(), DiskError> {
        create_directory_durably(&*self.disk, &self.directory)?;
        replace_file(&*self.disk, &self.path(partition), &encode_notes(notes))
    }

    fn path(&self, partition: Partition) -> PathBuf {
        self.directory.join(partition.number().to_string())
    }
}

/// Removes all notes of a node, for good, since its stores were replaced.
///
/// # Errors
/// Those of the disk.
pub fn remove_notes(disk: &dyn Disk, data: &Path) -> Result<(), DiskError> {
    let directory = data.join(NOTES_NAME);
    if disk.info(&directory)?.is_none() {
        return Ok(());
    }
    disk.remove_directory(&directory)?;
    disk.sync_directory(data)
}

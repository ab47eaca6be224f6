//! A copy of a store while it serves: hard links to files that never change, and a manifest.

use std::path::Path;

use kvorum_backend::{BackendError, ErrorKind, Result};

use crate::blob::blob_path;
use crate::error::IntoBackend;
use crate::install::list_files;
use crate::manifest::{self, Written};
use crate::store::{Store, sync_directory, table_path};

impl Store {
    /// Makes a copy in a directory that does not exist. It has everything that was put before the
    /// call, and opens like a store that was closed.
    pub(crate) fn backup(&self, directory: &Path) -> Result<()> {
        let sequence = self.flush_all()?;
        // No file goes while upkeep waits.
        let _upkeep = self.upkeep.lock();
        if self.disk.info(directory).into_backend()?.is_some() {
            let detail = format!("{} exists", directory.display());
            return Err(BackendError::new(ErrorKind::Misuse, detail));
        }
        kvorum_disk::create_directory_durably(&*self.disk, directory).into_backend()?;
        let version = self.version.load_full();
        for table in version.tables() {
            let [from, to] = [&*self.directory, directory].map(|it| table_path(it, table.number));
            self.disk.link(&from, &to).into_backend()?;
        }
        for blob in version.blobs.values() {
            let [from, to] = [&*self.directory, directory].map(|it| blob_path(it, blob.number));
            self.disk.link(&from, &to).into_backend()?;
        }
        let mut copied = self.manifest.lock().clone();
        list_files(&mut copied, &version);
        copied.sequence = copied.sequence.max(sequence);
        sync_directory(&*self.disk, directory)?;
        match manifest::write(&*self.disk, directory, &copied) {
            Written::Both => Ok(()),
            Written::First(error) | Written::None(error) | Written::Unknown(error) => Err(error),
        }
    }
}

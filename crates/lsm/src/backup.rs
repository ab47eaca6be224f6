//! A copy of a store while it serves: hard links to files that never change, and a manifest.
//!
//! A store over two directories has a copy in one: files on another filesystem are copied.
//! Rejected: a copy over two directories, since half of it may be forgotten when it is stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{BackedUp, BackendError, ErrorKind, Result, StoreBackup};
use kvorum_disk::{ErrorKind as DiskErrorKind, copy_file};
use kvorum_storage_errors::IntoBackend;

use crate::Lsm;
use crate::blob::blob_path;
use crate::files::{sync_directory, table_path};
use crate::install::list_files;
use crate::journal::journal_path;
use crate::manifest;
use crate::store::Store;
use crate::tenant::hold_log;

impl Lsm {
    /// Makes a copy in a directory that does not exist, sharing files by hard links. The copy has
    /// all puts from before the call, and opens like a store that was closed. The caller links the
    /// segments with its bodies in the value log, and the batches put meanwhile.
    pub fn backup(&self, directory: &Path) -> Result<StoreBackup> {
        let store = &*self.store;
        let sequence = self.upkeep.flush_all()?;
        // No file is removed while upkeep waits.
        let _jobs = self.upkeep.jobs.lock();
        // A flush that has failed since may have its table in the manifest and not in the version.
        store.intake.check_not_failed()?;
        if store.disk.info(directory).into_backend()?.is_some() {
            let detail = format!("{} exists", directory.display());
            return Err(BackendError::new(ErrorKind::Misuse, detail));
        }
        let held = hold_log(store);
        kvorum_disk::create_directory_durably(&*store.disk, directory).into_backend()?;
        let version = store.version.load_full();
        let mut files = BackedUp::default();
        let mut link = |[from, to]: [PathBuf; 2]| link_or_copy(store, &mut files, &from, &to);
        let roots = [&*store.directory, directory];
        // A missing file was reported when the store was opened; the copy reports it too.
        for table in version.tables() {
            link(roots.map(|it| table_path(it, table.number)))?;
        }
        for blob in version.blobs.values() {
            link(roots.map(|it| blob_path(it, blob.number)))?;
        }
        for file in version.journal.iter() {
            link(roots.map(|it| journal_path(it, file.number)))?;
        }
        let mut copied = store.manifest.lock().clone();
        list_files(&mut copied, &version);
        copied.sequence = copied.sequence.max(sequence);
        let doubts = &store.read_side.doubts;
        (copied.doubts, _) = doubts.record(|number| version.tables().any(|it| it.number == number));
        sync_directory(&*store.disk, directory)?;
        manifest::write(&*store.disk, directory, &copied).both()?;
        for name in manifest::NAMES {
            let written = store.disk.info(&directory.join(name)).into_backend()?;
            files.count_copy(written.map_or(0, |it| it.len));
        }
        Ok(StoreBackup {
            files,
            held: held.map(|it| it as Arc<_>),
        })
    }
}

fn link_or_copy(store: &Store, files: &mut BackedUp, from: &Path, to: &Path) -> Result<()> {
    match files.link(&*store.disk, from, to) {
        Err(error) if error.kind() == DiskErrorKind::OtherFilesystem && store.slow.is_some() => {
            files.count_copy(copy_file(&*store.disk, from, to).into_backend()?);
        }
        linked => {
            let _is_there = linked.into_backend()?;
        }
    }
    Ok(())
}

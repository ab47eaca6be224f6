//! A copy of a store while it serves: hard links to files that do not change, and a manifest.
//!
//! A rewrite begins a new file, so no file in a manifest is ever appended to.

use std::path::Path;

use kvorum_backend::{BackedUp, BackendError, ErrorKind, Result, StoreBackup};
use kvorum_page_tree::{file_name, manifest};

use crate::tenant::hold_log;
use crate::tree::OpenTree;

impl OpenTree {
    /// Makes a copy in a directory that does not exist, sharing files by hard links. It has all
    /// puts from before the call, and opens like a store that was closed. The caller links batches
    /// put meanwhile, and those that are in memory because a full disk has no room for their pages.
    pub(crate) fn backup(&self, directory: &Path) -> Result<StoreBackup> {
        let store = &*self.store;
        match self.flush_all() {
            Err(error) if error.kind() == ErrorKind::Full => {}
            flushed => _ = flushed?,
        }
        // No file is removed while upkeep waits.
        let _jobs = self.jobs.lock();
        store.intake.check_not_failed()?;
        if store.disk.info(directory)?.is_some() {
            let detail = format!("{} exists", directory.display());
            return Err(BackendError::new(ErrorKind::Misuse, detail));
        }
        let held = hold_log(store);
        kvorum_disk::create_directory_durably(&*store.disk, directory)?;
        let copied = store.manifest.lock().clone();
        let mut files = BackedUp::default();
        for file in &copied.files {
            let name = file_name(file.number);
            // A missing file is reported when it is read, by the copy too.
            let (from, to) = (store.directory.join(&name), directory.join(&name));
            let _is_there = files.link(&*store.disk, &from, &to)?;
        }
        store.disk.sync_directory(directory)?;
        manifest::write(&*store.disk, directory, &copied).both()?;
        for name in manifest::NAMES {
            let written = store.disk.info(&directory.join(name))?;
            files.count_copy(written.map_or(0, |it| it.len));
        }
        Ok(StoreBackup {
            files,
            held: Some(held),
        })
    }
}

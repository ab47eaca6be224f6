//! A copy of a store while it serves: second names for its files, all of which were closed for that.
//!
//! What is copied is what a crash at this moment would leave, less the batches that come later. The
//! segment that puts go to is closed first, so that nothing is appended to a file that has a second
//! name; the next put begins another.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{BackedUp, BackendError, ErrorKind, Result, StoreBackup};
use kvorum_disk::{EntryKind, create_directory_durably};
use kvorum_segment::file_name;
use kvorum_storage_errors::IntoBackend;
use kvorum_value_log::HeldSegments;

use crate::bitcask::Bitcask;
use crate::checkpoint::CHECKPOINT_NAME;
use crate::hint::hint_path;
use crate::lost;
use crate::merge::Merging;
use crate::meta;
use crate::store::Store;

impl Bitcask {
    /// Makes a copy in a directory that does not exist.
    pub(crate) fn copy_to(&self, directory: &Path) -> Result<StoreBackup> {
        let store = &self.store;
        store.home.intake.check_writable()?;
        if store.home.disk.info(directory).into_backend()?.is_some() {
            let detail = format!("{} exists", directory.display());
            return Err(BackendError::new(ErrorKind::Misuse, detail));
        }
        // Nothing is merged, removed or covered while upkeep waits.
        let mut upkeep = self.writable_upkeep()?;
        store.close_segments(&mut upkeep.merging)?;
        let held = store.hold_log();
        create_directory_durably(&*store.home.disk, directory).into_backend()?;
        let mut files = BackedUp::default();
        store.link_files(directory, &mut files)?;
        drop(upkeep);
        store.home.disk.sync_directory(directory).into_backend()?;
        Ok(StoreBackup {
            files,
            held: held.map(|it| it as Arc<_>),
        })
    }
}

impl Store {
    /// Closes the segment that puts go to and the one that merges copy to.
    fn close_segments(&self, merging: &mut Merging) -> Result<()> {
        self.files.end_active()?;
        self.seal_what_is_full(merging)
    }

    fn link_files(&self, directory: &Path, files: &mut BackedUp) -> Result<()> {
        let disk = &*self.home.disk;
        let mut link = |name: &Path| {
            let (from, to) = (self.home.directory.join(name), directory.join(name));
            files.link(disk, &from, &to).into_backend()
        };
        // These are replaced as a whole, and never written to.
        for name in meta::NAMES {
            link(Path::new(name))?;
        }
        link(Path::new(CHECKPOINT_NAME))?;
        let catalog = self.contents.catalog.read();
        let sealed = catalog.segments.iter().filter(|(_, it)| it.is_sealed);
        let numbers: Vec<u32> = sealed.map(|(number, _)| *number).collect();
        drop(catalog);
        for number in numbers {
            // One that is missing was reported when the store was opened, and is by the copy.
            let _is_there = link(Path::new(&file_name(u64::from(number))))?;
            let _is_there = link(&hint_path(Path::new(""), number))?;
        }
        let lost = Path::new(lost::DIRECTORY);
        if disk
            .info(&self.home.directory.join(lost))
            .into_backend()?
            .is_some()
        {
            create_directory_durably(disk, &directory.join(lost)).into_backend()?;
            // Nothing is set aside meanwhile.
            let _lost = self.home.lost();
            for entry in disk.list(&self.home.directory.join(lost)).into_backend()? {
                if entry.kind == EntryKind::File {
                    link(&lost.join(entry.name))?;
                }
            }
            disk.sync_directory(&directory.join(lost)).into_backend()?;
        }
        Ok(())
    }

    /// Keeps in the value log what the store needs of it now.
    fn hold_log(&self) -> Option<Arc<HeldSegments>> {
        let log = self.log.log.as_ref()?;
        // Whoever is asked for the usage has this lock as well, and puts wait: the segment that is
        // appended to now is the oldest that later batches can be in.
        let _puts_wait = self.files.writer.lock();
        let from = log.newest_segment();
        let oldest = self.log.oldest();
        let catalog = self.contents.catalog.read();
        let shared = catalog.shared.iter();
        let needed = shared.filter(|(_, entry)| self.needs(&catalog, entry, oldest));
        let older: BTreeSet<u32> = needed.map(|(number, _)| *number).collect();
        Some(self.log.holds.add(HeldSegments { older, from }))
    }
}

//! Planted defects of the disk: a directory that is not synced, a rename before a sync.
//!
//! They stand below whichever engine is tested, as a disk that forgets to do what it is told, so that
//! the engine's own code is the code that is tested.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use kvorum_disk::{
    DirectoryEntry, Disk, DiskFile, DiskLock, FileInfo, OpenMode, Reading, Result, Space,
};

use kvorum_planted_defects::is_planted;

/// The disk with the defect that is planted, or the disk itself where that is none of a disk's.
pub(crate) fn forgetful_disk(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    if !is_planted!(DirectoryNotSynced | RenameBeforeSync) {
        return disk;
    }
    Arc::new(ForgetfulDisk {
        below: disk,
        syncs_directories: !is_planted!(DirectoryNotSynced),
    })
}

struct ForgetfulDisk {
    below: Arc<dyn Disk>,
    syncs_directories: bool,
}

/// A file that is renamed into place before its content is synced.
struct ForgetfulFile {
    below: Arc<dyn DiskFile>,
}

impl Disk for ForgetfulDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        let below = self.below.open(path, mode)?;
        let is_temporary = path.extension().is_some_and(|it| it == "tmp");
        if is_temporary && self.syncs_directories {
            return Ok(Arc::new(ForgetfulFile { below }));
        }
        Ok(below)
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.below.create_directory(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.below.list(path)
    }

    fn info(&self, path: &Path) -> Result<Option<FileInfo>> {
        self.below.info(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.rename(from, to)
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<()> {
        self.below.link(existing, new)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.below.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.below.remove_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        if self.syncs_directories {
            self.below.sync_directory(path)
        } else {
            Ok(())
        }
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DiskLock>> {
        self.below.lock(path, holder)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.below.space(path)
    }
}

impl DiskFile for ForgetfulFile {
    fn path(&self) -> &Path {
        self.below.path()
    }

    fn len(&self) -> Result<u64> {
        self.below.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64, reading: Reading) -> Result<usize> {
        self.below.read_at(buffer, offset, reading)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.below.write_at(bytes, offset)
    }

    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.below.write_parts_at(parts, offset)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.below.truncate(len)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.below.allocate(len)
    }
}

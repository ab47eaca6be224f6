//! A disk that counts what may wait for a device, to show that cached reads do not.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_disk::{
    DirectoryEntry, Disk, DiskFile, DiskLock, FileInfo, OpenMode, Reading, Result, Space,
};

/// A disk that counts every call but cached reads and questions of length.
#[derive(Clone)]
pub(crate) struct ObservedDisk {
    disk: Arc<dyn Disk>,
    waits: Arc<AtomicU64>,
}

struct ObservedFile {
    file: Arc<dyn DiskFile>,
    waits: Arc<AtomicU64>,
}

impl ObservedDisk {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            waits: Arc::default(),
        }
    }

    /// How many calls might have waited so far.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    fn counted(&self) -> &dyn Disk {
        self.waits.fetch_add(1, Ordering::Relaxed);
        &*self.disk
    }
}

impl ObservedFile {
    fn counted(&self) -> &dyn DiskFile {
        self.waits.fetch_add(1, Ordering::Relaxed);
        &*self.file
    }
}

impl Disk for ObservedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        let file = self.counted().open(path, mode)?;
        let waits = Arc::clone(&self.waits);
        Ok(Arc::new(ObservedFile { file, waits }))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.counted().create_directory(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.counted().list(path)
    }

    fn info(&self, path: &Path) -> Result<Option<FileInfo>> {
        self.counted().info(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.counted().rename(from, to)
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<()> {
        self.counted().link(existing, new)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.counted().remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.counted().remove_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.counted().sync_directory(path)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DiskLock>> {
        self.counted().lock(path, holder)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.counted().space(path)
    }
}

impl DiskFile for ObservedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64, reading: Reading) -> Result<usize> {
        match reading {
            Reading::CachedOnly => self.file.read_at(buffer, offset, reading),
            Reading::MayBlock => self.counted().read_at(buffer, offset, reading),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.counted().write_at(bytes, offset)
    }

    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.counted().write_parts_at(parts, offset)
    }

    fn sync(&self) -> Result<()> {
        self.counted().sync()
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.counted().truncate(len)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.counted().allocate(len)
    }
}

//! The traits of disks and open files, and functions that need only their operations.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{DiskError, ErrorKind};

/// The result of every disk operation.
pub type Result<T> = std::result::Result<T, DiskError>;

/// Modes of opening a file. Every mode but `Read` also allows reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist, and is not written.
    Read,
    /// The file must exist and may be written.
    ReadWrite,
    /// The file must not exist and is created empty.
    CreateNew,
    /// The file is created if it is missing, and opened unchanged otherwise.
    Create,
}

/// The permission of a read to wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Answer from memory or fail with [`ErrorKind::WouldBlock`].
    CachedOnly,
    /// Wait for the device if necessary; for the blocking pool.
    MayBlock,
}

/// Kinds of entries in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, without the directory's path. Names that are not UTF-8 are never Kvorum's, and are
    /// left out.
    pub name: String,
    /// Its kind.
    pub kind: EntryKind,
}

/// Length and kind of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// File or directory.
    pub kind: EntryKind,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
}

/// Space on the filesystem of a path, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the filesystem.
    pub total: u64,
    /// The space that an unprivileged process may still use.
    pub available: u64,
}

/// A lock on a file, held until dropped; released by the system when the process dies.
pub trait DiskLock: Send + Sync {}

/// A filesystem. Paths are passed unchanged; relative paths are relative to the disk's root (for
/// [`crate::RealDisk`]: the process's working directory).
pub trait Disk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>>;

    /// Creates a directory and its missing parents. Existing directories are no error.
    fn create_directory(&self, path: &Path) -> Result<()>;

    /// The entries of a directory, sorted by name.
    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>>;

    /// Kind and length, or `None` if the name does not exist.
    fn info(&self, path: &Path) -> Result<Option<FileInfo>>;

    /// Gives a file another name in one atomic step, and replaces the file with that name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Gives a file a second name, which must be free.
    fn link(&self, existing: &Path, new: &Path) -> Result<()>;

    /// Removes a file's name.
    fn remove_file(&self, path: &Path) -> Result<()>;

    /// Removes a directory and everything below it.
    fn remove_directory(&self, path: &Path) -> Result<()>;

    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> Result<()>;

    /// Takes an exclusive lock on a file, which is created if missing, or fails at once with
    /// [`ErrorKind::Locked`]. `holder` is written to the file for display if the disk has room: on
    /// a full disk, a store has to open to make room.
    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DiskLock>>;

    /// Space on the filesystem of `path`.
    fn space(&self, path: &Path) -> Result<Space>;
}

/// An open file. Handles are shared; all methods may be called from several threads.
pub trait DiskFile: Send + Sync {
    /// The path under which the file was opened.
    fn path(&self) -> &Path;

    /// The length in bytes.
    fn len(&self) -> Result<u64>;

    /// True when the length is zero.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads into `buffer` from `offset` and returns the number of bytes read: less than requested
    /// only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64, reading: Reading) -> Result<usize>;

    /// Writes all of `bytes` at `offset`, extending the file if necessary.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Writes the parts back to back at `offset`, as one write if the system can.
    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> Result<()>;

    /// Makes all earlier writes durable, the length included.
    fn sync(&self) -> Result<()>;

    /// Cuts or extends the file to `len` bytes.
    fn truncate(&self, len: u64) -> Result<()>;

    /// Reserves space for `len` bytes from the start; the file's length becomes at least `len`.
    fn allocate(&self, len: u64) -> Result<()>;
}

/// Writes a small file so that after a crash its name has either all old or all new bytes:
/// temporary name, sync, rename, sync of the directory.
pub fn replace_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_name(path);
    remove_if_there(disk, &temporary)?;
    let file = disk.open(&temporary, OpenMode::CreateNew)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&temporary, path)?;
    disk.sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Removes a file if it exists; true when it did. The directory is not synced.
pub fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let is_there = disk.info(path)?.is_some();
    if is_there {
        disk.remove_file(path)?;
    }
    Ok(is_there)
}

/// Creates a directory and its missing parents, durably.
///
/// Existing parents are synced too: an earlier process may have created them without a sync.
pub fn create_directory_durably(disk: &dyn Disk, directory: &Path) -> Result<()> {
    disk.create_directory(directory)?;
    for parent in directory.ancestors().skip(1) {
        let is_here = parent.as_os_str().is_empty();
        match disk.sync_directory(if is_here { Path::new(".") } else { parent }) {
            // This process has not created a directory that it may not open.
            Err(error) if error.kind() == ErrorKind::Denied => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Reads a whole file of at most `len_max` bytes; a longer file is an error, so that a damaged
/// length never becomes an allocation.
pub fn read_file(disk: &dyn Disk, path: &Path, len_max: u64) -> Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    let too_large = || DiskError::too_large(path, len, len_max);
    if len > len_max {
        return Err(too_large());
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| too_large())?];
    let read = file.read_at(&mut bytes, 0, Reading::MayBlock)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Copies the present bytes of a file to a new file, makes them durable, and returns their number.
/// Bytes appended meanwhile are not copied.
pub fn copy_file(disk: &dyn Disk, from: &Path, to: &Path) -> Result<u64> {
    const COPIED_AT_ONCE: usize = 1 << 18;
    let source = disk.open(from, OpenMode::Read)?;
    let len = source.len()?;
    let copy = disk.open(to, OpenMode::CreateNew)?;
    let mut copied = 0;
    while copied < len {
        let rest = usize::try_from(len - copied).unwrap_or(usize::MAX);
        let mut bytes = vec![0; rest.min(COPIED_AT_ONCE)];
        let read = source.read_at(&mut bytes, copied, Reading::MayBlock)?;
        if read == 0 {
            break;
        }
        copy.write_at(&bytes[..read], copied)?;
        copied += read as u64;
    }
    copy.sync()?;
    Ok(copied)
}

/// The temporary name under which the next content of a file is written.
pub fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

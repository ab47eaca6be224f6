//! The disk of production: plain system calls, checked one by one.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};

use crate::{
    DirectoryEntry, Disk, DiskError, DiskFile, DiskLock, EntryKind, ErrorKind, FileInfo, OpenMode,
    Operation, Reading, Result, Space,
};

/// The most parts that Linux takes in one vectored write (IOV_MAX).
const PARTS_MAX: usize = 1024;

/// The operating system's filesystem.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::ReadWrite => options.write(true),
            OpenMode::CreateNew => options.write(true).create_new(true),
            OpenMode::Create => options.write(true).create(true).truncate(false),
        };
        let file = options
            .open(path)
            .map_err(io_error(Operation::Open, path))?;
        let found = file.metadata().map_err(io_error(Operation::Open, path))?;
        let identity = (found.dev(), found.ino());
        let suspect = suspect_mark(identity);
        let path = path.to_owned();
        Ok(Arc::new(RealFile {
            file,
            path,
            identity,
            suspect,
        }))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).map_err(io_error(Operation::CreateDirectory, path))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let failed = io_error(Operation::List, path);
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let is_directory = entry.file_type().map_err(&failed)?.is_dir();
            let kind = if is_directory {
                EntryKind::Directory
            } else {
                EntryKind::File
            };
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirectoryEntry { name, kind });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn info(&self, path: &Path) -> Result<Option<FileInfo>> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(Some(FileInfo {
                kind: EntryKind::Directory,
                len: 0,
            })),
            Ok(found) => Ok(Some(FileInfo {
                kind: EntryKind::File,
                len: found.len(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DiskError::from_io(Operation::Info, path, &error)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(io_error(Operation::Rename, from))
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<()> {
        fs::hard_link(existing, new).map_err(io_error(Operation::Link, new))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(io_error(Operation::Remove, path))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        fs::remove_dir_all(path).map_err(io_error(Operation::Remove, path))
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        // A failed sync is final for callers, and a failed open is not.
        let directory = File::open(path).map_err(io_error(Operation::Open, path))?;
        directory
            .sync_all()
            .map_err(io_error(Operation::SyncDirectory, path))
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DiskLock>> {
        let failed = io_error(Operation::Lock, path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(&failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut held_by = String::new();
                file.read_to_string(&mut held_by).map_err(&failed)?;
                let kind = ErrorKind::Locked;
                return Err(DiskError::new(Operation::Lock, path, kind, held_by.trim()));
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        file.set_len(0).map_err(&failed)?;
        match file.write_all_at(holder.as_bytes(), 0).map_err(&failed) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            written => written?,
        }
        Ok(Box::new(RealLock { _file: file }))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let found = rustix::fs::statvfs(path).map_err(errno_error(Operation::Space, path))?;
        Ok(Space {
            total: found.f_blocks.saturating_mul(found.f_frsize),
            available: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }
}

struct RealLock {
    _file: File,
}

impl DiskLock for RealLock {}

/// Device and inode number, which no other file has while this one is open.
type Identity = (u64, u64);

/// The marks that the handles of a file share, for open files. The process has one table, as there
/// is one page cache: two `RealDisk`s are the same disk.
static SUSPECTS: Mutex<BTreeMap<Identity, Weak<AtomicBool>>> = Mutex::new(BTreeMap::new());

fn suspect_mark(identity: Identity) -> Arc<AtomicBool> {
    let mut suspects = SUSPECTS.lock();
    if let Some(mark) = suspects.get(&identity).and_then(Weak::upgrade) {
        return mark;
    }
    let mark = Arc::default();
    suspects.insert(identity, Arc::downgrade(&mark));
    mark
}

/// Removes a file's mark, if it is still this one, so that later handles start again.
fn forget_mark(identity: Identity, mark: &Arc<AtomicBool>) {
    let mut suspects = SUSPECTS.lock();
    if suspects
        .get(&identity)
        .is_some_and(|it| it.as_ptr() == Arc::as_ptr(mark))
    {
        suspects.remove(&identity);
    }
}

struct RealFile {
    file: File,
    path: PathBuf,
    identity: Identity,
    /// Set when a sync fails; shared by all handles opened before.
    suspect: Arc<AtomicBool>,
}

impl Drop for RealFile {
    fn drop(&mut self) {
        // Two last handles dropped at the same time may both leave the entry: it wastes a few bytes
        // until the file is opened again, and is never wrong.
        if Arc::strong_count(&self.suspect) == 1 {
            forget_mark(self.identity, &self.suspect);
        }
    }
}

impl RealFile {
    fn check_sound(&self, operation: Operation) -> Result<()> {
        if self.suspect.load(Ordering::Acquire) {
            return Err(DiskError::bare(operation, &self.path, ErrorKind::Suspect));
        }
        Ok(())
    }

    /// One read that never waits; `None` at the end of the file.
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        let parts = &mut [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.file, parts, offset, ReadWriteFlags::NOWAIT) {
            Ok(0) => Ok(None),
            Ok(read) => Ok(Some(read)),
            // For a filesystem without the flag (tmpfs before 5.x, some network ones), the caller
            // has to repeat the read where waiting is allowed, too.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => Err(DiskError::bare(
                Operation::Read,
                &self.path,
                ErrorKind::WouldBlock,
            )),
            Err(Errno::INTR) => Ok(Some(0)),
            Err(errno) => Err(errno_error(Operation::Read, &self.path)(errno).at(offset)),
        }
    }

    fn read_blocking(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        match self.file.read_at(buffer, offset) {
            Ok(0) => Ok(None),
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(0)),
            Err(error) => Err(DiskError::from_io(Operation::Read, &self.path, &error).at(offset)),
        }
    }

    /// Writes as many parts as one system call takes, and returns their length.
    fn write_some_parts(&self, parts: &[IoSlice<'_>], offset: u64) -> Result<u64> {
        let expected: usize = parts.iter().map(|part| part.len()).sum();
        let failed = |error| DiskError::from_io(Operation::Write, &self.path, &error).at(offset);
        let written = match rustix::io::pwritev(&self.file, parts, offset) {
            Ok(written) => written,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(failed(errno.into())),
        };
        // Short writes are rare (signals, a nearly full disk): the rest is written part by part.
        let mut at = 0;
        for part in parts.iter().filter(|_| written < expected) {
            let skip = written.saturating_sub(at).min(part.len());
            let rest_at = offset + (at + skip) as u64;
            self.file
                .write_all_at(&part[skip..], rest_at)
                .map_err(failed)?;
            at += part.len();
        }
        Ok(expected as u64)
    }
}

impl DiskFile for RealFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        Ok(self
            .file
            .metadata()
            .map_err(io_error(Operation::Info, &self.path))?
            .len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64, reading: Reading) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + filled as u64;
            let rest = &mut buffer[filled..];
            let read = match reading {
                Reading::CachedOnly => self.read_cached(rest, at)?,
                Reading::MayBlock => self.read_blocking(rest, at)?,
            };
            match read {
                Some(read) => filled += read,
                None => break,
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_sound(Operation::Write)?;
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| DiskError::from_io(Operation::Write, &self.path, &error).at(offset))
    }

    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.check_sound(Operation::Write)?;
        let mut at = offset;
        for parts in parts.chunks(PARTS_MAX) {
            at += self.write_some_parts(parts, at)?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.check_sound(Operation::Sync)?;
        self.file.sync_data().map_err(|error| {
            self.suspect.store(true, Ordering::Release);
            forget_mark(self.identity, &self.suspect);
            DiskError::from_io(Operation::Sync, &self.path, &error)
        })
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.check_sound(Operation::Truncate)?;
        self.file
            .set_len(len)
            .map_err(io_error(Operation::Truncate, &self.path))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.check_sound(Operation::Allocate)?;
        let allocate = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len);
        match rustix::io::retry_on_intr(allocate) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) if self.len()? < len => self.truncate(len),
            Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(errno_error(Operation::Allocate, &self.path)(errno)),
        }
    }
}

fn io_error(operation: Operation, path: &Path) -> impl Fn(io::Error) -> DiskError {
    move |error| DiskError::from_io(operation, path, &error)
}

fn errno_error(operation: Operation, path: &Path) -> impl Fn(Errno) -> DiskError {
    move |errno| DiskError::from_io(operation, path, &errno.into())
}

//! Failures of a disk, by what a reader can do about them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the trait's methods")]
pub enum Operation {
    Open,
    CreateDirectory,
    List,
    Info,
    Rename,
    Link,
    Remove,
    SyncDirectory,
    Lock,
    Space,
    Read,
    Write,
    Sync,
    Truncate,
    Allocate,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::CreateDirectory => "create directory",
            Self::List => "list",
            Self::Info => "look up",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::Remove => "remove",
            Self::SyncDirectory => "sync directory",
            Self::Lock => "lock",
            Self::Space => "measure the space of",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Truncate => "truncate",
            Self::Allocate => "allocate",
        })
    }
}

/// Kinds of failures, by the caller's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No file has this name.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The system refuses: permissions, or a read-only filesystem. Fix them and start again.
    Denied,
    /// The disk is full. Make room; then writes may continue.
    NoSpace,
    /// A cached-only read would have had to wait: repeat it on the blocking pool.
    WouldBlock,
    /// Another process holds the lock.
    Locked,
    /// An earlier sync of this file failed, so it is not written any more.
    Suspect,
    /// The file is larger than its reader allows.
    TooLarge,
    /// A second name was requested on another filesystem: use one on the same filesystem.
    OtherFilesystem,
    /// The process or the system has no file handle left, and nothing was done. Raise the limit; a
    /// later attempt may succeed.
    Exhausted,
    /// The device or the system failed in another way; the source has the details.
    Device,
}

/// A failed disk operation.
#[derive(Debug)]
pub struct DiskError {
    operation: Operation,
    path: PathBuf,
    offset: Option<u64>,
    kind: ErrorKind,
    detail: String,
}

impl DiskError {
    /// An error with a detail as text, which is empty if the kind is enough.
    pub fn new(
        operation: Operation,
        path: &Path,
        kind: ErrorKind,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            operation,
            path: path.to_owned(),
            offset: None,
            kind,
            detail: detail.into(),
        }
    }

    /// An error without a detail.
    pub(crate) fn bare(operation: Operation, path: &Path, kind: ErrorKind) -> Self {
        Self::new(operation, path, kind, "")
    }

    /// An error reported by the operating system.
    pub fn from_io(operation: Operation, path: &Path, error: &io::Error) -> Self {
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        let kind = match error.kind() {
            _ if matches!(errno, Some(Errno::MFILE | Errno::NFILE)) => ErrorKind::Exhausted,
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::Denied
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::WouldBlock => ErrorKind::WouldBlock,
            io::ErrorKind::CrossesDevices => ErrorKind::OtherFilesystem,
            _ => ErrorKind::Device,
        };
        Self::new(operation, path, kind, error.to_string())
    }

    /// The error for a file that is longer than its reader allows.
    pub(crate) fn too_large(path: &Path, got: u64, expected_max: u64) -> Self {
        let detail = format!("{got} bytes where at most {expected_max} are expected");
        Self::new(Operation::Read, path, ErrorKind::TooLarge, detail)
    }

    /// Adds the offset in the file, in bytes.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operation that failed.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The path of the operation.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True when a cached-only read has to be repeated on the blocking pool.
    pub fn would_block(&self) -> bool {
        self.kind == ErrorKind::WouldBlock
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        let kind = match self.kind {
            ErrorKind::NotFound => "not found",
            ErrorKind::AlreadyExists => "name is taken",
            ErrorKind::Denied => "not permitted",
            ErrorKind::NoSpace => "no space left",
            ErrorKind::WouldBlock => "not in memory",
            ErrorKind::Locked => "held by another process",
            ErrorKind::Suspect => "an earlier sync of this file failed",
            ErrorKind::TooLarge => "too large",
            ErrorKind::OtherFilesystem => "on another filesystem",
            ErrorKind::Exhausted => "no file handle left",
            ErrorKind::Device => "device error",
        };
        write!(f, ": {kind}")?;
        if self.detail.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.detail)
        }
    }
}

impl std::error::Error for DiskError {}

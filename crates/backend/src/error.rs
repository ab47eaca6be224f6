//! Errors of a backend, chosen by what the vnode or the operator does next.

use std::fmt;

use kvorum_disk::DiskError;

/// The result of every backend call.
pub type Result<T> = std::result::Result<T, BackendError>;

/// What the reader of an error can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The disk is full: make room. Reads go on, and puts resume by themselves.
    Full,
    /// The device or the system failed, or a sync did: the store takes no more writes until it is
    /// opened again.
    Failed,
    /// The device did not give what a write has to look at: nothing was done, and the store goes on. Try
    /// again.
    Unread,
    /// Memory does not have what a write has to look at, and the write must not wait for a device: nothing
    /// was done. Ask again where waiting is allowed.
    WouldBlock,
    /// The system had no file handle left: nothing was done, and the store goes on. Raise the limit, or try
    /// again.
    Exhausted,
    /// Stored bytes do not match their checksum or their format: restore them from a replica.
    Corrupt,
    /// The entry is larger than the engine can hold: fix the request.
    TooLarge,
    /// The store was closed: a bug of the caller, or the node is stopping.
    Closed,
    /// The directory was written by a newer version: run that version.
    NewerFormat,
    /// Another process has the store open.
    Locked,
    /// The system refuses access: fix permissions or a read-only mount.
    Denied,
    /// A request that breaks the trait's rules: report a bug.
    Misuse,
}

/// A failed backend call: what kind, and one line that names where, what was got and what expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendError {
    kind: ErrorKind,
    detail: String,
}

impl BackendError {
    /// An error with its one line of detail: a lowercase fragment without a full stop.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// The same error to a reader who can do something else about it.
    #[must_use]
    pub fn of_kind(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// What the reader can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.kind {
            ErrorKind::Full => "disk full",
            ErrorKind::Failed => "store failed",
            ErrorKind::Unread => "stored data not read",
            ErrorKind::WouldBlock => "stored data not in memory",
            ErrorKind::Exhausted => "too many open files",
            ErrorKind::Corrupt => "stored data damaged",
            ErrorKind::TooLarge => "entry too large",
            ErrorKind::Closed => "store closed",
            ErrorKind::NewerFormat => "written by a newer version",
            ErrorKind::Locked => "store in use",
            ErrorKind::Denied => "access refused",
            ErrorKind::Misuse => "backend misused",
        };
        write!(f, "{advice}: {}", self.detail)
    }
}

impl std::error::Error for BackendError {}

impl From<DiskError> for BackendError {
    fn from(error: DiskError) -> Self {
        Self::from(&error)
    }
}

impl From<&DiskError> for BackendError {
    /// As an engine's own files mean it: a read beyond what a file can have is damage.
    fn from(error: &DiskError) -> Self {
        use kvorum_disk::ErrorKind as Disk;
        let kind = match error.kind() {
            Disk::NoSpace => ErrorKind::Full,
            Disk::Denied | Disk::OtherFilesystem => ErrorKind::Denied,
            Disk::Locked => ErrorKind::Locked,
            Disk::TooLarge => ErrorKind::Corrupt,
            Disk::Exhausted => ErrorKind::Exhausted,
            Disk::NotFound
            | Disk::AlreadyExists
            | Disk::WouldBlock
            | Disk::Suspect
            | Disk::Device => ErrorKind::Failed,
        };
        Self::new(kind, error.to_string())
    }
}

//! Errors of a backend, by the next action of the vnode or the operator.

use std::fmt;

use kvorum_disk::DiskError;

/// The result of every backend call.
pub type Result<T> = std::result::Result<T, BackendError>;

/// The possible reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The disk is full: make room. Reads still work, and puts resume by themselves.
    Full,
    /// The device or the system failed, or a sync did: the store takes no more writes until it is
    /// opened again.
    Failed,
    /// The device did not return data that a write has to read: nothing was done, and the store
    /// still works. Try again.
    Unread,
    /// Memory lacks data that a write has to read, and the write must not wait for a device:
    /// nothing was done. Repeat where waiting is allowed.
    WouldBlock,
    /// The system had no file handle left: nothing was done, and the store still works. Raise the
    /// limit, or try again.
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

/// A failed backend call: its kind, and one line with the place, the actual and the expected value.
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

    /// The same detail with another kind, for a caller that has to react otherwise.
    #[must_use]
    pub fn of_kind(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// The possible reaction.
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
    /// For an engine's own files, a read beyond the possible end of a file is damage.
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

//! The failures of writing: of one group, and of the whole log.

use kvorum_backend::{BackendError, ErrorKind};
use kvorum_disk::Operation;
use kvorum_segment::SegmentError;

use crate::error::from_segment;

/// Failures of making a group durable.
pub(crate) enum GroupFailure {
    /// The group was not written; the next one may succeed.
    ThisGroup(BackendError),
    /// No promise can be kept any more.
    ForGood(BackendError),
}

/// Result of writing.
pub(crate) type Written<T = ()> = Result<T, GroupFailure>;

#[cfg(test)]
impl GroupFailure {
    pub(crate) fn into_error(self) -> BackendError {
        match self {
            Self::ThisGroup(error) | Self::ForGood(error) => error,
        }
    }
}

/// The file lacks the issued places: no further write is allowed.
pub(super) fn out_of_place() -> GroupFailure {
    let detail = "a batch of the value log has no place in its segment; report this bug";
    GroupFailure::ForGood(BackendError::new(ErrorKind::Failed, detail))
}

/// Failures for want of space and of reads may pass, since no waiting batch was promised anything.
/// All other failures are final.
pub(super) fn failed_end(error: &SegmentError) -> GroupFailure {
    let is_unread =
        matches!(error, SegmentError::Disk(disk) if disk.operation() == Operation::Read);
    let error = from_segment(error);
    match error.kind() {
        ErrorKind::Full | ErrorKind::Exhausted => GroupFailure::ThisGroup(error),
        _ if is_unread => GroupFailure::ThisGroup(error),
        _ => GroupFailure::ForGood(error),
    }
}

pub(super) fn failed_sync(error: &SegmentError) -> GroupFailure {
    // A failed sync of any kind is final: even a full disk may first show here.
    let detail = from_segment(error).to_string();
    GroupFailure::ForGood(BackendError::new(ErrorKind::Failed, detail))
}

/// The failed sync of a new file is final: the file is empty, but the device has failed to keep a
/// promise.
pub(super) fn failed_creation(error: &SegmentError) -> GroupFailure {
    match error {
        SegmentError::Disk(disk)
            if matches!(disk.operation(), Operation::Sync | Operation::SyncDirectory) =>
        {
            failed_sync(error)
        }
        error => GroupFailure::ThisGroup(from_segment(error)),
    }
}

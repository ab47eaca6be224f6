//! The failures of writing: those that a group may outlive, and those that end the log.

use kvorum_backend::{BackendError, ErrorKind};
use kvorum_disk::Operation;
use kvorum_segment::SegmentError;

use crate::error::from_segment;

/// Why a group is not durable.
pub(crate) enum GroupFailure {
    /// It was not written, and the next one may be.
    ThisGroup(BackendError),
    /// Nothing can be promised any more.
    ForGood(BackendError),
}

/// What came of writing.
pub(crate) type Written<T = ()> = Result<T, GroupFailure>;

#[cfg(test)]
impl GroupFailure {
    pub(crate) fn into_error(self) -> BackendError {
        match self {
            Self::ThisGroup(error) | Self::ForGood(error) => error,
        }
    }
}

/// Places were handed out that the file does not have: nothing may be written any more.
pub(super) fn out_of_place() -> GroupFailure {
    let detail = "a batch of the value log has no place in its segment; report this bug";
    GroupFailure::ForGood(BackendError::new(ErrorKind::Failed, detail))
}

/// There may be room later, and what cannot be read now may be read then: nothing was promised of what
/// waits. All else is final.
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
    // Whatever its kind (a full disk may show as late as this), it is final.
    let detail = from_segment(error).to_string();
    GroupFailure::ForGood(BackendError::new(ErrorKind::Failed, detail))
}

/// A new file whose sync fails holds nothing, and yet the device has failed to keep a promise.
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

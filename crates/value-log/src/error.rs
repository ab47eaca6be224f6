//! Failures of the log as backend errors: to the vnode the log is part of its store.

use kvorum_backend::{BackendError, ErrorKind};
use kvorum_disk::DiskError;
use kvorum_segment::SegmentError;

pub(crate) fn from_disk(error: &DiskError) -> BackendError {
    let kind = match error.kind() {
        kvorum_disk::ErrorKind::NoSpace => ErrorKind::Full,
        kvorum_disk::ErrorKind::Denied => ErrorKind::Denied,
        kvorum_disk::ErrorKind::Locked => ErrorKind::Locked,
        kvorum_disk::ErrorKind::Exhausted => ErrorKind::Exhausted,
        _ => ErrorKind::Failed,
    };
    BackendError::new(kind, error.to_string())
}

pub(crate) fn from_segment(error: &SegmentError) -> BackendError {
    let kind = match error {
        SegmentError::Disk(disk) => return from_disk(disk),
        SegmentError::NewerFormat { .. } => ErrorKind::NewerFormat,
        SegmentError::TooLarge { .. } => ErrorKind::TooLarge,
        error if error.is_damage() => ErrorKind::Corrupt,
        _ => ErrorKind::Failed,
    };
    BackendError::new(kind, error.to_string())
}

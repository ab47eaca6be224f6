//! Failures of files, segments and sorted tables as the backend's kinds of errors.

use kvorum_backend::{BackendError, ErrorKind};
use kvorum_segment::SegmentError;
use kvorum_sst::SstError;

/// The backend's error for an error of a segment.
pub fn from_segment(error: &SegmentError) -> BackendError {
    let kind = match error {
        SegmentError::Disk(disk) => return disk.into(),
        SegmentError::Damaged { .. }
        | SegmentError::Foreign { .. }
        | SegmentError::Undecodable { .. } => ErrorKind::Corrupt,
        SegmentError::NewerFormat { .. } => ErrorKind::NewerFormat,
        SegmentError::TooLarge { .. } => ErrorKind::TooLarge,
        SegmentError::Suspect { .. } => ErrorKind::Failed,
    };
    BackendError::new(kind, error.to_string())
}

/// The backend's error for an error of a table.
pub fn from_sst(error: &SstError) -> BackendError {
    let kind = match error {
        SstError::Disk(disk) => return disk.into(),
        SstError::Damaged { .. } | SstError::Foreign { .. } => ErrorKind::Corrupt,
        SstError::NewerFormat { .. } => ErrorKind::NewerFormat,
        SstError::TooLarge { .. } => ErrorKind::TooLarge,
        SstError::Misuse { .. } => ErrorKind::Misuse,
    };
    BackendError::new(kind, error.to_string())
}

/// Turns results of the floors below into the backend's.
pub trait IntoBackend<T> {
    /// The same result with the backend's error.
    ///
    /// # Errors
    /// The original error, as the backend's.
    fn into_backend(self) -> kvorum_backend::Result<T>;
}

impl<T> IntoBackend<T> for kvorum_disk::Result<T> {
    fn into_backend(self) -> kvorum_backend::Result<T> {
        self.map_err(|error| BackendError::from(&error))
    }
}

impl<T> IntoBackend<T> for kvorum_segment::Result<T> {
    fn into_backend(self) -> kvorum_backend::Result<T> {
        self.map_err(|error| from_segment(&error))
    }
}

impl<T> IntoBackend<T> for kvorum_sst::Result<T> {
    fn into_backend(self) -> kvorum_backend::Result<T> {
        self.map_err(|error| from_sst(&error))
    }
}

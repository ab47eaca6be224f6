//! The interface of a value log's files, for a check of a store.

use kvorum_backend::Result;
use kvorum_segment::SegmentReader;

/// The files of a value log, for a check of a store.
pub trait LogInFiles {
    /// False for a segment that neither exists, nor was dropped, nor was reported as missing.
    fn is_accounted_for(&self, segment: u32) -> bool;

    /// The segment with this number, if it exists.
    ///
    /// # Errors
    /// Those of the disk.
    fn segment(&self, number: u32) -> Result<Option<SegmentReader>>;
}

/// The result of looking for the log with an id.
pub enum FoundLog<'a> {
    /// It exists.
    Here(Box<dyn LogInFiles + 'a>),
    /// Another value log exists.
    Another,
    /// The log is outside the checked directories.
    NotChecked,
}

/// Finds the value log by its id. Called after the store's references to segments were read, so
/// that the segments of a store in use still exist or were dropped.
pub type FindLog<'a> = &'a dyn Fn(u64) -> Result<FoundLog<'a>>;

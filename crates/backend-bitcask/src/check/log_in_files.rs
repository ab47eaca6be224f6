//! The value log as files: its interface for a check of a store.

use kvorum_backend::Result;
use kvorum_segment::SegmentReader;

/// The value log as files, for a check of a store.
pub trait LogInFiles {
    /// False for a segment that neither exists, nor was dropped, nor was reported as missing.
    fn is_accounted_for(&self, segment: u32) -> bool;

    /// The segment of this number, if it exists.
    ///
    /// # Errors
    /// Those of the disk.
    fn segment(&self, number: u32) -> Result<Option<SegmentReader>>;
}

/// The result of looking for the log of an id.
pub enum FoundLog<'a> {
    /// It exists.
    Here(Box<dyn LogInFiles + 'a>),
    /// Another value log exists.
    Another,
    /// Log outside the checked directories.
    NotChecked,
}

/// Finds the value log by its id. It is called after the store's references to segments were read:
/// the segments that a store in use needs still exist then, or were dropped.
pub type FindLog<'a> = &'a dyn Fn(u64) -> Result<FoundLog<'a>>;

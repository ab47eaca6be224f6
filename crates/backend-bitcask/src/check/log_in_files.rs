//! The value log as files: what a check of a store asks of it.

use kvorum_backend::Result;
use kvorum_segment::SegmentReader;

/// The value log as files, to which a check of a store looks.
pub trait LogInFiles {
    /// False for a segment that is neither there, nor was let go, nor was told to be missing.
    fn is_accounted_for(&self, segment: u32) -> bool;

    /// The segment of this number, if it is there.
    ///
    /// # Errors
    /// Those of the disk.
    fn segment(&self, number: u32) -> Result<Option<SegmentReader>>;
}

/// What is known of the log of an id.
pub enum FoundLog<'a> {
    /// It is there.
    Here(Box<dyn LogInFiles + 'a>),
    /// There is another one.
    Another,
    /// It is not in what is checked.
    NotChecked,
}

/// Finds the value log by its id. It is called when what a store says of segments was read: what a
/// store that is in use needs is then still there, or was let go.
pub type FindLog<'a> = &'a dyn Fn(u64) -> Result<FoundLog<'a>>;

//! The node's log as a backup sees it.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{BackedUp, BackendError, HeldSegments};

/// A log that has entries of all stores.
pub trait CopiedLog: Send + Sync {
    /// Makes a log in `directory`, which must not exist, with everything that copies of stores need:
    /// every batch that was appended before this call to a segment that is held is in it.
    ///
    /// # Errors
    /// Those of the disk; the caller removes what was made.
    fn backup(
        &self,
        directory: &Path,
        held: &[Arc<HeldSegments>],
    ) -> Result<BackedUp, BackendError>;

    /// Segments are held no more, so that the log can look again at what it may drop.
    fn held_no_more(&self);
}

//! A backup that a trial keeps, to look at it again.

use std::path::PathBuf;

use crate::model::State;

/// A backup and what it has to hold for ever.
pub(super) struct HeldBackup {
    pub(super) directory: PathBuf,
    pub(super) state: State,
}

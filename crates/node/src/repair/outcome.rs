//! The outcome of a directory: repaired, or only checked.

use std::path::PathBuf;

use kvorum_backend_leveldb::repair::RepairReport;

/// The report of a repair, or the reason of its failure.
pub(super) type Outcome = Result<RepairReport, String>;

/// A directory that was only checked.
pub(super) struct OtherChecked {
    pub(super) directory: PathBuf,
    pub(super) said: &'static str,
    pub(super) findings: Vec<String>,
}

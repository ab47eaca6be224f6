//! Directories that an import leaves out.

use std::path::PathBuf;

use serde::Serialize;

/// A directory that is not imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    /// The directory.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

//! The program of which these verbs are a part.

use std::path::PathBuf;

/// The running program, which is also started as server and load.
#[derive(Debug, Clone)]
pub struct Program {
    /// The binary `kvorum`.
    pub binary: PathBuf,
    /// Storage engines that are built in.
    pub engines: Vec<String>,
}

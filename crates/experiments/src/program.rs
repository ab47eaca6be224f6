//! The program of which these verbs are a part.

use std::path::PathBuf;

/// The program that runs this: where servers and loads come from.
#[derive(Debug, Clone)]
pub struct Program {
    /// The binary `kvorum`.
    pub binary: PathBuf,
    /// Storage engines that are built in.
    pub engines: Vec<String>,
}

//! Errors of reading a result directory.

use std::path::PathBuf;

/// Why a result directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or the directory cannot be read; give a directory of a run.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A table is damaged or of another format.
    #[error("{path}, line {line}: {reason}")]
    Table {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// `run.json` is damaged or of another format.
    #[error("cannot understand {path}")]
    Description {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// The directory was written by a newer version.
    #[error("{path} has format {got}; this version reads format {expected}")]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        got: u32,
        /// The format known.
        expected: u32,
    },
}

//! Errors of reading a result directory.

use std::path::PathBuf;

/// The reason why a result directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or the directory cannot be read; give a directory of a run.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A table is damaged or of another format.
    #[error("{path}, line {line}: {reason}")]
    Table {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// The error in it.
        reason: String,
    },
    /// `run.json` is damaged or of another format.
    #[error("cannot understand {path}")]
    Description {
        /// The file.
        path: PathBuf,
        /// The parser's error.
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

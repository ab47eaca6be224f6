//! Errors of a run.

use std::io;

/// A run that could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A worker could not connect; nothing was measured.
    #[error("{0}")]
    Connect(String),
    /// A thread or its runtime could not be started.
    #[error("cannot start a thread of workers: {0}")]
    Thread(io::Error),
    /// Results cannot be written.
    #[error("cannot write results: {0}")]
    Results(#[from] io::Error),
    /// A histogram cannot be made.
    #[error("cannot make a histogram: {0}")]
    Histogram(#[from] hdrhistogram::CreationError),
}

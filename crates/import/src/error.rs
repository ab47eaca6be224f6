//! Errors that stop an import, grouped by their remedies.

use std::path::PathBuf;

use kvorum_disk::DiskError;
use kvorum_runtime::RuntimeError;

use crate::passed_over::PassedOver;

/// The reason why an import stopped. Finished work is kept: the same command resumes the import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The directory does not exist.
    #[error("{path} is no directory")]
    NoDirectory {
        /// The path as given.
        path: PathBuf,
    },
    /// Nothing to import.
    #[error(
        "{path} holds no {what}, nor do directories below it{}",
        listed(passed_over)
    )]
    NothingFound {
        /// The searched path.
        path: PathBuf,
        /// The kind of stores that was searched for.
        what: &'static str,
        /// Directories skipped by the search.
        passed_over: Vec<PassedOver>,
    },
    /// Several data roots in one node's data directory: give the ones that riak.conf names.
    #[error("{path} holds several directories with partitions: {}", shown(roots))]
    SeveralRoots {
        /// The data directory.
        path: PathBuf,
        /// The directories.
        roots: Vec<PathBuf>,
    },
    /// Riak seems to run on the directory: stop Riak, copy the directory, or ignore a lock that a
    /// crash has left.
    #[error("{lock} is held by process {process}, which is running")]
    InUse {
        /// The lock file.
        lock: PathBuf,
        /// The process that it names.
        process: u32,
    },
    /// Tables without a manifest: the slow half of a tiered store, or a store that lost its
    /// manifest.
    #[error("{path} holds tables and neither CURRENT nor a manifest")]
    NoManifest {
        /// The directory.
        path: PathBuf,
    },
    /// The numbers of slow tiers and directories differ: name one tier for each directory.
    #[error("{tiers} slow tiers are named for {directories} directories")]
    TierCount {
        /// Slow tiers named.
        tiers: usize,
        /// Directories named.
        directories: usize,
    },
    /// Every data file of every partition is marked for deletion, probably by a copy that changed
    /// permissions.
    #[error(
        "all data files of {path}, and of every other partition, are executable, which is Riak's mark \
         for files to be deleted"
    )]
    AllMarkedForDeletion {
        /// The directory.
        path: PathBuf,
    },
    /// The state belongs to another import: name another directory for the state, or start again.
    #[error("{path} holds the state of another import: {difference}")]
    OtherImport {
        /// The state's directory.
        path: PathBuf,
        /// The difference.
        difference: String,
    },
    /// The state cannot be used: start again.
    #[error("the import's own {what} in {path} cannot be used: {reason}")]
    StateDamaged {
        /// The damaged part.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The server lacks bucket types of the data: create and activate them.
    #[error("bucket types missing on the server, or not active: {}", .names.join(", "))]
    MissingTypes {
        /// Their names.
        names: Vec<String>,
    },
    /// The server cannot be reached, or keeps refusing for a temporary reason.
    #[error("the server does not take objects: {reason}")]
    Unavailable {
        /// The last reason.
        reason: String,
    },
    /// A disk failed: the state's, or the source's as a whole.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The process could not start a part of itself.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// The directories that were skipped, one on each line.
fn listed(passed_over: &[PassedOver]) -> String {
    let lines = passed_over.iter().map(|passed| {
        format!(
            "\n  passed over {}: {}",
            passed.path.display(),
            passed.reason
        )
    });
    lines.collect()
}

fn shown(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
    shown.join(", ")
}

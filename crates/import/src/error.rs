//! Errors that stop an import, by their remedies.

use std::path::PathBuf;

use kvorum_disk::DiskError;
use kvorum_runtime::RuntimeError;

use crate::passed_over::PassedOver;

/// An import that stopped. Finished work is kept: the same command resumes the import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// No such directory.
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
        /// Kind of stores searched for.
        what: &'static str,
        /// Directories skipped by the search.
        passed_over: Vec<PassedOver>,
    },
    /// Several data roots in one node's data directory: name those that riak.conf names.
    #[error("{path} holds several directories with partitions: {}", shown(roots))]
    SeveralRoots {
        /// The data directory.
        path: PathBuf,
        /// The directories.
        roots: Vec<PathBuf>,
    },
    /// Riak seems to run on the directory: stop it, or copy the directory, or ignore the lock that
    /// a crash has left.
    #[error("{lock} is held by process {process}, which is running")]
    InUse {
        /// The lock file.
        lock: PathBuf,
        /// The process that it names.
        process: u32,
    },
    /// Tables that no manifest orders: the slow half of a tiered store, or a store that lost its
    /// manifest.
    #[error("{path} holds tables and neither CURRENT nor a manifest")]
    NoManifest {
        /// The directory.
        path: PathBuf,
    },
    /// Slow tiers and directories do not pair up: name one for each.
    #[error("{tiers} slow tiers are named for {directories} directories")]
    TierCount {
        /// Slow tiers named.
        tiers: usize,
        /// Directories named.
        directories: usize,
    },
    /// Every data file of every partition is marked for deletion, more likely by a copy that
    /// changed permissions than by Riak.
    #[error(
        "all data files of {path}, and of every other partition, are executable, which is Riak's mark \
         for files to be deleted"
    )]
    AllMarkedForDeletion {
        /// The directory.
        path: PathBuf,
    },
    /// The state belongs to another import: name another directory for it, or start anew.
    #[error("{path} holds the state of another import: {difference}")]
    OtherImport {
        /// The state's directory.
        path: PathBuf,
        /// The difference.
        difference: String,
    },
    /// The state cannot be used: start anew.
    #[error("the import's own {what} in {path} cannot be used: {reason}")]
    StateDamaged {
        /// The part of it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Bucket types that the data needs and the server does not have: create and activate them.
    #[error("bucket types missing on the server, or not active: {}", .names.join(", "))]
    MissingTypes {
        /// Their names.
        names: Vec<String>,
    },
    /// Server out of reach, or that keeps refusing for a temporary reason.
    #[error("the server does not take objects: {reason}")]
    Unavailable {
        /// The last reason.
        reason: String,
    },
    /// Failure of a disk: that of the state, or of the source as a whole.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Failure of the process to start a part of itself.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Directories that were passed over, one a line.
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

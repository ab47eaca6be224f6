//! Why something could not be agreed or opened, by what the reader can do.

use std::path::PathBuf;

use kvorum_disk::DiskError;

/// Why a proposal has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgreementError {
    /// No majority of the voters can be reached: try again once it can. The command may or may not
    /// take effect later.
    #[error("no majority of the cluster's voters can be reached: {detail}")]
    NoMajority {
        /// What was tried.
        detail: String,
    },
    /// The log cannot be kept any more: mend the disk, then restart.
    #[error("the agreed log stopped: {detail}")]
    Stopped {
        /// Why.
        detail: String,
    },
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none.
    #[error("no agreed log in {}", directory.display())]
    Missing {
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// There is one already.
    #[error("{} exists already", file.display())]
    AlreadyExists {
        /// The file that is in the way.
        file: PathBuf,
    },
    /// What is stored is not what was written. Restore the file, or let the node join anew.
    #[error("{} at byte {offset}: {what}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where.
        offset: u64,
        /// What shows it.
        what: String,
    },
    /// A later version wrote it. Run that version.
    #[error("{} has format {got}, newer than {newest}, the newest that this version reads", file.display())]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its format.
        got: u32,
        /// The newest format known.
        newest: u32,
    },
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The library refused to start. A bug to report.
    #[error("start the agreed log: {detail}")]
    Start {
        /// What it said.
        detail: String,
    },
}

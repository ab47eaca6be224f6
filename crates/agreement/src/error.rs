//! The reasons why a command could not be agreed or a log opened, grouped by what the reader can
//! do.

use std::path::{Path, PathBuf};

use kvorum_disk::DiskError;
use kvorum_ring::NodeId;

/// The reason why a proposal has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgreementError {
    /// No majority of the voters can be reached: try again when one can. The command may or may not
    /// take effect later.
    #[error("no majority of the cluster's voters can be reached: {detail}")]
    NoMajority {
        /// The attempt.
        detail: String,
    },
    /// The log cannot be written any more: repair the disk, then restart.
    #[error("the agreed log stopped: {detail}")]
    Stopped {
        /// The reason.
        detail: String,
    },
}

/// The reason why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The node's log is missing. Restore the directory.
    #[error(
        "{} is missing, which holds the agreed log; {}",
        directory.join("log").display(), restore(directory)
    )]
    Missing {
        /// The log's directory.
        directory: PathBuf,
    },
    /// The log ends before the durable end in its mark. Restore the directory.
    #[error(
        "{} is damaged: whole records end at byte {whole} of {len}, and {durable} bytes were durable; {}; {}",
        file.display(), restore(parent(file)), go_on(marks)
    )]
    CutShort {
        /// The log.
        file: PathBuf,
        /// The end of its last whole record, in bytes.
        whole: u64,
        /// Its length, in bytes.
        len: u64,
        /// Its durable length according to the mark, in bytes.
        durable: u64,
        /// The files of the mark.
        marks: Vec<PathBuf>,
    },
    /// The log is an older copy, from before it was rewritten. Restore the directory.
    #[error(
        "{} is an older copy: it has generation {got}, and generation {expected} was durable; {}; {}",
        file.display(), restore(parent(file)), go_on(marks)
    )]
    Older {
        /// The log.
        file: PathBuf,
        /// Its generation.
        got: u64,
        /// The generation in the mark.
        expected: u64,
        /// The files of the mark.
        marks: Vec<PathBuf>,
    },
    /// The log and the mark beside it belong to different logs. Restore the misplaced file.
    #[error(
        "{} is not the log whose end is marked in {}; {}; if the log is the right one, remove {} and start \
         again", file.display(), mark.display(), restore(parent(file)), mark.display()
    )]
    OtherLog {
        /// The log.
        file: PathBuf,
        /// The mark.
        mark: PathBuf,
    },
    /// The log belongs to another node. Restore the directory.
    #[error(
        "{} is the log of node {got}, and this is node {expected}; {}",
        file.display(), restore(parent(file))
    )]
    OtherNode {
        /// The log.
        file: PathBuf,
        /// The node that the log belongs to.
        got: NodeId,
        /// The node that it should belong to.
        expected: NodeId,
    },
    /// The mark in the data directory belongs to another node. Restore the misplaced file.
    #[error(
        "{} marks the end of a log of node {got}, and {} is of node {expected}: one of them came here from \
         another node; put back the directory that belongs here, or, if it is the right one, remove {} and \
         start again", mark.display(), file.display(), mark.display()
    )]
    MarkOfOtherNode {
        /// The log.
        file: PathBuf,
        /// The mark.
        mark: PathBuf,
        /// The node of the mark.
        got: NodeId,
        /// The node of the log.
        expected: NodeId,
    },
    /// The log begins after the end of the snapshot. Restore the directory.
    #[error(
        "{}: {} covers {}, and the log beside it begins behind entry {purged}; {}",
        if *is_there { "an older copy" } else { "missing or damaged" },
        file.display(),
        covered.map_or("nothing".to_owned(), |it| format!("entries up to {it}")),
        restore(parent(file))
    )]
    SnapshotBehind {
        /// The newest generation of the snapshot.
        file: PathBuf,
        /// True when it can be read.
        is_there: bool,
        /// The last entry that a readable snapshot covers.
        covered: Option<u64>,
        /// The last entry that was purged from the log.
        purged: u64,
    },
    /// The directory has a log already.
    #[error("{} exists already", file.display())]
    AlreadyExists {
        /// The existing file.
        file: PathBuf,
    },
    /// The stored bytes have changed since they were written. Restore the file, or let the node
    /// join again.
    #[error("{} is damaged at byte {offset}: {what}; {}", file.display(), restore(parent(file)))]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The position of the damage, in bytes.
        offset: u64,
        /// The evidence.
        what: String,
    },
    /// A later version wrote the file. Run that version.
    #[error("{} has format {got}, newer than {newest}, the newest that this version reads", file.display())]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its format.
        got: u32,
        /// The newest format that this version reads.
        newest: u32,
    },
    /// A disk operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The library refused to start. Report this bug.
    #[error("start the agreed log: {detail}")]
    Start {
        /// The library's message.
        detail: String,
    },
}

/// Advice for a log that lacks a part.
fn restore(directory: &Path) -> String {
    format!(
        "restore {} from a backup; a member of a cluster of several nodes may have lost its \
         votes, so let another node take its place (`kvorum admin cluster force-replace` at one \
         of the others), or start it with an empty data directory and let it join",
        directory.display()
    )
}

/// Advice for a log without a newer copy.
fn go_on(marks: &[PathBuf]) -> String {
    let marks: Vec<String> = marks.iter().map(|it| it.display().to_string()).collect();
    format!(
        "a node alone goes on with what the log still holds, without the changes of bucket types, \
         properties and members after it, when {} are removed",
        marks.join(" and ")
    )
}

fn parent(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("."))
}

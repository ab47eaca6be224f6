//! Reasons why a file or a directory cannot be inspected. Damage is not one of them.

use std::path::PathBuf;

use kvorum_backend::BackendError;
use kvorum_disk::DiskError;
use kvorum_segment::SegmentError;

/// The result of an inspection.
pub type Result<T> = std::result::Result<T, InspectError>;

/// Failure of an inspection.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The disk failed, or another process holds the lock.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A segment cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A store cannot be read.
    #[error(transparent)]
    Store(#[from] BackendError),
    /// Neither the first bytes nor the name are those of a known file.
    #[error("{} is no file of Kvorum's, by its first bytes or by its name", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
    },
    /// Missing file or directory.
    #[error("{} does not exist", path.display())]
    Missing {
        /// The inspected path.
        path: PathBuf,
    },
    /// A directory without any file of a node: a mistyped path, or another program's data.
    #[error(
        "{} holds no files of a kvorum node, nor do directories below it; name a data directory \
         (platform_data_dir) or the directory of a partition",
        path.display()
    )]
    NothingOfOurs {
        /// The directory.
        path: PathBuf,
    },
    /// A directory in place of a single file.
    #[error("{} is a directory; name a file in it, or check all of it with `kvorum verify`", path.display())]
    IsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A directory with a part of a store. Name the store's own directory.
    #[error(
        "{} has only the old tables of the store in {}: name that directory",
        path.display(),
        fast.display()
    )]
    Slow {
        /// The slow directory.
        path: PathBuf,
        /// The store's own.
        fast: PathBuf,
    },
    /// The output cannot be printed.
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

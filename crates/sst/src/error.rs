//! Failures of a table, by what a reader can do about them.

use std::path::{Path, PathBuf};

use kvorum_disk::{DiskError, ErrorKind};

/// The result of every operation on a table.
pub type Result<T> = std::result::Result<T, SstError>;

/// Parts of a table with a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header of the file.
    FileHeader,
    /// A block of entries.
    Data,
    /// The index of a partition.
    Index,
    /// The filter of a partition.
    Filter,
    /// The anti-entropy segments of a partition.
    SegmentSets,
    /// The properties.
    Properties,
    /// The note of the table's owner.
    Note,
    /// The index of partitions.
    TopIndex,
    /// The footer.
    Footer,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::FileHeader => "file header",
            Self::Data => "data block",
            Self::Index => "index block",
            Self::Filter => "filter block",
            Self::SegmentSets => "segment sets",
            Self::Properties => "properties",
            Self::Note => "note",
            Self::TopIndex => "top index",
            Self::Footer => "footer",
        })
    }
}

/// A failed operation on a table.
#[derive(Debug, thiserror::Error)]
pub enum SstError {
    /// The disk failed, is full, or a cached-only read would have had to wait.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Stored bytes do not match their checksum or their format: restore them from elsewhere.
    #[error("damaged {part} in {} at byte {offset}: {found}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first byte of the block.
        offset: u64,
        /// The known length of the block, in bytes.
        len: u64,
        /// The part that did not match.
        part: Part,
        /// The finding as text.
        found: String,
    },
    /// The file belongs to another store or has another number: it was copied or renamed.
    #[error(
        "{} is table {got_number} of store {got_store:016x}, expected table {expected_number} of store {expected_store:016x}",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The store that its header names.
        got_store: u64,
        /// The number that its header names.
        got_number: u64,
        /// The store that was opened.
        expected_store: u64,
        /// The number that was expected.
        expected_number: u64,
    },
    /// The file was written by a newer version: run that version.
    #[error("{} has format version {got}, expected at most {expected}", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The version found.
        got: u8,
        /// The newest version known.
        expected: u8,
    },
    /// A key or value is larger than the format allows: fix the request.
    #[error("{what} of {got} bytes for {}, expected at most {expected}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The part that is too large.
        what: &'static str,
        /// Its size, in bytes.
        got: u64,
        /// The largest possible size, in bytes.
        expected: u64,
    },
    /// Keys were added out of order, or a table without content was finished: report a bug.
    #[error("table writer of {} misused: {detail}", path.display())]
    Misuse {
        /// The file.
        path: PathBuf,
        /// The rejected request.
        detail: &'static str,
    },
}

impl SstError {
    /// True when a cached-only read has to be repeated by a caller that may wait.
    pub fn would_block(&self) -> bool {
        matches!(self, Self::Disk(error) if error.would_block())
    }

    /// True when stored bytes are damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Foreign { .. })
    }

    /// True when the device failed to read.
    pub(crate) fn is_of_device(&self) -> bool {
        matches!(self, Self::Disk(error) if error.kind() == ErrorKind::Device)
    }

    pub(crate) fn damaged(
        path: &Path,
        offset: u64,
        len: u64,
        part: Part,
        found: impl Into<String>,
    ) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset,
            len,
            part,
            found: found.into(),
        }
    }
}

//! Failures of a segment, by what a reader can do about them.

use std::path::{Path, PathBuf};

use kvorum_disk::DiskError;

/// The result of every operation on a segment.
pub type Result<T> = std::result::Result<T, SegmentError>;

/// Parts of a segment with a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header of the file.
    FileHeader,
    /// The fixed header of a record.
    RecordHeader,
    /// The front of a record.
    Front,
    /// The back of a record.
    Back,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::FileHeader => "file header",
            Self::RecordHeader => "record header",
            Self::Front => "record front",
            Self::Back => "record back",
        })
    }
}

/// A failed operation on a segment.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The disk failed, is full, or a cached-only read would have had to wait.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Stored bytes do not match their checksum: restore them from elsewhere.
    #[error(
        "damaged {part} in {} at byte {offset}: got {got:#x}, expected {expected:#x}",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first byte of the record, or 0 for the file header.
        offset: u64,
        /// The part that did not match.
        part: Part,
        /// The checksum or length that was found.
        got: u64,
        /// The checksum or length that was stored.
        expected: u64,
    },
    /// The file belongs to another log or has another number: it was copied or renamed.
    #[error(
        "{} is segment {got_number} of log {got_log:016x}, expected segment {expected_number} of log {expected_log:016x}",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The log that its header names.
        got_log: u64,
        /// The number that its header names.
        got_number: u64,
        /// The log that was opened.
        expected_log: u64,
        /// The number in the file's name.
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
    /// A record is larger than the format allows: fix the request.
    #[error("record of {got} bytes for {}, expected at most {expected}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The requested size, in bytes.
        got: u64,
        /// The largest possible size, in bytes.
        expected: u64,
    },
    /// An earlier sync of this segment failed: start a new one.
    #[error("{} takes no more records after a failed sync", path.display())]
    Suspect {
        /// The file.
        path: PathBuf,
    },
    /// A compressed back with a right checksum cannot be restored: report a bug.
    #[error("back in {} at byte {offset} does not decompress: {detail}", path.display())]
    Undecodable {
        /// The file.
        path: PathBuf,
        /// The first byte of the record.
        offset: u64,
        /// The decompressor's error.
        detail: String,
    },
}

impl SegmentError {
    /// True when a cached-only read has to be repeated where waiting is allowed.
    pub fn would_block(&self) -> bool {
        matches!(self, Self::Disk(error) if error.would_block())
    }

    /// True when stored bytes are damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Undecodable { .. })
    }

    pub(crate) fn damaged(path: &Path, offset: u64, part: Part, got: u64, expected: u64) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset,
            part,
            got,
            expected,
        }
    }
}

//! The results of a scan of a file of records, in any format.

/// Result of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned<R> {
    /// An intact record.
    Record(R),
    /// Bytes that are not a record.
    Damage {
        /// Offset of the first byte.
        offset: u64,
        /// Their number.
        len: u64,
    },
    /// An end without a complete record, from a write during a crash of the machine or of Riak.
    TornTail {
        /// Offset of the first byte.
        offset: u64,
        /// Its length, in bytes.
        len: u64,
    },
    /// The search for the next record exceeded its budget; the rest of the file is skipped.
    GivenUp {
        /// The offset at which the search began.
        offset: u64,
        /// Number of bytes from that offset to the end.
        len: u64,
    },
}

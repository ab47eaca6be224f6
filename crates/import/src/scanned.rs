//! Results of a scan of a file of records, in any format.

/// Result of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned<R> {
    /// A right record.
    Record(R),
    /// Bytes that are no record.
    Damage {
        /// Offset of the first byte.
        offset: u64,
        /// Their number.
        len: u64,
    },
    /// End without a whole record: a write during a crash of the machine or of Riak.
    TornTail {
        /// Offset of the first byte.
        offset: u64,
        /// Its length, in bytes.
        len: u64,
    },
    /// Search for the next record ended by its budget; the rest of the file is skipped.
    GivenUp {
        /// Beginning of the search.
        offset: u64,
        /// Bytes from there to the end.
        len: u64,
    },
}

//! What a scan of a file of records comes across, whatever their format.

/// What a scan comes across.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned<R> {
    /// A right record.
    Record(R),
    /// Bytes that are no record.
    Damage {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        len: u64,
    },
    /// An end that is no whole record: what was being written when the machine or Riak died.
    TornTail {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        len: u64,
    },
    /// The search for the next record took too long; the rest of the file is not looked at.
    GivenUp {
        /// Where the search began.
        offset: u64,
        /// What is left from there.
        len: u64,
    },
}

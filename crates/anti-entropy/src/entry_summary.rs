//! The summary of an entry, which exchanges compare.

use kvorum_encoding::StorageKey;

/// An entry as a replica lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySummary {
    /// The key.
    pub key: StorageKey,
    /// The anti-entropy segment that is stored with the entry.
    pub segment: u32,
    /// A hash over the clock and the hash of the body: equal for equal clocks and bodies.
    pub version: u64,
    /// The time of the last change of the entry, in microseconds since the Unix epoch.
    pub modified: u64,
    /// The time at which the entry expires, if it does, in microseconds since the Unix epoch.
    pub expiry: Option<u64>,
}

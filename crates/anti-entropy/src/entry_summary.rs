//! Entries as replicas list them: enough to compare those of two.

use kvorum_encoding::StorageKey;

/// An entry as a replica lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySummary {
    /// The key.
    pub key: StorageKey,
    /// The anti-entropy segment that is stored beside it.
    pub segment: u32,
    /// A hash of the clock and the head's hash of the body: equal where both are.
    pub version: u64,
    /// The time of the last change of the entry, in microseconds since the Unix epoch.
    pub modified: u64,
    /// The time of its expiry, in microseconds since the Unix epoch.
    pub expiry: Option<u64>,
}

//! A running count and digest of the entries sent, which both sides keep.

use kvorum_object::Clock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The number of entries so far, and a digest of their keys and clocks in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) count: u64,
    pub(crate) digest: u64,
}

impl Chain {
    /// The chain with one more object.
    #[must_use]
    pub(crate) fn with(self, key: &[u8], clock: &Clock) -> Self {
        let of_key = xxh3_64_with_seed(key, self.digest);
        let of_clock = clock.fingerprint().to_le_bytes();
        Self {
            count: self.count + 1,
            digest: xxh3_64_with_seed(&of_clock, of_key),
        }
    }
}

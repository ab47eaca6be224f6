//! The progress of a move.

/// Counts of a move, over all its runs. Repeated work counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The estimated bytes to copy.
    pub bytes_estimate: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
    /// Entries that were copied.
    pub keys_copied: u64,
    /// Entries that were found equal in both.
    pub keys_verified: u64,
    /// Entries that were removed from the source.
    pub keys_removed: u64,
}

impl Progress {
    pub(crate) fn of(bytes_estimate: u64) -> Self {
        Self {
            bytes_estimate,
            ..Self::default()
        }
    }

    pub(crate) fn count_copied(&mut self, keys: u64, bytes: u64) {
        self.keys_copied = self.keys_copied.saturating_add(keys);
        self.bytes_copied = self.bytes_copied.saturating_add(bytes);
    }

    pub(crate) fn count_verified(&mut self, keys: u64) {
        self.keys_verified = self.keys_verified.saturating_add(keys);
    }

    pub(crate) fn count_removed(&mut self, keys: u64) {
        self.keys_removed = self.keys_removed.saturating_add(keys);
    }
}

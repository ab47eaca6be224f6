//! What a move has done, and how long the rest takes at the same rate.

use std::time::Duration;

/// Counts of a move, over all its runs. What is done twice counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What there was to copy, by estimate.
    pub bytes_estimate: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
    /// Entries that were copied.
    pub keys_copied: u64,
    /// Entries that were found the same in both.
    pub keys_verified: u64,
    /// Entries that were taken out of the source.
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

    /// How long the rest of the copy takes, if it goes on as it went in `elapsed`, in which `bytes` were copied;
    /// `None` where nothing was.
    pub fn copied_in(&self, elapsed: Duration, bytes: u64) -> Option<Duration> {
        let left = self.bytes_estimate.saturating_sub(self.bytes_copied);
        let micros = u128::from(left) * elapsed.as_micros();
        let micros = micros.checked_div(u128::from(bytes))?;
        Some(Duration::from_micros(
            u64::try_from(micros).unwrap_or(u64::MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_the_rate_says() {
        let mut progress = Progress::of(1000);
        let second = Duration::from_secs(1);
        assert_eq!(progress.copied_in(second, 0), None);
        progress.count_copied(3, 400);
        assert_eq!(progress.copied_in(second, 200), Some(3 * second));
        progress.count_copied(3, 700);
        assert_eq!(progress.copied_in(second, 200), Some(Duration::ZERO));
    }
}

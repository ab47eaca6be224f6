//! Failures at one place of a device that last: many of them, over a long time.
//!
//! A device may fail for a while, and several kinds of upkeep may fail at one place within seconds, so a
//! count alone gives up too early. Data are given up only after many failures over a long time.

use crate::Timestamp;

/// The failures of upkeep at one place.
#[derive(Clone, Copy, Debug)]
pub struct LastingFailures {
    since: Timestamp,
    count: u32,
}

impl LastingFailures {
    /// The least number of failures before a place is given up.
    pub const COUNT_MIN: u32 = 8;
    /// The least time over which they happened.
    pub const TIME_MICROS_MIN: u64 = 600 * 1_000_000;

    /// No failure yet; the time begins with the first.
    pub const fn none() -> Self {
        Self {
            since: Timestamp(u64::MAX),
            count: 0,
        }
    }

    /// Counts a failure.
    pub fn count(&mut self, now: Timestamp) {
        self.count += 1;
        // The clock may have been set back.
        self.since = self.since.min(now);
    }

    /// The number of failures.
    pub fn number(&self) -> u32 {
        self.count
    }

    /// True when the place has to be given up.
    pub fn are_enough(&self, now: Timestamp) -> bool {
        let time = now.0.saturating_sub(self.since.0);
        self.count >= Self::COUNT_MIN && time >= Self::TIME_MICROS_MIN
    }
}

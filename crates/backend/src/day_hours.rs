//! Hours of the day with deferrable background work.

use crate::Timestamp;

const HOUR_MICROS: u64 = 3_600_000_000;

/// From the beginning of one hour to the end of another, UTC; past midnight if the last is before
/// the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayHours {
    /// 0 to 23.
    pub first: u8,
    /// The last hour, 0 to 23, included.
    pub last: u8,
}

impl DayHours {
    /// All of them.
    pub const ALL: Self = Self { first: 0, last: 23 };

    /// True at a time in these hours.
    pub fn contain(self, now: Timestamp) -> bool {
        let hour = now.0 / HOUR_MICROS % 24;
        let (first, last) = (u64::from(self.first), u64::from(self.last));
        match first <= last {
            true => (first..=last).contains(&hour),
            false => hour >= first || hour <= last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_may_span_midnight() {
        let night = DayHours { first: 22, last: 3 };
        let at = |hour: u64| night.contain(Timestamp(hour * HOUR_MICROS + 5));
        assert!(at(22) && at(23) && at(24) && at(3));
        assert!(!at(4) && !at(21) && !at(12));
    }
}

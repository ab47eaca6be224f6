//! Log lines about a full disk: one when it is full, at growing intervals one with the number of
//! failed steps, and one when there is room again. Each of many stores tries again every few
//! seconds. A line for each try would hide all other lines, and fill a disk that the log shares.

use std::time::Duration;

use kvorum_runtime::Moment;

/// Time until the second line about a full disk; it doubles each time.
const SAID_AGAIN_AFTER: Duration = Duration::from_secs(60);
const SAID_AGAIN_AFTER_MAX: Duration = Duration::from_secs(3600);

/// The state of the disk as last logged.
#[derive(Debug, Default)]
pub(crate) struct FullDisk {
    said: Option<Said>,
}

#[derive(Debug)]
struct Said {
    at: Moment,
    again_after: Duration,
    failed: u64,
}

impl FullDisk {
    /// Counts a step without space. Returns the number of such steps since the last line, if one is
    /// due now.
    pub(crate) fn had_no_space(&mut self, now: Moment) -> Option<u64> {
        let Some(said) = &mut self.said else {
            self.said = Some(Said {
                at: now,
                again_after: SAID_AGAIN_AFTER,
                failed: 0,
            });
            return Some(1);
        };
        said.failed += 1;
        if now.since(said.at) < said.again_after {
            return None;
        }
        said.at = now;
        said.again_after = (said.again_after * 2).min(SAID_AGAIN_AFTER_MAX);
        Some(std::mem::take(&mut said.failed))
    }

    /// Notes that there is room. True if the disk was logged as full.
    pub(crate) fn has_room(&mut self) -> bool {
        self.said.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a full disk was logged once a second for ever, and more often with more
    /// partitions.
    #[test]
    fn a_full_disk_is_said_at_once_and_then_ever_more_seldom() {
        let mut full = FullDisk::default();
        let mut said = Vec::new();
        for second in 0..3600 {
            let now = Moment::default().plus(Duration::from_secs(second));
            for _ in 0..16 {
                said.extend(full.had_no_space(now).map(|failed| (second, failed)));
            }
        }
        let at: Vec<u64> = said.iter().map(|(second, _)| *second).collect();
        assert_eq!(at, [0, 60, 180, 420, 900, 1860]);
        assert_eq!(said[1].1, 15 + 59 * 16 + 1);
    }

    #[test]
    fn that_there_is_room_is_said_once() {
        let mut full = FullDisk::default();
        assert!(!full.has_room());
        assert_eq!(full.had_no_space(Moment::default()), Some(1));
        assert!(full.has_room() && !full.has_room());
        assert_eq!(full.had_no_space(Moment::default()), Some(1));
    }
}

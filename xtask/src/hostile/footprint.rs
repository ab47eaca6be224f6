//! The resident memory of a server over time.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::console;

/// The minutes that are compared: the caches are full after the first of them.
const EARLY_MINUTE: u64 = 2;
const LATE_MINUTE: u64 = 10;

/// The memory after a minute is the mean of its last seconds, since a single sample depends on the requests of that
/// moment.
const MEAN_SECONDS: u64 = 10;

/// The memory of the late minute in hundredths of that of the early one.
const PERCENT_MAX: u64 = 110;

/// Samples in kilobytes, each with its time since the start.
#[derive(Debug, Default)]
pub(super) struct Footprint {
    samples: Vec<(Duration, u64)>,
}

impl Footprint {
    pub(super) fn add(&mut self, at: Duration, kilobytes: u64) {
        self.samples.push((at, kilobytes));
    }

    /// The mean of the last seconds of a minute, from 1.
    fn after_minute(&self, minute: u64) -> Option<u64> {
        let end = minute * 60;
        let is_last = |at: &Duration| (end - MEAN_SECONDS..=end).contains(&at.as_secs());
        let last = self.samples.iter().filter(|(at, _)| is_last(at));
        let last: Vec<u64> = last.map(|(_, kilobytes)| *kilobytes).collect();
        let sum: u64 = last.iter().sum();
        sum.checked_div(last.len() as u64)
    }

    /// Prints a line for each minute.
    pub(super) fn print(&self) {
        for minute in 1.. {
            let Some(kilobytes) = self.after_minute(minute) else {
                return;
            };
            let megabytes = kilobytes / 1024;
            console::line(&format!("        minute {minute}: {megabytes} MB resident"));
        }
    }

    /// # Errors
    /// The memory has grown, or the run was too short to decide it.
    pub(super) fn require_no_growth(&self) -> anyhow::Result<()> {
        let minute = |number| {
            let mean = self.after_minute(number);
            mean.with_context(|| format!("the run ended before minute {number}"))
        };
        let (early, late) = (minute(EARLY_MINUTE)?, minute(LATE_MINUTE)?);
        ensure!(
            late * 100 <= early * PERCENT_MAX,
            "{late} KB resident after minute {LATE_MINUTE}, {early} KB after minute {EARLY_MINUTE}: \
             more than {PERCENT_MAX} percent"
        );
        Ok(())
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.samples.last().map_or(0, |(_, kilobytes)| *kilobytes);
        write!(f, "{} MB resident at the end", last / 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples for so many seconds, with so many kilobytes in each minute. Sampling takes a little more than
    /// a second each.
    fn footprint(seconds: u64, kilobytes: impl Fn(u64) -> u64) -> Footprint {
        let mut footprint = Footprint::default();
        for sample in 1.. {
            let at = Duration::from_millis(1_020 * sample);
            if at.as_secs() > seconds {
                break;
            }
            footprint.add(at, kilobytes(at.as_secs() / 60));
        }
        footprint
    }

    #[test]
    fn growth_after_the_second_minute_is_an_error() {
        let flat = footprint(600, |minute| if minute == 0 { 10 } else { 1_000 });
        flat.require_no_growth().unwrap();
        let little = footprint(600, |minute| 1_000 + 10 * minute);
        little.require_no_growth().unwrap();
        let leaking = footprint(600, |minute| 1_000 + 20 * minute);
        assert!(leaking.require_no_growth().is_err());
        let short = footprint(500, |_| 1_000);
        assert!(short.require_no_growth().is_err());
    }
}

//! The resident memory of a server over time.

use std::fmt;

use anyhow::{Context, ensure};

use crate::console;

/// Samples of a minute, one a second.
const MINUTE: usize = 60;

/// The minutes that are compared: the caches are full after the first of them.
const EARLY_MINUTE: usize = 2;
const LATE_MINUTE: usize = 10;

/// A sample is a mean of so many seconds, since single ones depend on the requests of that moment.
const MEAN_SECONDS: usize = 10;

/// The memory of the late minute in hundredths of that of the early one.
const PERCENT_MAX: u64 = 110;

/// Samples in kilobytes, one a second.
#[derive(Debug, Default)]
pub(super) struct Footprint {
    samples: Vec<u64>,
}

impl Footprint {
    pub(super) fn add(&mut self, kilobytes: u64) {
        self.samples.push(kilobytes);
    }

    /// The mean of the last seconds of a minute, from 1.
    fn after_minute(&self, minute: usize) -> Option<u64> {
        let end = minute * MINUTE;
        let last = self.samples.get(end.checked_sub(MEAN_SECONDS)?..end)?;
        Some(last.iter().sum::<u64>() / last.len() as u64)
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
    /// The memory has grown, or the run was too short to tell.
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
        let last = self.samples.last().copied().unwrap_or(0);
        write!(f, "{} MB resident at the end", last / 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten minutes with so many kilobytes in each.
    fn footprint(kilobytes: impl Fn(usize) -> u64) -> Footprint {
        let samples = (0..LATE_MINUTE * MINUTE).map(|second| kilobytes(second / MINUTE));
        Footprint {
            samples: samples.collect(),
        }
    }

    #[test]
    fn growth_after_the_second_minute_is_an_error() {
        let flat = footprint(|minute| if minute == 0 { 10 } else { 1_000 });
        flat.require_no_growth().unwrap();
        let little = footprint(|minute| 1_000 + 10 * minute as u64);
        little.require_no_growth().unwrap();
        let leaking = footprint(|minute| 1_000 + 20 * minute as u64);
        assert!(leaking.require_no_growth().is_err());
        let short = Footprint {
            samples: vec![1; 100],
        };
        assert!(short.require_no_growth().is_err());
    }
}

//! How requests fare, and how much more than the need background work may do while they do so.
//!
//! What is slow depends on the machine: a sync takes fifty microseconds on one and ten milliseconds
//! on the next. So no limit is configured: latency is compared with what it was while nothing beyond
//! the need was done. If requests get slower, the share of free capacity that upkeep takes falls at
//! once and by a large part, and it comes back in small pieces; at what requests do not feel it
//! settles. A baseline that has become too low heals itself: the share falls to nothing, and what is
//! measured then is the new baseline.

use std::time::Duration;

use crate::average::seconds;

/// Fewer requests than this say nothing about their slowest hundredth; a driver that sees fewer goes
/// on counting.
pub const COUNT_MIN: u64 = 20;
/// Requests suffer when they take this many times what they take undisturbed,
const SLOWER_TIMES: f64 = 2.0;
/// and this much on top: below that nobody feels a difference. Seconds.
const SLOWER_SECONDS: f64 = 0.000_5;
/// A look with suffering requests leaves this part of the share.
const FALL: f64 = 0.6;
/// A look with contented requests adds this much to it, one without any requests more.
const RISE: f64 = 0.05;
const RISE_UNWATCHED: f64 = 0.25;
/// What is below this is nothing.
const SHARE_MIN: f64 = 0.02;
/// With no more than this, requests count as undisturbed.
const SHARE_QUIET: f64 = 0.1;
/// How much of a new measurement the baseline takes over.
const LEARNED: f64 = 0.2;

/// How requests of one sort fared for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// 99 of 100 took no longer, about.
    pub p99: Duration,
}

/// The latency between two readings of a histogram: at position `n` stands how many requests took
/// less than 2^n microseconds since the start.
pub fn latency_between(earlier: &[u64], later: &[u64]) -> Latency {
    let below = |at: usize| {
        let earlier = earlier.get(at).copied().unwrap_or(0);
        later
            .get(at)
            .map_or(0, |later| later.saturating_sub(earlier))
    };
    let count = later.len().checked_sub(1).map_or(0, below);
    if count == 0 {
        return Latency::default();
    }
    let wanted = count as f64 * 0.99;
    let power = (0..later.len()).find(|at| below(*at) as f64 >= wanted);
    let power = power.unwrap_or(0);
    let (low, high) = match power.checked_sub(1) {
        None => (0.0, 1.0),
        Some(lower) => (2f64.powi(whole_power(lower)), 2f64.powi(whole_power(power))),
    };
    let (before, upto) = (power.checked_sub(1).map_or(0, below), below(power));
    // Within a power of two, times are taken to be spread evenly.
    let way = (wanted - before as f64) / (upto.saturating_sub(before).max(1)) as f64;
    let micros = low + (high - low) * way;
    Latency {
        count,
        p99: seconds(micros / 1e6, Duration::MAX),
    }
}

fn whole_power(power: usize) -> i32 {
    i32::try_from(power).unwrap_or(i32::MAX)
}

/// What is known of requests.
#[derive(Clone, Debug)]
pub(crate) struct Foreground {
    reads: Lane,
    writes: Lane,
    share: f64,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    /// Undisturbed, in seconds.
    baseline: Option<f64>,
    last: Latency,
}

impl Foreground {
    pub(crate) fn new() -> Self {
        Self {
            reads: Lane::default(),
            writes: Lane::default(),
            share: 1.0,
        }
    }

    /// Takes in how requests fared since the last look; `was_idle` when upkeep did nothing meanwhile.
    pub(crate) fn look(&mut self, reads: Latency, writes: Latency, was_idle: bool) {
        let is_quiet = was_idle || self.share <= SHARE_QUIET;
        let is_suffering = self.reads.look(reads, is_quiet) | self.writes.look(writes, is_quiet);
        self.share = if is_suffering {
            let left = self.share * FALL;
            if left < SHARE_MIN { 0.0 } else { left }
        } else if reads.count + writes.count == 0 {
            (self.share + RISE_UNWATCHED).min(1.0)
        } else {
            (self.share + RISE).min(1.0)
        };
    }

    /// The part of what is free beyond the need that upkeep may take, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    /// The present p99 of reads and of writes.
    pub(crate) fn p99(&self) -> (Duration, Duration) {
        (self.reads.last.p99, self.writes.last.p99)
    }
}

impl Lane {
    /// True when requests suffer.
    fn look(&mut self, latency: Latency, is_quiet: bool) -> bool {
        self.last = latency;
        if latency.count < COUNT_MIN {
            return false;
        }
        let p99 = latency.p99.as_secs_f64();
        let baseline = *self.baseline.get_or_insert(p99);
        let is_suffering = p99 > baseline * SLOWER_TIMES + SLOWER_SECONDS;
        self.baseline = Some(if is_quiet {
            baseline + (p99 - baseline) * LEARNED
        } else {
            baseline.min(p99)
        });
        is_suffering
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(p99_micros: u64) -> Latency {
        Latency {
            count: 1000,
            p99: Duration::from_micros(p99_micros),
        }
    }

    fn look(foreground: &mut Foreground, p99_micros: u64, times: usize) -> f64 {
        for _ in 0..times {
            foreground.look(requests(p99_micros), Latency::default(), false);
        }
        foreground.share()
    }

    #[test]
    fn slower_requests_take_the_share_away_within_a_few_looks() {
        let mut foreground = Foreground::new();
        assert!(look(&mut foreground, 1000, 30) > 0.99);
        assert!(look(&mut foreground, 9000, 8) < SHARE_QUIET);
        assert!(look(&mut foreground, 1000, 10) > 0.3);
    }

    #[test]
    fn a_little_slower_is_not_slower() {
        let mut foreground = Foreground::new();
        look(&mut foreground, 200, 30);
        assert!(look(&mut foreground, 850, 10) > 0.99);
        assert!(look(&mut foreground, 950, 5) < SHARE_QUIET);
    }

    #[test]
    fn what_is_slow_without_upkeep_becomes_the_measure() {
        let mut foreground = Foreground::new();
        look(&mut foreground, 1000, 10);
        // The load has changed: it takes five times as long whatever upkeep does.
        assert!(look(&mut foreground, 5000, 5) < SHARE_QUIET);
        assert!(look(&mut foreground, 5000, 60) > 0.9);
    }

    #[test]
    fn without_requests_all_is_free_and_few_say_nothing() {
        let mut foreground = Foreground::new();
        look(&mut foreground, 1000, 10);
        look(&mut foreground, 90_000, 10);
        let none = Latency::default();
        (0..4).for_each(|_| foreground.look(none, none, true));
        assert!((foreground.share() - 1.0).abs() < 1e-9);
        let few = Latency {
            count: COUNT_MIN - 1,
            p99: Duration::from_secs(1),
        };
        foreground.look(few, few, false);
        assert!((foreground.share() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_percentile_is_read_from_what_a_histogram_has_gained() {
        // 100 requests below 16 us before; then 98 from 64 to 128 us and 2 from 1024 to 2048 us.
        let mut earlier = vec![0; 13];
        earlier[4..].fill(100);
        let mut later = earlier.clone();
        later[7..].iter_mut().for_each(|count| *count += 98);
        later[11..].iter_mut().for_each(|count| *count += 2);
        let latency = latency_between(&earlier, &later);
        assert_eq!(latency.count, 100);
        assert_eq!(latency.p99, Duration::from_micros(1536));
        assert_eq!(latency_between(&later, &later), Latency::default());
        assert_eq!(latency_between(&[], &[]), Latency::default());
    }
}

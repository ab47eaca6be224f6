//! Latencies of requests, and the share of background work beyond the need that they allow.
//!
//! A slow latency depends on the machine: a sync takes fifty microseconds on one and ten
//! milliseconds on the next. So no limit is configured: latency is compared with its value while
//! nothing beyond the need was done. If requests get slower, the share of free capacity that upkeep
//! takes falls at once and by a large part, and it comes back in small pieces. It settles where
//! requests are not slowed. It comes back only while it limits upkeep: an unused share is not
//! tested, and work after a pause would begin with the whole share. A baseline that has become too
//! low corrects itself: the share falls to nothing, and the latency measured then is the new
//! baseline.
//!
//! Two values are compared: the slowest hundredth, which matters most to clients, and the mean,
//! which bounds the throughput of clients that wait for their answers. The mean and not the median:
//! if half of the requests are fast and half slow, the median jumps without any change of upkeep.

use std::time::Duration;

use crate::average::seconds;

/// The least number of requests with a meaningful slowest hundredth. With fewer, a driver continues
/// counting.
pub const COUNT_MIN: u64 = 20;
/// The least number with a meaningful mean.
const MEAN_COUNT_MIN: u64 = 200;
/// The factor between the slowest hundredth now and without upkeep, beyond which requests count as
/// slowed.
const TAIL_SLOWER: Slower = Slower {
    times: 2.0,
    seconds: 0.000_5,
};
/// The same for the mean, smoothed over a second or two.
const MEAN_SLOWER: Slower = Slower {
    times: 1.25,
    seconds: 0.000_25,
};
/// The weight of a new mean.
const MEAN_FOLLOWED: f64 = 0.2;
/// The cap on a mean, as a multiple of the limit: a request that hangs belongs to the tail.
const MEAN_TAKEN_MAX: f64 = 2.0;
/// The part of the share that is left after a look with slowed requests.
const FALL: f64 = 0.6;
/// The addition to the share after a look without slowed requests, if the share limited upkeep.
/// Without any requests it is much larger.
const RISE: f64 = 0.05;
const RISE_UNWATCHED: f64 = 0.25;
/// The least share; smaller ones become zero.
const SHARE_MIN: f64 = 0.02;
/// The largest share with which requests count as undisturbed.
const SHARE_UNDISTURBED: f64 = 0.1;
/// The weight of a new measurement in the baseline.
const LEARNED: f64 = 0.2;

/// Latencies of one kind of requests for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The number of requests.
    pub count: u64,
    /// Their mean latency.
    pub mean: Duration,
    /// Their approximate 99th percentile.
    pub p99: Duration,
}

/// A reading of a histogram of requests' times since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyReading {
    /// At position `n`, the number of requests that took less than 2^n microseconds.
    pub below_power: Vec<u64>,
    /// The sum of all latencies, in microseconds.
    pub sum_micros: u64,
}

/// The latency between two readings.
pub fn latency_between(earlier: &LatencyReading, later: &LatencyReading) -> Latency {
    let sum_micros = later.sum_micros.saturating_sub(earlier.sum_micros);
    let (earlier, later) = (&earlier.below_power, &later.below_power);
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
        mean: seconds(sum_micros as f64 / count as f64 / 1e6, Duration::MAX),
        p99: seconds(micros / 1e6, Duration::MAX),
    }
}

fn whole_power(power: usize) -> i32 {
    i32::try_from(power).unwrap_or(i32::MAX)
}

/// Background work since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meanwhile {
    /// Upkeep did nothing.
    pub(crate) was_idle: bool,
    /// Its share limited upkeep.
    pub(crate) was_held_back: bool,
}

/// Known latencies of requests.
#[derive(Clone, Debug)]
pub(crate) struct Foreground {
    reads: Lane,
    writes: Lane,
    share: f64,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    tail: Baseline,
    mean: Baseline,
    /// The smoothed mean, in seconds.
    recent_mean: Option<f64>,
    last: Latency,
}

/// The undisturbed latency, in seconds.
#[derive(Clone, Debug, Default)]
struct Baseline(Option<f64>);

/// The limit of a latency: the baseline times a factor, plus some seconds. A smaller difference has
/// no effect.
#[derive(Clone, Copy, Debug)]
struct Slower {
    times: f64,
    seconds: f64,
}

impl Slower {
    fn than(self, baseline: f64) -> f64 {
        baseline * self.times + self.seconds
    }
}

impl Foreground {
    pub(crate) fn new() -> Self {
        Self {
            reads: Lane::default(),
            writes: Lane::default(),
            share: 1.0,
        }
    }

    /// Takes the latencies of requests since the last look.
    pub(crate) fn look(&mut self, reads: Latency, writes: Latency, meanwhile: Meanwhile) {
        let is_undisturbed = meanwhile.was_idle || self.share <= SHARE_UNDISTURBED;
        let is_read_slower = self.reads.look(reads, is_undisturbed);
        let is_write_slower = self.writes.look(writes, is_undisturbed);
        let is_suffering = is_read_slower || is_write_slower;
        self.share = if is_suffering {
            let left = self.share * FALL;
            if left < SHARE_MIN { 0.0 } else { left }
        } else if reads.count + writes.count == 0 {
            (self.share + RISE_UNWATCHED).min(1.0)
        } else if meanwhile.was_held_back {
            (self.share + RISE).min(1.0)
        } else {
            self.share
        };
    }

    /// The part of the free capacity beyond the need that upkeep may take, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    /// Reads and writes at the last look.
    pub(crate) fn last(&self) -> (Latency, Latency) {
        (self.reads.last, self.writes.last)
    }
}

impl Lane {
    /// True when requests are slowed.
    fn look(&mut self, latency: Latency, is_undisturbed: bool) -> bool {
        self.last = latency;
        if latency.count < COUNT_MIN {
            return false;
        }
        let tail = latency.p99.as_secs_f64();
        let is_tail_slower = self.tail.is_exceeded(tail, TAIL_SLOWER, is_undisturbed);
        let is_mean_slower = latency.count >= MEAN_COUNT_MIN && {
            let mean = self.evened_out(latency.mean.as_secs_f64());
            self.mean.is_exceeded(mean, MEAN_SLOWER, is_undisturbed)
        };
        is_tail_slower || is_mean_slower
    }

    fn evened_out(&mut self, mean: f64) -> f64 {
        let most = self.mean.0.map_or(f64::INFINITY, |baseline| {
            MEAN_SLOWER.than(baseline) * MEAN_TAKEN_MAX
        });
        let recent = self.recent_mean.get_or_insert(mean);
        *recent += (mean.min(most) - *recent) * MEAN_FOLLOWED;
        *recent
    }
}

impl Baseline {
    /// True when requests are slower than undisturbed. Updates the baseline.
    fn is_exceeded(&mut self, taken: f64, slower: Slower, is_undisturbed: bool) -> bool {
        let baseline = *self.0.get_or_insert(taken);
        self.0 = Some(if is_undisturbed {
            baseline + (taken - baseline) * LEARNED
        } else {
            baseline.min(taken)
        });
        taken > slower.than(baseline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD_BACK: Meanwhile = Meanwhile {
        was_idle: false,
        was_held_back: true,
    };
    const IDLE: Meanwhile = Meanwhile {
        was_idle: true,
        was_held_back: false,
    };

    fn requests(p99_micros: u64) -> Latency {
        Latency {
            count: 1000,
            mean: Duration::from_micros(100),
            p99: Duration::from_micros(p99_micros),
        }
    }

    fn look(foreground: &mut Foreground, p99_micros: u64, times: usize) -> f64 {
        for _ in 0..times {
            foreground.look(requests(p99_micros), Latency::default(), HELD_BACK);
        }
        foreground.share()
    }

    #[test]
    fn slower_requests_take_the_share_away_within_a_few_looks() {
        let mut foreground = Foreground::new();
        assert!(look(&mut foreground, 1000, 30) > 0.99);
        assert!(look(&mut foreground, 9000, 8) < SHARE_UNDISTURBED);
        assert!(look(&mut foreground, 1000, 10) > 0.3);
    }

    #[test]
    fn a_little_slower_is_not_slower() {
        let mut foreground = Foreground::new();
        look(&mut foreground, 200, 30);
        assert!(look(&mut foreground, 850, 10) > 0.99);
        assert!(look(&mut foreground, 950, 5) < SHARE_UNDISTURBED);
    }

    fn look_at_means(
        foreground: &mut Foreground,
        count: u64,
        mean_micros: impl IntoIterator<Item = u64>,
    ) -> f64 {
        for mean_micros in mean_micros {
            let latency = Latency {
                count,
                mean: Duration::from_micros(mean_micros),
                p99: Duration::from_micros(9000),
            };
            foreground.look(latency, Latency::default(), HELD_BACK);
        }
        foreground.share()
    }

    /// A closed loop on a busy machine: each request takes 50 % longer, with the same spread.
    #[test]
    fn all_a_little_slower_is_slower_though_the_tail_is_not() {
        let mut foreground = Foreground::new();
        assert!(look_at_means(&mut foreground, 1000, [1400; 30]) > 0.99);
        assert!(look_at_means(&mut foreground, 1000, [1900; 20]) > 0.99);
        assert!(look_at_means(&mut foreground, 1000, [2400; 7]) < SHARE_UNDISTURBED);
        // Too few for a judgement.
        let mut foreground = Foreground::new();
        look_at_means(&mut foreground, 100, [1400; 30]);
        assert!(look_at_means(&mut foreground, 100, [2400; 12]) > 0.99);
    }

    #[test]
    fn one_request_that_hangs_does_not_take_the_share_away() {
        let mut foreground = Foreground::new();
        look_at_means(&mut foreground, 1000, [1400; 30]);
        let with_one = [90_000, 1400, 1400, 1400];
        assert!(look_at_means(&mut foreground, 1000, with_one) > 0.5);
    }

    /// Half take 100 us and half 5 ms, and the mix in a look is random.
    #[test]
    fn requests_of_two_kinds_leave_upkeep_its_share() {
        let mut foreground = Foreground::new();
        let (mut dice, mut least) = (1u64, 1f64);
        for look in 0..2000 {
            let slow = (0..MEAN_COUNT_MIN).filter(|_| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                dice >> 63 == 1
            });
            let slow = slow.count() as u64;
            let mean = (slow * 5000 + (MEAN_COUNT_MIN - slow) * 100) / MEAN_COUNT_MIN;
            let share = look_at_means(&mut foreground, MEAN_COUNT_MIN, [mean]);
            if look > 10 {
                least = least.min(share);
            }
        }
        assert!(least > 0.9, "{least}");
    }

    #[test]
    fn what_is_slow_without_upkeep_becomes_the_measure() {
        let mut foreground = Foreground::new();
        look(&mut foreground, 1000, 10);
        // The load has changed: requests take five times as long even without upkeep.
        assert!(look(&mut foreground, 5000, 5) < SHARE_UNDISTURBED);
        assert!(look(&mut foreground, 5000, 60) > 0.9);
    }

    #[test]
    fn work_that_comes_up_after_a_pause_begins_with_what_requests_bore_before() {
        let mut foreground = Foreground::new();
        look(&mut foreground, 1000, 10);
        let before = look(&mut foreground, 9000, 3);
        (0..100).for_each(|_| foreground.look(requests(1000), Latency::default(), IDLE));
        assert!((foreground.share() - before).abs() < 1e-9);
        let unhindered = Meanwhile::default();
        (0..100).for_each(|_| foreground.look(requests(1000), Latency::default(), unhindered));
        assert!((foreground.share() - before).abs() < 1e-9);
        assert!(look(&mut foreground, 1000, 20) > 0.99);
    }

    #[test]
    fn without_requests_all_is_free_and_few_say_nothing() {
        let mut foreground = Foreground::new();
        look(&mut foreground, 1000, 10);
        look(&mut foreground, 90_000, 10);
        let none = Latency::default();
        (0..4).for_each(|_| foreground.look(none, none, IDLE));
        assert!((foreground.share() - 1.0).abs() < 1e-9);
        let few = Latency {
            count: COUNT_MIN - 1,
            mean: Duration::from_secs(1),
            p99: Duration::from_secs(1),
        };
        foreground.look(few, few, HELD_BACK);
        assert!((foreground.share() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_percentile_is_read_from_what_a_histogram_has_gained() {
        // 100 requests below 16 us before; then 98 from 64 to 128 us and 2 from 1024 to 2048 us.
        let mut earlier = LatencyReading {
            below_power: vec![0; 13],
            sum_micros: 1000,
        };
        earlier.below_power[4..].fill(100);
        let mut later = earlier.clone();
        let gained = |count: &mut u64, more: u64| *count += more;
        later.below_power[7..]
            .iter_mut()
            .for_each(|it| gained(it, 98));
        later.below_power[11..]
            .iter_mut()
            .for_each(|it| gained(it, 2));
        later.sum_micros += 98 * 100 + 2 * 1200;
        let latency = latency_between(&earlier, &later);
        assert_eq!(latency.count, 100);
        assert_eq!(latency.mean, Duration::from_micros(122));
        assert_eq!(latency.p99, Duration::from_micros(1536));
        assert_eq!(latency_between(&later, &later), Latency::default());
        let none = LatencyReading::default();
        assert_eq!(latency_between(&none, &none), Latency::default());
    }
}

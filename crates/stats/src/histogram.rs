//! Histograms: the values of the last minute for percentiles, and of all time for OpenMetrics.
//!
//! Buckets are exact below 32 and at most 1/32 of their value wide above, up to 2^40 (twelve days
//! in microseconds). A histogram library would keep more digits; it would also need a lock or a
//! copy for each thread, and a sweep for each slice of the window.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::recording::{Recording, SLICE_SECONDS, SLICES, slot_of};
use crate::stripe::STRIPES;
use crate::window::{COUNT_MAX, Cell};

/// Each power of two is cut into so many buckets.
const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;
const VALUE_BITS: u32 = 40;
const BUCKETS: usize = STEPS * (VALUE_BITS - STEP_BITS + 1) as usize;

/// The unit of a histogram's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds, as Riak counts time; OpenMetrics shows seconds.
    Microseconds,
    /// Bytes.
    Bytes,
    /// A number of things.
    Things,
}

/// A distribution of values. A copy for a thread's stripe is made when it first records.
#[derive(Debug, Default)]
pub struct Histogram {
    stripes: [OnceLock<Box<Stripe>>; STRIPES],
}

#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    slices: Box<[Slice]>,
    /// By length in bits: values from 2^(length - 1) to 2^length - 1.
    totals: [AtomicU64; VALUE_BITS as usize + 1],
    sum: AtomicU64,
}

#[derive(Debug)]
struct Slice {
    maximum: Cell,
    buckets: Box<[Cell]>,
}

/// The last minute of a histogram; all zero when nothing was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HistogramSummary {
    /// Number of values.
    pub count: u64,
    /// Their mean.
    pub mean: u64,
    /// Half of them are not above.
    pub median: u64,
    /// 95 of 100 are not above.
    pub percentile_95: u64,
    /// 99 of 100 are not above.
    pub percentile_99: u64,
    /// The greatest, exactly.
    pub maximum: u64,
}

/// All that a histogram has recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramTotals {
    /// Number of values below 2^position.
    pub below_power: Vec<u64>,
    /// Number of values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
}

impl Default for Stripe {
    fn default() -> Self {
        let slice = |_| Slice {
            maximum: Cell::default(),
            buckets: (0..BUCKETS).map(|_| Cell::default()).collect(),
        };
        Self {
            slices: (0..SLICES).map(slice).collect(),
            totals: std::array::from_fn(|_| AtomicU64::new(0)),
            sum: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Records a value; values of 2^40 and more count as 2^40 - 1.
    pub fn record(&self, now: Duration, value: u64) {
        self.record_at(&Recording::new(now), value);
    }

    /// Records a value, among others that are recorded at once.
    pub fn record_at(&self, recording: &Recording, value: u64) {
        let value = value.min(COUNT_MAX);
        let own = recording.stripe;
        let stripe = self.stripes[own.number()].get_or_init(Box::default);
        let (slot, turn) = recording.slice;
        let slice = &stripe.slices[slot];
        slice.buckets[bucket(value)].add(own, turn, 1);
        slice.maximum.raise(turn, value);
        own.add(&stripe.totals[bit_length(value)], 1);
        own.add(&stripe.sum, value);
    }

    /// Records a duration in whole microseconds.
    pub fn record_time(&self, now: Duration, took: Duration) {
        self.record_time_at(&Recording::new(now), took);
    }

    /// Records a duration, among others that are recorded at once.
    pub fn record_time_at(&self, recording: &Recording, took: Duration) {
        self.record_at(
            recording,
            u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        );
    }

    /// The last minute (54 to 60 seconds of it).
    pub fn summary(&self, now: Duration) -> HistogramSummary {
        let mut counts = vec![0u64; BUCKETS];
        let mut maximum = 0;
        let last = now.as_secs() / SLICE_SECONDS;
        for stripe in self.recorded() {
            for number in last.saturating_sub(SLICES - 1)..=last {
                let (slot, turn) = slot_of(number);
                let slice = &stripe.slices[slot];
                maximum = maximum.max(slice.maximum.get(turn));
                for (count, cell) in counts.iter_mut().zip(&slice.buckets) {
                    *count += cell.get(turn);
                }
            }
        }
        summarise(&counts, maximum)
    }

    /// Everything since the start.
    pub fn totals(&self) -> HistogramTotals {
        let mut count = 0;
        let below = |bits: usize| {
            let of_stripe = |stripe: &Stripe| stripe.totals[bits].load(Ordering::Relaxed);
            count += self.recorded().map(of_stripe).sum::<u64>();
            count
        };
        let below_power = (0..=VALUE_BITS as usize).map(below).collect();
        let sum = self
            .recorded()
            .map(|stripe| stripe.sum.load(Ordering::Relaxed))
            .sum();
        HistogramTotals {
            below_power,
            count,
            sum,
        }
    }

    fn recorded(&self) -> impl Iterator<Item = &Stripe> {
        self.stripes
            .iter()
            .filter_map(|stripe| stripe.get().map(Box::as_ref))
    }
}

fn summarise(counts: &[u64], maximum: u64) -> HistogramSummary {
    let count: u64 = counts.iter().sum();
    if count == 0 {
        return HistogramSummary::default();
    }
    let occupied = || counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let middle = |at: usize| middle_of(at).min(maximum);
    let sum: u128 = occupied()
        .map(|(at, count)| u128::from(middle(at)) * u128::from(*count))
        .sum();
    let percentile = |percent: u64| {
        let rank = (count * percent).div_ceil(100).max(1);
        let mut met = 0;
        let found = occupied().find(|(_, count)| {
            met += **count;
            met >= rank
        });
        found.map_or(maximum, |(at, _)| middle(at))
    };
    HistogramSummary {
        count,
        mean: u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX),
        median: percentile(50),
        percentile_95: percentile(95),
        percentile_99: percentile(99),
        maximum,
    }
}

fn bit_length(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

/// The bucket of a value below 2^40: the value itself below 32, then 32 for each power of two.
fn bucket(value: u64) -> usize {
    let shift = bit_length(value).saturating_sub(STEP_BITS as usize + 1);
    let step = usize::try_from(value >> shift).unwrap_or(0);
    shift * STEPS + step
}

/// The value that stands for all of a bucket.
fn middle_of(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let step = (bucket - shift * STEPS) as u64;
    (step << shift) + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn small_values_are_exact() {
        let histogram = Histogram::default();
        for value in 1..=20 {
            histogram.record(at(3), value);
        }
        let expected = HistogramSummary {
            count: 20,
            mean: 10,
            median: 10,
            percentile_95: 19,
            percentile_99: 20,
            maximum: 20,
        };
        assert_eq!(histogram.summary(at(3)), expected);
    }

    #[test]
    fn an_empty_minute_is_all_zero() {
        let histogram = Histogram::default();
        assert_eq!(histogram.summary(at(100)), HistogramSummary::default());
        histogram.record(at(100), 5);
        assert_eq!(histogram.summary(at(155)).count, 1);
        assert_eq!(histogram.summary(at(160)), HistogramSummary::default());
        assert_eq!(histogram.totals().count, 1);
    }

    #[test]
    fn the_greatest_value_is_exact_and_bounds_the_percentiles() {
        let histogram = Histogram::default();
        histogram.record_time(at(1), Duration::from_micros(1_000_003));
        let summary = histogram.summary(at(1));
        assert_eq!(summary.maximum, 1_000_003);
        assert!(summary.percentile_99 <= 1_000_003 && summary.percentile_99 > 960_000);
        histogram.record(at(1), u64::MAX);
        assert_eq!(histogram.summary(at(1)).maximum, COUNT_MAX);
    }

    #[test]
    fn threads_lose_no_value() {
        let histogram = Histogram::default();
        let (threads, each) = (10, 2000);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope
                    .spawn(|| (0..each).for_each(|value| histogram.record(at(value / 100), value)));
            }
        });
        assert_eq!(histogram.summary(at(19)).count, threads * each);
        assert_eq!(histogram.summary(at(19)).maximum, each - 1);
        let totals = histogram.totals();
        assert_eq!(
            (totals.count, totals.sum),
            (threads * each, threads * each * (each - 1) / 2)
        );
    }

    #[test]
    fn totals_are_cumulative() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 1000] {
            histogram.record(at(1), value);
        }
        let totals = histogram.totals();
        assert_eq!(totals.below_power[..4], [1, 2, 4, 5]);
        assert_eq!((totals.below_power[9], totals.below_power[10]), (5, 6));
        assert_eq!((totals.count, totals.sum), (6, 1010));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_bucket_stands_for_values_near_it(value in 0..=COUNT_MAX) {
            let at = bucket(value);
            prop_assert!(at < BUCKETS);
            let distance = middle_of(at).abs_diff(value);
            prop_assert!(distance * 32 <= value, "{} stands for {value}", middle_of(at));
            prop_assert_eq!(bucket(middle_of(at)), at);
            prop_assert!(bucket(value + 1) >= at);
        }

        #[test]
        fn percentiles_are_those_of_the_values(mut values in prop::collection::vec(0u64..5_000_000, 1..300)) {
            let histogram = Histogram::default();
            for value in &values {
                histogram.record(at(9), *value);
            }
            values.sort_unstable();
            let summary = histogram.summary(at(9));
            for (percent, got) in [(50, summary.median), (95, summary.percentile_95), (99, summary.percentile_99)] {
                let exact = values[(values.len() * percent).div_ceil(100) - 1];
                prop_assert!(got.abs_diff(exact) * 32 <= exact.max(got), "{percent}: {got} for {exact}");
            }
            prop_assert_eq!(Some(&summary.maximum), values.last());
        }
    }
}

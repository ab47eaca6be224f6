//! Counts and latencies of operations, written by a thread of workers and read by the report.
//!
//! Latencies are kept in histograms with three significant digits. basho_bench keeps a list of all
//! samples, whose memory grows with throughput. Below 2048 microseconds a histogram of three digits
//! is exact.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::driver::Outcome;

/// The longest latency of the histogram; longer ones count as this. Maxima are exact.
const LATENCY_MICROSECONDS_MAX: u64 = 3_600_000_000;

/// Distinct reasons of errors kept for each operation; the rest count as `other`.
const REASONS_MAX: usize = 200;

/// Outcomes and latencies of the operations of one kind.
#[derive(Debug, Clone)]
pub struct Record {
    histogram: Histogram<u64>,
    /// Sum of all latencies, in nanoseconds.
    sum_nanoseconds: u128,
    /// Smallest and largest latency, in microseconds.
    extremes: Option<(u64, u64)>,
    /// Successful operations.
    pub units: u64,
    /// Successful operations that found nothing.
    pub misses: u64,
    /// Failed operations.
    pub errors: u64,
    /// Bytes of keys and values that successful operations wrote.
    pub payload_bytes: u64,
    /// Failed operations by reason, printed as Erlang's `~w` does.
    pub reasons: BTreeMap<String, u64>,
}

/// Statistics of a set of latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latencies {
    /// Number of samples.
    pub samples: u64,
    /// Smallest.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of the samples are not above this.
    pub median: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// 99.99th percentile.
    pub p9999: u64,
    /// Largest.
    pub max: u64,
}

impl Record {
    /// An empty record. Fails only if the histogram's bounds are invalid.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            histogram: Histogram::new_with_bounds(1, LATENCY_MICROSECONDS_MAX, 3)?,
            sum_nanoseconds: 0,
            extremes: None,
            units: 0,
            misses: 0,
            errors: 0,
            payload_bytes: 0,
            reasons: BTreeMap::new(),
        })
    }

    /// Adds one operation that took the given time.
    pub fn add(&mut self, outcome: &Outcome, elapsed: Duration) {
        match outcome {
            Outcome::Done => self.add_success(elapsed),
            Outcome::Missed => {
                self.misses += 1;
                self.add_success(elapsed);
            }
            Outcome::Timed(own) => self.add_success(*own),
            Outcome::Failed(reason) => self.add_error(reason.to_plain_text()),
            Outcome::Silent | Outcome::Exhausted => {}
        }
    }

    fn add_success(&mut self, elapsed: Duration) {
        let microseconds = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.units += 1;
        self.sum_nanoseconds += elapsed.as_nanos();
        self.histogram.saturating_record(microseconds);
        self.extremes = Some(match self.extremes {
            Some((min, max)) => (min.min(microseconds), max.max(microseconds)),
            None => (microseconds, microseconds),
        });
    }

    fn add_error(&mut self, reason: String) {
        self.errors += 1;
        let known = self.reasons.len() < REASONS_MAX || self.reasons.contains_key(&reason);
        let reason = if known { reason } else { "other".to_owned() };
        *self.reasons.entry(reason).or_default() += 1;
    }

    /// Adds the counts of another record.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so adding cannot fail.
        let _ = self.histogram.add(&other.histogram);
        self.sum_nanoseconds += other.sum_nanoseconds;
        self.widen(other.extremes);
        self.units += other.units;
        self.misses += other.misses;
        self.errors += other.errors;
        self.payload_bytes += other.payload_bytes;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

    /// The histogram of latencies, in microseconds.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// The exact sum of latencies in nanoseconds, and the exact smallest and largest in microseconds.
    pub fn exact(&self) -> (u128, Option<(u64, u64)>) {
        (self.sum_nanoseconds, self.extremes)
    }

    /// Adds samples that were written to files; false if the histogram has other bounds.
    pub fn add_recorded(
        &mut self,
        histogram: &Histogram<u64>,
        sum_nanoseconds: u128,
        extremes: Option<(u64, u64)>,
    ) -> bool {
        let added = self.histogram.add(histogram).is_ok();
        self.sum_nanoseconds += sum_nanoseconds;
        self.widen(extremes);
        added
    }

    fn widen(&mut self, extremes: Option<(u64, u64)>) {
        self.extremes = match (self.extremes, extremes) {
            (Some((min, max)), Some((low, high))) => Some((min.min(low), max.max(high))),
            (one, None) => one,
            (None, one) => one,
        };
    }

    /// Clears everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.sum_nanoseconds = 0;
        self.extremes = None;
        self.units = 0;
        self.misses = 0;
        self.errors = 0;
        self.payload_bytes = 0;
        self.reasons.clear();
    }

    /// Statistics of the latencies.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a mean needs no more than a float's precision"
    )]
    pub fn latencies(&self) -> Latencies {
        let samples = self.histogram.len();
        let Some((min, max)) = self.extremes else {
            return Latencies::default();
        };
        Latencies {
            samples,
            min,
            mean: self.sum_nanoseconds as f64 / 1000.0 / samples as f64,
            median: self.percentile(5_000).min(max),
            p95: self.percentile(9_500).min(max),
            p99: self.percentile(9_900).min(max),
            p999: self.percentile(9_990).min(max),
            p9999: self.percentile(9_999).min(max),
            max,
        }
    }

    /// The sample at position round(p * n) of the sorted samples, as in basho_bench.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a position needs no more than a float"
    )]
    fn percentile(&self, ten_thousandths: u64) -> u64 {
        let samples = self.histogram.len();
        let place = u128::from(samples) * u128::from(ten_thousandths);
        let position = ((place + 5_000) / 10_000).max(1);
        // Half a position lower, so that rounding up gives exactly this position.
        self.histogram
            .value_at_quantile((position as f64 - 0.5) / samples.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvorum_erlang_terms::Term;

    fn record(samples: impl IntoIterator<Item = u64>) -> Record {
        let mut record = Record::new().unwrap();
        for sample in samples {
            record.add(&Outcome::Done, Duration::from_micros(sample));
        }
        record
    }

    #[test]
    fn percentiles_are_those_of_basho_bench() {
        let hundred = record(1..=100).latencies();
        assert_eq!(
            (hundred.median, hundred.p95, hundred.p99, hundred.p999),
            (50, 95, 99, 100)
        );
        assert_eq!((hundred.min, hundred.max, hundred.samples), (1, 100, 100));
        assert!((hundred.mean - 50.5).abs() < 1e-9);
        assert_eq!(record(1..=5).latencies().median, 3);
        let many = record((1..=1_000).flat_map(|it| [it; 20])).latencies();
        assert_eq!((many.p999, many.p9999), (999, 1_000));
        assert_eq!(record([]).latencies(), Latencies::default());
    }

    #[test]
    fn large_latencies_keep_three_digits_and_an_exact_maximum() {
        let slow = record([123_456, 7_200_000_000]).latencies();
        assert_eq!(slow.max, 7_200_000_000);
        assert!((slow.median as f64 / 123_456.0 - 1.0).abs() < 0.001);
    }

    #[test]
    fn outcomes_are_accounted_for_by_kind() {
        let mut record = record([]);
        let slow = Duration::from_secs(1);
        record.add(&Outcome::Missed, slow);
        record.add(&Outcome::Timed(Duration::from_micros(7)), slow);
        record.add(&Outcome::Silent, slow);
        record.add(&Outcome::Exhausted, slow);
        record.add(&Outcome::failed("timeout"), slow);
        record.add(&Outcome::Failed(Term::Binary(b"a".to_vec())), slow);
        assert_eq!((record.units, record.misses, record.errors), (2, 1, 2));
        assert_eq!(record.latencies().min, 7);
        assert_eq!(
            record.reasons.keys().collect::<Vec<_>>(),
            ["<<97>>", "timeout"]
        );
    }

    #[test]
    fn merging_adds_and_clearing_forgets() {
        let mut first = record(1..=50);
        first.merge(&record(51..=100));
        assert_eq!(first.latencies(), record(1..=100).latencies());
        first.clear();
        assert_eq!((first.latencies(), first.units), (Latencies::default(), 0));
        first.merge(&record([3]));
        assert_eq!(first.latencies().min, 3);
    }

    #[test]
    fn reasons_without_end_are_folded_together() {
        let mut record = record([]);
        for number in 0..1000 {
            record.add(&Outcome::Failed(Term::Integer(number)), Duration::ZERO);
        }
        assert_eq!(record.reasons.len(), REASONS_MAX + 1);
        assert_eq!(record.reasons.values().sum::<u64>(), 1000);
    }
}

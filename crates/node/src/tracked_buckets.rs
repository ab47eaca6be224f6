//! Buckets with figures of their own: those whose `stat_tracked` is set, themselves or by their type.
//!
//! A figure takes some memory, and a bucket type may have any number of buckets. So only the first buckets
//! are tracked, and requests for others count as left out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kvorum_cluster::ClusterState;
use kvorum_coordinator::RequestKind;
use kvorum_encoding::{Address, Bucket, BucketType};
use kvorum_object::Object;
use kvorum_stats::{BucketStats, Histogram, MetricKind, MetricsText, Recording, Unit};
use parking_lot::RwLock;

/// The most buckets with figures of their own: about 25 MB.
const BUCKETS_MAX: usize = 64;

/// The figures of all such buckets.
#[derive(Debug, Default)]
pub(crate) struct TrackedBuckets {
    is_any: AtomicBool,
    /// The version of the agreed state that was looked at last.
    seen: AtomicU64,
    figures: RwLock<BTreeMap<(BucketType, Bucket), Arc<BucketStats>>>,
    left_out: AtomicU64,
}

impl TrackedBuckets {
    /// True if a bucket may be tracked.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Looks which buckets are to be tracked by the agreed state. Figures of those that are not any more are dropped.
    pub(crate) fn look(&self, state: &ClusterState) {
        if self.seen.swap(state.version(), Ordering::Relaxed) == state.version() {
            return;
        }
        self.is_any.store(tracks_any(state), Ordering::Relaxed);
        self.figures.write().retain(|(bucket_type, bucket), _| {
            let properties = state.properties(bucket_type, bucket);
            properties.is_ok_and(|it| it.is_stat_tracked())
        });
    }

    /// Records a request for an object of a tracked bucket.
    pub(crate) fn record(
        &self,
        address: &Address,
        kind: RequestKind,
        took: Duration,
        object: Option<&Object>,
        now: Duration,
    ) {
        let Some(figures) = self.figures_of(address) else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let at = Recording::shared(now);
        match kind {
            RequestKind::Get | RequestKind::Fetch(_) => {
                figures.gets.count_at(&at);
                figures.get_time.record_time_at(&at, took);
                if let Some(size) = object.map(Object::size) {
                    figures.get_objsize.record_at(&at, size.bytes);
                    figures.get_siblings.record_at(&at, size.siblings as u64);
                }
            }
            RequestKind::Put
            | RequestKind::WriteOncePut
            | RequestKind::Update(_)
            | RequestKind::Delete => {
                figures.puts.count_at(&at);
                figures.put_time.record_time_at(&at, took);
            }
            RequestKind::ListKeys
            | RequestKind::ListBuckets
            | RequestKind::IndexQuery
            | RequestKind::KeyFold => {}
        }
    }

    fn figures_of(&self, address: &Address) -> Option<Arc<BucketStats>> {
        let place = (address.bucket_type.clone(), address.bucket.clone());
        {
            // Requests for buckets that are left out do not wait for each other either.
            let all = self.figures.read();
            if all.len() >= BUCKETS_MAX || all.contains_key(&place) {
                return all.get(&place).cloned();
            }
        }
        let mut all = self.figures.write();
        if all.len() >= BUCKETS_MAX && !all.contains_key(&place) {
            return None;
        }
        Some(all.entry(place).or_default().clone())
    }

    /// Adds a sample of each bucket; nothing if no bucket is tracked.
    pub(crate) fn metrics(&self, text: &mut MetricsText) {
        let all = self.figures.read();
        let named = all.iter().map(|((bucket_type, bucket), figures)| {
            (bucket_type.to_string(), bucket.to_string(), &**figures)
        });
        let named: Vec<_> = named.collect();
        if named.is_empty() {
            return;
        }
        let labelled = named.iter().map(|(bucket_type, bucket, figures)| {
            let labels = [("bucket_type", &**bucket_type), ("bucket", &**bucket)];
            (labels, *figures)
        });
        let labelled: Vec<Labelled<'_>> = labelled.collect();
        put_counter(
            text,
            ("bucket_gets", "Reads of a bucket with stat_tracked"),
            &labelled,
            |it| it.gets.total(),
        );
        put_counter(
            text,
            (
                "bucket_puts",
                "Writes and deletes of a bucket with stat_tracked",
            ),
            &labelled,
            |it| it.puts.total(),
        );
        let histograms: [HistogramFamily; 4] = [
            (
                "bucket_get_time",
                "Time of such a read",
                Unit::Microseconds,
                |it| &it.get_time,
            ),
            (
                "bucket_put_time",
                "Time of such a write",
                Unit::Microseconds,
                |it| &it.put_time,
            ),
            (
                "bucket_get_objsize",
                "Size of the objects read",
                Unit::Bytes,
                |it| &it.get_objsize,
            ),
            (
                "bucket_get_siblings",
                "Siblings of the objects read",
                Unit::Things,
                |it| &it.get_siblings,
            ),
        ];
        for (name, help, unit, histogram) in histograms {
            let samples = labelled
                .iter()
                .map(|(labels, it)| (&labels[..], histogram(it)));
            text.histograms(name, unit, help, samples);
        }
        let help =
            "Requests for buckets with stat_tracked that were more than have figures of their own";
        let left_out = self.left_out.load(Ordering::Relaxed);
        text.counter("bucket_requests_left_out", help, left_out);
    }
}

/// The figures of a bucket with its labels.
type Labelled<'a> = ([(&'a str, &'a str); 2], &'a BucketStats);

/// A family of histograms: its name, its help, its unit, and its figure of a bucket.
type HistogramFamily = (
    &'static str,
    &'static str,
    Unit,
    fn(&BucketStats) -> &Histogram,
);

fn put_counter(
    text: &mut MetricsText,
    (name, help): (&str, &str),
    labelled: &[Labelled<'_>],
    total: fn(&BucketStats) -> u64,
) {
    let samples = labelled.iter().map(|(labels, it)| (&labels[..], total(it)));
    text.family(MetricKind::Counter, name, help, samples);
}

/// True if a bucket type or a bucket sets `stat_tracked`.
fn tracks_any(state: &ClusterState) -> bool {
    let of_types = state.bucket_types().values().map(|it| &it.properties);
    let of_buckets = state.bucket_overlays().map(|(_, _, overlay)| overlay);
    of_types
        .chain(of_buckets)
        .any(|it| it.stat_tracked == Some(true))
}

#[cfg(test)]
mod tests {
    use kvorum_encoding::Key;

    use super::*;

    fn address(bucket: String) -> Address {
        Address {
            bucket_type: BucketType::default_type(),
            bucket: Bucket::new(bucket),
            key: Key::from("k"),
        }
    }

    #[test]
    fn buckets_beyond_the_bound_are_counted_as_left_out() {
        let tracked = TrackedBuckets::default();
        let (took, now) = (Duration::from_millis(1), Duration::from_secs(9));
        for number in 0..BUCKETS_MAX + 5 {
            let address = address(format!("b{number}"));
            tracked.record(&address, RequestKind::Get, took, None, now);
            tracked.record(&address, RequestKind::Delete, took, None, now);
        }
        let mut text = MetricsText::new();
        tracked.metrics(&mut text);
        let text = text.finish();
        for line in [
            "kvorum_bucket_gets_total{bucket_type=\"default\",bucket=\"b0\"} 1\n",
            "kvorum_bucket_puts_total{bucket_type=\"default\",bucket=\"b63\"} 1\n",
            "kvorum_bucket_put_time_seconds_count{bucket_type=\"default\",bucket=\"b7\"} 1\n",
            "kvorum_bucket_requests_left_out_total 10\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("\"b64\""));
    }

    #[test]
    fn without_tracked_buckets_there_are_no_families_of_them() {
        let mut text = MetricsText::new();
        TrackedBuckets::default().metrics(&mut text);
        assert_eq!(text.finish(), "# EOF\n");
    }
}

//! Counters, windows and histograms behind `/stats`, `/metrics` and `kvorum admin status`.
//!
//! Everything is recorded with a few relaxed atomic operations on memory that never moves: no lock
//! and no clock. The caller passes the time that it has anyway, as a [`Duration`] since a fixed
//! moment of its choice, the same for every call.
//!
//! Figures have Riak's names and are in one table (`registry.rs`). There are two ways to read them:
//! [`Stats::riak_values`] has Riak's names and numbers, and [`MetricsText`] is OpenMetrics.
//!
//! [`Duration`]: std::time::Duration

mod bucket_stats;
mod counter;
mod histogram;
mod openmetrics;
mod reading;
mod recording;
mod registry;
#[cfg(test)]
mod riak_names_test;
mod stripe;
mod type_stats;
mod window;

pub use bucket_stats::BucketStats;
pub use counter::{Counter, Gauge, Total};
pub use histogram::{Histogram, HistogramSummary, HistogramTotals, Unit};
pub use openmetrics::{CONTENT_TYPE, MetricKind, MetricsText};
pub use reading::Reading;
pub use recording::Recording;
pub use registry::Stats;
pub use type_stats::TypeStats;

//! The log of a run's records by interval, from which several runs can be merged exactly.
//!
//! Percentiles cannot be added up; histograms can. `histograms.hlog` holds the histograms in the
//! format of HdrHistogram's log, which its own tools read too. `counts.csv` has everything else:
//! errors, bytes, exact sums.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::activity::Records;
use crate::seconds::seconds;

/// Name of the histogram log. The tag of a line is the operation's label, or [`LATENESS`] for the
/// lateness of an open loop.
pub(crate) const HISTOGRAMS: &str = "histograms.hlog";

/// Name of the file of counts, with the same labels.
pub(crate) const COUNTS: &str = "counts.csv";

/// Labels of operations have no underscores.
pub(crate) const LATENESS: &str = "begun_late";

/// Header of `counts.csv`.
pub(crate) const COUNTS_HEADER: &str = "elapsed, window, operation, units, misses, errors, \
                                        payload_bytes, sum_nanoseconds, min, max";

/// Writes both files.
#[derive(Debug)]
pub(super) struct IntervalLog {
    labels: Vec<String>,
    histograms: File,
    counts: File,
}

impl IntervalLog {
    pub(super) fn create(directory: &Path, labels: &[String]) -> io::Result<Self> {
        let mut counts = File::create(directory.join(COUNTS))?;
        writeln!(counts, "{COUNTS_HEADER}")?;
        Ok(Self {
            labels: labels.to_vec(),
            histograms: File::create(directory.join(HISTOGRAMS))?,
            counts,
        })
    }

    /// Writes the header: times of lines count from this moment.
    pub(super) fn begin(&mut self, started: SystemTime) -> io::Result<()> {
        let mut serializer = V2DeflateSerializer::new();
        IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment("latencies in microseconds, one line per operation and interval")
            .with_start_time(started)
            .with_base_time(started)
            .begin_log_with(&mut self.histograms, &mut serializer)?;
        Ok(())
    }

    /// Writes one interval.
    pub(super) fn write(
        &mut self,
        elapsed: Duration,
        window: Duration,
        records: &Records,
    ) -> io::Result<()> {
        let mut serializer = V2DeflateSerializer::new();
        let mut lines = Vec::new();
        let mut log =
            IntervalLogWriterBuilder::new().begin_log_with(&mut lines, &mut serializer)?;
        let labels = self.labels.iter().map(String::as_str).chain([LATENESS]);
        let all = records.operations.iter().chain([&records.lateness]);
        for (label, record) in labels.zip(all) {
            if record.units == 0 && record.errors == 0 {
                continue;
            }
            let begun = elapsed.saturating_sub(window);
            log.write_histogram(record.histogram(), begun, window, Tag::new(label))
                .map_err(|error| io::Error::other(error.to_string()))?;
            let (sum, extremes) = record.exact();
            let (min, max) = extremes.unwrap_or_default();
            writeln!(
                self.counts,
                "{}, {}, {label}, {}, {}, {}, {}, {sum}, {min}, {max}",
                seconds(elapsed),
                seconds(window),
                record.units,
                record.misses,
                record.errors,
                record.payload_bytes
            )?;
        }
        self.histograms.write_all(&lines)
    }
}

//! A result directory read back: its records, interval by interval.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use crate::output::{COUNTS, COUNTS_HEADER, HISTOGRAMS};
use crate::recorder::Record;
use crate::run_record::RunRecord;

/// A result directory that cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The content of a file is not that of a run.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// The directories do not belong together.
    #[error("{0}")]
    Mismatch(String),
    /// A histogram cannot be made.
    #[error("cannot make a histogram: {0}")]
    Histogram(#[from] hdrhistogram::CreationError),
}

/// One interval of a run.
#[derive(Debug)]
pub(super) struct Interval {
    /// Its end, since the run's start.
    pub(super) elapsed: Duration,
    pub(super) window: Duration,
    /// Records by label; a label without operations is absent.
    pub(super) records: BTreeMap<String, Record>,
}

/// A run as read from its directory.
#[derive(Debug)]
pub(super) struct RecordedRun {
    pub(super) record: RunRecord,
    pub(super) intervals: Vec<Interval>,
    /// Number of errors, by reason.
    pub(super) errors: BTreeMap<String, u64>,
    /// Rows of `server.csv` without its header.
    pub(super) server_rows: Vec<String>,
}

impl RecordedRun {
    pub(super) fn read(directory: &Path) -> Result<Self, MergeError> {
        let record =
            RunRecord::read(directory).map_err(|error| MergeError::Mismatch(error.to_string()))?;
        let rows = read_text(&directory.join("server.csv")).unwrap_or_default();
        Ok(Self {
            record,
            intervals: intervals(directory)?,
            errors: errors(&directory.join("errors.csv"))?,
            server_rows: rows.lines().skip(1).map(str::to_owned).collect(),
        })
    }
}

fn read_text(path: &Path) -> Result<String, MergeError> {
    std::fs::read_to_string(path).map_err(|source| MergeError::File {
        path: path.to_path_buf(),
        source,
    })
}

/// The intervals of `summary.csv`, with the records of the two other files.
fn intervals(directory: &Path) -> Result<Vec<Interval>, MergeError> {
    let mut intervals = Vec::new();
    let mut index_of = BTreeMap::new();
    let summary = directory.join("summary.csv");
    for (line, row) in read_text(&summary)?.lines().enumerate().skip(1) {
        let mut columns = row.split(", ");
        let (elapsed, window) = (columns.next(), columns.next());
        let parsed = elapsed.and_then(duration).zip(window.and_then(duration));
        let (elapsed_time, window) =
            parsed.ok_or_else(|| content(&summary, line, "no two times at the beginning"))?;
        index_of.insert(elapsed.unwrap_or_default().to_owned(), intervals.len());
        intervals.push(Interval {
            elapsed: elapsed_time,
            window,
            records: BTreeMap::new(),
        });
    }
    let counts = directory.join(COUNTS);
    let text = read_text(&counts)?;
    if text.lines().next() != Some(COUNTS_HEADER) {
        return Err(content(&counts, 0, "another header than expected"));
    }
    let mut histograms = histograms(&directory.join(HISTOGRAMS))?.into_iter();
    for (line, row) in text.lines().enumerate().skip(1) {
        let count = Count::parse(row).ok_or_else(|| content(&counts, line, "no row of counts"))?;
        let (tag, histogram) = histograms
            .next()
            .ok_or_else(|| content(&counts, line, "no histogram for this row"))?;
        if tag != count.label {
            let reason = format!("the histogram of this row is that of {tag}");
            return Err(content(&counts, line, &reason));
        }
        let interval = index_of
            .get(count.elapsed)
            .and_then(|index| intervals.get_mut(*index))
            .ok_or_else(|| content(&counts, line, "no such interval in summary.csv"))?;
        let record = count
            .into_record(&histogram)?
            .ok_or_else(|| content(&counts, line, "a histogram of other bounds"))?;
        interval.records.insert(tag, record);
    }
    Ok(intervals)
}

/// One row of `counts.csv`.
struct Count<'row> {
    elapsed: &'row str,
    label: &'row str,
    units: u64,
    misses: u64,
    errors: u64,
    payload_bytes: u64,
    sum_nanoseconds: u128,
    min: u64,
    max: u64,
}

impl<'row> Count<'row> {
    fn parse(row: &'row str) -> Option<Self> {
        let columns: Vec<&str> = row.split(", ").collect();
        let [elapsed, _window, label, numbers @ ..] = &columns[..] else {
            return None;
        };
        let [units, misses, errors, payload_bytes, sum, min, max] = numbers else {
            return None;
        };
        Some(Self {
            elapsed,
            label,
            units: units.parse().ok()?,
            misses: misses.parse().ok()?,
            errors: errors.parse().ok()?,
            payload_bytes: payload_bytes.parse().ok()?,
            sum_nanoseconds: sum.parse().ok()?,
            min: min.parse().ok()?,
            max: max.parse().ok()?,
        })
    }

    /// The record; `None` if the histogram does not fit.
    fn into_record(
        self,
        histogram: &Histogram<u64>,
    ) -> Result<Option<Record>, hdrhistogram::CreationError> {
        let mut record = Record::new()?;
        record.units = self.units;
        record.misses = self.misses;
        record.errors = self.errors;
        record.payload_bytes = self.payload_bytes;
        let extremes = Some((self.min, self.max)).filter(|_| self.units > 0);
        let fits = record.add_recorded(histogram, self.sum_nanoseconds, extremes);
        Ok(Some(record).filter(|_| fits))
    }
}

/// All histograms of a log, with their tags.
fn histograms(path: &Path) -> Result<Vec<(String, Histogram<u64>)>, MergeError> {
    let text = read_text(path)?;
    let mut deserializer = Deserializer::new();
    let mut found = Vec::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let entry = entry.map_err(|error| content(path, found.len(), &format!("{error:?}")))?;
        let LogEntry::Interval(interval) = entry else {
            continue;
        };
        let tag = interval.tag().map_or("", |tag| tag.as_str()).to_owned();
        let histogram = base64::engine::general_purpose::STANDARD
            .decode(interval.encoded_histogram())
            .map_err(|error| content(path, found.len(), &error.to_string()))
            .and_then(|bytes| {
                let decoded = deserializer.deserialize::<u64, _>(&mut &bytes[..]);
                decoded.map_err(|error| content(path, found.len(), &error.to_string()))
            })?;
        found.push((tag, histogram));
    }
    Ok(found)
}

/// Rows `"what","count"`.
fn errors(path: &Path) -> Result<BTreeMap<String, u64>, MergeError> {
    let mut errors = BTreeMap::new();
    for (line, row) in read_text(path)?.lines().enumerate().skip(1) {
        let parsed = row
            .strip_prefix('"')
            .and_then(|row| row.strip_suffix('"'))
            .and_then(|row| row.rsplit_once("\",\""))
            .and_then(|(what, count)| Some((what.to_owned(), count.parse::<u64>().ok()?)));
        let (what, count) = parsed.ok_or_else(|| content(path, line, "no row of errors"))?;
        *errors.entry(what).or_insert(0) += count;
    }
    Ok(errors)
}

fn duration(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

fn content(path: &Path, line: usize, reason: &str) -> MergeError {
    MergeError::Content {
        path: path.to_path_buf(),
        reason: format!("line {}: {reason}", line + 1),
    }
}

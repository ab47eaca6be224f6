//! `kvorum bench merge`: the results of several processes as those of one.
//!
//! Histograms are added interval by interval, so that every percentile of the merged result is a
//! percentile of all samples, not a mean of percentiles.

mod recorded;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use indexmap::IndexMap;

use crate::activity::Records;
use crate::hits::hits_of;
use crate::output::{LATENESS, ResultFiles};
use crate::recorder::Record;
use crate::run_record::{RunRecord, StallRecord};
use crate::seconds::seconds;
use crate::server_probe;

pub use recorded::MergeError;
use recorded::RecordedRun;

/// The merged intervals of several runs at one time.
struct Merged {
    elapsed: Duration,
    window: Duration,
    records: BTreeMap<String, Record>,
}

/// Merges result directories into a new one; returns its run.
///
/// Runs that began at different times are aligned by the clocks of their machines, in whole
/// intervals. Server figures come from the first directory that has any: every process may have
/// sampled the same server.
///
/// # Errors
/// If a directory cannot be read, intervals differ, or the target exists.
pub fn merge(directories: &[PathBuf], out: &Path) -> Result<RunRecord, MergeError> {
    let runs = directories
        .iter()
        .map(|directory| RecordedRun::read(directory))
        .collect::<Result<Vec<_>, _>>()?;
    let Some(first) = runs.first() else {
        return Err(MergeError::Mismatch("no directory to merge".to_owned()));
    };
    let interval = first.record.report_interval_seconds;
    if let Some(other) = runs.iter().find(|run| {
        (run.record.report_interval_seconds - interval).abs() > f64::EPSILON
            || run.record.mode != first.record.mode
    }) {
        return Err(MergeError::Mismatch(format!(
            "{} and {} have different report intervals or modes",
            first.record.name, other.record.name
        )));
    }
    let started = runs
        .iter()
        .map(|run| run.record.started_unix_seconds)
        .fold(f64::INFINITY, f64::min);
    let labels = labels(&runs);
    let merged = lay_side_by_side(&runs, started, interval);
    let directory = out.to_path_buf();
    let file_error = |source| MergeError::File {
        path: out.to_path_buf(),
        source,
    };
    std::fs::create_dir(out).map_err(file_error)?;
    let mut files = ResultFiles::in_directory(directory, &labels).map_err(file_error)?;
    files
        .begin(UNIX_EPOCH + Duration::try_from_secs_f64(started).unwrap_or_default())
        .map_err(file_error)?;
    let mut totals = Records::new(labels.len())?;
    let mut elapsed = Duration::ZERO;
    for interval in merged.values() {
        let records = ordered(interval, &labels)?;
        files
            .write_rows(interval.elapsed, interval.window, &records)
            .map_err(file_error)?;
        totals.merge(&records);
        elapsed = elapsed.max(interval.elapsed);
    }
    let mut errors = BTreeMap::new();
    for (what, count) in runs.iter().flat_map(|run| &run.errors) {
        *errors.entry(what.clone()).or_insert(0) += count;
    }
    files.write_error_rows(&errors).map_err(file_error)?;
    write_server(&runs, started, out).map_err(file_error)?;
    let record = merged_record(&runs, &labels, &totals, started, elapsed, out);
    record.write(out).map_err(file_error)?;
    Ok(record)
}

/// Labels of all runs, in the order in which they first occur.
fn labels(runs: &[RecordedRun]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for label in runs.iter().flat_map(|run| run.record.totals.keys()) {
        if !labels.contains(label) {
            labels.push(label.clone());
        }
    }
    labels
}

/// Merges intervals that have the same number, counted from the first run's start.
fn lay_side_by_side(runs: &[RecordedRun], started: f64, interval: f64) -> BTreeMap<u64, Merged> {
    let mut merged: BTreeMap<u64, Merged> = BTreeMap::new();
    for run in runs {
        let later = run.record.started_unix_seconds - started;
        let shift = whole(later / interval);
        let delay = Duration::try_from_secs_f64(later).unwrap_or_default();
        for (number, interval) in (shift..).zip(&run.intervals) {
            let sum = merged.entry(number).or_insert_with(|| Merged {
                elapsed: Duration::ZERO,
                window: Duration::ZERO,
                records: BTreeMap::new(),
            });
            sum.elapsed = sum.elapsed.max(interval.elapsed + delay);
            sum.window = sum.window.max(interval.window);
            for (label, record) in &interval.records {
                match sum.records.get_mut(label) {
                    Some(sum) => sum.merge(record),
                    None => {
                        sum.records.insert(label.clone(), record.clone());
                    }
                }
            }
        }
    }
    merged
}

fn ordered(interval: &Merged, labels: &[String]) -> Result<Records, MergeError> {
    let of = |label: &str| match interval.records.get(label) {
        Some(record) => Ok(record.clone()),
        None => Record::new(),
    };
    Ok(Records {
        operations: labels
            .iter()
            .map(|label| of(label))
            .collect::<Result<_, _>>()?,
        lateness: of(LATENESS)?,
    })
}

/// Writes the server's rows of the first run that has any, with times from the earliest start.
fn write_server(runs: &[RecordedRun], started: f64, out: &Path) -> std::io::Result<()> {
    let mut file = File::create(out.join("server.csv"))?;
    writeln!(file, "{}", server_probe::HEADER)?;
    let Some(run) = runs.iter().find(|run| !run.server_rows.is_empty()) else {
        return Ok(());
    };
    let later = run.record.started_unix_seconds - started;
    for row in &run.server_rows {
        let Some((elapsed, rest)) = row.split_once(", ") else {
            continue;
        };
        let elapsed = elapsed.parse::<f64>().unwrap_or(0.0) + later;
        let elapsed = Duration::try_from_secs_f64(elapsed).unwrap_or_default();
        writeln!(file, "{}, {rest}", seconds(elapsed))?;
    }
    Ok(())
}

fn merged_record(
    runs: &[RecordedRun],
    labels: &[String],
    totals: &Records,
    started: f64,
    elapsed: Duration,
    out: &Path,
) -> RunRecord {
    let records = || runs.iter().map(|run| &run.record);
    // There is at least one run.
    let mut merged = runs[0].record.clone();
    let name = out.file_name().unwrap_or(out.as_os_str());
    merged.name = name.to_string_lossy().into_owned();
    merged.started_unix_seconds = started;
    merged.workers = records().map(|record| record.workers).sum();
    merged.rate = records().map(|record| record.rate).sum();
    merged.verified = records().all(|record| record.verified);
    merged.server = records().find_map(|record| record.server.clone());
    merged.backend = records().find_map(|record| record.backend.clone());
    merged.durability = records().find_map(|record| record.durability.clone());
    merged.stalls = common_stalls(records(), started);
    merged.fill(labels, totals, elapsed);
    merged.was_filled = records().any(|record| record.was_filled);
    let is_warm = records().any(|record| record.warm_up_seconds > 0.0);
    // Writes of the warm-up are in no file.
    merged.hits = if merged.was_filled || is_warm {
        None
    } else {
        hits_of(&merged, &IndexMap::new())
    };
    merged
}

/// Times in which all runs stalled together.
fn common_stalls<'run>(
    records: impl Iterator<Item = &'run RunRecord>,
    started: f64,
) -> Vec<StallRecord> {
    let spans = |record: &RunRecord| -> Vec<(u64, u64)> {
        let later = record.started_unix_seconds - started;
        let tenth = |seconds: f64| whole((seconds + later) * 10.0);
        let stalls = record.stalls.iter();
        stalls
            .map(|stall| {
                (
                    tenth(stall.at_seconds),
                    tenth(stall.at_seconds + stall.seconds),
                )
            })
            .collect()
    };
    let common = records.map(spans).reduce(|common, others| {
        let mut both = Vec::new();
        for (begin, end) in common {
            for (other_begin, other_end) in &others {
                let (begin, end) = (begin.max(*other_begin), end.min(*other_end));
                if begin < end {
                    both.push((begin, end));
                }
            }
        }
        both
    });
    let record = |(begin, end): (u64, u64)| StallRecord {
        at_seconds: tenths(begin),
        seconds: tenths(end - begin),
    };
    common.unwrap_or_default().into_iter().map(record).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded on purpose, and floats saturate"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "tenths of a run's seconds are far below 2^53"
)]
fn tenths(count: u64) -> f64 {
    count as f64 / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stalls_of_all_runs_at_once_are_stalls() {
        let stall = |at_seconds, seconds| StallRecord {
            at_seconds,
            seconds,
        };
        let run = |started_unix_seconds, stalls| RunRecord {
            started_unix_seconds,
            stalls,
            ..RunRecord::default()
        };
        let runs = [
            run(100.0, vec![stall(1.0, 0.5), stall(4.0, 2.0)]),
            run(101.0, vec![stall(0.3, 0.4), stall(2.0, 5.0)]),
        ];
        assert_eq!(
            common_stalls(runs.iter(), 100.0),
            [stall(1.3, 0.2), stall(4.0, 2.0)]
        );
        assert_eq!(common_stalls(runs[..1].iter(), 100.0).len(), 2);
    }
}

//! `run.json`: the run, its machine and its results; everything that is not in the CSV files.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::activity::{Records, Stall};
use crate::machine::Machine;
use crate::output::per_second;
use crate::recorder::Record;
use crate::server_probe::ServerDescription;

/// The version of the file's format.
pub const FORMAT: u32 = 1;

/// Name of the file in a result directory.
pub const FILE_NAME: &str = "run.json";

/// A whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Name of the result directory.
    pub name: String,
    /// Paths of the configuration files as given, separated by a comma and a space.
    pub configuration_file: String,
    /// Every key that is set, and its value as an Erlang term.
    pub configuration: BTreeMap<String, String>,
    /// The beginning of measuring, warm-up excluded.
    pub started_unix_seconds: f64,
    /// The length of measuring, warm-up excluded.
    pub duration_seconds: f64,
    /// The length of the warm-up, in which operations run and are not measured.
    pub warm_up_seconds: f64,
    /// The mode: operations wait for one another, or are due at a rate.
    pub mode: LoopMode,
    /// The target in operations per second, of all workers together; `None` for the highest
    /// possible rate.
    pub rate: Option<f64>,
    /// Workers of all processes.
    pub workers: u32,
    /// Factor that multiplied duration and key space.
    pub scale: f64,
    /// The driver's name, without `basho_bench_driver_`.
    pub driver: String,
    /// The engine behind it, if known.
    pub backend: Option<String>,
    /// The promise of an acknowledged write, if known.
    pub durability: Option<String>,
    /// The server, if known.
    pub server: Option<ServerDescription>,
    /// The machine of the load generator.
    pub machine: Machine,
    /// Figures of each operation, by its name in the names of result files.
    pub totals: IndexMap<String, OperationTotals>,
    /// Successful and failed operations.
    pub operations_total: u64,
    /// Successes and failures together, over the whole duration.
    pub operations_per_second: f64,
    /// Times in which operations were under way and none ended.
    pub stalls: Vec<StallRecord>,
    /// True if values were marked and checked.
    #[serde(default)]
    pub verified: bool,
    /// True if the store had keys before the run.
    #[serde(default)]
    pub was_filled: bool,
    /// The share of gets that could find anything, if known.
    pub hits: Option<Hits>,
    /// Delays of operations of an open loop, from their due time to their beginning.
    pub lateness: Option<OperationTotals>,
    /// Seconds between interval rows of the CSV files.
    pub report_interval_seconds: f64,
}

/// The mode of a loop: operations wait for one another, or are due at a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoopMode {
    /// A worker begins an operation when its last one has ended.
    #[default]
    Closed,
    /// Operations are due at fixed times; latencies count from the due times.
    Open,
}

/// Gets of a run and their possible hits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Hits {
    /// Number of distinct keys that can be drawn; `None` without a bound, or if keys are not drawn.
    pub distinct_keys: Option<f64>,
    /// Successful writes of keys that gets may read.
    pub writes: u64,
    /// Successful gets, found or not.
    pub gets: u64,
    /// Gets that found something.
    pub found: u64,
    /// The share of gets that can find something on a store that was empty and keeps everything.
    pub possible_share: f64,
}

/// Figures of one operation; times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationTotals {
    /// Successful operations.
    pub count: u64,
    /// Failed operations.
    pub errors: u64,
    /// Successful operations that found nothing.
    pub misses: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: u64,
    /// 95th percentile.
    pub p95_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// 99.99th percentile; 0 in a record of an earlier version.
    #[serde(default)]
    pub p9999_us: u64,
    /// Largest.
    pub max_us: u64,
}

/// A time in which operations were under way and none ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StallRecord {
    /// Its beginning, since measuring began.
    pub at_seconds: f64,
    /// Its length.
    pub seconds: f64,
}

impl OperationTotals {
    /// The figures of a record.
    pub fn of(record: &Record) -> Self {
        let latencies = record.latencies();
        Self {
            count: record.units,
            errors: record.errors,
            misses: record.misses,
            mean_us: (latencies.mean * 1000.0).round() / 1000.0,
            p50_us: latencies.median,
            p95_us: latencies.p95,
            p99_us: latencies.p99,
            p999_us: latencies.p999,
            p9999_us: latencies.p9999,
            max_us: latencies.max,
        }
    }
}

impl StallRecord {
    /// A stall, in tenths of seconds.
    pub fn of(stall: &Stall) -> Self {
        let tenths = |duration: Duration| (duration.as_secs_f64() * 10.0).round() / 10.0;
        Self {
            at_seconds: tenths(stall.at),
            seconds: tenths(stall.length),
        }
    }
}

impl RunRecord {
    /// Fills in the measurements; `labels` has one label for each operation.
    pub fn fill(&mut self, labels: &[String], records: &Records, elapsed: Duration) {
        self.duration_seconds = elapsed.as_secs_f64();
        self.totals = labels
            .iter()
            .zip(&records.operations)
            .map(|(label, record)| (label.clone(), OperationTotals::of(record)))
            .collect();
        let (units, errors) = records.counts();
        self.operations_total = units + errors;
        self.operations_per_second = per_second(self.operations_total, elapsed);
        self.lateness =
            Some(OperationTotals::of(&records.lateness)).filter(|lateness| lateness.count > 0);
    }

    /// Writes `run.json` into a result directory, completely or not at all.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let unfinished = directory.join(format!("{FILE_NAME}.new"));
        std::fs::write(&unfinished, text)?;
        std::fs::rename(unfinished, directory.join(FILE_NAME))
    }

    /// Reads `run.json` of a result directory.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let path = directory.join(FILE_NAME);
        let context = |reason: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {reason}", path.display()))
        };
        let text = std::fs::read(&path).map_err(|error| context(&error))?;
        let record: Self = serde_json::from_slice(&text).map_err(|error| context(&error))?;
        if record.format != FORMAT {
            let got = record.format;
            return Err(context(&format!("expected format {FORMAT}, got {got}")));
        }
        Ok(record)
    }
}

//! Figures of a run as single numbers, each with its better direction.

use crate::draw::Unit;
use crate::result::{Operation, OperationTotals, RunResult};

/// One number about a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its group: an operation's label, or empty for the run as a whole.
    pub group: String,
    /// Its title.
    pub title: String,
    /// Its unit.
    pub unit: Unit,
    /// The better direction.
    pub better: Better,
    /// The number.
    pub value: f64,
}

/// The better direction of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Higher values are better.
    Higher,
    /// Lower values are better.
    Lower,
}

/// The title of the most important figure of a run.
pub const THROUGHPUT: &str = "Throughput";

/// Group of figures about the server's process.
pub const SERVER: &str = "server";

/// All known figures of a run, those of the whole run first.
pub fn figures(run: &RunResult) -> Vec<Figure> {
    let mut figures = of_the_whole(run);
    for operation in &run.operations {
        figures.extend(of_operation(operation));
    }
    figures.extend(of_server(run));
    figures
}

/// Seconds that were measured.
pub fn seconds(run: &RunResult) -> f64 {
    let described = run
        .description
        .as_ref()
        .and_then(|run| run.duration_seconds);
    described.unwrap_or_else(|| run.summary.last("elapsed").unwrap_or(0.0))
}

/// Successful operations.
pub fn operations(run: &RunResult) -> f64 {
    run.summary.numbers("successful").iter().sum()
}

/// Failed operations.
pub fn errors(run: &RunResult) -> f64 {
    run.summary.numbers("failed").iter().sum()
}

/// Successful operations per second. Failed ones do not count: a server that refuses everything is
/// not a fast one.
pub fn throughput(run: &RunResult) -> f64 {
    operations(run) / seconds(run).max(1e-9)
}

/// The latencies of an operation over the whole run: the recorded ones, or those from its rows.
pub fn totals(operation: &Operation) -> OperationTotals {
    if let Some(totals) = &operation.totals {
        // Without a success there is no latency to compare.
        return match totals.count > 0.0 {
            true => totals.clone(),
            false => OperationTotals {
                errors: totals.errors,
                ..OperationTotals::default()
            },
        };
    }
    let counts = operation.latencies.numbers("n");
    let count: f64 = counts.iter().sum();
    let means = operation.latencies.numbers("mean");
    let sum: f64 = counts
        .iter()
        .zip(means)
        .map(|(count, mean)| count * mean)
        .sum();
    OperationTotals {
        count,
        errors: operation.latencies.numbers("errors").iter().sum(),
        mean_us: (count > 0.0).then(|| sum / count),
        max_us: (count > 0.0)
            .then(|| operation.latencies.largest("max"))
            .flatten(),
        ..OperationTotals::default()
    }
}

/// Growth of a sum of `server.csv` over the run.
pub fn growth(run: &RunResult, head: &str) -> Option<f64> {
    let table = run.server.as_ref()?;
    Some((table.last(head)? - table.first(head)?).max(0.0))
}

/// Bytes that went to disk for each byte that clients put.
pub fn write_amplification(run: &RunResult) -> Option<f64> {
    let put = growth(run, "put_bytes").filter(|bytes| *bytes > 0.0)?;
    Some(growth(run, "written_bytes")? / put)
}

/// Microseconds of the server's CPU for each operation.
pub fn cpu_per_operation(run: &RunResult) -> Option<f64> {
    let operations = Some(operations(run)).filter(|count| *count > 0.0)?;
    Some(growth(run, "cpu_seconds")? * 1e6 / operations)
}

/// The few figures that compare runs of several tests, over all operations.
pub fn summary(run: &RunResult) -> Vec<Figure> {
    let all: Vec<OperationTotals> = run.operations.iter().map(totals).collect();
    let count: f64 = all.iter().map(|totals| totals.count).sum();
    let sum = all
        .iter()
        .map(|totals| totals.count * totals.mean_us.unwrap_or(0.0))
        .sum::<f64>();
    let slowest = |statistic: fn(&OperationTotals) -> Option<f64>| {
        all.iter().filter_map(statistic).reduce(f64::max)
    };
    let mean = (count > 0.0).then(|| sum / count);
    let misses: f64 = all.iter().filter_map(|totals| totals.misses).sum();
    let missed = (misses > 0.0).then(|| misses / count);
    let p99 = slowest(|totals| totals.p99_us);
    let longest = slowest(|totals| totals.max_us);
    let latency = Unit::Microseconds;
    let mut figures = vec![Figure::throughput(run)];
    figures.extend(known(
        "",
        [
            ("Mean latency", latency, mean),
            ("99th percentile of the slowest operation", latency, p99),
            ("Longest latency", latency, longest),
            ("Found nothing, of all operations", Unit::Share, missed),
        ],
    ));
    figures.extend(of_server(run));
    figures
}

impl Figure {
    fn throughput(run: &RunResult) -> Self {
        Self {
            better: Better::Higher,
            ..Self::of("", THROUGHPUT, Unit::Rate, throughput(run))
        }
    }

    /// A figure for which lower is better, as for all figures except throughput.
    fn of(group: &str, title: &str, unit: Unit, value: f64) -> Self {
        Self {
            group: group.to_owned(),
            title: title.to_owned(),
            unit,
            better: Better::Lower,
            value,
        }
    }
}

/// The figures with known values.
fn known<const COUNT: usize>(
    group: &str,
    figures: [(&str, Unit, Option<f64>); COUNT],
) -> impl Iterator<Item = Figure> {
    let figures = figures.into_iter();
    figures.filter_map(move |(title, unit, value)| Some(Figure::of(group, title, unit, value?)))
}

fn of_the_whole(run: &RunResult) -> Vec<Figure> {
    let errors = Figure::of("", "Errors", Unit::Number, errors(run));
    let mut figures = vec![Figure::throughput(run), errors];
    if run.description.is_some() {
        let stalled = run.stalls().iter().map(|stall| stall.seconds).sum();
        figures.push(Figure::of("", "Stalled", Unit::Seconds, stalled));
    }
    figures
}

fn of_operation(operation: &Operation) -> Vec<Figure> {
    let totals = totals(operation);
    // A store with nothing to read is fast: latencies mean little without this figure.
    let missed = missed_share(&totals).filter(|share| *share > 0.0);
    let latency = Unit::Microseconds;
    let figures = [
        ("mean", latency, totals.mean_us),
        ("median", latency, totals.p50_us),
        ("95th", latency, totals.p95_us),
        ("99th", latency, totals.p99_us),
        ("99.9th", latency, totals.p999_us),
        ("99.99th", latency, totals.p9999_us),
        ("max", latency, totals.max_us),
        ("not found", Unit::Share, missed),
    ];
    known(&operation.label, figures).collect()
}

/// The share of successful operations that found nothing.
pub fn missed_share(totals: &OperationTotals) -> Option<f64> {
    let misses = totals.misses?;
    (totals.count > 0.0).then(|| misses / totals.count)
}

fn of_server(run: &RunResult) -> Vec<Figure> {
    let largest = |head: &str| run.server.as_ref()?.largest(head);
    let last = |head: &str| run.server.as_ref()?.last(head);
    let amplification = write_amplification(run);
    let figures = [
        ("CPU per operation", Unit::CpuTime, cpu_per_operation(run)),
        ("Memory at most", Unit::Bytes, largest("resident_bytes")),
        ("Disk space at the end", Unit::Bytes, last("disk_bytes")),
        ("Written to disk", Unit::Bytes, growth(run, "written_bytes")),
        ("Read from disk", Unit::Bytes, growth(run, "read_bytes")),
        ("Write amplification", Unit::Number, amplification),
    ];
    known(SERVER, figures).collect()
}

/// A value as a multiple of the base's. `None` if the base is zero and the value is not: the ratio
/// is undefined.
pub fn ratio(value: f64, base: f64) -> Option<f64> {
    if base == value {
        Some(1.0)
    } else if base == 0.0 {
        None
    } else {
        Some(value / base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_multiples_of_the_base() {
        assert_eq!(ratio(3.0, 2.0), Some(1.5));
        assert_eq!(ratio(0.0, 0.0), Some(1.0));
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(0.0, 2.0), Some(0.0));
    }
}

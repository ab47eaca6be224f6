//! The table for the user at the end of a run.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use comfy_table::{CellAlignment, Table, presets};

use crate::activity::{Records, Stall};
use crate::process::ProcessUsage;
use crate::recorder::Record;
use crate::server_probe::ServerSample;
use crate::settings::Operation;
use kvorum_erlang_terms::Term;

/// Reasons of errors shown for each operation.
const REASONS_SHOWN: usize = 5;

/// Everything that happened in a run.
#[derive(Debug)]
pub struct Totals {
    /// The time from the first operation's start to the last operation's end.
    pub elapsed: Duration,
    /// Records by operation of the configuration.
    pub records: Records,
    /// Records from before measuring began: successful and failed operations.
    pub warm_up: Option<Records>,
    /// Operations of an open loop that were due when the run ended, and had not begun.
    pub overdue: u64,
    /// The beginning of measuring.
    pub started: SystemTime,
    /// Times in which operations were under way and none ended.
    pub stalls: Vec<Stall>,
    /// Operations that the run gave up waiting for.
    pub abandoned: usize,
    /// Resources that the tool itself used during the run.
    pub own_usage: Option<ProcessUsage>,
    /// Resources that the server used during the run.
    pub server_usage: Option<ServerSample>,
}

impl Totals {
    /// Successful and failed operations.
    pub fn operations(&self) -> u64 {
        let (units, errors) = self.records.counts();
        units + errors
    }

    /// Failed operations.
    pub fn errors(&self) -> u64 {
        self.records.counts().1
    }

    /// The records of all operations, including the warm-up.
    pub fn all_records(&self) -> impl Iterator<Item = &Record> {
        let warm_up = self.warm_up.iter().flat_map(|records| &records.operations);
        self.records.operations.iter().chain(warm_up)
    }
}

/// Writes the table, the reasons of errors and the resources of the processes.
pub fn write_summary(
    out: &mut dyn Write,
    operations: &[Operation],
    totals: &Totals,
) -> io::Result<()> {
    writeln!(out, "{}", table(operations, totals))?;
    write_failures(out, totals)?;
    for (operation, record) in operations.iter().zip(&totals.records.operations) {
        write_reasons(out, &operation.label, record)?;
    }
    if totals.abandoned > 0 {
        writeln!(
            out,
            "{} operations had no answer when the run ended",
            totals.abandoned
        )?;
    }
    write_pace(out, totals)?;
    write_usage(out, "bench", totals.own_usage.map(own_sample), totals)?;
    write_usage(out, "server", totals.server_usage, totals)
}

/// Writes the pace of operations, which the table does not show.
fn write_pace(out: &mut dyn Write, totals: &Totals) -> io::Result<()> {
    if let Some((units, errors)) = totals.warm_up.as_ref().map(Records::counts) {
        writeln!(
            out,
            "warm-up  {} operations before measuring began, {errors} of them failed",
            units + errors
        )?;
    }
    let late = totals.records.lateness.latencies();
    if late.samples > 0 {
        writeln!(
            out,
            "schedule  operations began late by {} in the mean, p99 {}, max {}; \
             {} were due and had not begun at the end",
            milliseconds(late.mean),
            milliseconds(float(late.p99)),
            milliseconds(float(late.max)),
            totals.overdue
        )?;
    }
    if let Some(longest) = totals.stalls.iter().map(|stall| stall.length).max() {
        let sum: Duration = totals.stalls.iter().map(|stall| stall.length).sum();
        writeln!(
            out,
            "stalls  {} of 0.1 s or more without an operation that ended: {:.1} s in all, \
             the longest {:.1} s",
            totals.stalls.len(),
            sum.as_secs_f64(),
            longest.as_secs_f64()
        )?;
    }
    Ok(())
}

/// The tool's own usage without memory, since the workers' buffers are gone by the end.
fn own_sample(usage: ProcessUsage) -> ServerSample {
    ServerSample {
        cpu: Some(usage.cpu),
        ..ServerSample::default()
    }
}

/// Writes a line about failed operations, for readers of the rates.
fn write_failures(out: &mut dyn Write, totals: &Totals) -> io::Result<()> {
    let (errors, all) = (totals.errors(), totals.operations());
    if errors == 0 {
        return Ok(());
    }
    let share = float(errors) / float(all) * 100.0;
    writeln!(
        out,
        "FAILED  {errors} of {all} operations ({share:.1} %); rates and latencies above are of the \
         successful ones"
    )
}

/// Writes the most frequent reasons of errors.
fn write_reasons(out: &mut dyn Write, label: &Term, record: &Record) -> io::Result<()> {
    let mut reasons: Vec<(&String, &u64)> = record.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (reason, count) in reasons.iter().take(REASONS_SHOWN) {
        writeln!(out, "error  {label}  {count} x {}", readable(reason))?;
    }
    match reasons
        .len()
        .checked_sub(REASONS_SHOWN)
        .filter(|more| *more > 0)
    {
        Some(more) => writeln!(out, "error  {label}  {more} more reasons in errors.csv"),
        None => Ok(()),
    }
}

fn table(operations: &[Operation], totals: &Totals) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "operation",
        "count",
        "ops/s",
        "mean",
        "p50",
        "p95",
        "p99",
        "p99.9",
        "max",
        "misses",
        "errors",
    ]);
    let rows = operations.iter().zip(&totals.records.operations);
    for (operation, record) in rows {
        table.add_row(row(&operation.label.to_string(), record, totals.elapsed));
    }
    if let Some((first, rest)) = totals.records.operations.split_first()
        && !rest.is_empty()
    {
        let mut all = first.clone();
        for record in rest {
            all.merge(record);
        }
        table.add_row(row("all", &all, totals.elapsed));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(label: &str, record: &Record, elapsed: Duration) -> Vec<String> {
    let latencies = record.latencies();
    let time = |microseconds: u64| milliseconds(float(microseconds));
    vec![
        label.to_owned(),
        record.units.to_string(),
        format!("{:.0}", per_second(record.units, elapsed)),
        milliseconds(latencies.mean),
        time(latencies.median),
        time(latencies.p95),
        time(latencies.p99),
        time(latencies.p999),
        time(latencies.max),
        record.misses.to_string(),
        record.errors.to_string(),
    ]
}

fn write_usage(
    out: &mut dyn Write,
    name: &str,
    usage: Option<ServerSample>,
    totals: &Totals,
) -> io::Result<()> {
    let Some(usage) = usage else { return Ok(()) };
    let operations = float(totals.operations().max(1));
    let mut parts = Vec::new();
    if let Some(cpu) = usage.cpu {
        let each = cpu.as_secs_f64() * 1e6 / operations;
        let share = cpu.as_secs_f64() / totals.elapsed.as_secs_f64().max(1e-9) * 100.0;
        let digits = if each < 1.0 { 3 } else { 1 };
        parts.push(format!(
            "CPU {each:.digits$} us per operation ({share:.0} % of one core)"
        ));
    }
    if let Some(resident) = usage.resident_bytes {
        parts.push(format!("{:.1} MB resident", megabytes(resident)));
    }
    if let Some(written) = usage.written_bytes {
        let each = float(written) / operations;
        parts.push(format!(
            "{:.1} MB written ({each:.0} bytes per operation)",
            megabytes(written)
        ));
    }
    if let Some(read) = usage.read_bytes {
        parts.push(format!("{:.1} MB read", megabytes(read)));
    }
    if let Some(disk) = usage.disk_bytes {
        parts.push(format!("{:.1} MB on disk", megabytes(disk)));
    }
    if let (Some(written), Some(put @ 1..)) = (usage.written_bytes, usage.put_bytes) {
        let amplification = float(written) / float(put);
        parts.push(format!("write amplification {amplification:.2}"));
    }
    writeln!(out, "{name}  {}", parts.join(", "))
}

/// Operations per second.
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    float(count) / elapsed.as_secs_f64().max(1e-9)
}

fn milliseconds(microseconds: f64) -> String {
    if microseconds < 100_000.0 {
        format!("{:.3} ms", microseconds / 1000.0)
    } else {
        format!("{:.0} ms", microseconds / 1000.0)
    }
}

/// Megabytes of a million bytes, as on the pages.
fn megabytes(bytes: u64) -> f64 {
    float(bytes) / 1e6
}

#[expect(
    clippy::cast_precision_loss,
    reason = "figures for people have fewer digits than this"
)]
fn float(value: u64) -> f64 {
    value as f64
}

/// A reason in the form of the files, with binaries of printable bytes shown as text.
fn readable(reason: &str) -> String {
    kvorum_erlang_terms::parse_term(reason)
        .map_or_else(|_| reason.to_owned(), |term| term.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Outcome;

    #[test]
    fn the_table_has_a_row_per_operation_and_one_for_all() {
        let operation = |name| Operation {
            label: Term::atom(name),
            operation: Term::atom(name),
            weight: 1,
        };
        let mut get = Record::new().unwrap();
        for _ in 0..100 {
            get.add(&Outcome::Missed, Duration::from_micros(1500));
        }
        let mut put = Record::new().unwrap();
        put.add(
            &Outcome::Failed(Term::Binary(b"full".to_vec())),
            Duration::ZERO,
        );
        let usage = ServerSample {
            cpu: Some(Duration::from_micros(2020)),
            resident_bytes: Some(3_000_000),
            written_bytes: Some(1010),
            put_bytes: Some(505),
            ..ServerSample::default()
        };
        let mut records = Records::new(0).unwrap();
        records.operations = vec![get, put];
        records
            .lateness
            .add(&Outcome::Done, Duration::from_millis(2));
        let stall = Stall {
            at: Duration::ZERO,
            length: Duration::from_millis(300),
        };
        let totals = Totals {
            elapsed: Duration::from_secs(2),
            records,
            warm_up: None,
            overdue: 7,
            started: SystemTime::UNIX_EPOCH,
            stalls: vec![stall; 2],
            abandoned: 0,
            own_usage: None,
            server_usage: Some(usage),
        };
        let mut out = Vec::new();
        write_summary(&mut out, &[operation("get"), operation("put")], &totals).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words = |name: &str| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(name))
                .unwrap();
            line.split_ascii_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            words("get"),
            "get 100 50 1.500 ms 1.500 ms 1.500 ms 1.500 ms 1.500 ms 1.500 ms 100 0"
        );
        assert!(words("all").ends_with("100 1"));
        assert_eq!(
            words("FAILED"),
            "FAILED 1 of 101 operations (1.0 %); rates and latencies above are of the successful ones"
        );
        assert_eq!(words("error"), "error put 1 x <<\"full\">>");
        assert_eq!(
            words("server"),
            "server CPU 20.0 us per operation (0 % of one core), 3.0 MB resident, \
             0.0 MB written (10 bytes per operation), write amplification 2.00"
        );
        assert_eq!(
            words("schedule"),
            "schedule operations began late by 2.000 ms in the mean, p99 2.000 ms, max 2.000 ms; \
             7 were due and had not begun at the end"
        );
        assert_eq!(
            words("stalls"),
            "stalls 2 of 0.1 s or more without an operation that ended: 0.6 s in all, \
             the longest 0.3 s"
        );
    }
}

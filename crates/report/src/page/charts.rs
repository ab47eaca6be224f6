//! The charts of one run, in the order of the published comparisons: throughput, latencies, and the
//! server's resources.

use crate::draw::{Band, Chart, Column, Ink, Line, Scale, Unit};
use crate::figures;
use crate::result::series::{latencies, rate_in_window, rate_of_sum, value_at};
use crate::result::{Operation, RunResult, Table};

/// The approximate number of ticks of an axis.
const X_TICKS: u32 = 6;
const Y_TICKS: u32 = 5;

/// Statistics of latencies: their columns and the names of their lines.
pub(super) const RANKS: [(&str, &str); 5] = [
    ("mean", "mean"),
    ("95th", "95th"),
    ("99th", "99th"),
    ("99_9th", "99.9th"),
    ("max", "max"),
];

/// A time axis as long as the longest of the runs.
pub(super) fn time_axis<'a>(runs: impl Iterator<Item = &'a RunResult>) -> Scale {
    let longest = runs.map(figures::seconds).fold(0.0, f64::max);
    Scale::up_to(Unit::Seconds, longest, X_TICKS)
}

/// A vertical axis from zero for all values of the lines.
pub(super) fn axis_from_zero(unit: Unit, lines: &[Line]) -> Scale {
    let largest = lines.iter().flat_map(Line::values).fold(0.0, f64::max);
    Scale::from_zero(unit, largest, Y_TICKS)
}

/// A horizontal axis of bytes for all places of the lines.
pub(super) fn volume_axis(lines: &[Line]) -> Scale {
    let places = lines.iter().flat_map(|line| line.x.iter().copied());
    Scale::up_to(Unit::Bytes, places.fold(0.0, f64::max), X_TICKS)
}

/// The volume moved by the end of each row of the summary.
pub(super) fn volume_of_rows(run: &RunResult) -> Option<Vec<f64>> {
    let volume = run.volume.as_ref()?;
    let times = run.summary.numbers("elapsed");
    times
        .into_iter()
        .map(|time| value_at(volume, "payload_bytes", time))
        .collect()
}

/// All columns of a file, unchanged.
pub(super) fn columns_of(table: &Table) -> Vec<Column> {
    let column = |head: &String| Column {
        head: head.clone(),
        values: table.column(head).unwrap_or_default().to_vec(),
    };
    table.heads().iter().map(column).collect()
}

/// Throughput over time, with failures if there were any.
pub(super) fn throughput_over_time(run: &RunResult) -> Chart {
    let lines = throughput_lines(run, &run.summary.numbers("elapsed"));
    let mut table = columns_of(&run.summary);
    table.push(successful(run));
    Chart {
        id: "throughput-time".to_owned(),
        title: "Throughput over time".to_owned(),
        x_title: "time since the start".to_owned(),
        y_title: "operations per second".to_owned(),
        x: time_axis(std::iter::once(run)),
        y: axis_from_zero(Unit::Rate, &lines),
        lines,
        bands: stalls_over_time(run),
        table,
    }
}

/// Throughput over the volume moved so far, if volume was counted.
pub(super) fn throughput_over_volume(run: &RunResult) -> Option<Chart> {
    let volume = volume_of_rows(run)?;
    let lines = throughput_lines(run, &volume);
    let places = volume.iter().copied().map(Some).collect();
    let table = vec![
        Column {
            head: "payload_bytes".to_owned(),
            values: places,
        },
        successful(run),
    ];
    Some(Chart {
        id: "throughput-volume".to_owned(),
        title: "Throughput over accumulated volume".to_owned(),
        x_title: "payload moved since the start".to_owned(),
        y_title: "operations per second".to_owned(),
        x: volume_axis(&lines),
        y: axis_from_zero(Unit::Rate, &lines),
        lines,
        bands: stalls_over_volume(run),
        table,
    })
}

fn successful(run: &RunResult) -> Column {
    Column {
        head: "successful/s".to_owned(),
        values: rate_in_window(&run.summary, "successful"),
    }
}

fn throughput_lines(run: &RunResult, x: &[f64]) -> Vec<Line> {
    let line = |name: &str, ink, head| Line {
        name: name.to_owned(),
        ink,
        x: x.to_vec(),
        y: rate_in_window(&run.summary, head),
    };
    let mut lines = vec![line("successful", Ink::Main, "successful")];
    if figures::errors(run) > 0.0 {
        lines.push(line("failed", Ink::Failure, "failed"));
    }
    lines
}

/// Mean, 95th, 99th, 99.9th and longest latency of each operation, on one common axis.
pub(super) fn latencies_over_time(run: &RunResult) -> Vec<Chart> {
    let lines: Vec<Vec<Line>> = run.operations.iter().map(latency_lines).collect();
    let values = lines.iter().flatten().flat_map(Line::values);
    let axis = Scale::logarithmic(Unit::Microseconds, values);
    run.operations
        .iter()
        .zip(lines)
        .filter(|(_, lines)| lines.iter().any(|line| line.last().is_some()))
        .map(|(operation, lines)| Chart {
            id: format!("latency-{}", operation.label),
            title: format!("Latency of {}", operation.label),
            x_title: "time since the start".to_owned(),
            y_title: "latency".to_owned(),
            x: time_axis(std::iter::once(run)),
            y: axis.clone(),
            lines,
            bands: stalls_over_time(run),
            table: columns_of(&operation.latencies),
        })
        .collect()
}

fn latency_lines(operation: &Operation) -> Vec<Line> {
    let line = |(rank, (head, name)): (usize, (&str, &str))| Line {
        name: name.to_owned(),
        ink: Ink::Rank(rank),
        x: operation.latencies.numbers("elapsed"),
        y: latencies(&operation.latencies, head),
    };
    RANKS.into_iter().enumerate().map(line).collect()
}

/// Known resources of the server: disk space, bytes read and written, CPU, memory.
pub(super) fn server_charts(run: &RunResult) -> Vec<Chart> {
    let Some(server) = &run.server else {
        return Vec::new();
    };
    let chart = |id: &str, title: &str, y_title: &str, unit, lines: Vec<Line>| {
        let lines: Vec<Line> = lines
            .into_iter()
            .filter(|line| line.last().is_some())
            .collect();
        let is_known = !lines.is_empty();
        is_known.then(|| Chart {
            id: id.to_owned(),
            title: title.to_owned(),
            x_title: "time since the start".to_owned(),
            y_title: y_title.to_owned(),
            x: time_axis(std::iter::once(run)),
            y: axis_from_zero(unit, &lines),
            lines,
            bands: stalls_over_time(run),
            table: columns_of(server),
        })
    };
    let x = server.numbers("elapsed");
    let line = |name: &str, ink, y| Line {
        name: name.to_owned(),
        ink,
        x: x.clone(),
        y,
    };
    let sum = |head: &str| server.column(head).unwrap_or_default().to_vec();
    let rate = |head: &str| rate_of_sum(server, head);
    let space = vec![
        line("on disk", Ink::Main, sum("disk_bytes")),
        line("put by clients", Ink::Second, sum("put_bytes")),
    ];
    let bytes = vec![
        line("written", Ink::Main, rate("written_bytes")),
        line("read", Ink::Second, rate("read_bytes")),
    ];
    let cpu = vec![line("CPU", Ink::Main, rate("cpu_seconds"))];
    let memory = vec![line("memory", Ink::Main, sum("resident_bytes"))];
    let charts = [
        chart("disk-space", "Disk space", "bytes", Unit::Bytes, space),
        chart(
            "disk-bytes",
            "Bytes read from and written to disk",
            "bytes per second",
            Unit::ByteRate,
            bytes,
        ),
        chart(
            "cpu",
            "CPU of the server",
            &cores_title(run),
            Unit::Cores,
            cpu,
        ),
        chart(
            "memory",
            "Memory of the server",
            "resident bytes",
            Unit::Bytes,
            memory,
        ),
    ];
    charts.into_iter().flatten().collect()
}

fn cores_title(run: &RunResult) -> String {
    let machine = run.description.as_ref().map(|run| &run.machine);
    machine.and_then(|machine| machine.cores).map_or_else(
        || "busy cores".to_owned(),
        |cores| format!("busy cores, of {cores}"),
    )
}

/// The stalls of a run on a time axis.
pub(super) fn stalls_over_time(run: &RunResult) -> Vec<Band> {
    run.stalls()
        .iter()
        .map(|stall| Band {
            from: stall.at_seconds,
            to: stall.at_seconds + stall.seconds,
            text: stall_text(stall.at_seconds, stall.seconds),
            ink: None,
        })
        .collect()
}

/// The stalls of a run on an axis of volume; none if volume was not counted.
pub(super) fn stalls_over_volume(run: &RunResult) -> Vec<Band> {
    let Some(volume) = &run.volume else {
        return Vec::new();
    };
    let at = |seconds| value_at(volume, "payload_bytes", seconds);
    run.stalls()
        .iter()
        .filter_map(|stall| {
            Some(Band {
                from: at(stall.at_seconds)?,
                to: at(stall.at_seconds + stall.seconds)?,
                text: stall_text(stall.at_seconds, stall.seconds),
                ink: None,
            })
        })
        .collect()
}

fn stall_text(at: f64, seconds: f64) -> String {
    format!(
        "no answer for {} at {}",
        Unit::Seconds.text(seconds),
        Unit::Seconds.text(at)
    )
}

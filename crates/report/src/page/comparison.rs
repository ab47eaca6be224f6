//! Several runs side by side: their charts on top of one another, and the table of ratios.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::charts::{self, RANKS};
use super::data::PageData;
use super::document::{Document, Link};
use super::ratios::ratios;
use super::run::chart_section;
use super::{failures, hits, run_tables};
use crate::draw::{Band, Chart, Column, Ink, Line, Scale, Unit};
use crate::result::series::{latencies, rate_in_window, rate_of_sum};
use crate::result::{RunResult, Table};

/// A run with its name on a page.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// The name; unique on the page.
    pub name: String,
    /// The run.
    pub run: &'a RunResult,
    /// The path of its own report, relative to the page.
    pub report: Option<String>,
}

/// Names for runs, which state their differences in the fewest words.
pub fn entries(runs: &[RunResult]) -> Vec<Entry<'_>> {
    let by_backend = |run: &RunResult| {
        let description = run.description.as_ref()?;
        let backend = description.backend.clone()?;
        Some(backend)
    };
    let with_durability = |run: &RunResult| {
        let description = run.description.as_ref()?;
        let durability = description.durability.as_ref()?;
        Some(format!("{}, {durability}", description.backend.as_ref()?))
    };
    let by_name = |run: &RunResult| Some(run.name.clone());
    let by_directory = |run: &RunResult| Some(run.directory.display().to_string());
    let names = names(runs, by_name)
        .or_else(|| names(runs, by_backend))
        .or_else(|| names(runs, with_durability))
        .or_else(|| names(runs, by_directory))
        .unwrap_or_else(|| {
            (1..=runs.len())
                .map(|number| format!("run {number}"))
                .collect()
        });
    names
        .into_iter()
        .zip(runs)
        .map(|(name, run)| Entry {
            name,
            run,
            report: None,
        })
        .collect()
}

/// The names according to a rule, if every run has one and no two are equal.
fn names(runs: &[RunResult], rule: impl Fn(&RunResult) -> Option<String>) -> Option<Vec<String>> {
    let names: Vec<String> = runs.iter().map(rule).collect::<Option<_>>()?;
    let distinct: BTreeSet<&String> = names.iter().collect();
    (distinct.len() == names.len()).then_some(names)
}

/// The page of several runs. `base` is the number of the run that ratios refer to; `note` is a
/// remark on all runs for readers.
pub fn comparison(
    title: &str,
    note: Option<&str>,
    entries: &[Entry<'_>],
    base: usize,
    links: &[Link],
) -> String {
    let mut data = PageData::default();
    let mut sections = vec![("ratios".to_owned(), "Ratios".to_owned())];
    let runs: Vec<&RunResult> = entries.iter().map(|entry| entry.run).collect();
    let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    let of_entries: Vec<(&str, &RunResult)> = entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry.run))
        .collect();
    let throughput: Vec<Chart> = throughput(entries);
    let server = server(entries);
    let body = html! {
        section #ratios {
            h2 { "Ratios" }
            @if let Some(note) = note { p.note { (note) } }
            (failures::of_several(&of_entries))
            (ratios(&runs, &names, base))
        }
        (hits::section(&of_entries, &mut sections))
        (chart_section("throughput", "Throughput", None, &throughput, &mut sections, &mut data))
        @for label in labels(entries) {
            @let charts = latency(entries, &label);
            @let id = format!("latency-{label}");
            @let title = format!("Latency of {label}");
            (chart_section(&id, &title, None, &charts, &mut sections, &mut data))
        }
        (chart_section("server", "Server", None, &server, &mut sections, &mut data))
        (setup(entries, &mut sections))
    };
    let document = Document {
        title,
        subtitle: html! { p.subtitle { (names.join(" \u{b7} ")) } },
        links,
        sections: &sections,
        body,
        data,
    };
    document.into_text()
}

/// The operations of all runs, in the order of their names.
fn labels(entries: &[Entry<'_>]) -> BTreeSet<String> {
    let operations = entries.iter().flat_map(|entry| &entry.run.operations);
    operations
        .map(|operation| operation.label.clone())
        .collect()
}

/// Lines of all runs with values according to a rule.
fn lines(
    entries: &[Entry<'_>],
    rule: impl Fn(&RunResult) -> Option<(Vec<f64>, Vec<Option<f64>>)>,
) -> Vec<Line> {
    let line = |(number, entry): (usize, &Entry<'_>)| {
        let (x, y) = rule(entry.run)?;
        Some(Line {
            name: entry.name.clone(),
            ink: Ink::Run(number),
            x,
            y,
        })
    };
    let lines = entries.iter().enumerate().filter_map(line);
    lines.filter(|line| line.last().is_some()).collect()
}

/// A chart over time; its table has two columns for each run, since each has its own rows.
fn over_time(
    id: String,
    title: &str,
    y_title: &str,
    y: Scale,
    lines: Vec<Line>,
    entries: &[Entry<'_>],
) -> Chart {
    Chart {
        id,
        title: title.to_owned(),
        x_title: "time since the start".to_owned(),
        y_title: y_title.to_owned(),
        x: charts::time_axis(entries.iter().map(|entry| entry.run)),
        y,
        table: table(&lines, "elapsed", y_title),
        lines,
        bands: stalls(entries, charts::stalls_over_time),
    }
}

/// The stalls of all runs, each in the colour of its run.
fn stalls(entries: &[Entry<'_>], of_run: impl Fn(&RunResult) -> Vec<Band>) -> Vec<Band> {
    let mut bands = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        bands.extend(of_run(entry.run).into_iter().map(|band| Band {
            text: format!("{}: {}", entry.name, band.text),
            ink: Some(Ink::Run(number)),
            ..band
        }));
    }
    bands
}

fn table(lines: &[Line], x_head: &str, y_head: &str) -> Vec<Column> {
    let columns = lines.iter().flat_map(|line| {
        let x = Column {
            head: format!("{}: {x_head}", line.name),
            values: line.x.iter().copied().map(Some).collect(),
        };
        let y = Column {
            head: format!("{}: {y_head}", line.name),
            values: line.y.clone(),
        };
        [x, y]
    });
    columns.collect()
}

fn throughput(entries: &[Entry<'_>]) -> Vec<Chart> {
    let rates = |run: &RunResult| rate_in_window(&run.summary, "successful");
    let over_time_lines = lines(entries, |run| {
        Some((run.summary.numbers("elapsed"), rates(run)))
    });
    let y_title = "operations per second";
    let y = charts::axis_from_zero(Unit::Rate, &over_time_lines);
    let mut charts = vec![over_time(
        "throughput-time".to_owned(),
        "Throughput over time",
        y_title,
        y,
        over_time_lines,
        entries,
    )];
    let lines = lines(entries, |run| {
        Some((charts::volume_of_rows(run)?, rates(run)))
    });
    if !lines.is_empty() {
        charts.push(Chart {
            id: "throughput-volume".to_owned(),
            title: "Throughput over accumulated volume".to_owned(),
            x_title: "payload moved since the start".to_owned(),
            y_title: y_title.to_owned(),
            x: charts::volume_axis(&lines),
            y: charts::axis_from_zero(Unit::Rate, &lines),
            table: table(&lines, "payload_bytes", y_title),
            lines,
            bands: stalls(entries, charts::stalls_over_volume),
        });
    }
    charts
}

/// A chart for each statistic of an operation's latencies.
fn latency(entries: &[Entry<'_>], label: &str) -> Vec<Chart> {
    let of_rank = |(head, name): (&str, &str)| {
        let lines = lines(entries, |run| {
            let operation = run.operations.iter().find(|found| found.label == label)?;
            let table = &operation.latencies;
            Some((table.numbers("elapsed"), latencies(table, head)))
        });
        let y = Scale::logarithmic(Unit::Microseconds, lines.iter().flat_map(Line::values));
        let id = format!("latency-{label}-{head}");
        let title = match head {
            "mean" => "Mean".to_owned(),
            "max" => "Longest".to_owned(),
            _ => format!("{name} percentile"),
        };
        let is_known = !lines.is_empty();
        is_known.then(|| over_time(id, &title, "latency", y, lines, entries))
    };
    RANKS.into_iter().filter_map(of_rank).collect()
}

/// Known resources of the servers.
fn server(entries: &[Entry<'_>]) -> Vec<Chart> {
    type Rule = fn(&Table, &str) -> Vec<Option<f64>>;
    let sum: Rule = |table, head| table.column(head).unwrap_or_default().to_vec();
    let rate: Rule = rate_of_sum;
    let charts: [(&str, &str, &str, Unit, Rule); 5] = [
        ("disk_bytes", "Disk space", "bytes", Unit::Bytes, sum),
        (
            "written_bytes",
            "Bytes written to disk",
            "bytes per second",
            Unit::ByteRate,
            rate,
        ),
        (
            "read_bytes",
            "Bytes read from disk",
            "bytes per second",
            Unit::ByteRate,
            rate,
        ),
        (
            "cpu_seconds",
            "CPU of the server",
            "busy cores",
            Unit::Cores,
            rate,
        ),
        (
            "resident_bytes",
            "Memory of the server",
            "resident bytes",
            Unit::Bytes,
            sum,
        ),
    ];
    let chart = |(head, title, y_title, unit, rule): (&str, &str, &str, Unit, Rule)| {
        let lines = lines(entries, |run| {
            let server = run.server.as_ref()?;
            Some((server.numbers("elapsed"), rule(server, head)))
        });
        let y = charts::axis_from_zero(unit, &lines);
        let is_known = !lines.is_empty();
        is_known.then(|| over_time(head.replace('_', "-"), title, y_title, y, lines, entries))
    };
    charts.into_iter().filter_map(chart).collect()
}

fn setup(entries: &[Entry<'_>], sections: &mut Vec<(String, String)>) -> Markup {
    sections.push(("setup".to_owned(), "Runs and machine".to_owned()));
    let described: Vec<_> = entries
        .iter()
        .filter_map(|entry| Some((entry, entry.run.description.as_ref()?)))
        .collect();
    let machine = |index: usize| {
        described
            .get(index)
            .map(|(_, run)| run_tables::machine(run))
    };
    let is_one_machine = (1..described.len()).all(|index| machine(index) == machine(0));
    html! {
        section #setup {
            h2 { "Runs and machine" }
            @if !is_one_machine {
                p.missing {
                    "These runs were made on different machines, or on one that has changed: \
                     their ratios depend on the machines too."
                }
            }
            div.columns {
                @for entry in entries {
                    @let title = html! { (entry.name) };
                    section.pairs {
                        h3 {
                            @if let Some(report) = &entry.report { a href=(report) { (title) } }
                            @else { (title) }
                        }
                        dl {
                            @if let Some(description) = &entry.run.description {
                                @for (name, value) in run_tables::load(description) {
                                    dt { (name) } dd { (value) }
                                }
                                @if !is_one_machine {
                                    @for (name, value) in run_tables::machine(description) {
                                        dt { (name) } dd { (value) }
                                    }
                                }
                            }
                            dt { "directory" } dd { (entry.run.directory.display()) }
                        }
                    }
                }
                @if is_one_machine {
                    @if let Some((_, description)) = described.first() {
                        (run_tables::pairs("Machine", &run_tables::machine(description)))
                    }
                }
            }
        }
    }
}

//! The tables of one run: its operations, its stalls, its settings and its machine.

use maud::{Markup, html};

use crate::draw::{Unit, grouped};
use crate::figures::{missed_share, seconds, totals};
use crate::result::{Description, OperationTotals, RunResult, Stall};

/// A table that may be wider than a phone.
pub(super) fn scrolling(table: &Markup, label: &str) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label=(label) { (table) } }
}

/// Counts and latencies of each operation over the whole run.
pub(super) fn operations(run: &RunResult) -> Markup {
    let seconds = seconds(run).max(1e-9);
    // The head has the unit, once for all columns.
    let latency = |value: Option<f64>| match value {
        Some(value) => grouped(value / 1e3),
        None => "\u{2013}".to_owned(),
    };
    let table = html! {
        table.numbers {
            thead {
                tr.spans { td colspan="5" {} th colspan="7" scope="colgroup" { "latency in ms" } }
                tr {
                    th scope="col" { "operation" }
                    @for head in [
                        "count", "per second", "not found", "errors", "mean", "median", "95th", "99th",
                        "99.9th", "99.99th", "max",
                    ] {
                        th scope="col" { (head) }
                    }
                }
            }
            tbody {
                @for operation in &run.operations {
                    @let totals = totals(operation);
                    tr {
                        th scope="row" { (operation.label) }
                        td data-value=(totals.count) { (Unit::Number.text(totals.count)) }
                        td { (Unit::Number.text(totals.count / seconds)) }
                        td data-value=[totals.misses] {
                            (missed_share(&totals).map_or_else(
                                || "\u{2013}".to_owned(),
                                |share| Unit::Share.text(share),
                            ))
                        }
                        td data-value=(totals.errors) class=[(totals.errors > 0.0).then_some("bad")] {
                            (Unit::Number.text(totals.errors))
                        }
                        @for value in [
                            totals.mean_us, totals.p50_us, totals.p95_us, totals.p99_us,
                            totals.p999_us, totals.p9999_us, totals.max_us,
                        ] {
                            td data-value=[value] { (latency(value)) }
                        }
                    }
                }
            }
        }
    };
    scrolling(&table, "Operations")
}

/// Times at which the server did not answer.
pub(super) fn stalls(stalls: &[Stall]) -> Markup {
    html! {
        details {
            summary {
                @if stalls.len() == 1 { "One stall" } @else { (stalls.len()) " stalls" }
            }
            table.numbers {
                thead { tr { th scope="col" { "at" } th scope="col" { "no answer for" } } }
                tbody {
                    @for stall in stalls {
                        tr {
                            td { (Unit::Seconds.text(stall.at_seconds)) }
                            td { (Unit::Seconds.text(stall.seconds)) }
                        }
                    }
                }
            }
        }
    }
}

/// The machine, as pairs of name and value.
pub(super) fn machine(description: &Description) -> Vec<(String, String)> {
    let machine = &description.machine;
    let pairs = [
        ("processor", machine.cpu_model.clone()),
        ("cores", machine.cores.map(|cores| cores.to_string())),
        (
            "memory",
            machine.memory_bytes.map(|bytes| Unit::Bytes.text(bytes)),
        ),
        ("kernel", machine.kernel.clone()),
        ("file system", machine.filesystem.clone()),
        ("device", machine.device.clone()),
    ];
    known(pairs)
}

/// The properties of the load, as pairs of name and value.
pub(super) fn load(description: &Description) -> Vec<(String, String)> {
    let seconds = |value: Option<f64>| value.map(|value| Unit::Seconds.text(value));
    let mode = description.mode.as_deref().map(|mode| match mode {
        "closed" => "closed loop: each worker waits for its answer".to_owned(),
        "open" => "open loop: requests come at a fixed rate, waiting counts".to_owned(),
        other => other.to_owned(),
    });
    let warm_up = description.warm_up_seconds.filter(|value| *value > 0.0);
    let pairs = [
        (
            "configuration",
            description.configuration_file.as_deref().map(file_names),
        ),
        ("started", description.started_unix_seconds.map(utc)),
        ("duration", seconds(description.duration_seconds)),
        ("warm-up", seconds(warm_up)),
        ("loop", mode),
        ("rate", description.rate.map(|rate| Unit::Rate.text(rate))),
        (
            "began late",
            description.lateness.as_ref().and_then(lateness),
        ),
        (
            "verified",
            description
                .verified
                .then(|| "every value read was checked".to_owned()),
        ),
        (
            "workers",
            description.workers.map(|count| count.to_string()),
        ),
        (
            "scale",
            description
                .scale
                .filter(|scale| (scale - 1.0).abs() > 1e-12)
                .map(|scale| format!("{scale}")),
        ),
        ("driver", description.driver.clone()),
        ("backend", description.backend.clone()),
        ("durability", description.durability.clone()),
        (
            "server",
            description
                .server
                .as_ref()
                .and_then(|server| server.version.clone()),
        ),
    ];
    known(pairs)
}

/// The names of files without directories, which have no meaning on another machine.
fn file_names(paths: &str) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let names: Vec<String> = paths.split(", ").map(name).collect();
    names.join(", ")
}

/// The lateness of an open loop's operations, which shows whether the load tool kept up.
fn lateness(lateness: &OperationTotals) -> Option<String> {
    let text = |value: Option<f64>| value.map(|value| Unit::Microseconds.text(value));
    Some(format!(
        "mean {}, 99th {}, max {}",
        text(lateness.mean_us)?,
        text(lateness.p99_us)?,
        text(lateness.max_us)?
    ))
}

/// The keys of the configuration with their terms.
pub(super) fn settings(
    settings: &serde_json::Map<String, serde_json::Value>,
) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    settings
        .iter()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

/// Pairs as a list of definitions, with a heading; empty without pairs.
pub(super) fn pairs(title: &str, pairs: &[(String, String)]) -> Markup {
    html! {
        @if !pairs.is_empty() {
            section.pairs {
                h3 { (title) }
                dl {
                    @for (name, value) in pairs {
                        dt { (name) }
                        dd { (value) }
                    }
                }
            }
        }
    }
}

fn known<const N: usize>(pairs: [(&str, Option<String>); N]) -> Vec<(String, String)> {
    pairs
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.filter(|text| !text.is_empty())?)))
        .collect()
}

/// A moment in UTC, to the minute.
pub(super) fn utc(unix_seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a cast of a float saturates, and no clock is that late"
    )]
    let seconds = unix_seconds as i64;
    // No run begins at a moment beyond the calendar.
    let at = time::OffsetDateTime::from_unix_timestamp(seconds)
        .unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    format!("{} {:02}:{:02} UTC", at.date(), at.hour(), at.minute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_in_utc() {
        assert_eq!(utc(0.0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_399.0), "2000-02-28 23:59 UTC");
        assert_eq!(utc(951_827_696.5), "2000-02-29 12:34 UTC");
        assert_eq!(utc(1_735_689_599.0), "2024-12-31 23:59 UTC");
    }
}

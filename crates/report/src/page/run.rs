//! The report of one run.

use maud::{Markup, html};

use super::data::PageData;
use super::document::{Document, Link};
use super::{charts, failures, figure, hits, run_tables};
use crate::draw::{Chart, Unit, counted};
use crate::figures::{self, Figure, SERVER};
use crate::result::{Description, RunResult};

/// The report as one HTML page. `links` lead to related pages.
pub fn run(run: &RunResult, links: &[Link]) -> String {
    let mut data = PageData::default();
    let mut sections = vec![section_name("results", "Results")];
    let throughput = [
        Some(charts::throughput_over_time(run)),
        charts::throughput_over_volume(run),
    ];
    let throughput: Vec<Chart> = throughput.into_iter().flatten().collect();
    let latency = charts::latencies_over_time(run);
    let server = charts::server_charts(run);
    let body = html! {
        section #results {
            h2 { "Results" }
            (failures::of_one(run))
            (tiles(run))
            (run_tables::operations(run))
            @if !run.stalls().is_empty() { (run_tables::stalls(run.stalls())) }
        }
        (hits::section(&[("", run)], &mut sections))
        (chart_section("throughput", "Throughput", None, &throughput, &mut sections, &mut data))
        (chart_section("latency", "Latency", Some(LATENCY_NOTE), &latency, &mut sections, &mut data))
        (chart_section("server", "Server", None, &server, &mut sections, &mut data))
        (what_is_missing(run))
        @if let Some(description) = &run.description {
            (setup(description, &mut sections))
        }
    };
    let document = Document {
        title: &run.name,
        subtitle: subtitle(run),
        links,
        sections: &sections,
        body,
        data,
    };
    document.into_text()
}

const LATENCY_NOTE: &str = "Each point is one interval. All operations share one axis, \
                            so that their heights can be compared.";

fn section_name(id: &str, title: &str) -> (String, String) {
    (id.to_owned(), title.to_owned())
}

/// A section of charts, two in a row if there is room; empty without charts.
pub(super) fn chart_section(
    id: &str,
    title: &str,
    note: Option<&str>,
    charts: &[Chart],
    sections: &mut Vec<(String, String)>,
    data: &mut PageData,
) -> Markup {
    if charts.is_empty() {
        return html! {};
    }
    sections.push(section_name(id, title));
    html! {
        section id=(id) {
            h2 { (title) }
            @if let Some(note) = note { p.note { (note) } }
            div.charts {
                @for (index, chart) in charts.iter().enumerate() {
                    // The last chart of an odd number is alone in its row, and fills it.
                    @let is_alone = index + 1 == charts.len() && index % 2 == 0;
                    (figure::figure(chart, is_alone, data))
                }
            }
        }
    }
}

fn subtitle(run: &RunResult) -> Markup {
    let Some(description) = &run.description else {
        return html! { p.subtitle { (run.directory.display()) } };
    };
    let durability = description.durability.as_ref();
    let parts = [
        description.backend.clone(),
        durability.map(|durability| format!("durability {durability}")),
        description
            .workers
            .map(|workers| format!("{workers} workers")),
        description
            .duration_seconds
            .map(|seconds| Unit::Seconds.text(seconds)),
        description.started_unix_seconds.map(run_tables::utc),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    html! { p.subtitle { (parts.join(" \u{b7} ")) } }
}

/// The few most important numbers.
fn tiles(run: &RunResult) -> Markup {
    let operations = figures::operations(run);
    let failed = figures::errors(run);
    let stalls = run.stalls();
    let longest = stalls.iter().map(|stall| stall.seconds).fold(0.0, f64::max);
    let server: Vec<Figure> = figures::figures(run)
        .into_iter()
        .filter(|figure| figure.group == SERVER && SHOWN.contains(&figure.title.as_str()))
        .collect();
    html! {
        dl.tiles {
            div.main {
                dt { "Operations per second" }
                dd data-figure="throughput" data-value=(figures::throughput(run)) {
                    (Unit::Number.text(figures::throughput(run)))
                }
            }
            div {
                dt { "Operations" }
                dd data-value=(operations) title=(Unit::Number.text(operations)) {
                    (counted(operations))
                }
            }
            div {
                dt { "Errors" }
                dd class=[(failed > 0.0).then_some("bad")] data-value=(failed) {
                    (Unit::Number.text(failed))
                }
            }
            @if run.description.is_some() {
                div {
                    dt { "Stalls" }
                    dd class=[(!stalls.is_empty()).then_some("bad")] {
                        (stalls.len())
                        @if !stalls.is_empty() {
                            small { " longest " (Unit::Seconds.text(longest)) }
                        }
                    }
                }
            }
            @for figure in &server {
                div {
                    dt { (figure.title) }
                    dd data-value=(figure.value) { (figure.unit.text(figure.value)) }
                }
            }
        }
    }
}

/// Figures of the server among these numbers.
const SHOWN: [&str; 4] = [
    "CPU per operation",
    "Memory at most",
    "Disk space at the end",
    "Write amplification",
];

/// The list of missing charts, with reasons: a missing chart must not look like an idle server.
fn what_is_missing(run: &RunResult) -> Markup {
    let missing = [
        (
            run.volume.is_none(),
            "No volume was counted (volume.csv): throughput over volume is left out.",
        ),
        (
            run.server.is_none(),
            "The server was not watched (server.csv): disk space, bytes, CPU and memory are left \
             out. Give its process with --server-pid where it runs on this machine.",
        ),
        (
            run.description.is_none(),
            "There is no run.json: settings, machine, stalls and percentiles of the whole run are \
             not known.",
        ),
    ];
    html! {
        @for (_, text) in missing.iter().filter(|(is_missing, _)| *is_missing) {
            p.missing { (text) }
        }
    }
}

fn setup(description: &Description, sections: &mut Vec<(String, String)>) -> Markup {
    sections.push(section_name("setup", "Settings and machine"));
    let server = description.server.as_ref();
    html! {
        section #setup {
            h2 { "Settings and machine" }
            div.columns {
                (run_tables::pairs("Load", &run_tables::load(description)))
                (run_tables::pairs("Machine", &run_tables::machine(description)))
                (run_tables::pairs("Configuration", &run_tables::settings(&description.configuration)))
                @if let Some(server) = server {
                    (run_tables::pairs("Server settings", &run_tables::settings(&server.settings)))
                }
            }
        }
    }
}

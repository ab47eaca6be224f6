//! The index of a matrix: for each figure a table of tests by backends, with ratios.

use maud::{Markup, html};

use super::data::PageData;
use super::document::{Document, Link};
use super::failures;
use super::hits;
use super::ratios::{base_choice, base_of, has_others, ratio_text};
use super::run_tables::{self, scrolling};
use crate::figures::{Better, Figure, summary};
use crate::result::RunResult;

/// The content of a matrix's index.
#[derive(Debug)]
pub struct MatrixIndex<'a> {
    /// Its title.
    pub title: String,
    /// Notes on the matrix, as sentences.
    pub notes: Vec<String>,
    /// The backends with their pages.
    pub columns: Vec<Link>,
    /// The tests.
    pub rows: Vec<MatrixRow<'a>>,
    /// The number of cells that have results.
    pub done: usize,
    /// The number of all cells.
    pub planned: usize,
}

/// A test of a matrix, with its run on each backend.
#[derive(Debug)]
pub struct MatrixRow<'a> {
    /// The test's name, short enough for a label.
    pub name: String,
    /// The test's title.
    pub title: String,
    /// A note on the test for readers.
    pub note: Option<String>,
    /// The page that compares its runs.
    pub page: Option<String>,
    /// One run for each backend, with the path of its report; `None` for a run that is missing.
    pub cells: Vec<Option<(&'a RunResult, String)>>,
}

impl<'a> MatrixIndex<'a> {
    /// All runs, test by test, each with a label.
    fn runs(&self) -> Vec<(String, &'a RunResult)> {
        let of_row = |row: &MatrixRow<'a>| {
            let labelled = row.cells.iter().zip(&self.columns);
            labelled
                .filter_map(|(cell, column)| {
                    let (run, _) = cell.as_ref()?;
                    Some((format!("{} on {}", row.name, column.text), *run))
                })
                .collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(of_row).collect()
    }

    /// The tests, backends, date and version, in one line.
    pub(crate) fn subtitle(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|link| link.text.as_str()).collect();
        let mut parts = vec![format!("{} tests on {}", self.rows.len(), names.join(", "))];
        let runs = self.runs();
        let described = || runs.iter().filter_map(|(_, run)| run.description.as_ref());
        let starts = described().filter_map(|run| run.started_unix_seconds);
        parts.extend(starts.reduce(f64::min).map(run_tables::utc));
        let version = described().find_map(|run| run.server.as_ref()?.version.clone());
        parts.extend(version);
        parts.join(" \u{b7} ")
    }

    /// The machine, as pairs of name and value.
    pub(crate) fn machine(&self) -> Vec<(String, String)> {
        let runs = self.runs();
        let first = runs.iter().find_map(|(_, run)| run.description.as_ref());
        first.map(run_tables::machine).unwrap_or_default()
    }
}

/// The index page.
pub fn matrix(index: &MatrixIndex<'_>) -> String {
    let names: Vec<String> = index.columns.iter().map(|link| link.text.clone()).collect();
    let kinds = kinds(&index.rows);
    let runs = index.runs();
    let of_runs: Vec<(&str, &RunResult)> = runs
        .iter()
        .map(|(name, run)| (name.as_str(), *run))
        .collect();
    let mut sections = vec![("ratios".to_owned(), "Ratios".to_owned())];
    let body = html! {
        section #ratios {
            h2 { "Ratios" }
            @for note in &index.notes { p.note { (note) } }
            @if index.done < index.planned {
                p.missing { (index.done) " of " (index.planned) " cells are done." }
            }
            (failures::of_several(&of_runs))
            (base_choice(&names, 0))
            // Few backends leave room for two tables in a row.
            div.tables.many[index.columns.len() > 3] {
                @for kind in &kinds {
                    section {
                        h3 { (kind.title) }
                        (scrolling(&table(&index.columns, &index.rows, kind), &kind.title))
                    }
                }
            }
        }
        (tests(&index.rows, &mut sections))
        (hits::section(&of_runs, &mut sections))
        section #machine {
            h2 { "Machine" }
            (run_tables::pairs("", &index.machine()))
            p.note {
                "A test's name leads to its runs side by side, a backend's name to all its tests, \
                 and a value to where it comes from."
            }
        }
    };
    sections.push(("machine".to_owned(), "Machine".to_owned()));
    let document = Document {
        title: &index.title,
        subtitle: html! { p.subtitle { (index.subtitle()) } },
        links: &[],
        sections: &sections,
        body,
        data: PageData::default(),
    };
    document.into_text()
}

/// The notes on tests; empty if no test has one.
fn tests(rows: &[MatrixRow<'_>], sections: &mut Vec<(String, String)>) -> Markup {
    let noted: Vec<(&str, &str)> = rows
        .iter()
        .filter_map(|row| Some((row.title.as_str(), row.note.as_deref()?)))
        .collect();
    if noted.is_empty() {
        return html! {};
    }
    sections.push(("tests".to_owned(), "Tests".to_owned()));
    html! {
        section #tests {
            h2 { "Tests" }
            @for (title, note) in noted {
                h3 { (title) }
                p.note { (note) }
            }
        }
    }
}

/// The figures of all runs, in the order in which they first occur.
pub(crate) fn kinds(rows: &[MatrixRow<'_>]) -> Vec<Figure> {
    let mut kinds: Vec<Figure> = Vec::new();
    for (run, _) in rows.iter().flat_map(|row| &row.cells).flatten() {
        for figure in summary(run) {
            if kinds.iter().all(|kind| kind.title != figure.title) {
                kinds.push(figure);
            }
        }
    }
    kinds
}

fn table(columns: &[Link], rows: &[MatrixRow<'_>], kind: &Figure) -> Markup {
    html! {
        table.numbers.ratios data-base="0" {
            thead {
                tr {
                    th scope="col" { "" }
                    @for (index, column) in columns.iter().enumerate() {
                        th scope="col" class=[(index == 0).then_some("base")] {
                            a href=(column.target) { (column.text) }
                        }
                    }
                }
            }
            tbody {
                @for row in rows { (table_row(row, kind)) }
            }
        }
    }
}

/// The first cell of a row that has the same load as cell `index`.
fn load_of(row: &MatrixRow<'_>, index: usize) -> usize {
    let Some(Some((own, _))) = row.cells.get(index) else {
        return index;
    };
    let mut cells = row.cells.iter();
    let first = cells.position(|cell| {
        let other = cell.as_ref();
        other.is_some_and(|(other, _)| own.load_differences(other).is_empty())
    });
    first.unwrap_or(index)
}

fn table_row(row: &MatrixRow<'_>, kind: &Figure) -> Markup {
    let value = |run: &RunResult| {
        let figures = summary(run);
        let figure = figures
            .into_iter()
            .find(|figure| figure.title == kind.title)?;
        Some(figure.value)
    };
    // The load of a missing run is unknown, and no run is compared with it.
    let loads: Vec<usize> = (0..row.cells.len())
        .map(|index| load_of(row, index))
        .collect();
    let base_value = |index: usize| {
        if !has_others(&loads, index) {
            return None;
        }
        let base = row.cells.get(base_of(&loads, index, 0))?.as_ref();
        base.and_then(|(run, _)| value(run))
    };
    let better = match kind.better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    };
    html! {
        tr data-better=(better) {
            th scope="row" {
                @if let Some(page) = &row.page { a href=(page) { (row.title) } }
                @else { (row.title) }
            }
            @for (index, cell) in row.cells.iter().enumerate() {
                @let known = cell.as_ref().and_then(|(run, report)| Some((value(run)?, report)));
                @let own = base_of(&loads, index, 0);
                @let load = loads.get(index).copied().unwrap_or(index);
                @match known {
                    None => td data-load=(load) { "\u{2013}" },
                    Some((value, report)) => {
                        td data-load=(load) data-value=(value) class=[(index == own).then_some("base")] {
                            a.plain href=(report) { (kind.unit.text(value)) }
                            (ratio_text(value, base_value(index), kind.better, index == own))
                        }
                    }
                }
            }
        }
    }
}

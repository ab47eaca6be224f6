//! The index of a matrix: for each figure a table of tests by backends, with ratios.

use maud::{Markup, html};

use super::data::PageData;
use super::document::{Document, Link};
use super::ratios::{base_choice, ratio_text};
use super::run_tables::{self, scrolling};
use crate::figures::{Better, Figure, summary};
use crate::result::RunResult;

/// A test of a matrix, with its run on each backend.
#[derive(Debug)]
pub struct MatrixRow<'a> {
    /// The test's title.
    pub title: String,
    /// The page that compares its runs.
    pub page: Option<String>,
    /// One run for each backend, with the place of its report; none where it has not been run.
    pub cells: Vec<Option<(&'a RunResult, String)>>,
}

/// The index page. `columns` are the backends with their pages.
pub fn matrix(
    title: &str,
    columns: &[Link],
    rows: &[MatrixRow<'_>],
    done: usize,
    planned: usize,
) -> String {
    let names: Vec<String> = columns.iter().map(|link| link.text.clone()).collect();
    let kinds = kinds(rows);
    let first = rows.iter().flat_map(|row| &row.cells).flatten().next();
    let machine = first.and_then(|(run, _)| run.description.as_ref());
    let body = html! {
        section #ratios {
            h2 { "Ratios" }
            @if done < planned {
                p.missing { (done) " of " (planned) " cells are done." }
            }
            (base_choice(&names, 0))
            // Few backends leave room for two tables in a row.
            div.tables.many[columns.len() > 3] {
                @for kind in &kinds {
                    section {
                        h3 { (kind.title) }
                        (scrolling(&table(columns, rows, kind), &kind.title))
                    }
                }
            }
        }
        section #machine {
            h2 { "Machine" }
            @if let Some(description) = machine {
                (run_tables::pairs("", &run_tables::machine(description)))
            }
            p.note {
                "A test's name leads to its runs side by side, a backend's name to all its tests, \
                 and a value to the report of its run."
            }
        }
    };
    let sections = [("ratios", "Ratios"), ("machine", "Machine")];
    let document = Document {
        title,
        subtitle: html! { p.subtitle { (rows.len()) " tests on " (names.join(", ")) } },
        links: &[],
        sections: &sections.map(|(id, title)| (id.to_owned(), title.to_owned())),
        body,
        data: PageData::default(),
    };
    document.into_text()
}

/// The figures that any run has, as the first run tells them.
fn kinds(rows: &[MatrixRow<'_>]) -> Vec<Figure> {
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

fn table_row(row: &MatrixRow<'_>, kind: &Figure) -> Markup {
    let value = |run: &RunResult| {
        let figures = summary(run);
        let figure = figures
            .into_iter()
            .find(|figure| figure.title == kind.title)?;
        Some(figure.value)
    };
    let base = row.cells.first().and_then(Option::as_ref);
    let base = base.and_then(|(run, _)| value(run));
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
                @match known {
                    None => td { "\u{2013}" },
                    Some((value, report)) => {
                        td data-value=(value) class=[(index == 0).then_some("base")] {
                            a.plain href=(report) { (kind.unit.text(value)) }
                            (ratio_text(value, base, kind.better, index == 0))
                        }
                    }
                }
            }
        }
    }
}

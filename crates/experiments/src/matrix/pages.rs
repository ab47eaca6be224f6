//! The pages of a matrix: a report of each cell, a comparison per test and per backend, and the
//! index with the table of ratios.

use std::path::Path;

use anyhow::Context as _;
use kvorum_report::matrix_text;
use kvorum_report::page::{self, Entry, Link, MatrixIndex, MatrixRow};
use kvorum_report::result::RunResult;
use kvorum_report::write_atomically;

use super::plan::{Cell, Plan};
use super::site::Site;

/// A cell that is done, with its results.
struct Done<'a> {
    cell: &'a Cell,
    run: RunResult,
}

impl Done<'_> {
    fn report(&self) -> String {
        format!("cells/{}/report.html", self.cell.name())
    }

    /// The name of the cell among those of its test.
    fn in_test(&self) -> String {
        self.distinguished(&self.cell.backend)
    }

    /// The name of the cell's row among those of its backend.
    fn row(&self) -> String {
        self.distinguished(&self.cell.test_title)
    }

    /// The same, short enough for the end of a line.
    fn short_row(&self) -> String {
        self.distinguished(&self.cell.test)
    }

    /// A name, followed by the durability if others have the same name.
    fn distinguished(&self, name: &str) -> String {
        match &self.cell.durability {
            Some(durability) if self.cell.has_several_durabilities => {
                format!("{name}, {durability}")
            }
            _ => name.to_owned(),
        }
    }
}

/// The pages to write, and their place.
pub(super) struct Output<'a> {
    /// Their directory.
    pub(super) root: &'a Path,
    /// True if every cell gets its own page. These pages have most of the bytes.
    pub(super) has_reports: bool,
    /// The command that made the results.
    pub(super) command: &'a str,
}

/// Writes all pages of the cells that are done, and the same figures as text.
pub(super) fn write(
    plan: &Plan,
    cells: &[&Cell],
    site: &Site,
    output: &Output<'_>,
) -> anyhow::Result<()> {
    let read = |cell: &&'_ Cell| RunResult::read(&site.results(cell));
    let runs: Vec<RunResult> = cells.iter().map(read).collect::<Result<_, _>>()?;
    let done: Vec<Done<'_>> = cells
        .iter()
        .zip(runs)
        .map(|(cell, mut run)| {
            run.name = cell.title();
            Done { cell, run }
        })
        .collect();
    let tests = distinct(done.iter().map(|done| done.cell.test.as_str()));
    let backends = distinct(done.iter().map(|done| done.cell.backend.as_str()));
    if output.has_reports {
        for done in &done {
            write_report(done, plan, output)?;
        }
    }
    for test in &tests {
        let of_test: Vec<&Done<'_>> = done.iter().filter(|done| done.cell.test == *test).collect();
        write_test(test, &of_test, plan, output)?;
    }
    for backend in &backends {
        let of_backend = done.iter().filter(|done| done.cell.backend == *backend);
        write_backend(backend, &of_backend.collect::<Vec<_>>(), plan, output)?;
    }
    let index = index(plan, &done, &backends, output.has_reports);
    let write = |name: &str, text: &str| write_atomically(&output.root.join(name), text);
    write("index.html", &page::matrix(&index)).context("writing the index")?;
    write("README.md", &matrix_text::readme(&index, output.command))?;
    write("figures.csv", &matrix_text::figures_csv(&index))
}

fn test_page(test: &str) -> String {
    format!("test-{test}.html")
}

fn backend_page(backend: &str) -> String {
    format!("backend-{backend}.html")
}

fn write_report(done: &Done<'_>, plan: &Plan, output: &Output<'_>) -> anyhow::Result<()> {
    let cell = done.cell;
    let link = |page: String, text: &str| Link {
        target: format!("../../{page}"),
        text: text.to_owned(),
    };
    let links = [
        link("index.html".to_owned(), &plan.title),
        link(test_page(&cell.test), &cell.test_title),
        link(backend_page(&cell.backend), &cell.backend),
    ];
    let path = output.root.join(done.report());
    write_atomically(&path, &page::run(&done.run, &links))
}

fn write_test(
    test: &str,
    cells: &[&Done<'_>],
    plan: &Plan,
    output: &Output<'_>,
) -> anyhow::Result<()> {
    let Some(first) = cells.first() else {
        return Ok(());
    };
    let entries: Vec<Entry<'_>> = cells
        .iter()
        .map(|done| entry(done, done.in_test(), output))
        .collect();
    let note = first.cell.test_note.as_deref();
    let links = [to_index(plan)];
    let page = page::comparison(&first.cell.test_title, note, &entries, 0, &links);
    write_atomically(&output.root.join(test_page(test)), &page)
}

fn write_backend(
    backend: &str,
    cells: &[&Done<'_>],
    plan: &Plan,
    output: &Output<'_>,
) -> anyhow::Result<()> {
    let entries: Vec<Entry<'_>> = cells
        .iter()
        .map(|done| entry(done, done.short_row(), output))
        .collect();
    let title = format!("All tests on {backend}");
    let page = page::comparison(&title, None, &entries, 0, &[to_index(plan)]);
    write_atomically(&output.root.join(backend_page(backend)), &page)
}

fn entry<'a>(done: &'a Done<'_>, name: String, output: &Output<'_>) -> Entry<'a> {
    Entry {
        name,
        run: &done.run,
        report: output.has_reports.then(|| done.report()),
    }
}

fn to_index(plan: &Plan) -> Link {
    Link {
        target: "index.html".to_owned(),
        text: plan.title.clone(),
    }
}

fn index<'a>(
    plan: &Plan,
    done: &'a [Done<'_>],
    backends: &[&str],
    has_reports: bool,
) -> MatrixIndex<'a> {
    let titles: Vec<String> = done.iter().map(Done::row).collect();
    let row = |title: &str| {
        let of_row = || done.iter().filter(|done| done.row() == title);
        let of_backend = |backend: &&str| {
            let done = of_row().find(|done| done.cell.backend == **backend)?;
            let page = if has_reports {
                done.report()
            } else {
                test_page(&done.cell.test)
            };
            Some((&done.run, page))
        };
        let first = of_row().next();
        MatrixRow {
            name: first.map(Done::short_row).unwrap_or_default(),
            title: title.to_owned(),
            note: first.and_then(|done| done.cell.test_note.clone()),
            page: first.map(|done| test_page(&done.cell.test)),
            cells: backends.iter().map(of_backend).collect(),
        }
    };
    let column = |backend: &&str| Link {
        target: backend_page(backend),
        text: (*backend).to_owned(),
    };
    MatrixIndex {
        title: plan.title.clone(),
        notes: plan.notes.clone(),
        columns: backends.iter().map(column).collect(),
        rows: distinct(titles.iter().map(String::as_str))
            .into_iter()
            .map(row)
            .collect(),
        done: done.len(),
        planned: plan.cells.len(),
    }
}

/// Each name once, in the order of first appearance.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

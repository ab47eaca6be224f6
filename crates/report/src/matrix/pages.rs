//! The pages of a matrix: a report of each cell, a comparison per test and per backend, and the
//! index with the table of ratios.

use anyhow::Context as _;

use super::Site;
use super::plan::{Cell, Plan};
use crate::files::write_atomically;
use crate::page::{self, Entry, Link, MatrixRow};
use crate::result::RunResult;

/// A cell that is done, with its results.
struct Done<'a> {
    cell: &'a Cell,
    run: RunResult,
}

impl Done<'_> {
    fn report(&self) -> String {
        format!("cells/{}/report.html", self.cell.name())
    }

    /// What the cell is called among those of its test.
    fn in_test(&self) -> String {
        match &self.cell.durability {
            Some(durability) if self.cell.has_several_durabilities => {
                format!("{}, {durability}", self.cell.backend)
            }
            _ => self.cell.backend.clone(),
        }
    }

    /// What the cell's row is called among those of its backend.
    fn row(&self) -> String {
        match &self.cell.durability {
            Some(durability) if self.cell.has_several_durabilities => {
                format!("{}, {durability}", self.cell.test_title)
            }
            _ => self.cell.test_title.clone(),
        }
    }

    /// The same, short enough for the end of a line.
    fn short_row(&self) -> String {
        match &self.cell.durability {
            Some(durability) if self.cell.has_several_durabilities => {
                format!("{}, {durability}", self.cell.test)
            }
            _ => self.cell.test.clone(),
        }
    }
}

/// Writes all pages of the cells that are done.
pub(super) fn write(plan: &Plan, cells: &[&Cell], site: &Site) -> anyhow::Result<()> {
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
    for done in &done {
        write_report(done, plan, site)?;
    }
    for test in &tests {
        let of_test: Vec<&Done<'_>> = done.iter().filter(|done| done.cell.test == *test).collect();
        write_test(test, &of_test, plan, site)?;
    }
    for backend in &backends {
        let of_backend = done.iter().filter(|done| done.cell.backend == *backend);
        write_backend(backend, &of_backend.collect::<Vec<_>>(), plan, site)?;
    }
    write_index(plan, &done, &backends, site)
}

fn test_page(test: &str) -> String {
    format!("test-{test}.html")
}

fn backend_page(backend: &str) -> String {
    format!("backend-{backend}.html")
}

fn write_report(done: &Done<'_>, plan: &Plan, site: &Site) -> anyhow::Result<()> {
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
    let path = site.root.join(done.report());
    write_atomically(&path, &page::run(&done.run, &links))
}

fn write_test(test: &str, cells: &[&Done<'_>], plan: &Plan, site: &Site) -> anyhow::Result<()> {
    let Some(first) = cells.first() else {
        return Ok(());
    };
    let entries: Vec<Entry<'_>> = cells
        .iter()
        .map(|done| entry(done, done.in_test()))
        .collect();
    let page = page::comparison(&first.cell.test_title, &entries, 0, &[to_index(plan)]);
    write_atomically(&site.root.join(test_page(test)), &page)
}

fn write_backend(
    backend: &str,
    cells: &[&Done<'_>],
    plan: &Plan,
    site: &Site,
) -> anyhow::Result<()> {
    let entries: Vec<Entry<'_>> = cells
        .iter()
        .map(|done| entry(done, done.short_row()))
        .collect();
    let title = format!("All tests on {backend}");
    let page = page::comparison(&title, &entries, 0, &[to_index(plan)]);
    write_atomically(&site.root.join(backend_page(backend)), &page)
}

fn entry<'a>(done: &'a Done<'_>, name: String) -> Entry<'a> {
    Entry {
        name,
        run: &done.run,
        report: Some(done.report()),
    }
}

fn to_index(plan: &Plan) -> Link {
    Link {
        target: "index.html".to_owned(),
        text: plan.title.clone(),
    }
}

fn write_index(
    plan: &Plan,
    done: &[Done<'_>],
    backends: &[&str],
    site: &Site,
) -> anyhow::Result<()> {
    let titles: Vec<String> = done.iter().map(Done::row).collect();
    let rows: Vec<MatrixRow<'_>> = distinct(titles.iter().map(String::as_str))
        .into_iter()
        .map(|title| {
            let of_row = || done.iter().filter(|done| done.row() == title);
            let of_backend = |backend: &&str| {
                let done = of_row().find(|done| done.cell.backend == **backend)?;
                Some((&done.run, done.report()))
            };
            MatrixRow {
                title: title.to_owned(),
                page: of_row().next().map(|done| test_page(&done.cell.test)),
                cells: backends.iter().map(of_backend).collect(),
            }
        })
        .collect();
    let columns: Vec<Link> = backends
        .iter()
        .map(|backend| Link {
            target: backend_page(backend),
            text: (*backend).to_owned(),
        })
        .collect();
    let planned = plan.cells.len();
    let page = page::matrix(&plan.title, &columns, &rows, done.len(), planned);
    write_atomically(&site.root.join("index.html"), &page).context("writing the index")
}

/// Each once, in the order of their first appearance.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

//! The figures of a matrix as text: a README for the directory of the pages, and a table for programs.

use std::fmt::Write as _;

use crate::draw::{Unit, times};
use crate::figures::{Figure, ratio, summary};
use crate::page::{self, MatrixIndex, MatrixRow};
use crate::result::{Hits, RunResult};

/// Figures that the README shows; the others are in the table and on the pages.
const SHOWN: [&str; 5] = [
    "Throughput",
    "99th percentile of the slowest operation",
    "CPU per operation",
    "Memory at most",
    "Write amplification",
];

/// The README, in Markdown.
pub fn readme(index: &MatrixIndex<'_>, command: &str) -> String {
    let mut text = format!("# {}\n\n{}\n\n", index.title, index.subtitle());
    for note in &index.notes {
        push(&mut text, note);
    }
    let reading = "\n[index.html](index.html) has all figures with their ratios; it needs no network, and leads to a page for each test and each backend.\n";
    text.push_str(reading);
    let _ = write!(text, "\n```\n{command}\n```\n\n## Machine\n\n");
    for (name, value) in index.machine() {
        let _ = writeln!(text, "- {name}: {value}");
    }
    text.push_str("\n## Tests\n\n");
    for row in &index.rows {
        let note = row.note.as_deref().unwrap_or_default();
        push(&mut text, &format!("- **{}** {note}", row.title));
    }
    let kinds = page::kinds(&index.rows);
    for kind in kinds
        .iter()
        .filter(|kind| SHOWN.contains(&kind.title.as_str()))
    {
        figure_table(&mut text, index, kind);
    }
    hits_table(&mut text, index);
    text
}

/// Every figure of every run: `test, backend, durability, figure, unit, value, ratio`, where the
/// ratio is to the first backend.
pub fn figures_csv(index: &MatrixIndex<'_>) -> String {
    let mut text = "test,backend,durability,figure,unit,value,ratio\n".to_owned();
    let kinds = page::kinds(&index.rows);
    for row in &index.rows {
        for kind in &kinds {
            let base = base(row, kind);
            for (column, cell) in index.columns.iter().zip(&row.cells) {
                let Some((run, _)) = cell else { continue };
                let Some(value) = value(run, kind) else {
                    continue;
                };
                let described = run.description.as_ref();
                let durability = described.and_then(|run| run.durability.as_deref());
                let ratio = base.and_then(|base| ratio(value, base));
                let _ = writeln!(
                    text,
                    "{},{},{},\"{}\",{},{value},{}",
                    row.name,
                    column.text,
                    durability.unwrap_or_default(),
                    kind.title,
                    kind.unit.name(),
                    ratio.map_or_else(String::new, |ratio| ratio.to_string()),
                );
            }
        }
    }
    text
}

/// A line of Markdown with plain spaces.
fn push(text: &mut String, line: &str) {
    text.push_str(&plain(line));
    text.push('\n');
}

/// Text with plain spaces in place of non-breaking ones.
fn plain(text: &str) -> String {
    text.replace('\u{a0}', " ")
}

fn value(run: &RunResult, kind: &Figure) -> Option<f64> {
    let figures = summary(run);
    let figure = figures.iter().find(|figure| figure.title == kind.title)?;
    Some(figure.value)
}

/// The base of a row's ratios.
fn base(row: &MatrixRow<'_>, kind: &Figure) -> Option<f64> {
    let (run, _) = row.cells.first()?.as_ref()?;
    value(run, kind)
}

fn figure_table(text: &mut String, index: &MatrixIndex<'_>, kind: &Figure) {
    let heads: Vec<&str> = index
        .columns
        .iter()
        .map(|link| link.text.as_str())
        .collect();
    let _ = write!(
        text,
        "\n## {}\n\n| | {} |\n|---|",
        kind.title,
        heads.join(" | ")
    );
    text.push_str(&"---:|".repeat(heads.len()));
    text.push('\n');
    for row in &index.rows {
        let base = base(row, kind);
        let cell = |(number, cell): (usize, &Option<(&RunResult, String)>)| {
            let known = cell.as_ref().and_then(|(run, _)| value(run, kind));
            let Some(value) = known else {
                return "-".to_owned();
            };
            let ratio = base
                .filter(|_| number > 0)
                .and_then(|base| ratio(value, base));
            let ratio = ratio.map_or_else(String::new, |ratio| format!(" ({})", times(ratio)));
            format!("{}{ratio}", kind.unit.text(value))
        };
        let cells: Vec<String> = row.cells.iter().enumerate().map(cell).collect();
        push(text, &format!("| {} | {} |", row.title, cells.join(" | ")));
    }
}

/// Writes the possible hits of gets, run by run, and the conclusions.
fn hits_table(text: &mut String, index: &MatrixIndex<'_>) {
    let mut known: Vec<(String, Hits)> = Vec::new();
    for row in &index.rows {
        for (column, cell) in index.columns.iter().zip(&row.cells) {
            let hits = cell.as_ref().and_then(|(run, _)| run.hits());
            let name = format!("{} on {}", row.name, column.text);
            known.extend(hits.map(|hits| (name, hits)));
        }
    }
    if known.is_empty() {
        return;
    }
    text.push_str(
        "\n## Gets that can find anything\n\n\
         A get of a key that nobody has written is fast on any store and counts as a success, here as in basho_bench.\n\
         *Can find* follows from the keys that can be drawn and from how many had been written by then; *found* was counted.\n\n\
         | | keys that can be drawn | written | gets | can find | found |\n\
         |---|---:|---:|---:|---:|---:|\n",
    );
    for (name, hits) in &known {
        push(
            text,
            &format!(
                "| {name} | {} | {} | {} | {} | {} |",
                page::keys(hits),
                Unit::Number.text(hits.writes),
                Unit::Number.text(hits.gets),
                page::share(hits.possible_share),
                page::share(hits.found_share()),
            ),
        );
    }
    let named: Vec<(&str, Hits)> = known
        .iter()
        .map(|(name, hits)| (name.as_str(), *hits))
        .collect();
    for sentence in page::sentences(&named) {
        text.push('\n');
        push(text, &sentence);
    }
}

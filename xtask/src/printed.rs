//! The stage `printed`: the command lines of the documents, run as by a reader.
//!
//! Each document has its own directory with `bench/`. Its lines run there one after the other, with
//! `kvorum` on the path, and with the server that the document starts, or else a server without
//! settings. A replacement may use the fixtures below `tree/`. A line fails if its status is not
//! zero, or if it does not end. `curl` fails here if the server answers with an error.

mod document;
mod quoted;
mod session;
mod shown;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::console;
use crate::prerequisite;
use crate::run::Run;
use crate::stage::Stage;
use crate::tally::Tally;
use crate::tidy::tree::Tree;

use self::document::{Mark, Printed};
use self::session::Session;

/// The time limit for all lines together.
const ALL_WITHIN: Duration = Duration::from_secs(180);

/// True for documents with lines that a reader runs.
pub(crate) fn is_document(path: &str) -> bool {
    path == "README.md" || path.starts_with("docs/") && path.ends_with(".md")
}

/// Runs every line with the mark `run`.
pub(crate) fn stage(run: &Run<'_>) -> anyhow::Result<Tally> {
    prerequisite::require(Stage::Printed.prerequisites())?;
    let tree = Tree::of(run.workspace.root())?;
    let mut tally = Tally::default();
    let start = Instant::now();
    for file in tree.with_extension("md").filter(|it| is_document(&it.path)) {
        let lines = document::lines(&file.text());
        let lines: Vec<Printed> = lines.into_iter().filter(is_run).collect();
        if lines.is_empty() {
            continue;
        }
        let mut session = Session::begin(run, &file.path)
            .with_context(|| format!("preparing the lines of {}", file.path))?;
        if !lines
            .iter()
            .any(|line| matches!(line.mark, Ok(Mark::Serve(_))))
        {
            session.serve("kvorum server")?;
        }
        for line in lines {
            let began = Instant::now();
            let result = session.take(&line).map(|()| {
                let took = began.elapsed().as_secs_f64();
                format!("{took:.1} s")
            });
            let name = format!("{}:{}: {}", file.path, line.number, line.text);
            tally.check(&name, &result);
        }
    }
    tally.check("all lines together", &within(start.elapsed()));
    console::line("");
    Ok(tally)
}

/// Checks the time of all lines: a slower stage would soon be skipped, and failing lines would go
/// unnoticed.
fn within(took: Duration) -> anyhow::Result<String> {
    let seconds = took.as_secs();
    ensure!(
        took <= ALL_WITHIN,
        "they took {seconds} s, more than the {} s that they may take: shorten some",
        ALL_WITHIN.as_secs()
    );
    Ok(format!("{seconds} s"))
}

fn is_run(line: &Printed) -> bool {
    matches!(line.mark, Ok(Mark::Run(_) | Mark::Serve(_)))
}

/// Violations: command lines without a valid mark, shown files with other lines, and quoted
/// messages that no source has.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut violations = Vec::new();
    for file in tree.with_extension("md").filter(|it| is_document(&it.path)) {
        for line in document::lines(&file.text()) {
            if let Err(wrong) = line.mark {
                violations.push(format!(
                    "{}:{}: {wrong}: {}",
                    file.path, line.number, line.text
                ));
            }
        }
        violations.extend(shown::check(&file.path, &file.text(), tree));
    }
    violations.extend(quoted::check(tree));
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_together_have_a_limit() {
        assert!(within(ALL_WITHIN).is_ok());
        let over = within(ALL_WITHIN + Duration::from_millis(1)).unwrap_err();
        assert!(over.to_string().contains("180 s"), "{over}");
    }

    #[test]
    fn a_command_line_without_a_mark_is_found() {
        let marked = "<!-- printed: run -->\n```\nkvorum ping\n```\n";
        let plain = "```\nkvorum ping   # is it there\n```\n";
        let tree = Tree::planted(&[
            ("README.md", marked),
            ("docs/a.md", plain),
            ("crates/x/README.md", plain),
        ]);
        let violations = check(&tree);
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].starts_with("docs/a.md:2: "), "{violations:?}");
    }
}

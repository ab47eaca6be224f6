//! Messages that the page about troubleshooting quotes: each has to be in a source.
//!
//! Readers search the page for words that a program printed, and would not find a changed message.
//! Quotations are between backquotes in the first cell of a row.

use crate::tidy::tree::Tree;

/// The page.
const PAGE: &str = "docs/troubleshooting.md";

/// Quotations that no source has.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let Some(page) = tree.files.iter().find(|file| file.path == PAGE) else {
        return Vec::new();
    };
    let of_crates = tree
        .with_extension("rs")
        .filter(|file| file.path.starts_with("crates/"));
    let sources: Vec<String> = of_crates.map(|file| in_one_piece(&file.text())).collect();
    let text = page.text();
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for quoted in quotations(line) {
            if !sources.iter().any(|source| source.contains(quoted)) {
                violations.push(format!("{PAGE}:{}: no source says `{quoted}`", index + 1));
            }
        }
    }
    violations
}

/// Texts between backquotes in the first cell of a row.
fn quotations(line: &str) -> impl Iterator<Item = &str> {
    let row = line.strip_prefix("| ");
    let cell = row.and_then(|it| it.split(" | ").next());
    cell.unwrap_or_default().split('`').skip(1).step_by(2)
}

/// A source with continued texts joined into one piece.
fn in_one_piece(source: &str) -> String {
    let mut lines = source.split("\\\n");
    let mut whole = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        whole.push_str(line.trim_start());
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "bail!(\"the disk {name} is full: make \\\n         room\")";

    fn violations_of(page: &str) -> Vec<String> {
        check(&Tree::planted(&[
            ("crates/a/src/lib.rs", SOURCE),
            ("docs/troubleshooting.md", page),
        ]))
    }

    #[test]
    fn a_message_is_found_across_the_lines_of_its_source() {
        let page = "text with `code`\n| `is full: make room`, or `the disk` | why | `what` |\n";
        assert!(violations_of(page).is_empty());
    }

    #[test]
    fn a_message_that_no_source_has_is_a_violation() {
        let violations = violations_of("# Page\n\n| `is full` | |\n| `is empty` | |\n");
        assert_eq!(
            violations,
            ["docs/troubleshooting.md:4: no source says `is empty`"]
        );
    }
}

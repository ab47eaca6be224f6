//! Links in documents: the target of a link to a file must exist.

use crate::tidy::tree::Tree;

/// Links in Markdown files to missing files.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut violations = Vec::new();
    for file in tree.with_extension("md") {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, target) in links(&file.text()) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            if path.is_empty() || leads_out(&target) {
                continue;
            }
            let is_there = resolve(folder, path).is_some_and(|path| tree.contains(&path));
            if !is_there {
                violations.push(format!("{}:{line}: {target} leads nowhere", file.path));
            }
        }
    }
    violations
}

fn leads_out(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The targets of all links outside code, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        }
        if is_fenced {
            continue;
        }
        let line = without_code(line);
        if let Some((label, target)) = line.split_once("]: ")
            && label.starts_with('[')
        {
            found.push((index + 1, first_word(target)));
        }
        for rest in line.split("](").skip(1) {
            let end = closing(rest);
            found.push((index + 1, first_word(&rest[..end])));
        }
    }
    found
}

/// The line without the parts between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// The position of the parenthesis that closes the one directly before `text`.
fn closing(text: &str) -> usize {
    let mut depth = 0_usize;
    for (position, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return position,
            ')' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// A target without its title.
fn first_word(text: &str) -> String {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.trim_matches(['<', '>']).to_owned()
}

/// The path from the root for `path` relative to `folder`; `None` if it leaves the repository.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut pieces: Vec<&str> = match path.starts_with('/') {
        true => Vec::new(),
        false => folder
            .split('/')
            .filter(|piece| !piece.is_empty())
            .collect(),
    };
    for piece in path.split('/') {
        match piece {
            "" | "." => {}
            ".." => drop(pieces.pop()?),
            piece => pieces.push(piece),
        }
    }
    Some(pieces.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations_of(document: &str) -> Vec<String> {
        check(&Tree::planted(&[
            ("docs/guide.md", document),
            ("docs/formats/ring.md", ""),
            ("README.md", ""),
        ]))
    }

    #[test]
    fn links_to_files_and_folders_resolve() {
        for document in [
            "[a](formats/ring.md)",
            "[a](../README.md#start) and [b](formats)",
            "[a](/README.md \"title\")",
            "[a]: ../README.md",
            "[a](https://example.org/x) [b](#below) [c](mailto:a@example.org)",
            "`[a](nowhere.md)`",
            "```\n[a](nowhere.md)\n```",
        ] {
            assert!(violations_of(document).is_empty(), "{document}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_a_violation() {
        for document in [
            "[a](nowhere.md)",
            "text\n[a](../../outside.md)",
            "[a]: formats/none.md",
            "[good](formats/ring.md) [bad](ring.md)",
        ] {
            assert_eq!(violations_of(document).len(), 1, "{document}");
        }
    }
}

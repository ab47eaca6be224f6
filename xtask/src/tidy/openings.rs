//! Openings of doc comments that a tool can judge: `What`, `Who`, `Whoever` and `Of a` are
//! violations.
//!
//! A comment that begins with its noun or its verb is understood at first reading. The list may
//! only shrink: an entry above the actual count is a violation too.

use std::collections::BTreeMap;

use crate::tidy::lexer::{self, Placed, Token};
use crate::tidy::tree::{Tree, TreeFile};

/// Directories with such openings, as (directory, count).
const EXCEPTIONS: &[(&str, usize)] = &[];

const CRATES: &str = "crates/";

/// The marks of one-line doc comments.
const MARKS: [&str; 2] = ["//!", "///"];

/// First words that are neither a noun nor a verb.
const QUESTIONS: [&str; 3] = ["What", "Who", "Whoever"];

/// Directories with more or fewer such openings than listed.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, EXCEPTIONS)
}

fn check_against(tree: &Tree, exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut found = places_by_directory(tree);
    let mut violations = Vec::new();
    for (name, listed) in exceptions {
        match found.remove(*name) {
            Some(places) => violations.extend(judge(name, &places, *listed)),
            None => violations.push(format!("there is no {name}: take the exception away")),
        }
    }
    for (name, places) in found {
        violations.extend(judge(name, &places, 0));
    }
    violations
}

/// The places of such openings in each directory that has Rust files.
fn places_by_directory(tree: &Tree) -> BTreeMap<&str, Vec<String>> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in tree.with_extension("rs") {
        found
            .entry(directory_of(&file.path))
            .or_default()
            .extend(places(file));
    }
    found
}

/// The directory of a crate below `crates`, or the first directory of the path.
fn directory_of(path: &str) -> &str {
    let start = if path.starts_with(CRATES) {
        CRATES.len()
    } else {
        0
    };
    match path[start..].find('/') {
        Some(end) => &path[..start + end],
        None => path,
    }
}

fn places(file: &TreeFile) -> Vec<String> {
    let text = file.text();
    first_lines(&lexer::tokens(&text))
        .into_iter()
        .filter_map(|(line, text)| {
            let opening = opening(text)?;
            Some(format!("{}:{line}: {opening}", file.path))
        })
        .collect()
}

/// The first line of each doc comment, without its mark, and the line's number.
fn first_lines(tokens: &[Placed]) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut last: Option<(&str, usize)> = None;
    for placed in tokens {
        let Some((mark, text)) = doc(&placed.token) else {
            last = None;
            continue;
        };
        if last != Some((mark, placed.line - 1)) {
            found.push((placed.line, text));
        }
        last = Some((mark, placed.line));
    }
    found
}

/// The mark of a doc comment and its text; `None` for other tokens.
fn doc(token: &Token) -> Option<(&'static str, &str)> {
    let Token::Comment(comment) = token else {
        return None;
    };
    let (mark, text) = MARKS
        .into_iter()
        .find_map(|mark| Some((mark, comment.strip_prefix(mark)?)))?;
    (!text.starts_with('/')).then_some((mark, text))
}

/// The opening of `text` that breaks the rule.
fn opening(text: &str) -> Option<String> {
    let mut words = text.trim_start().split(|c: char| !c.is_alphanumeric());
    let first = words.next()?;
    if QUESTIONS.contains(&first) {
        return Some(first.to_owned());
    }
    let second = words.next()?;
    (first == "Of" && ["a", "an"].contains(&second)).then(|| format!("{first} {second}"))
}

fn judge(name: &str, places: &[String], listed: usize) -> Vec<String> {
    let found = places.len();
    if found > listed {
        let first =
            format!("{name} has {found} openings with no noun and no verb, {listed} are allowed:");
        return std::iter::once(first)
            .chain(places.iter().cloned())
            .collect();
    }
    let lower = match found {
        0 => "take the exception away".to_owned(),
        _ => format!("lower the exception to {found}"),
    };
    (found < listed)
        .then(|| format!("{name} has {found} such openings and not {listed}: {lower}"))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(source: &str, exceptions: &[(&str, usize)]) -> Vec<String> {
        let tree = Tree::planted(&[("crates/ring/src/lib.rs", source)]);
        check_against(&tree, exceptions)
    }

    #[test]
    fn an_opening_of_the_list_is_a_violation() {
        for opening in ["What", "Who", "Whoever", "Of a", "Of an"] {
            for mark in ["//!", "///", "    ///", "pub b: u8, ///"] {
                let source = format!("//! Rings.\n\nstruct A;\n{mark} {opening} ring is.\n");
                let found = violations(&source, &[]);
                assert_eq!(found.len(), 2, "{source}");
                assert_eq!(
                    found[0],
                    "crates/ring has 1 openings with no noun and no verb, 0 are allowed:"
                );
                assert_eq!(found[1], format!("crates/ring/src/lib.rs:4: {opening}"));
            }
        }
    }

    #[test]
    fn other_openings_and_other_comments_are_none() {
        for source in [
            "/// Whatever is there.",
            "/// Whole rings.",
            "/// Of all rings.",
            "/// `What` as a name.",
            "/// Rings.\n/// What they are.",
            "/// Rings.\n///\n/// Who they are.",
            "// What it is.",
            "//// What it is.",
            "/* What it is. */",
            "const A: &str = \"/// What\";",
            "///\n/// What",
        ] {
            assert!(violations(source, &[]).is_empty(), "{source}");
        }
    }

    #[test]
    fn each_comment_has_a_first_line() {
        for source in [
            "//! Rings.\n/// What a ring is.",
            "/// Rings.\n\n/// What a ring is.",
            "/// Rings.\nstruct A;\n/// What a ring is.",
        ] {
            assert_eq!(violations(source, &[]).len(), 2, "{source}");
        }
    }

    #[test]
    fn a_list_that_allows_more_than_there_is_is_a_violation() {
        let source = "/// What a ring is.";
        assert!(violations(source, &[("crates/ring", 1)]).is_empty());
        assert_eq!(
            violations(source, &[("crates/ring", 2)]),
            ["crates/ring has 1 such openings and not 2: lower the exception to 1"]
        );
        assert_eq!(
            violations("/// Rings.", &[("crates/ring", 1), ("crates/gone", 1)]),
            [
                "crates/ring has 0 such openings and not 1: take the exception away",
                "there is no crates/gone: take the exception away"
            ]
        );
    }

    #[test]
    fn each_crate_has_its_directory() {
        assert_eq!(directory_of("crates/bench/src/lib.rs"), "crates/bench");
        assert_eq!(directory_of("bench/peers/src/cell.rs"), "bench");
        assert_eq!(directory_of("build.rs"), "build.rs");
    }
}

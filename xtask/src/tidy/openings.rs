//! Openings of doc comments that a tool can judge: none is `What`, `Who`, `Whoever` or `Of a`.
//!
//! A comment that begins with its noun or its verb is understood at first reading. The list may
//! only shrink: a figure above what is found is a violation too.

use std::collections::BTreeMap;

use crate::tidy::lexer::{self, Placed, Token};
use crate::tidy::tree::{Tree, TreeFile};

/// Crates with such openings, as (crate, how many).
const EXCEPTIONS: &[(&str, usize)] = &[
    ("admin", 18),
    ("advise", 44),
    ("agreement", 24),
    ("anti-entropy", 31),
    ("arbiter", 73),
    ("backend", 50),
    ("backend-bitcask", 103),
    ("backend-conformance", 29),
    ("backend-hanoidb", 1),
    ("backend-innostore", 37),
    ("backend-leveldb", 2),
    ("backend-memory", 16),
    ("backend-migration", 11),
    ("backend-multi", 23),
    ("backup", 4),
    ("bench", 14),
    ("bench", 63),
    ("claimant", 6),
    ("client", 10),
    ("cluster", 39),
    ("coordinator", 82),
    ("data-types", 40),
    ("demo", 56),
    ("disk", 34),
    ("encoding", 1),
    ("erlang-terms", 6),
    ("exchanges", 12),
    ("experiments", 16),
    ("handoff", 62),
    ("import", 35),
    ("import-bitcask", 15),
    ("import-leveldb", 22),
    ("import-leveled", 14),
    ("index-entries", 8),
    ("inspect", 19),
    ("liveness", 3),
    ("lsm", 134),
    ("lsm-repair", 35),
    ("maintenance", 16),
    ("map-reduce", 22),
    ("map-reduce-run", 4),
    ("member", 56),
    ("node", 71),
    ("object", 26),
    ("ordered-tree", 9),
    ("page-tree", 36),
    ("peer", 31),
    ("planted-defects", 2),
    ("properties", 6),
    ("protocol", 11),
    ("report", 39),
    ("ring", 27),
    ("runtime", 11),
    ("segment", 26),
    ("server-http", 25),
    ("server-pb", 20),
    ("settings", 40),
    ("sim", 84),
    ("sst", 42),
    ("stats", 7),
    ("storage-errors", 2),
    ("test-cluster", 9),
    ("tictac", 1),
    ("tiers", 1),
    ("tls", 17),
    ("value-log", 117),
    ("vnode", 66),
    ("witness", 5),
    ("xtask", 73),
];

/// The marks of doc comments of one line.
const MARKS: [&str; 2] = ["//!", "///"];

/// First words that are no noun and no verb.
const QUESTIONS: [&str; 3] = ["What", "Who", "Whoever"];

/// Crates with more such openings than the list says, or fewer.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, EXCEPTIONS)
}

fn check_against(tree: &Tree, exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut found = places_by_crate(tree);
    let mut violations = Vec::new();
    for (name, listed) in exceptions {
        match found.remove(*name) {
            Some(places) => violations.extend(judge(name, &places, *listed)),
            None => violations.push(format!("there is no crate {name}: take the exception away")),
        }
    }
    for (name, places) in found {
        violations.extend(judge(name, &places, 0));
    }
    violations
}

/// The places of such openings in each crate that has Rust files.
fn places_by_crate(tree: &Tree) -> BTreeMap<&str, Vec<String>> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in tree.with_extension("rs") {
        found
            .entry(crate_of(&file.path))
            .or_default()
            .extend(places(file));
    }
    found
}

/// The directory below `crates`, or the first one: `xtask`.
fn crate_of(path: &str) -> &str {
    let below = path.strip_prefix("crates/").unwrap_or(path);
    below.split('/').next().unwrap_or(below)
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
        let first = format!(
            "{name} has {found} openings with no noun and no verb, {listed} are allowed:"
        );
        return std::iter::once(first).chain(places.iter().cloned()).collect();
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
                    "ring has 1 openings with no noun and no verb, 0 are allowed:"
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
        assert!(violations(source, &[("ring", 1)]).is_empty());
        assert_eq!(
            violations(source, &[("ring", 2)]),
            ["ring has 1 such openings and not 2: lower the exception to 1"]
        );
        assert_eq!(
            violations("/// Rings.", &[("ring", 1), ("gone", 1)]),
            [
                "ring has 0 such openings and not 1: take the exception away",
                "there is no crate gone: take the exception away"
            ]
        );
    }

    #[test]
    fn crates_are_the_directories_of_their_files() {
        assert_eq!(crate_of("crates/ring/src/lib.rs"), "ring");
        assert_eq!(crate_of("xtask/src/main.rs"), "xtask");
    }
}

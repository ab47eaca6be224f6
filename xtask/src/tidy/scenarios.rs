//! The table of named failures: the tests in it must exist.
//!
//! A place is written as `path::name` in backticks. The file has to contain the name as a separate
//! word: a test's function, or the number of a scenario of the simulation.

use crate::tidy::tree::Tree;

const TABLE: &str = "docs/scenarios.md";

/// Places in the table that do not exist.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let Some(table) = tree.with_extension("md").find(|file| file.path == TABLE) else {
        return vec![format!("{TABLE} is missing")];
    };
    let text = table.text();
    let places = places(&text);
    let mut violations = Vec::new();
    if places.is_empty() {
        violations.push(format!("{TABLE} names no tests"));
    }
    for (line, path, name) in places {
        let file = tree.with_extension("rs").find(|file| file.path == path);
        match file {
            None => violations.push(format!("{TABLE}:{line}: there is no {path}")),
            Some(file) if !has_word(&file.text(), name) => {
                violations.push(format!("{TABLE}:{line}: {path} has no {name}"));
            }
            Some(_) => {}
        }
    }
    violations
}

/// All places with their lines: the file, and the word that it has to contain.
fn places(text: &str) -> Vec<(usize, String, &str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2);
        let places = quoted.filter_map(|code| code.split_once(".rs::"));
        found.extend(places.map(|(path, name)| (index + 1, format!("{path}.rs"), name)));
    }
    found
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |character: Option<char>| {
        character.is_some_and(|it| it.is_ascii_alphanumeric() || it == '_')
    };
    text.match_indices(word).any(|(at, _)| {
        !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_with_their_lines() {
        let text = "| a | `x/y.rs::r01_it`, `z.rs::R-02` |\nno `code`\n`w.rs::f`";
        let expected = [
            (1, "x/y.rs".to_owned(), "r01_it"),
            (1, "z.rs".to_owned(), "R-02"),
            (3, "w.rs".to_owned(), "f"),
        ];
        assert_eq!(places(text), expected);
    }

    #[test]
    fn names_are_words_of_their_own() {
        assert!(has_word("fn r01_it() {}", "r01_it"));
        assert!(!has_word("fn r01_it_is() {}", "r01_it"));
        assert!(has_word("id: \"R-02\"", "R-02"));
        assert!(!has_word("R-021", "R-02"));
    }
}

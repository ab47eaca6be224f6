//! The paths below given roots in a Rust file, with grouped imports split.

use crate::tidy::lexer::Placed;
use crate::tidy::test_items::without_tests;

/// Keywords after which `::std` is a path from the root, not the end of another path.
const BEFORE_A_PATH: [&str; 9] = [
    "as", "dyn", "else", "for", "if", "impl", "in", "return", "use",
];

/// A path such as `std::fs::File`, and the line of its root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedPath {
    /// With `*` as the last piece of a glob; ends with ` as` if the root itself is renamed.
    pub(crate) path: String,
    pub(crate) line: usize,
}

/// Every path in `code` that starts with one of `roots`. Code below `#[cfg(test)]` is left out.
pub(crate) fn named_paths(code: &[Placed], roots: &[&str]) -> Vec<NamedPath> {
    let code = &without_tests(code);
    let mut found = Vec::new();
    let mut position = 0;
    while position < code.len() {
        let is_start = word(code, position).is_some_and(|word| roots.contains(&word));
        let follows_path = mark(code, position.wrapping_sub(1)) == Some(':')
            && word(code, position.wrapping_sub(3))
                .is_some_and(|word| !BEFORE_A_PATH.contains(&word));
        if is_start && !follows_path {
            let line = code.get(position).map_or(0, |placed| placed.line);
            let mut paths = Vec::new();
            let end = walk(code, position, "", &mut paths);
            let is_path = paths
                .iter()
                .any(|path| path.contains("::") || path.ends_with(" as"));
            if is_path {
                found.extend(paths.into_iter().map(|path| NamedPath { path, line }));
            }
            position = end.max(position + 1);
        } else {
            position += 1;
        }
    }
    found
}

/// Reads a path or a group at `position` into `paths`; returns the position after it.
fn walk(code: &[Placed], position: usize, prefix: &str, paths: &mut Vec<String>) -> usize {
    if mark(code, position) == Some('{') {
        return walk_group(code, position + 1, prefix, paths);
    }
    let piece = match (word(code, position), mark(code, position)) {
        (Some(word), _) => word.to_owned(),
        (None, Some('*')) => "*".to_owned(),
        _ => {
            paths.push(prefix.to_owned());
            return position;
        }
    };
    let path = match prefix {
        "" => piece,
        prefix => format!("{prefix}::{piece}"),
    };
    let after = position + 1;
    if mark(code, after) == Some(':') && mark(code, after + 1) == Some(':') {
        return walk(code, after + 2, &path, paths);
    }
    if word(code, after) == Some("as") && prefix.is_empty() {
        paths.push(format!("{path} as"));
    } else {
        paths.push(path);
    }
    after
}

fn walk_group(code: &[Placed], start: usize, prefix: &str, paths: &mut Vec<String>) -> usize {
    let mut position = start;
    while position < code.len() {
        match mark(code, position) {
            Some('}') => return position + 1,
            Some(',') => position += 1,
            _ if word(code, position) == Some("as") => position += 2,
            _ => position = walk(code, position, prefix, paths).max(position + 1),
        }
    }
    position
}

fn word(code: &[Placed], position: usize) -> Option<&str> {
    code.get(position)?.word()
}

fn mark(code: &[Placed], position: usize) -> Option<char> {
    code.get(position)?.mark()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::lexer;

    fn paths(source: &str) -> Vec<String> {
        named_paths(&lexer::code(source), &["std", "tokio"])
            .into_iter()
            .map(|named| named.path)
            .collect()
    }

    #[test]
    fn grouped_imports_are_taken_apart() {
        assert_eq!(
            paths("use std::{fs::{self, File}, io as stream, time::*};"),
            ["std::fs::self", "std::fs::File", "std::io", "std::time::*"]
        );
    }

    #[test]
    fn paths_in_expressions_are_found() {
        assert_eq!(paths("let x = ::std::fs::read(p);"), ["std::fs::read"]);
        assert_eq!(paths("use ::std::fs;"), ["std::fs"]);
        assert_eq!(
            paths("tokio::net::TcpStream::connect()"),
            ["tokio::net::TcpStream::connect"]
        );
    }

    #[test]
    fn a_renamed_root_is_found() {
        assert_eq!(paths("use std as system;"), ["std as"]);
        assert_eq!(paths("extern crate std as system;"), ["std as"]);
    }

    #[test]
    fn other_names_of_the_same_spelling_are_none() {
        assert!(paths("crate::std::fs::read(); let std = 1; my_std::fs();").is_empty());
    }

    #[test]
    fn test_modules_are_left_out_and_what_follows_them_is_not() {
        let source = "#[cfg(test)]\nmod tests { fn a() { std::fs::read(); } }\nuse std::env;";
        assert_eq!(paths(source), ["std::env"]);
        assert_eq!(
            paths("#[cfg(test)] use std::fs; use std::env;"),
            ["std::env"]
        );
    }
}

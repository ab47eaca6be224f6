//! Rules for single files: the first line, the letters, the size, unfinished work.

use crate::tidy::lexer::{self, Placed, Token};
use crate::tidy::tree::Tree;

/// Larger files do not belong in a source repository.
const FILE_BYTES_MAX: usize = 256 * 1024;

/// The directory of published results: pages that contain their charts and numbers.
const RESULTS: &str = "docs/benchmarks/";
const RESULT_BYTES_MAX: usize = 512 * 1024;

/// Extensions of files that people write and compilers read.
const SOURCE_EXTENSIONS: [&str; 7] = ["rs", "toml", "js", "py", "sh", "proto", "json"];

/// Words that mark unfinished work, in pieces, since this file must not break its own rule.
const LEFT_FOR_LATER: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Macros that mark missing code.
const PLACEHOLDERS: [&str; 2] = [concat!("to", "do"), "unimplemented"];

/// Rust files whose first line does not introduce them.
pub(crate) fn check_introduction(tree: &Tree) -> Vec<String> {
    tree.with_extension("rs")
        .filter(|file| !file.content.starts_with(b"//! "))
        .map(|file| format!("{}: does not start with `//! ` and what it is", file.path))
        .collect()
}

/// Sources with letters that are not ASCII: searches miss them, and some look alike.
pub(crate) fn check_ascii(tree: &Tree) -> Vec<String> {
    tree.files
        .iter()
        .filter(|file| {
            SOURCE_EXTENSIONS
                .iter()
                .any(|extension| file.path.ends_with(&format!(".{extension}")))
        })
        .filter_map(|file| {
            let position = file.content.iter().position(|byte| !byte.is_ascii())?;
            let line = 1 + file.content[..position]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            Some(format!("{}:{line}: not ASCII", file.path))
        })
        .collect()
}

/// Files above 256 KiB, or 512 KiB for a page of results.
pub(crate) fn check_size(tree: &Tree) -> Vec<String> {
    let limit = |path: &str| {
        if path.starts_with(RESULTS) {
            RESULT_BYTES_MAX
        } else {
            FILE_BYTES_MAX
        }
    };
    tree.files
        .iter()
        .filter(|file| file.content.len() > limit(&file.path))
        .map(|file| format!("{}: {} bytes", file.path, file.content.len()))
        .collect()
}

/// Rust files with unfinished work.
pub(crate) fn check_finished(tree: &Tree) -> Vec<String> {
    each_rust_file(tree, |tokens, report| {
        for (index, placed) in tokens.iter().enumerate() {
            match &placed.token {
                Token::Comment(text) => {
                    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
                    if let Some(word) = words.find(|word| LEFT_FOR_LATER.contains(word)) {
                        report(placed.line, &format!("says {word}"));
                    }
                }
                Token::Word(word)
                    if PLACEHOLDERS.contains(&word.as_str())
                        && tokens.get(index + 1).map(|next| &next.token)
                            == Some(&Token::Mark('!')) =>
                {
                    report(
                        placed.line,
                        &format!("{word}! stands where code is missing"),
                    );
                }
                _ => {}
            }
        }
    })
}

/// Rust files that silence a lint with `allow`, or switch off a test.
pub(crate) fn check_attributes(tree: &Tree) -> Vec<String> {
    each_rust_file(tree, |tokens, report| {
        for (index, placed) in tokens.iter().enumerate() {
            if placed.token != Token::Mark('#') {
                continue;
            }
            let attribute = attribute_words(&tokens[index + 1..]);
            if attribute.contains(&"allow") {
                report(
                    placed.line,
                    "silences a lint: use #[expect(lint, reason = ...)]",
                );
            }
            if attribute.first() == Some(&"ignore") {
                report(placed.line, "switches a test off");
            }
        }
    })
}

/// The name of the attribute after a `#`, and for `cfg_attr` the names in it.
fn attribute_words(tokens: &[Placed]) -> Vec<&str> {
    let mut rest = tokens.iter().map(|placed| &placed.token);
    let mut token = rest.next();
    if token == Some(&Token::Mark('!')) {
        token = rest.next();
    }
    if token != Some(&Token::Mark('[')) {
        return Vec::new();
    }
    let words = rest
        .take_while(|token| **token != Token::Mark(']'))
        .filter_map(|token| match token {
            Token::Word(word) => Some(word.as_str()),
            _ => None,
        });
    let words: Vec<&str> = words.collect();
    match words.first() {
        Some(&"cfg_attr") => words,
        _ => words.into_iter().take(1).collect(),
    }
}

fn each_rust_file(
    tree: &Tree,
    mut judge: impl FnMut(&[Placed], &mut dyn FnMut(usize, &str)),
) -> Vec<String> {
    let mut violations = Vec::new();
    for file in tree.with_extension("rs") {
        let tokens = lexer::tokens(&file.text());
        judge(&tokens, &mut |line, what| {
            violations.push(format!("{}:{line}: {what}", file.path));
        });
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(source: &str) -> Tree {
        Tree::planted(&[("crates/ring/src/lib.rs", source)])
    }

    #[test]
    fn a_file_that_does_not_introduce_itself_is_a_violation() {
        assert!(check_introduction(&planted("//! The ring.\n")).is_empty());
        for source in [
            "",
            "use std::fmt;\n//! Late.\n",
            "// No doc.\n",
            "\n//! Late.\n",
        ] {
            assert_eq!(check_introduction(&planted(source)).len(), 1, "{source:?}");
        }
    }

    #[test]
    fn other_letters_are_a_violation_in_sources_alone() {
        let letter = "//! R\u{ed}ng.\n";
        assert_eq!(
            check_ascii(&planted(letter)),
            ["crates/ring/src/lib.rs:1: not ASCII"]
        );
        assert!(check_ascii(&Tree::planted(&[("README.md", letter)])).is_empty());
    }

    #[test]
    fn a_large_file_is_a_violation() {
        let limit = "x".repeat(FILE_BYTES_MAX);
        assert!(check_size(&planted(&limit)).is_empty());
        assert_eq!(check_size(&planted(&(limit + "x"))).len(), 1);
    }

    #[test]
    fn loose_ends_are_a_violation() {
        for source in [
            concat!("// TO", "DO: finish\n"),
            concat!("/* FIX", "ME */"),
            concat!("fn f() { to", "do!() }"),
            concat!("fn f() { unimpl", "emented!(\"x\") }"),
        ] {
            assert_eq!(check_finished(&planted(source)).len(), 1, "{source}");
        }
        for source in ["let todo = 1;", "// every method", "let a = \"TO-DO\";"] {
            assert!(check_finished(&planted(source)).is_empty(), "{source}");
        }
    }

    #[test]
    fn silenced_lints_and_switched_off_tests_are_a_violation() {
        for source in [
            "#[allow(dead_code)] fn f() {}",
            "#![allow(clippy::all)]",
            "#[cfg_attr(test, allow(dead_code))] fn f() {}",
            "#[test]\n#[ignore]\nfn f() {}",
            "#[ignore = \"slow\"] fn f() {}",
        ] {
            assert_eq!(check_attributes(&planted(source)).len(), 1, "{source}");
        }
        for source in [
            "#[expect(dead_code, reason = \"allow it\")] fn f() {}",
            "fn allow() { ignore() }",
            "// #[allow(dead_code)]",
        ] {
            assert!(check_attributes(&planted(source)).is_empty(), "{source}");
        }
    }
}

//! The seams: clocks, randomness, files, threads, sockets and the environment are only reached
//! through the disk and the runtime, so that a simulation controls all of them.
//!
//! Clippy bans the calls; this check finds the names, even if an import renames or groups them.
//! Tests, examples and benches are free.

use crate::tidy::lexer;
use crate::tidy::tree::Tree;
use crate::tidy::use_paths::{NamedPath, named_paths};

/// Paths to the world outside the program.
const CLOSED: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os::unix::net",
    "std::process::Command",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio::fs",
    "tokio::net",
    "tokio::process",
    "tokio::spawn",
    "tokio::task::spawn",
    "tokio::task::spawn_blocking",
    "tokio::task::spawn_local",
    "tokio::time",
    "rand::random",
    "rand::rng",
    "rand::thread_rng",
];

/// Harmless paths below closed ones: they only concern their own thread.
const HARMLESS: &[&str] = &[
    "std::thread::current",
    "std::thread::panicking",
    "std::thread::Result",
    "std::thread::ThreadId",
];

/// Crates that may use all paths: they connect the program to the world.
const AT_THE_RIM: &[&str] = &["admin", "bench", "demo", "node", "experiments", "report"];

/// Exceptions for other crates, as (crate, path, reason). An unused entry is a violation too.
const OPEN: &[(&str, &str, &str)] = &[
    (
        "backend-conformance",
        "std::env",
        "its macro reads the seed inside a test",
    ),
    (
        "backend-conformance",
        "std::thread",
        "it races readers against writers of an engine under test",
    ),
    (
        "backup",
        "std::fs",
        "it asks when a file was born, and which files are one under several names",
    ),
    ("client", "tokio::net", "it is the other side of the wire"),
    ("client", "tokio::time", "it is the other side of the wire"),
    ("disk", "std::fs", "it is the seam"),
    (
        "golden",
        "std::env",
        "its caller decides whether files are renewed",
    ),
    ("golden", "std::fs", "it compares files of the source tree"),
    (
        "maintenance",
        "std::fs",
        "it reads what the machine and the control group let the process have",
    ),
    (
        "maintenance",
        "std::thread",
        "it counts cores, and shares a round of syncs out over two threads",
    ),
    (
        "protocol",
        "std::time::SystemTime",
        "the date parser's type; no clock is read",
    ),
    ("runtime", "std::thread", "it is the seam"),
    ("runtime", "std::time::SystemTime", "it is the seam"),
    ("runtime", "tokio::net", "it is the seam"),
    ("runtime", "tokio::time", "it is the seam"),
];

/// Closed paths in crates that must not use them.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, OPEN)
}

fn check_against(tree: &Tree, open: &[(&str, &str, &str)]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut used = vec![false; open.len()];
    for file in tree.with_extension("rs") {
        let Some(name) = crate_of_source(&file.path) else {
            continue;
        };
        if AT_THE_RIM.contains(&name) {
            continue;
        }
        let code = lexer::code(&file.text());
        for named in named_paths(&code, &["std", "tokio", "rand"]) {
            let Some(reason) = closed(&named) else {
                continue;
            };
            let opening = open
                .iter()
                .position(|(who, path, _)| *who == name && is_below(&named.path, path));
            match opening.and_then(|index| used.get_mut(index)) {
                Some(used) => *used = true,
                None => violations.push(format!(
                    "{}:{}: names {}: {reason}",
                    file.path, named.line, named.path
                )),
            }
        }
    }
    for ((name, path, _), used) in open.iter().zip(used) {
        if !used {
            violations.push(format!(
                "{name} names {path} nowhere: take the opening away"
            ));
        }
    }
    violations
}

/// The crate of a production source file.
fn crate_of_source(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    let is_test = rest.ends_with("_test.rs") || rest.ends_with("/tests.rs");
    (rest.starts_with("src/") && !is_test).then_some(name)
}

/// The reason why a path is closed, if it is.
fn closed(named: &NamedPath) -> Option<&'static str> {
    if named.path.ends_with(" as") {
        return Some("a renamed root hides what is reached through it");
    }
    if HARMLESS.contains(&named.path.as_str()) {
        return None;
    }
    let is_closed = match named.path.strip_suffix("::*") {
        Some(parent) => CLOSED
            .iter()
            .any(|closed| is_below(closed, parent) || is_below(parent, closed)),
        None => CLOSED.iter().any(|closed| is_below(&named.path, closed)),
    };
    is_closed.then_some("ask kvorum-disk or kvorum-runtime")
}

fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations_of(source: &str) -> Vec<String> {
        check_against(&Tree::planted(&[("crates/ring/src/lib.rs", source)]), &[])
    }

    #[test]
    fn reaching_around_the_seams_is_a_violation() {
        for source in [
            "use std::fs;",
            "use std::{collections::BTreeMap, fs as files};",
            "let now = std::time::Instant::now();",
            "use std::time::*;",
            "use std::*;",
            "use std as system;",
            "use tokio::net::TcpStream;",
            "use tokio::{sync::Mutex, spawn};",
            "let x = rand::rng();",
            "std::thread::spawn(f);",
            "std::env::var(\"X\")",
        ] {
            assert_eq!(violations_of(source).len(), 1, "{source}");
        }
    }

    #[test]
    fn what_reaches_nothing_is_free() {
        for source in [
            "use std::time::Duration;",
            "use std::net::SocketAddr;",
            "//! Numbers instead of std::time::SystemTime.",
            "let text = \"std::fs\";",
            "use std::collections::*;",
            "env!(\"CARGO_PKG_VERSION\");",
            "#[cfg(test)]\nmod tests { use std::fs; }",
            "use rand::{Rng, SeedableRng};",
            "if std::thread::panicking() {}",
        ] {
            assert!(violations_of(source).is_empty(), "{source}");
        }
    }

    #[test]
    fn tests_and_crates_at_the_rim_are_free() {
        let tree = Tree::planted(&[
            ("crates/ring/tests/it/main.rs", "use std::fs;"),
            ("crates/ring/src/claim_test.rs", "use std::fs;"),
            ("crates/ring/examples/draw.rs", "use std::fs;"),
            ("crates/node/src/main.rs", "use std::fs;"),
            ("xtask/src/main.rs", "use std::fs;"),
        ]);
        assert!(check_against(&tree, &[]).is_empty());
    }

    #[test]
    fn an_opening_covers_its_crate_and_path_alone() {
        let tree = Tree::planted(&[
            ("crates/disk/src/lib.rs", "use std::fs::File; use std::env;"),
            ("crates/ring/src/lib.rs", "use std::fs;"),
        ]);
        let violations = check_against(&tree, &[("disk", "std::fs", "it is the seam")]);
        assert_eq!(violations.len(), 2, "{violations:?}");
    }

    #[test]
    fn an_opening_that_nobody_uses_is_a_violation() {
        let tree = Tree::planted(&[("crates/disk/src/lib.rs", "")]);
        assert_eq!(check_against(&tree, &[("disk", "std::fs", "")]).len(), 1);
    }
}

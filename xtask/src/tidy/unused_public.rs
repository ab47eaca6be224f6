//! Public items that only tests name: they are unused, or belong in the tests.
//!
//! The compiler does not report unused public items. This rule finds them by name: an item is
//! listed if no code outside tests in the workspace uses its name, except in definitions and
//! imports. An unused item with the same name as a used one is missed. For items of crates that
//! only tests import, tests count too.
//!
//! The list may only shrink: an entry above the actual count is a violation too.

use std::collections::BTreeSet;

use crate::modules::inside::Crate;
use crate::tidy::lexer::{self, Placed, Token};
use crate::tidy::test_items::without_tests;
use crate::tidy::tree::Tree;

/// Crates with such items, as (crate, count).
const EXCEPTIONS: &[(&str, usize)] = &[
    ("anti-entropy", 2),
    ("client", 1),
    ("cluster", 1),
    ("coordinator", 1),
    ("disk", 2),
    ("inspect", 1),
    ("properties", 1),
    ("protocol", 1),
    ("ring", 2),
    ("runtime", 1),
    ("value-log", 1),
    ("vnode", 1),
];

/// Crates that only tests import.
const TOOLS_OF_TESTS: [&str; 4] = [
    "backend-conformance",
    "golden",
    "hostile-requests",
    "test-cluster",
];

/// Keywords in front of a defined name.
const DEFINES: [&str; 8] = [
    "const", "enum", "fn", "static", "struct", "trait", "type", "union",
];

/// Crates with more or fewer such items than listed.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, EXCEPTIONS)
}

fn check_against(tree: &Tree, exceptions: &[(&str, usize)]) -> Vec<String> {
    let crates = Crate::all(tree);
    let named = named_outside_tests(tree, &crates);
    let anywhere = named_anywhere(tree);
    let mut violations = Vec::new();
    for each in &crates {
        let named = if TOOLS_OF_TESTS.contains(&each.name.as_str()) {
            &anywhere
        } else {
            &named
        };
        let unused = unused(each, named);
        let listed = exceptions.iter().find(|(name, _)| *name == each.name);
        violations.extend(judge(&each.name, &unused, listed.map_or(0, |it| it.1)));
    }
    for (name, _) in exceptions {
        if !crates.iter().any(|each| each.name == *name) {
            violations.push(format!("there is no crate {name}: take the exception away"));
        }
    }
    violations
}

/// The crate's public items whose names are not in `named`, with their places.
fn unused(each: &Crate, named: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for module in each.modules() {
        for (name, line) in public_items(&module.code) {
            if !named.contains(name) {
                found.push(format!("{}:{line}: {name}", module.file));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The names of `pub` items, without modules and re-exports.
fn public_items(code: &[Placed]) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (position, placed) in code.iter().enumerate() {
        if placed.word() != Some("pub") {
            continue;
        }
        let mut words = code[position + 1..]
            .iter()
            .take(6)
            .take_while(|next| next.mark().is_none())
            .filter_map(Placed::word)
            .skip_while(|word| ["async", "extern", "unsafe"].contains(word));
        let Some(keyword) = words.next().filter(|word| DEFINES.contains(word)) else {
            continue;
        };
        let name = match (keyword, words.next()) {
            ("const", Some("async" | "extern" | "fn" | "unsafe")) => {
                words.find(|word| !["extern", "fn", "unsafe"].contains(word))
            }
            (_, name) => name,
        };
        found.extend(name.map(|name| (name, placed.line)));
    }
    found
}

/// The names in code outside tests, of crates, their build scripts and benches, and `xtask`.
fn named_outside_tests(tree: &Tree, crates: &[Crate]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for module in crates.iter().flat_map(Crate::modules) {
        collect(&module.code, &mut names);
    }
    for file in tree.files.iter().filter(|file| is_beside_src(&file.path)) {
        collect(&without_tests(&lexer::code(&file.text())), &mut names);
    }
    names
}

fn is_beside_src(path: &str) -> bool {
    let is_of_crate = ["/benches/", "/examples/", "/build.rs"]
        .iter()
        .any(|part| path.contains(part));
    path.ends_with(".inc") || path.ends_with(".rs") && (is_of_crate || path.starts_with("xtask/"))
}

fn named_anywhere(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in tree.with_extension("rs") {
        collect(&lexer::code(&file.text()), &mut names);
    }
    names
}

/// Adds the names in `code` that are neither in a definition nor in an import. Names in texts
/// count, since formats and attributes name values there.
fn collect(code: &[Placed], names: &mut BTreeSet<String>) {
    let mut is_import = false;
    let mut before = None;
    for (position, placed) in code.iter().enumerate() {
        match &placed.token {
            Token::Word(word) => {
                let next = code.get(position + 1).and_then(Placed::mark);
                is_import |= word == "use" && next != Some('<'); // `use<'a>` bounds a type
                let is_defined = before.is_some_and(|before| DEFINES.contains(&before));
                let is_renamed = before == Some("as");
                if !is_defined && (!is_import || is_renamed) {
                    names.insert(word.clone());
                }
                before = Some(word.as_str());
            }
            Token::Literal(text) => {
                let words = text.split(|it: char| !it.is_alphanumeric() && it != '_');
                names.extend(words.map(str::to_owned));
                before = None;
            }
            Token::Mark(mark) => {
                is_import &= *mark != ';';
                before = None;
            }
            Token::Comment(_) => {}
        }
    }
}

fn judge(name: &str, unused: &[String], listed: usize) -> Option<String> {
    let found = unused.len();
    if found > listed {
        return Some(format!(
            "{name} has {found} public items that only tests name, {listed} are allowed: {}",
            unused.join(", ")
        ));
    }
    let lower = match found {
        0 => "take the exception away".to_owned(),
        _ => format!("lower the exception to {found}"),
    };
    (found < listed).then(|| {
        format!("{name} has {found} public items that only tests name and not {listed}: {lower}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate with `source`, and another that has `user` in its root and in a test.
    fn violations(source: &str, user: &str, exceptions: &[(&str, usize)]) -> Vec<String> {
        let root = format!("use kvorum_ring::imported; {user}");
        let tree = Tree::planted(&[
            ("crates/ring/Cargo.toml", ""),
            ("crates/ring/src/lib.rs", source),
            (
                "crates/ring/tests/it.rs",
                "fn it() { unused(); Unused::new(); UNUSED; imported(); }",
            ),
            ("crates/user/Cargo.toml", ""),
            ("crates/user/src/lib.rs", &root),
        ]);
        check_against(&tree, exceptions)
    }

    #[test]
    fn a_public_item_that_only_tests_name_is_a_violation() {
        for item in [
            "fn unused() {}",
            "async fn unused() {}",
            "const fn unused() {}",
            "const unsafe fn unused() {}",
            "extern \"C\" fn unused() {}",
            "fn imported() {}",
            "struct Unused;",
            "trait Unused {}",
            "const UNUSED: u64 = 1;",
        ] {
            let source = format!(
                "pub {item}\n#[cfg(test)]\nmod tests {{ fn t() {{ unused(); Unused; UNUSED }} }}"
            );
            assert_eq!(violations(&source, "", &[]).len(), 1, "{item}");
        }
        assert_eq!(
            violations("\npub fn unused() {}", "", &[]),
            [
                "ring has 1 public items that only tests name, 0 are allowed: \
                 crates/ring/src/lib.rs:2: unused"
            ]
        );
    }

    #[test]
    fn what_code_names_is_used() {
        let source = "pub fn unused() {}";
        for user in [
            "fn f() { unused(); }",
            "fn f() -> impl A + use<'a> { unused() }",
            "use kvorum_ring::{a as unused};",
            "#[serde(default = \"unused\")] struct A;",
        ] {
            assert!(violations(source, user, &[]).is_empty(), "{user}");
        }
        let by_itself = "pub fn unused() {} fn f() { unused() }";
        assert!(violations(by_itself, "", &[]).is_empty());
        assert!(violations("pub(crate) fn unused() {}", "", &[]).is_empty());
        assert!(violations("pub use a::unused; pub mod unused;", "", &[]).is_empty());
    }

    #[test]
    fn for_a_tool_of_tests_they_count() {
        let tree = Tree::planted(&[
            ("crates/backend-conformance/Cargo.toml", ""),
            (
                "crates/backend-conformance/src/lib.rs",
                "pub fn used() {} pub fn unused() {}",
            ),
            ("crates/ring/tests/it.rs", "fn it() { used(); }"),
        ]);
        let violations = check_against(&tree, &[]);
        assert_eq!(violations.len(), 1);
        assert!(violations[0].ends_with(": unused"), "{violations:?}");
    }

    #[test]
    fn a_list_that_allows_more_than_there_is_is_a_violation() {
        let source = "pub fn unused() {}";
        assert!(violations(source, "", &[("ring", 1)]).is_empty());
        assert_eq!(
            violations(source, "", &[("ring", 2)]),
            ["ring has 1 public items that only tests name and not 2: lower the exception to 1"]
        );
        assert_eq!(violations("", "", &[("ring", 1), ("gone", 1)]).len(), 2);
    }
}

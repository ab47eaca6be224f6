//! Dependencies: only licences that `deny.toml` allows, and no crate that it bans.
//!
//! The file has cargo-deny's form. These two rules are also checked here, so that they hold without
//! that tool.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

/// Checks cargo's whole graph, from the lock file, against `deny.toml`.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let path = root.join("deny.toml");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let rules: toml::Table =
        toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .context("reading the dependencies; is Cargo.lock up to date?")?;
    let rules = Rules::of(&rules);
    let parents = parents(&metadata);
    let foreign = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some());
    Ok(foreign
        .filter_map(|package| {
            let name = package.name.as_str();
            let parents = parents.get(name).map_or(&[][..], Vec::as_slice);
            judge(package, parents, &rules)
        })
        .collect())
}

/// The rules of the file that are checked here.
struct Rules<'a> {
    licences: Vec<&'a str>,
    /// A crate, and the licences that only it may have.
    exceptions: Vec<(&'a str, Vec<&'a str>)>,
    /// A banned crate, and the crates that may still depend on it.
    banned: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Rules<'a> {
    fn of(rules: &'a toml::Table) -> Self {
        Self {
            licences: texts(entries(rules, "licenses", "allow")),
            exceptions: by_crate(entries(rules, "licenses", "exceptions"), "allow"),
            banned: by_crate(entries(rules, "bans", "deny"), "wrappers"),
        }
    }
}

fn entries<'a>(rules: &'a toml::Table, section: &str, key: &str) -> &'a [toml::Value] {
    let entries = rules.get(section).and_then(|section| section.get(key));
    entries
        .and_then(toml::Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn texts(values: &[toml::Value]) -> Vec<&str> {
    values.iter().filter_map(toml::Value::as_str).collect()
}

/// Each entry's crate and the texts of one of its fields.
fn by_crate<'a>(entries: &'a [toml::Value], field: &str) -> Vec<(&'a str, Vec<&'a str>)> {
    let of = |entry: &'a toml::Value| {
        let list = entry.get(field).and_then(toml::Value::as_array);
        let list = list.map_or(&[][..], Vec::as_slice);
        Some((entry.get("crate")?.as_str()?, texts(list)))
    };
    entries.iter().filter_map(of).collect()
}

/// The crates that depend on each package, by name, without optional and test dependencies.
fn parents(metadata: &Metadata) -> BTreeMap<String, Vec<String>> {
    let name = |id: &PackageId| metadata[id].name.to_string();
    let mut parents = BTreeMap::<String, Vec<String>>::new();
    let nodes = metadata.resolve.iter().flat_map(|graph| &graph.nodes);
    for node in nodes {
        for dependency in &node.deps {
            let kinds = dependency.dep_kinds.iter();
            if kinds
                .clone()
                .any(|it| it.kind != DependencyKind::Development)
            {
                let names = parents.entry(name(&dependency.pkg)).or_default();
                names.push(name(&node.id));
            }
        }
    }
    parents
}

fn judge(package: &Package, parents: &[String], rules: &Rules<'_>) -> Option<String> {
    let name = package.name.as_str();
    let who = format!("{name} {}", package.version);
    let banned = rules.banned.iter().find(|(banned, _)| *banned == name);
    if let Some((_, wrappers)) = banned
        && let Some(parent) = parents.iter().find(|it| !wrappers.contains(&it.as_str()))
    {
        return Some(format!("{who}, of {parent}, is banned by deny.toml"));
    }
    let exception = rules.exceptions.iter().find(|(it, _)| *it == name);
    let own = exception.map_or(&[][..], |(_, licences)| licences.as_slice());
    let allowed: Vec<&str> = rules.licences.iter().chain(own).copied().collect();
    match &package.license {
        None => Some(format!("{who} names no licence")),
        Some(licence) if permits(licence, &allowed) => None,
        Some(licence) => Some(format!(
            "{who} is under {licence}, which deny.toml does not allow"
        )),
    }
}

/// True if allowed licences alone can satisfy a licence expression. `OR` is a choice, `AND` binds
/// closer, and `/` is an old form of `OR`.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut position = 0;
    let verdict = any_of(&words, &mut position, allowed);
    verdict && position == words.len()
}

fn any_of(words: &[&str], position: &mut usize, allowed: &[&str]) -> bool {
    let mut verdict = all_of(words, position, allowed);
    while words.get(*position) == Some(&"OR") {
        *position += 1;
        verdict |= all_of(words, position, allowed);
    }
    verdict
}

fn all_of(words: &[&str], position: &mut usize, allowed: &[&str]) -> bool {
    let mut verdict = one(words, position, allowed);
    while words.get(*position) == Some(&"AND") {
        *position += 1;
        verdict &= one(words, position, allowed);
    }
    verdict
}

fn one(words: &[&str], position: &mut usize, allowed: &[&str]) -> bool {
    let Some(word) = words.get(*position) else {
        return false;
    };
    *position += 1;
    if *word == "(" {
        let verdict = any_of(words, position, allowed);
        *position += 1;
        return verdict;
    }
    if words.get(*position) == Some(&"WITH") {
        let exception = words.get(*position + 1).copied().unwrap_or_default();
        *position += 2;
        return allowed.contains(&format!("{word} WITH {exception}").as_str());
    }
    allowed.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: [&str; 3] = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"];

    #[test]
    fn a_choice_needs_one_allowed_licence() {
        for expression in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-3.0",
            "(GPL-3.0 OR MIT) AND Apache-2.0",
            "GPL-3.0 AND Zlib OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(permits(expression, &ALLOWED), "{expression}");
        }
    }

    #[test]
    fn a_licence_that_is_not_allowed_is_refused() {
        for expression in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT AND (GPL-3.0 OR Zlib)",
            "MIT WITH Some-exception",
            "",
            "MIT Apache-2.0",
        ] {
            assert!(!permits(expression, &ALLOWED), "{expression}");
        }
    }

    #[test]
    fn the_rules_are_found_in_the_file() {
        let file = "[licenses]\nallow = ['MIT']\nexceptions = [{ crate = 'foca', allow = ['MPL-2.0'] }]\n\
                    [bans]\ndeny = [{ crate = 'openssl' }, { crate = 'chrono', wrappers = ['openraft'] }]";
        let table: toml::Table = toml::from_str(file).unwrap();
        let rules = Rules::of(&table);
        assert_eq!(rules.licences, ["MIT"]);
        assert_eq!(rules.exceptions, [("foca", vec!["MPL-2.0"])]);
        let banned = [("openssl", vec![]), ("chrono", vec!["openraft"])];
        assert_eq!(rules.banned, banned);
    }
}

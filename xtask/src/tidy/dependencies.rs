//! What we depend on: under licences that `deny.toml` allows, and no crate that it bans.
//!
//! The file has cargo-deny's form, and cargo-deny reads it too. These two rules are checked here
//! as well, so that they hold where that tool is not installed.

use std::path::Path;

use anyhow::Context;
use cargo_metadata::{MetadataCommand, Package};

/// Reads `deny.toml` and asks cargo for the whole graph, as the lock file has it.
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
    let allowed = texts(&rules, &["licenses", "allow"], None);
    let banned = texts(&rules, &["bans", "deny"], Some("crate"));
    let foreign = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some());
    Ok(foreign
        .filter_map(|package| judge(package, &allowed, &banned))
        .collect())
}

/// The texts of an array below `path`, or of one field of its tables.
fn texts<'a>(rules: &'a toml::Table, path: &[&str; 2], field: Option<&str>) -> Vec<&'a str> {
    let [section, key] = path;
    rules
        .get(*section)
        .and_then(|section| section.get(*key))
        .and_then(toml::Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|value| match field {
            Some(field) => value.get(field)?.as_str(),
            None => value.as_str(),
        })
        .collect()
}

fn judge(package: &Package, allowed: &[&str], banned: &[&str]) -> Option<String> {
    let name = package.name.as_str();
    let who = format!("{name} {}", package.version);
    if banned.contains(&name) {
        return Some(format!("{who} is banned by deny.toml"));
    }
    match &package.license {
        None => Some(format!("{who} names no licence")),
        Some(licence) if permits(licence, allowed) => None,
        Some(licence) => Some(format!(
            "{who} is under {licence}, which deny.toml does not allow"
        )),
    }
}

/// Whether a licence expression can be met by allowed licences alone. `OR` leaves the choice,
/// `AND` binds closer and leaves none, `/` is an old way to write `OR`.
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
        let file = "[licenses]\nallow = ['MIT']\n[bans]\ndeny = [{ crate = 'openssl' }]";
        let rules: toml::Table = toml::from_str(file).unwrap();
        assert_eq!(texts(&rules, &["licenses", "allow"], None), ["MIT"]);
        assert_eq!(texts(&rules, &["bans", "deny"], Some("crate")), ["openssl"]);
        assert!(texts(&rules, &["sources", "allow"], None).is_empty());
    }
}

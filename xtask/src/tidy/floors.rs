//! Imports between crates: each crate declares its floor, and only imports lower floors.
//!
//! The crate graph is the architecture, so a wrong edge is a wrong architecture. Development
//! dependencies are free, since no program includes them. No program includes a crate with
//! `dev-only = true` either: only tools may import such a crate, and only such crates may compile
//! planted defects.

use cargo_metadata::{Dependency, DependencyKind, Package};

use crate::workspace::Workspace;

/// Intended imports on one floor, as (importer, imported, reason). An unused entry is a violation
/// too.
const SAME_FLOOR: &[(&str, &str, &str)] = &[];

/// The feature that compiles planted defects.
const PLANTING: &str = "kvorum-planted-defects/enabled";

/// The facts about a crate for the rule.
#[derive(Debug, Default)]
pub(crate) struct CrateOnFloor {
    name: String,
    /// `None` for tools, which are outside `crates/` and must not be imported.
    floor: Option<u64>,
    is_tool: bool,
    is_dev_only: bool,
    /// True if it compiles planted defects outside tests.
    plants: bool,
    /// Crates of the workspace that it imports to build or to run.
    imports: Vec<String>,
}

impl CrateOnFloor {
    /// All crates of the workspace.
    pub(crate) fn all(workspace: &Workspace) -> Vec<CrateOnFloor> {
        let crates = workspace.root().join("crates");
        workspace
            .packages()
            .iter()
            .map(|package| CrateOnFloor {
                name: package.name.to_string(),
                floor: package.metadata["floor"].as_u64(),
                is_tool: !package.manifest_path.as_std_path().starts_with(&crates),
                is_dev_only: package.metadata["dev-only"].as_bool() == Some(true),
                plants: plants(package),
                imports: imports(package).map(|it| it.name.clone()).collect(),
            })
            .collect()
    }
}

fn imports(package: &Package) -> impl Iterator<Item = &Dependency> {
    let all = package.dependencies.iter();
    all.filter(|it| it.path.is_some() && it.kind != DependencyKind::Development)
}

fn plants(package: &Package) -> bool {
    let is_planting = |it: &Dependency, feature: &str| format!("{}/{feature}", it.name) == PLANTING;
    imports(package).any(|it| it.features.iter().any(|feature| is_planting(it, feature)))
        || package.features.values().flatten().any(|it| it == PLANTING)
}

/// The edges that point upwards or sideways, and the crates without a floor.
pub(crate) fn check(crates: &[CrateOnFloor]) -> Vec<String> {
    check_against(crates, SAME_FLOOR)
}

fn check_against(crates: &[CrateOnFloor], same_floor: &[(&str, &str, &str)]) -> Vec<String> {
    let mut violations = Vec::new();
    let find = |name: &str| crates.iter().find(|other| other.name == name);
    for importer in crates {
        if importer.floor.is_none() && !importer.is_tool {
            violations.push(format!(
                "{} has no floor: add `floor = N` below [package.metadata]",
                importer.name
            ));
        }
        if importer.plants && !importer.is_dev_only {
            violations.push(format!("{} enables {PLANTING}, and ships", importer.name));
        }
        for imported in importer.imports.iter().filter_map(|name| find(name)) {
            violations.extend(judge(importer, imported, same_floor));
        }
    }
    for (importer, imported, _) in same_floor {
        let is_used = find(importer)
            .is_some_and(|importer| importer.imports.iter().any(|name| name == imported));
        if !is_used {
            violations.push(format!(
                "{importer} does not import {imported} any more: take the exception away"
            ));
        }
    }
    violations
}

fn judge(
    importer: &CrateOnFloor,
    imported: &CrateOnFloor,
    same_floor: &[(&str, &str, &str)],
) -> Option<String> {
    if imported.is_tool {
        return Some(format!(
            "{} imports the tool {}",
            importer.name, imported.name
        ));
    }
    if imported.is_dev_only && !importer.is_dev_only && !importer.is_tool {
        return Some(format!(
            "{} imports {}, which is for tests alone",
            importer.name, imported.name
        ));
    }
    let (from, to) = (importer.floor?, imported.floor?);
    let is_listed = same_floor
        .iter()
        .any(|(a, b, _)| *a == importer.name && *b == imported.name);
    if to < from || (to == from && is_listed) {
        return None;
    }
    Some(format!(
        "{} (floor {from}) imports {} (floor {to})",
        importer.name, imported.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_crate(name: &str, floor: Option<u64>, imports: &[&str]) -> CrateOnFloor {
        CrateOnFloor {
            name: name.to_owned(),
            floor,
            is_tool: name == "tool",
            imports: imports.iter().map(|&name| name.to_owned()).collect(),
            ..CrateOnFloor::default()
        }
    }

    #[test]
    fn importing_a_lower_floor_is_fine() {
        let crates = [
            a_crate("roof", Some(1), &["cellar"]),
            a_crate("cellar", Some(0), &[]),
            a_crate("tool", None, &["roof"]),
        ];
        assert!(check_against(&crates, &[]).is_empty());
    }

    #[test]
    fn importing_upwards_is_a_violation() {
        let crates = [
            a_crate("cellar", Some(0), &["roof"]),
            a_crate("roof", Some(1), &[]),
        ];
        assert_eq!(
            check_against(&crates, &[]),
            ["cellar (floor 0) imports roof (floor 1)"]
        );
    }

    #[test]
    fn importing_sideways_needs_an_entry_in_the_list() {
        let crates = [
            a_crate("left", Some(1), &["right"]),
            a_crate("right", Some(1), &[]),
        ];
        assert_eq!(check_against(&crates, &[]).len(), 1);
        assert!(check_against(&crates, &[("left", "right", "why")]).is_empty());
    }

    #[test]
    fn what_ships_imports_nothing_of_tests_and_plants_nothing() {
        let mut crates = [
            a_crate("roof", Some(1), &["stage"]),
            a_crate("stage", Some(0), &[]),
        ];
        crates[1].is_dev_only = true;
        crates[1].plants = true;
        let violations = check_against(&crates, &[]);
        assert_eq!(violations, ["roof imports stage, which is for tests alone"]);
        crates[0].is_dev_only = true;
        assert!(check_against(&crates, &[]).is_empty());
        crates[1].is_dev_only = false;
        assert_eq!(check_against(&crates, &[]).len(), 1);
    }

    #[test]
    fn an_exception_that_nobody_needs_is_a_violation() {
        let crates = [
            a_crate("left", Some(1), &[]),
            a_crate("right", Some(1), &[]),
        ];
        assert_eq!(check_against(&crates, &[("left", "right", "why")]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_floor_and_an_imported_tool_are_violations() {
        let crates = [
            a_crate("homeless", None, &["tool"]),
            a_crate("tool", None, &[]),
        ];
        assert_eq!(check_against(&crates, &[]).len(), 2);
    }
}

//! No cycles between the modules of a crate, except for those in a list.
//!
//! Two files that reach each other have no wall between them: neither can be read, tested or moved
//! alone. `cargo xtask cycles` shows the paths. The list may only shrink: an entry above the actual
//! count is a violation too.

use crate::modules::edges;
use crate::modules::inside::Crate;
use crate::modules::knots;
use crate::tidy::tree::Tree;

/// Crates with cycles, as (crate, modules in them).
const EXCEPTIONS: &[(&str, usize)] = &[];

/// Crates with more or fewer cycles than listed.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, EXCEPTIONS)
}

fn check_against(tree: &Tree, exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut crates = Crate::all(tree);
    crates.extend(Crate::at(tree, "xtask"));
    let mut violations = Vec::new();
    for each in &crates {
        let listed = exceptions.iter().find(|(name, _)| *name == each.name);
        violations.extend(judge(
            &each.name,
            modules_in_cycles(each),
            listed.map_or(0, |it| it.1),
        ));
    }
    for (name, _) in exceptions {
        if !crates.iter().any(|each| each.name == *name) {
            violations.push(format!("there is no crate {name}: take the exception away"));
        }
    }
    violations
}

fn modules_in_cycles(each: &Crate) -> usize {
    let of_target = |target| {
        let edges = edges::of(target);
        let knots = knots::of(target.modules.len(), &edges);
        knots.iter().map(Vec::len).sum::<usize>()
    };
    each.targets.iter().map(of_target).sum()
}

fn judge(name: &str, found: usize, listed: usize) -> Option<String> {
    if found > listed {
        return Some(format!(
            "{name} has {found} modules in cycles, {listed} are allowed: `cargo xtask cycles {name}` \
             shows the paths"
        ));
    }
    let lower = match found {
        0 => "take the exception away".to_owned(),
        _ => format!("lower the exception to {found}"),
    };
    (found < listed)
        .then(|| format!("{name} has {found} modules in cycles and not {listed}: {lower}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOT: &[(&str, &str)] = &[
        ("crates/ring/Cargo.toml", ""),
        (
            "crates/ring/src/lib.rs",
            "mod a; mod b; mod c; pub use b::B;",
        ),
        ("crates/ring/src/a.rs", "use crate::B;"),
        ("crates/ring/src/b.rs", "use crate::a::A; pub struct B;"),
        ("crates/ring/src/c.rs", "use crate::a::A;"),
    ];

    #[test]
    fn a_cycle_is_a_violation_unless_it_is_listed() {
        let tree = Tree::planted(KNOT);
        assert_eq!(
            check_against(&tree, &[]),
            [
                "ring has 2 modules in cycles, 0 are allowed: `cargo xtask cycles ring` shows the paths"
            ]
        );
        assert!(check_against(&tree, &[("ring", 2)]).is_empty());
        assert_eq!(check_against(&tree, &[("ring", 1)]).len(), 1);
    }

    #[test]
    fn a_cycle_of_a_parent_and_its_child_is_a_violation() {
        let tree = Tree::planted(&[
            ("crates/ring/Cargo.toml", ""),
            ("crates/ring/src/lib.rs", "mod a;"),
            ("crates/ring/src/a.rs", "mod b; use self::b::B; struct A;"),
            ("crates/ring/src/a/b.rs", "use super::A; struct B;"),
        ]);
        assert_eq!(check_against(&tree, &[]).len(), 1);
    }

    #[test]
    fn a_cycle_of_tests_is_none() {
        let tree = Tree::planted(&[
            ("crates/ring/Cargo.toml", ""),
            ("crates/ring/src/lib.rs", "mod a; mod b;"),
            ("crates/ring/src/a.rs", "use crate::b::B;"),
            (
                "crates/ring/src/b.rs",
                "#[cfg(test)] mod tests { use crate::a::A; }",
            ),
        ]);
        assert!(check_against(&tree, &[]).is_empty());
    }

    #[test]
    fn a_list_that_allows_more_than_there_is_is_a_violation() {
        let tree = Tree::planted(KNOT);
        assert_eq!(
            check_against(&tree, &[("ring", 3)]),
            ["ring has 2 modules in cycles and not 3: lower the exception to 2"]
        );
        let mended: Vec<(&str, &str)> = KNOT
            .iter()
            .filter(|(path, _)| !path.ends_with("b.rs"))
            .copied()
            .collect();
        assert_eq!(
            check_against(&Tree::planted(&mended), &[("ring", 2), ("gone", 1)]),
            [
                "ring has 0 modules in cycles and not 2: take the exception away",
                "there is no crate gone: take the exception away"
            ]
        );
    }
}

//! The edges between the modules of a target: each path from one module to another.
//!
//! A declaration `mod x;` is not an edge. A path that ends at a module leads to it; any other path
//! leads to the module that defines its last name. So `crate::X` leads to `a` if the root has `use
//! a::X`. A method call is not a path, and a path through an imported name counts with its import.

use std::collections::BTreeMap;

use crate::modules::inside::Target;
use crate::modules::scope::Scopes;

/// The edges of a target as (from, to), by positions of modules, each with the lines of its paths.
pub(crate) type Edges = BTreeMap<(usize, usize), Vec<usize>>;

/// The edges of a target.
pub(crate) fn of(target: &Target) -> Edges {
    let scopes = Scopes::of(target);
    let mut edges = Edges::new();
    for from in 0..target.modules.len() {
        let imported = scopes.imports(from).iter().filter_map(|import| {
            let end = scopes.resolve(from, &import.path)?;
            Some((end.module(), import.line))
        });
        let named = scopes.paths(from).iter().filter_map(|named| {
            let end = scopes.resolve(from, &named.path)?;
            let by_import = scopes
                .import_of(from, &named.path)
                .and_then(|import| scopes.resolve(from, &import.path));
            let is_counted = by_import.is_some_and(|by_import| by_import.module() == end.module());
            (!is_counted).then_some((end.module(), named.line))
        });
        for (to, line) in imported.chain(named).filter(|(to, _)| *to != from) {
            edges.entry((from, to)).or_default().push(line);
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::inside::Crate;
    use crate::tidy::tree::Tree;

    /// The edges of a crate with these files in `src`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let mut planted = vec![("crates/ring/Cargo.toml".to_owned(), "")];
        let in_src = |name: &str| format!("crates/ring/src/{name}");
        planted.extend(files.iter().map(|(name, text)| (in_src(name), *text)));
        let planted: Vec<(&str, &str)> = planted.iter().map(|(a, b)| (a.as_str(), *b)).collect();
        let found = Crate::all(&Tree::planted(&planted)).remove(0);
        let target = &found.targets[0];
        let name = |position: usize| target.modules[position].name.as_str();
        of(target)
            .iter()
            .map(|((from, to), lines)| format!("{} -> {}: {lines:?}", name(*from), name(*to)))
            .collect()
    }

    #[test]
    fn a_path_is_an_edge_and_a_declaration_is_none() {
        let found = edges(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            (
                "a.rs",
                "use crate::b::B;\nfn f() { super::c::g(B::new()); }",
            ),
            ("b.rs", "use std::fmt::{self, Write}; struct B;"),
            ("c.rs", "fn g() { h!(\ncrate::b::B) }"),
        ]);
        assert_eq!(found, ["a -> b: [1]", "a -> c: [2]", "c -> b: [2]"]);
    }

    #[test]
    fn a_re_export_stands_for_what_it_re_exports() {
        let found = edges(&[
            (
                "lib.rs",
                "mod a; mod b; mod c; pub use a::*; pub use crate::b::{B as C}; use bytes::Bytes;",
            ),
            ("a.rs", "mod deep; pub use self::deep::Deep; struct A;"),
            ("a/deep.rs", "use super::A; pub struct Deep;"),
            ("b.rs", "use crate::Deep; struct B;"),
            (
                "c.rs",
                "use crate::{C, Deep}; use crate::Bytes; use super::Other;",
            ),
        ]);
        let expected = [
            "lib -> a: [1]",
            "lib -> b: [1]",
            "a -> a::deep: [1]",
            "a::deep -> a: [1]",
            "b -> a::deep: [1]",
            "c -> lib: [1, 1]",
            "c -> a::deep: [1]",
            "c -> b: [1]",
        ];
        let mut sorted = found.clone();
        let mut expected = expected.map(str::to_owned).to_vec();
        sorted.sort();
        expected.sort();
        assert_eq!(sorted, expected);
    }

    #[test]
    fn paths_through_an_imported_module_lead_behind_it() {
        let found = edges(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub mod deep;"),
            ("a/deep.rs", "pub struct Deep;"),
            (
                "b.rs",
                "use crate::a;\nfn f() { a::deep::Deep::new(); a::g(); }",
            ),
        ]);
        assert_eq!(found, ["b -> a: [1]", "b -> a::deep: [2]"]);
    }

    #[test]
    fn a_path_to_a_parent_is_an_edge_and_tests_have_none() {
        let found = edges(&[
            ("lib.rs", "mod a; fn f() { a::g() }"),
            (
                "a.rs",
                "mod b;\n#[cfg(test)]\nmod tests { use super::b::B; }",
            ),
            (
                "a/b.rs",
                "impl super::A { pub(in crate::a) fn h() {} }\nuse crate::f;",
            ),
        ]);
        assert_eq!(
            found,
            ["lib -> a: [1]", "a::b -> lib: [2]", "a::b -> a: [1]"]
        );
    }

    #[test]
    fn imports_that_lead_to_each_other_end() {
        let found = edges(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::*; use crate::b::X;"),
            ("b.rs", "use crate::a::*; use crate::a::X;"),
        ]);
        assert!(found.contains(&"a -> b: [1]".to_owned()), "{found:?}");
    }
}

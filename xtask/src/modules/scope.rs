//! Resolution of a module's paths: to a module of its target, or out of it.
//!
//! Imports are followed to the definition of a name, so that a re-export counts as the original.
//! Names of values and of types are not distinguished.

use std::collections::BTreeSet;

use crate::modules::inside::Target;
use crate::modules::paths::{self, Import, NamedPath};
use crate::tidy::lexer::Placed;

/// The limit for imports in a circle, and for globs of globs.
const DEPTH_MAX: usize = 16;

/// Keywords in front of an item's name.
const DEFINES: [&str; 9] = [
    "const",
    "enum",
    "fn",
    "macro_rules",
    "static",
    "struct",
    "trait",
    "type",
    "union",
];

/// The target's modules with the imports, paths and items of each, in the target's order.
#[derive(Debug)]
pub(crate) struct Scopes<'a> {
    target: &'a Target,
    scopes: Vec<Scope>,
}

#[derive(Debug)]
struct Scope {
    imports: Vec<Import>,
    paths: Vec<NamedPath>,
    items: BTreeSet<String>,
}

/// The end of a path, by positions of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The module itself.
    Module(usize),
    /// An item of the module.
    ItemOf(usize),
}

impl End {
    /// The module.
    pub(crate) fn module(self) -> usize {
        match self {
            End::Module(module) | End::ItemOf(module) => module,
        }
    }
}

impl<'a> Scopes<'a> {
    pub(crate) fn of(target: &'a Target) -> Scopes<'a> {
        let scopes = target.modules.iter().map(|module| {
            let (imports, paths) = paths::read(&module.code);
            Scope {
                imports,
                paths,
                items: items(&module.code),
            }
        });
        Scopes {
            target,
            scopes: scopes.collect(),
        }
    }

    /// The imports of a module.
    pub(crate) fn imports(&self, module: usize) -> &[Import] {
        &self.scopes[module].imports
    }

    /// The paths that a module names elsewhere.
    pub(crate) fn paths(&self, module: usize) -> &[NamedPath] {
        &self.scopes[module].paths
    }

    /// The import that defines the first segment of a path.
    pub(crate) fn import_of(&self, module: usize, path: &[String]) -> Option<&Import> {
        let first = path.first()?;
        self.imports(module)
            .iter()
            .find(|import| import.name == *first)
    }

    /// The end of `path` from `module`; `None` for other crates and unknown names.
    pub(crate) fn resolve(&self, module: usize, path: &[String]) -> Option<End> {
        self.resolve_within(module, path, DEPTH_MAX)
    }

    fn resolve_within(&self, module: usize, path: &[String], depth: usize) -> Option<End> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk(0, rest, depth),
            "self" => self.walk(module, rest, depth),
            "super" => {
                let mut above = self.target.modules[module].parent?;
                let mut rest = rest;
                while let Some((_, behind)) = rest.split_first().filter(|it| it.0 == "super") {
                    above = self.target.modules[above].parent?;
                    rest = behind;
                }
                self.walk(above, rest, depth)
            }
            _ => self.named(module, first, rest, depth.checked_sub(1)?),
        }
    }

    /// The end of `rest` from the names in `module`.
    fn walk(&self, module: usize, rest: &[String], depth: usize) -> Option<End> {
        let Some((first, behind)) = rest.split_first() else {
            return Some(End::Module(module));
        };
        let depth = depth.checked_sub(1)?;
        // A name that is imported from another crate, or made by a macro, belongs to the module.
        self.named(module, first, behind, depth)
            .or(Some(End::ItemOf(module)))
    }

    /// The end of `rest` from the name `name` in `module`.
    fn named(&self, module: usize, name: &str, rest: &[String], depth: usize) -> Option<End> {
        let children = &self.target.modules[module].children;
        if let Some((_, child)) = children.iter().find(|(child, _)| child == name) {
            return self.walk(*child, rest, depth);
        }
        let scope = &self.scopes[module];
        if let Some(import) = scope.imports.iter().find(|import| import.name == name) {
            return match self.resolve_within(module, &import.path, depth.checked_sub(1)?)? {
                End::Module(found) => self.walk(found, rest, depth),
                item @ End::ItemOf(_) => Some(item),
            };
        }
        if scope.items.contains(name) {
            return Some(End::ItemOf(module));
        }
        let globs = scope.imports.iter().filter(|import| import.name == "*");
        globs.into_iter().find_map(|glob| {
            let depth = depth.checked_sub(1)?;
            match self.resolve_within(module, &glob.path, depth)? {
                End::Module(found) => self.named(found, name, rest, depth),
                End::ItemOf(_) => None,
            }
        })
    }
}

/// The names after keywords that define items, at any depth.
fn items(code: &[Placed]) -> BTreeSet<String> {
    code.windows(3)
        .filter(|three| three[0].word().is_some_and(|word| DEFINES.contains(&word)))
        .filter_map(|three| three[1].word().or(three[2].word()))
        .map(str::to_owned)
        .collect()
}

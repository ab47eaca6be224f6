//! The modules of a crate, found from the roots of its targets by their declarations.
//!
//! A module is a file; an inline module is part of its file. Parts for tests are left out: items
//! below `#[cfg(test)]`, and the files that are declared there.

use std::collections::BTreeSet;

use crate::tidy::lexer::{self, Placed, Token};
use crate::tidy::test_items::without_tests;
use crate::tidy::tree::{Tree, TreeFile};

/// A crate of the workspace: a directory with a manifest.
#[derive(Debug)]
pub(crate) struct Crate {
    /// The directory's name.
    pub(crate) name: String,
    /// The library and the programs, each with its own modules.
    pub(crate) targets: Vec<Target>,
}

/// A library or a program: a tree of modules. The first is the root.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) modules: Vec<Module>,
}

/// A file of a target.
#[derive(Debug)]
pub(crate) struct Module {
    /// `a::b`, or the stem of the file for the root: `lib` or `main`.
    pub(crate) name: String,
    /// Its path from the root of the workspace.
    pub(crate) file: String,
    /// Its code without comments and tests.
    pub(crate) code: Vec<Placed>,
    /// The position of the parent in the target's list; `None` for the root.
    pub(crate) parent: Option<usize>,
    /// The modules that it declares, as (name, position).
    pub(crate) children: Vec<(String, usize)>,
}

impl Crate {
    /// The crates below `crates`, of the product and of its tests.
    pub(crate) fn all(tree: &Tree) -> Vec<Crate> {
        let directories = tree.files.iter().filter_map(|file| {
            let directory = file.path.strip_suffix("/Cargo.toml")?;
            let name = directory.strip_prefix("crates/")?;
            (!name.contains('/')).then_some(directory)
        });
        directories
            .filter_map(|directory| Crate::at(tree, directory))
            .collect()
    }

    /// The crate in this directory, given from the root of the workspace.
    pub(crate) fn at(tree: &Tree, directory: &str) -> Option<Crate> {
        let manifest = format!("{directory}/Cargo.toml");
        let manifest = tree.files.iter().find(|file| file.path == manifest)?;
        let (_, name) = parent_and_stem(directory);
        Some(Crate {
            name: name.to_owned(),
            targets: roots(tree, directory, manifest)
                .into_iter()
                .map(|root| Target::from_root(tree, root))
                .collect(),
        })
    }

    /// The modules of all targets.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &Module> {
        self.targets.iter().flat_map(|target| &target.modules)
    }

    /// The number of its modules' lines of code, without tests, comments and blank lines.
    pub(crate) fn lines(&self) -> usize {
        let lines: BTreeSet<(&str, usize)> = self
            .modules()
            .flat_map(|module| {
                let lines = module
                    .code
                    .iter()
                    .flat_map(|placed| placed.line..=placed.last_line);
                lines.map(|line| (module.file.as_str(), line))
            })
            .collect();
        lines.len()
    }

    /// The number of its modules' files.
    pub(crate) fn files(&self) -> usize {
        let files: BTreeSet<&str> = self.modules().map(|module| module.file.as_str()).collect();
        files.len()
    }
}

/// The files from which the targets of a crate begin.
fn roots<'a>(tree: &'a Tree, directory: &str, manifest: &TreeFile) -> Vec<&'a TreeFile> {
    let mut paths = BTreeSet::from([
        format!("{directory}/src/lib.rs"),
        format!("{directory}/src/main.rs"),
    ]);
    let manifest: toml::Table = toml::from_str(&manifest.text()).unwrap_or_default();
    let programs = manifest.get("bin").and_then(toml::Value::as_array);
    for program in programs.into_iter().flatten() {
        if let Some(path) = program.get("path").and_then(toml::Value::as_str) {
            paths.insert(format!("{directory}/{path}"));
        }
    }
    let in_own_files = format!("{directory}/src/bin/");
    let is_root = |path: &str| {
        paths.contains(path)
            || path.strip_prefix(&in_own_files).is_some_and(|rest| {
                !rest.contains('/') || rest.split_once('/').is_some_and(|it| it.1 == "main.rs")
            })
    };
    tree.with_extension("rs")
        .filter(|file| is_root(&file.path))
        .collect()
}

impl Target {
    fn from_root(tree: &Tree, root: &TreeFile) -> Target {
        let mut target = Target {
            modules: Vec::new(),
        };
        let (_, stem) = parent_and_stem(&root.path);
        target.add(tree, root, stem, None);
        target
    }

    /// Adds a module and the modules that it declares; returns its position.
    fn add(&mut self, tree: &Tree, file: &TreeFile, name: &str, parent: Option<usize>) -> usize {
        let position = self.modules.len();
        let code = without_tests(&lexer::code(&file.text()));
        let declared = declarations(&code);
        self.modules.push(Module {
            name: name.to_owned(),
            file: file.path.clone(),
            code,
            parent,
            children: Vec::new(),
        });
        for declaration in declared {
            let Some(below) = find(tree, &file.path, parent.is_none(), &declaration) else {
                continue; // the compiler reports it
            };
            let child_name = match parent {
                None => declaration.name.clone(),
                Some(_) => format!("{name}::{}", declaration.name),
            };
            let child = self.add(tree, below, &child_name, Some(position));
            self.modules[position]
                .children
                .push((declaration.name, child));
        }
        position
    }
}

/// `mod name;`, with the file that an attribute names.
#[derive(Debug)]
struct Declaration {
    name: String,
    path: Option<String>,
}

fn declarations(code: &[Placed]) -> Vec<Declaration> {
    let mut found = Vec::new();
    let mut path = None;
    for (position, placed) in code.iter().enumerate() {
        let words = |ahead: usize| code.get(position + ahead).and_then(Placed::word);
        let marks = |ahead: usize| code.get(position + ahead).and_then(Placed::mark);
        if placed.mark() == Some('#') && words(2) == Some("path") && marks(3) == Some('=') {
            path = match code.get(position + 4).map(|placed| &placed.token) {
                Some(Token::Literal(text)) => Some(text.trim_matches('"').to_owned()),
                _ => None,
            };
        }
        if let (Some("mod"), Some(name), Some(';')) = (placed.word(), words(1), marks(2)) {
            let name = name.to_owned();
            let path = path.take();
            found.push(Declaration { name, path });
        }
    }
    found
}

/// The file of a module that is declared in the file at `declared_in`.
fn find<'a>(
    tree: &'a Tree,
    declared_in: &str,
    is_root: bool,
    declaration: &Declaration,
) -> Option<&'a TreeFile> {
    let (parent, stem) = parent_and_stem(declared_in);
    let below = if is_root || stem == "mod" {
        parent.to_owned()
    } else {
        format!("{parent}/{stem}")
    };
    let candidates = match &declaration.path {
        Some(path) => vec![format!("{parent}/{path}")],
        None => vec![
            format!("{below}/{}.rs", declaration.name),
            format!("{below}/{}/mod.rs", declaration.name),
        ],
    };
    tree.with_extension("rs")
        .find(|file| candidates.contains(&file.path))
}

fn parent_and_stem(path: &str) -> (&str, &str) {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    (parent, name.trim_end_matches(".rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_crate(files: &[(&str, &str)]) -> Crate {
        let mut crates = Crate::all(&Tree::planted(files));
        assert_eq!(crates.len(), 1);
        crates.remove(0)
    }

    #[test]
    fn modules_are_found_by_their_declarations() {
        let found = only_crate(&[
            (
                "crates/ring/Cargo.toml",
                "[[bin]]\nname = 'ring'\npath = 'src/program/main.rs'\n",
            ),
            (
                "crates/ring/src/lib.rs",
                "mod a; pub mod b; #[cfg(test)] mod t; #[path = \"x/y.rs\"] mod c;",
            ),
            ("crates/ring/src/a.rs", "mod deep;"),
            ("crates/ring/src/a/deep.rs", ""),
            ("crates/ring/src/b/mod.rs", "pub(crate) mod deep;"),
            ("crates/ring/src/b/deep.rs", "mod inline { fn f() {} }"),
            ("crates/ring/src/x/y.rs", ""),
            ("crates/ring/src/t.rs", "mod u;"),
            ("crates/ring/src/t/u.rs", ""),
            ("crates/ring/src/program/main.rs", "mod d;"),
            ("crates/ring/src/program/d.rs", ""),
            ("crates/ring/tests/it.rs", "mod e;"),
        ]);
        let names: Vec<&str> = found.modules().map(|it| it.name.as_str()).collect();
        let expected = ["lib", "a", "a::deep", "b", "b::deep", "c", "main", "d"];
        assert_eq!(names, expected);
    }

    #[test]
    fn lines_are_those_with_code_outside_tests() {
        let source = "//! Doc.\n\nuse a::b; // why\n\n/* one\ntwo */ fn f() {\n    \"a\n\nb\"\n}\n\
            #[cfg(test)]\nmod tests {\n    fn f() {}\n}\n";
        let found = only_crate(&[
            ("crates/ring/Cargo.toml", ""),
            ("crates/ring/src/lib.rs", source),
        ]);
        assert_eq!((found.files(), found.lines()), (1, 6));
    }
}

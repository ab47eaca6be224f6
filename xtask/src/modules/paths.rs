//! The paths in a file: its imports, and its paths of more than one name.

use crate::tidy::lexer::Placed;

/// A leaf of a `use` declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// The segments, without a `*` at the end.
    pub(crate) path: Vec<String>,
    /// The name in the file; `*` for a glob, `_` for none.
    pub(crate) name: String,
    pub(crate) line: usize,
}

/// A path of at least two segments outside `use` declarations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPath {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// The imports and paths of a file, in the order of its lines.
pub(crate) fn read(code: &[Placed]) -> (Vec<Import>, Vec<NamedPath>) {
    let mut reader = Reader {
        code,
        position: 0,
        imports: Vec::new(),
        paths: Vec::new(),
    };
    while reader.position < code.len() {
        reader.step();
    }
    (reader.imports, reader.paths)
}

struct Reader<'a> {
    code: &'a [Placed],
    position: usize,
    imports: Vec<Import>,
    paths: Vec<NamedPath>,
}

impl Reader<'_> {
    fn word(&self, ahead: usize) -> Option<&str> {
        self.code.get(self.position + ahead)?.word()
    }

    fn mark(&self, ahead: usize) -> Option<char> {
        self.code.get(self.position + ahead)?.mark()
    }

    fn line(&self) -> usize {
        self.code.get(self.position).map_or(0, |placed| placed.line)
    }

    fn is_separator(&self, ahead: usize) -> bool {
        self.mark(ahead) == Some(':') && self.mark(ahead + 1) == Some(':')
    }

    fn step(&mut self) {
        // `impl Trait + use<'a>` is not an import.
        if self.word(0) == Some("use") && self.mark(1) != Some('<') {
            self.position += 1;
            if self.is_separator(0) {
                self.position += 2; // from the names of crates: resolved like any other
            }
            self.tree(&[]);
        } else if self.word(0) == Some("pub") && self.word(2) == Some("in") {
            self.position += 3;
            while self.mark(0).is_some_and(|mark| mark != ')') || self.word(0).is_some() {
                self.position += 1;
            }
        } else if self.word(0).is_some() && !self.follows_separator() {
            self.path();
        } else {
            self.position += 1;
        }
    }

    /// True if the word at the position continues a path, as in `<T as Trait>::Item`.
    fn follows_separator(&self) -> bool {
        let mark = |back: usize| {
            let position = self.position.checked_sub(back)?;
            self.code.get(position)?.mark()
        };
        mark(1) == Some(':') && mark(2) == Some(':')
    }

    /// A path outside of imports, up to generic arguments or any token that is not a name.
    fn path(&mut self) {
        let line = self.line();
        let mut path = Vec::new();
        while let Some(word) = self.word(0) {
            path.push(word.to_owned());
            self.position += 1;
            if !(self.is_separator(0) && self.word(2).is_some()) {
                break;
            }
            self.position += 2;
        }
        if path.len() > 1 {
            self.paths.push(NamedPath { path, line });
        }
    }

    /// A piece of a `use` declaration below `prefix`.
    fn tree(&mut self, prefix: &[String]) {
        let line = self.line();
        if self.mark(0) == Some('{') {
            self.position += 1;
            self.group(prefix);
            return;
        }
        if self.mark(0) == Some('*') {
            self.position += 1;
            self.leaf(prefix.to_vec(), "*".to_owned(), line);
            return;
        }
        let Some(word) = self.word(0).map(str::to_owned) else {
            self.position += 1; // broken source, or the argument of a macro
            return;
        };
        self.position += 1;
        let mut path = prefix.to_vec();
        if word != "self" || prefix.is_empty() {
            path.push(word);
        }
        if self.is_separator(0) {
            self.position += 2;
            self.tree(&path);
            return;
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.word(0) == Some("as") {
            name = self.word(1).unwrap_or("_").to_owned();
            self.position += 2;
        }
        self.leaf(path, name, line);
    }

    fn group(&mut self, prefix: &[String]) {
        while self.position < self.code.len() {
            match self.mark(0) {
                Some('}') => {
                    self.position += 1;
                    return;
                }
                Some(',') => self.position += 1,
                _ => self.tree(prefix),
            }
        }
    }

    fn leaf(&mut self, path: Vec<String>, name: String, line: usize) {
        self.imports.push(Import { path, name, line });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::lexer;

    fn imports(source: &str) -> Vec<String> {
        read(&lexer::code(source))
            .0
            .iter()
            .map(|import| format!("{}={}:{}", import.name, import.path.join("::"), import.line))
            .collect()
    }

    fn paths(source: &str) -> Vec<String> {
        read(&lexer::code(source))
            .1
            .iter()
            .map(|named| format!("{}:{}", named.path.join("::"), named.line))
            .collect()
    }

    #[test]
    fn imports_are_taken_apart() {
        assert_eq!(
            imports("use crate::{\n a::{self, B as C},\n d::*, e as _\n};\nuse ::f;"),
            [
                "a=crate::a:2",
                "C=crate::a::B:2",
                "*=crate::d:3",
                "_=crate::e:3",
                "f=f:5"
            ]
        );
        assert!(imports("fn f() -> impl A + use<'a, T> {}").is_empty());
    }

    #[test]
    fn paths_are_found_in_code_and_in_arguments_of_macros() {
        assert_eq!(
            paths("fn f(a: super::A<crate::b::B>) { g!(c::d(), $crate::e::f); }"),
            ["super::A:1", "crate::b::B:1", "c::d:1", "crate::e::f:1"]
        );
        assert_eq!(
            paths("<A as b::C>::d; e::f::<g::H>::i(); pub(in super::j) fn k() {}"),
            ["b::C:1", "e::f:1", "g::H:1"]
        );
        assert!(paths("pub(crate) fn a(b: C) { d.e() }").is_empty());
    }
}

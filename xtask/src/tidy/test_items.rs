//! Source without the parts for tests: items and fields below `#[cfg(test)]`.

use crate::tidy::lexer::Placed;

/// Spellings of the attribute; the tokens between `all(test` and its end may vary.
const ATTRIBUTES: [&[&str]; 2] = [
    &["#", "[", "cfg", "(", "test", ")"],
    &["#", "[", "cfg", "(", "all", "(", "test"],
];

/// Words at the beginning of items that end with a semicolon, regardless of braces.
const ENDS_WITH_SEMICOLON: [&str; 4] = ["const", "static", "type", "use"];

/// Words that begin other items.
const BEGINS_ITEM: [&str; 10] = [
    "async",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "struct",
    "trait",
    "unsafe",
];

/// The tokens of `code`, which has no comments, without items of tests.
pub(crate) fn without_tests(code: &[Placed]) -> Vec<Placed> {
    let mut kept = Vec::with_capacity(code.len());
    let mut position = 0;
    while let Some(placed) = code.get(position) {
        if is_test_attribute(code, position) {
            position = end_of_item(code, end_of_attribute(code, position));
        } else {
            kept.push(placed.clone());
            position += 1;
        }
    }
    kept
}

fn is_test_attribute(code: &[Placed], position: usize) -> bool {
    ATTRIBUTES.iter().any(|spelling| {
        spelling.iter().enumerate().all(|(offset, &expected)| {
            code.get(position + offset).is_some_and(|placed| {
                placed.word() == Some(expected)
                    || placed
                        .mark()
                        .is_some_and(|mark| expected.chars().eq([mark]))
            })
        })
    })
}

/// The position after the bracket that closes the attribute at `position`.
fn end_of_attribute(code: &[Placed], mut position: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(placed) = code.get(position) {
        position += 1;
        match placed.mark() {
            Some('[') => depth += 1,
            Some(']') if depth == 1 => break,
            Some(']') => depth -= 1,
            _ => {}
        }
    }
    position
}

/// The position after the item, field or arm that starts at `position`, with its other attributes.
fn end_of_item(code: &[Placed], mut position: usize) -> usize {
    while code.get(position).and_then(Placed::mark) == Some('#') {
        position = end_of_attribute(code, position);
    }
    let kind = Kind::at(code, position);
    let mut depth = 0_usize;
    while let Some(placed) = code.get(position) {
        match placed.mark() {
            Some('{' | '(' | '[') => depth += 1,
            Some('}' | ')' | ']') if depth == 0 => return position,
            Some('}') if depth == 1 && kind == Kind::Braced => return position + 1,
            Some('}' | ')' | ']') => depth -= 1,
            Some(';') if depth == 0 => return position + 1,
            Some(',') if depth == 0 && kind == Kind::Part => return position + 1,
            _ => {}
        }
        position += 1;
    }
    position
}

/// The kinds of code after an attribute, by their ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Code up to a closing brace, or up to an earlier semicolon.
    Braced,
    /// Code up to a semicolon.
    Plain,
    /// A field, variant, arm or statement: up to a comma or semicolon.
    Part,
}

impl Kind {
    fn at(code: &[Placed], position: usize) -> Kind {
        let mut words = code[position.min(code.len())..]
            .iter()
            .filter_map(Placed::word)
            .filter(|word| !["pub", "crate", "super", "in", "self"].contains(word));
        let first = words.next().unwrap_or_default();
        if first == "const" && words.next() == Some("fn") {
            return Kind::Braced;
        }
        if ENDS_WITH_SEMICOLON.contains(&first) {
            return Kind::Plain;
        }
        if BEGINS_ITEM.contains(&first) {
            return Kind::Braced;
        }
        Kind::Part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::lexer;

    fn kept(source: &str) -> String {
        let words: Vec<String> = without_tests(&lexer::code(source))
            .iter()
            .map(|placed| match (placed.word(), placed.mark()) {
                (Some(word), _) => word.to_owned(),
                (None, Some(mark)) => mark.to_string(),
                _ => "_".to_owned(),
            })
            .collect();
        words.join(" ")
    }

    #[test]
    fn items_of_tests_are_left_out_to_their_end() {
        for item in [
            "mod tests { fn a() { b(); } }",
            "mod tests;",
            "#[path = \"a_test.rs\"]\nmod tests;",
            "use super::{a, b};",
            "pub(crate) const fn a<A, B>(a: A, b: B) -> [u8; 3] { c }",
            "fn a<A, B>(a: A, b: B) -> [u8; 3] { c }",
            "const A: B = B { c: 1 };",
            "impl From<A> for B { fn c() {} }",
        ] {
            assert_eq!(
                kept(&format!("x; #[cfg(test)] {item} y")),
                "x ; y",
                "{item}"
            );
            let all = format!("x; #[cfg(all(test, unix))] {item} y");
            assert_eq!(kept(&all), "x ; y", "{item}");
        }
    }

    #[test]
    fn fields_and_arms_of_tests_are_left_out() {
        assert_eq!(
            kept("struct A { b: C, #[cfg(test)] d: E, f: G }"),
            "struct A { b : C , f : G }"
        );
        assert_eq!(
            kept("struct A { b: C, #[cfg(test)] d: E }"),
            "struct A { b : C , }"
        );
    }

    #[test]
    fn code_for_tests_and_others_stays() {
        for source in [
            "# [ cfg ( any ( test , a ) ) ] fn b ( ) { }",
            "# [ cfg ( not ( test ) ) ] fn b ( ) { }",
        ] {
            assert_eq!(kept(source), source);
        }
    }
}

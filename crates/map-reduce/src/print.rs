//! Terms in the form of Erlang's `~p`, with its line breaks: the form of most texts of Riak's
//! errors.
//!
//! A list or a tuple that fits into the rest of the line is printed on it. Otherwise its elements
//! are below each other; those that are neither a list nor a tuple share a line with the element
//! before them while they fit. The elements of a tuple that begins with a name are behind the name.

use crate::term::Term;

/// The length of a line, in characters.
const LINE_CHARACTERS: usize = 80;

/// The most bytes that are printed of a term: errors go to clients.
const PRINTED_BYTES_MAX: usize = 64 * 1024;

/// The term in the form of `~p` from the start of a line.
pub(crate) fn printed(term: &Term) -> String {
    let mut line = flat(term);
    if line.len() > PRINTED_BYTES_MAX {
        line.truncate(line.floor_char_boundary(PRINTED_BYTES_MAX));
        return line + "...";
    }
    let mut out = String::new();
    put(&mut out, term, 1, 0);
    out
}

/// The term on one line, however long.
pub(crate) fn flat(term: &Term) -> String {
    match term {
        Term::Integer(number) => number.to_string(),
        Term::Float(number) => format!("{number:?}"),
        Term::Atom(name) => name.to_string(),
        Term::Tuple(elements) => format!("{{{}}}", joined(elements)),
        Term::List(elements) => flat_list(term, elements),
        Term::Binary(bytes) => flat_binary(bytes),
        Term::Object(object) => format!(
            "{{r_object,{},{}}}",
            flat_binary(&object.bucket.bucket),
            flat_binary(&object.key)
        ),
    }
}

fn flat_list(term: &Term, elements: &[Term]) -> String {
    match term.as_characters() {
        Some(characters) if is_text(&characters) => quoted(&characters),
        _ => format!("[{}]", joined(elements)),
    }
}

fn flat_binary(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "<<>>".to_string();
    }
    if is_text(bytes) {
        return format!("<<{}>>", quoted(bytes));
    }
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    format!("<<{}>>", numbers.join(","))
}

fn joined(elements: &[Term]) -> String {
    let elements: Vec<String> = elements.iter().map(flat).collect();
    elements.join(",")
}

/// True if Erlang shows the bytes as text: printable ones of Latin-1, and blanks.
fn is_text(bytes: &[u8]) -> bool {
    let printable = |it: &u8| matches!(it, 8..=13 | 27 | 32..=126 | 160..=255);
    !bytes.is_empty() && bytes.iter().all(printable)
}

fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            8 => out.push_str("\\b"),
            11 => out.push_str("\\v"),
            12 => out.push_str("\\f"),
            27 => out.push_str("\\e"),
            _ => out.push(char::from(*byte)),
        }
    }
    out.push('"');
    out
}

/// The elements between which a term may be broken, and the term's brackets.
fn broken(term: &Term) -> Option<(char, &[Term], char)> {
    match term {
        Term::Tuple(elements) if !elements.is_empty() => Some(('{', elements, '}')),
        Term::List(elements)
            if !elements.is_empty() && !term.as_characters().is_some_and(|it| is_text(&it)) =>
        {
            Some(('[', elements, ']'))
        }
        _ => None,
    }
}

/// Prints from a column on; `behind` characters must fit behind it.
fn put(out: &mut String, term: &Term, column: usize, behind: usize) {
    let line = flat(term);
    let parts = broken(term);
    let Some((open, elements, close)) = parts else {
        out.push_str(&line);
        return;
    };
    if column + behind + line.chars().count() < LINE_CHARACTERS {
        out.push_str(&line);
        return;
    }
    out.push(open);
    match elements {
        [Term::Atom(tag), rest @ ..] if open == '{' && !rest.is_empty() => {
            out.push_str(tag);
            out.push(',');
            put_elements(out, rest, column + tag.chars().count() + 2, behind + 1);
        }
        _ => put_elements(out, elements, column + 1, behind + 1),
    }
    out.push(close);
}

fn put_elements(out: &mut String, elements: &[Term], column: usize, behind: usize) {
    let mut at = column;
    for (index, element) in elements.iter().enumerate() {
        let behind = if index + 1 == elements.len() {
            behind
        } else {
            1
        };
        let atomic = broken(element).is_none();
        let width = flat(element).chars().count();
        if index > 0 {
            out.push(',');
            at += 1;
        }
        let shares = atomic && at + width + behind < LINE_CHARACTERS;
        if index > 0 && !shares {
            out.push('\n');
            out.push_str(&" ".repeat(column - 1));
            at = column;
        }
        put(out, element, at, behind);
        at = if atomic { at + width } else { LINE_CHARACTERS };
    }
}

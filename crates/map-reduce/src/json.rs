//! JSON to terms and back, in the manner of Riak's JSON library.
//!
//! An object of JSON is the term `{struct, [{Name, Value}, ...]}`. Terms that have no form in JSON
//! are an error, as in Riak: objects, tuples, and binaries that are not UTF-8. A list whose first
//! element is a pair is written as an object.

use std::fmt::Write as _;

use serde_json::Value;

use crate::print::flat;
use crate::term::Term;

/// A term without a form in JSON, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{{json_encode,{{bad_term,{term}}}}}")]
pub(crate) struct NoJson {
    /// The part, as Erlang prints it.
    pub(crate) term: String,
}

/// The term of a value.
pub(crate) fn term_of_json(value: &Value) -> Term {
    match value {
        Value::Null => Term::atom("null"),
        Value::Bool(value) => Term::boolean(*value),
        Value::Number(number) => term_of_number(number),
        Value::String(text) => Term::text(text),
        Value::Array(elements) => Term::List(elements.iter().map(term_of_json).collect()),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                Term::pair(Term::text(name), term_of_json(value))
            };
            let members = members.iter().map(member).collect();
            Term::pair(Term::atom("struct"), Term::List(members))
        }
    }
}

fn term_of_number(number: &serde_json::Number) -> Term {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
        .map_or_else(
            || Term::Float(number.as_f64().unwrap_or_default()),
            Term::Integer,
        )
}

/// The members of the term of a JSON object.
pub(crate) fn members_of(term: &Term) -> Option<&[Term]> {
    match term {
        Term::Tuple(parts) => match parts.as_slice() {
            [tag, Term::List(members)] if tag.is_atom("struct") => Some(members),
            _ => None,
        },
        _ => None,
    }
}

/// The JSON of a term, without blanks and in ASCII.
pub(crate) fn json_of_term(term: &Term) -> Result<String, NoJson> {
    let mut out = String::new();
    put(&mut out, term)?;
    Ok(out)
}

fn put(out: &mut String, term: &Term) -> Result<(), NoJson> {
    match term {
        Term::Integer(number) => out.push_str(&number.to_string()),
        Term::Float(number) => out.push_str(&format!("{number:?}")),
        Term::Atom(name) if matches!(name.as_ref(), "true" | "false" | "null") => {
            out.push_str(name);
        }
        Term::Atom(name) => put_string(out, name),
        Term::Binary(bytes) => put_string(out, std::str::from_utf8(bytes).map_err(|_| none(term))?),
        Term::List(elements) => return put_list(out, elements),
        Term::Tuple(_) => return put_members(out, members_of(term).ok_or_else(|| none(term))?),
        Term::Object(_) => return Err(none(term)),
    }
    Ok(())
}

fn none(term: &Term) -> NoJson {
    NoJson { term: flat(term) }
}

fn put_list(out: &mut String, elements: &[Term]) -> Result<(), NoJson> {
    if elements.first().is_some_and(is_member) {
        return put_members(out, elements);
    }
    out.push('[');
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        put(out, element)?;
    }
    out.push(']');
    Ok(())
}

/// True if a list that begins with this term is written as an object.
fn is_member(term: &Term) -> bool {
    matches!(term, Term::Tuple(parts) if parts.len() == 2 && !parts[0].is_atom("struct"))
}

fn put_members(out: &mut String, members: &[Term]) -> Result<(), NoJson> {
    out.push('{');
    for (index, member) in members.iter().enumerate() {
        let Term::Tuple(parts) = member else {
            return Err(none(member));
        };
        let [name, value] = parts.as_slice() else {
            return Err(none(member));
        };
        if index > 0 {
            out.push(',');
        }
        put_name(out, name)?;
        out.push(':');
        put(out, value)?;
    }
    out.push('}');
    Ok(())
}

fn put_name(out: &mut String, name: &Term) -> Result<(), NoJson> {
    match name {
        Term::Integer(number) => put_string(out, &number.to_string()),
        Term::Atom(text) => put_string(out, text),
        Term::Binary(bytes) => put_string(out, std::str::from_utf8(bytes).map_err(|_| none(name))?),
        _ => return Err(none(name)),
    }
    Ok(())
}

/// A text with its quotes; characters beyond ASCII are escaped.
pub(crate) fn put_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(character),
            _ => put_escaped(out, character),
        }
    }
    out.push('"');
}

fn put_escaped(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

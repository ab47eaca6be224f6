//! JSON as a nested list of pieces, as Riak's JSON library makes it and Riak's errors show it.

use serde_json::Value;

use crate::json::put_string;
use crate::term::Term;

/// The pieces of a value.
pub(crate) fn iolist_of_json(value: &Value) -> Term {
    match value {
        Value::Null => Term::text("null"),
        Value::Bool(value) => Term::text(if *value { "true" } else { "false" }),
        Value::Number(number) => Term::characters(number.to_string().as_bytes()),
        Value::String(text) => of_string(text),
        Value::Array(elements) if elements.is_empty() => Term::text("[]"),
        Value::Array(elements) => {
            let elements = elements.iter().map(|it| vec![iolist_of_json(it)]).collect();
            bracketed(b'[', elements, b']')
        }
        Value::Object(members) if members.is_empty() => Term::text("{}"),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                vec![of_string(name), character(b':'), iolist_of_json(value)]
            };
            bracketed(b'{', members.iter().map(member).collect(), b'}')
        }
    }
}

fn character(byte: u8) -> Term {
    Term::Integer(i128::from(byte))
}

fn bracketed(open: u8, parts: Vec<Vec<Term>>, close: u8) -> Term {
    let mut pieces = vec![character(open)];
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            pieces.push(character(b','));
        }
        pieces.extend(part);
    }
    pieces.push(character(close));
    Term::List(pieces)
}

fn of_string(text: &str) -> Term {
    let mut escaped = String::new();
    put_string(&mut escaped, text);
    let inner = &escaped[1..escaped.len() - 1];
    let inner = if inner == text {
        Term::text(text)
    } else {
        Term::characters(inner.as_bytes())
    };
    Term::List(vec![character(b'"'), inner, character(b'"')])
}

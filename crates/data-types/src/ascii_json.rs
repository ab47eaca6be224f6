//! JSON as Riak prints it: without blanks, and everything beyond ASCII escaped.

use std::fmt::Write as _;

use serde_json::Value;

/// Appends a string with its quotes.
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

/// Appends any value.
pub(crate) fn put_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => put_string(out, text),
        Value::Array(elements) => put_list(out, "[", elements, "]", put_value),
        Value::Object(members) => put_list(out, "{", members, "}", |out, (name, value)| {
            put_string(out, name);
            out.push(':');
            put_value(out, value);
        }),
    }
}

/// Appends items with commas between them.
pub(crate) fn put_list<T>(
    out: &mut String,
    open: &str,
    items: impl IntoIterator<Item = T>,
    close: &str,
    mut put: impl FnMut(&mut String, T),
) {
    out.push_str(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        put(out, item);
    }
    out.push_str(close);
}

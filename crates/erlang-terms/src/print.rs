//! Prints terms: readably (`Display`, which the parser reads back) and plainly (Erlang's `~w`).

use std::fmt;

use crate::lex::needs_quotes;
use crate::term::Term;

impl fmt::Display for Term {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_term(formatter, self, Style::Readable)
    }
}

impl Term {
    /// The term in the form of Erlang's `~w`: strings and binaries as numbers.
    pub fn to_plain_text(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = write_term(&mut text, self, Style::Plain);
        text
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Readable,
    Plain,
}

fn write_term(out: &mut dyn fmt::Write, term: &Term, style: Style) -> fmt::Result {
    match term {
        Term::Atom(name) if needs_quotes(name) => write_quoted(out, name, '\''),
        Term::Atom(name) => out.write_str(name),
        Term::Integer(value) => write!(out, "{value}"),
        Term::Float(value) => write_float(out, *value),
        Term::String(text) if style == Style::Readable => write_quoted(out, text, '"'),
        Term::String(text) => {
            let codes: Vec<Term> = text
                .chars()
                .map(|letter| Term::Integer(i128::from(u32::from(letter))))
                .collect();
            write_sequence(out, &codes, ("[", "]"), style)
        }
        Term::Binary(bytes) => write_binary(out, bytes, style),
        Term::List(elements) => write_sequence(out, elements, ("[", "]"), style),
        Term::Tuple(elements) => write_sequence(out, elements, ("{", "}"), style),
        Term::Map(pairs) => write_map(out, pairs, style),
    }
}

fn write_sequence(
    out: &mut dyn fmt::Write,
    elements: &[Term],
    (open, close): (&str, &str),
    style: Style,
) -> fmt::Result {
    out.write_str(open)?;
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            out.write_char(',')?;
        }
        write_term(out, element, style)?;
    }
    out.write_str(close)
}

fn write_map(out: &mut dyn fmt::Write, pairs: &[(Term, Term)], style: Style) -> fmt::Result {
    out.write_str("#{")?;
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.write_char(',')?;
        }
        write_term(out, key, style)?;
        out.write_str(" => ")?;
        write_term(out, value, style)?;
    }
    out.write_char('}')
}

fn write_binary(out: &mut dyn fmt::Write, bytes: &[u8], style: Style) -> fmt::Result {
    out.write_str("<<")?;
    let printable = bytes.iter().all(|byte| (32..127).contains(byte));
    if style == Style::Readable && printable && !bytes.is_empty() {
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        write_quoted(out, &text, '"')?;
    } else {
        for (index, byte) in bytes.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(out, "{comma}{byte}")?;
        }
    }
    out.write_str(">>")
}

/// Shortest digits that read back to the same value, always with a fraction.
fn write_float(out: &mut dyn fmt::Write, value: f64) -> fmt::Result {
    let text = format!("{value:?}");
    match text.split_once('e') {
        Some((digits, exponent)) if !digits.contains('.') => {
            write!(out, "{digits}.0e{exponent}")
        }
        _ => out.write_str(&text),
    }
}

fn write_quoted(out: &mut dyn fmt::Write, text: &str, quote: char) -> fmt::Result {
    out.write_char(quote)?;
    for character in text.chars() {
        match character {
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            _ if character == quote => write!(out, "\\{quote}")?,
            _ if character.is_control() => write!(out, "\\x{{{:x}}}", u32::from(character))?,
            _ => out.write_char(character)?,
        }
    }
    out.write_char(quote)
}

//! The reasons why an operation was refused, in Riak's words.

use std::fmt::Write as _;

use crate::operation::{Missing, OperationError};

impl Missing {
    /// The Erlang term by which Riak names a missing target, such as
    /// `{precondition,{not_present,<<"x">>}}`.
    pub fn riak_text(&self) -> String {
        let missing = match self {
            Self::Member(member) => binary_text(member),
            Self::Field(field) => {
                format!("{{{},{}}}", binary_text(&field.name), field.riak_module())
            }
        };
        format!("{{precondition,{{not_present,{missing}}}}}")
    }
}

impl OperationError {
    /// Riak's text, or our own where Riak has none.
    pub fn riak_text(&self) -> String {
        match self {
            Self::NotPresent(missing) => missing.riak_text(),
            Self::CounterRange | Self::TooDeep | Self::Kind { .. } => self.to_string(),
        }
    }
}

/// A binary as Erlang prints it: as text if all of it is printable, otherwise as numbers.
fn binary_text(bytes: &[u8]) -> String {
    let is_printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t');
    let mut out = String::from("<<");
    if !bytes.is_empty() && bytes.iter().all(is_printable) {
        out.push('"');
        for byte in bytes {
            match byte {
                b'"' => out.push_str("\\\""),
                b'\\' => out.push_str("\\\\"),
                b'\n' => out.push_str("\\n"),
                b'\r' => out.push_str("\\r"),
                b'\t' => out.push_str("\\t"),
                byte => out.push(char::from(*byte)),
            }
        }
        out.push('"');
    } else {
        for (index, byte) in bytes.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(out, "{comma}{byte}");
        }
    }
    out.push_str(">>");
    out
}

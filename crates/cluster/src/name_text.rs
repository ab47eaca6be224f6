//! Names of arbitrary bytes as exact text: printable bytes are kept, all others are escaped.

use std::fmt::Write;

/// Keeps printable ASCII except `%`; writes all other bytes as `%` and two hexadecimal digits.
pub(crate) fn to_text(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name {
        if (b' '..=b'~').contains(byte) && *byte != b'%' {
            text.push(char::from(*byte));
        } else {
            // Writing into a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The bytes of a text made by [`to_text`]; `None` for any other text.
pub(crate) fn from_text(text: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            name.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            name.push(*first);
            rest = after;
        }
    }
    // A name has one text only: `to_text` never writes another spelling.
    (to_text(&name) == text).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_text(&to_text(&all)), Some(all));
        assert_eq!(to_text("50% caf\u{e9}".as_bytes()), "50%25 caf%C3%A9");
    }

    #[test]
    fn what_was_not_written_here_is_refused() {
        for text in ["%", "%4", "%4G", "%+1", "%41", "%c3", "\u{e9}", "\n"] {
            assert_eq!(from_text(text), None, "{text:?}");
        }
    }
}

//! Percent- and plus-encoding of paths, link pieces and query strings.
//!
//! An escape that is not two hex digits stands for itself, as in Riak: no input is an error.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// Everything but letters, digits, `-`, `.`, `_` and `~` is escaped.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Decodes `%XX`.
pub fn decode_percent(text: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(text).into()
}

/// Decodes `%XX`, and `+` as a space: the form of query strings, and of Riak's paths and links.
pub fn decode_percent_and_plus(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return decode_percent(text);
    }
    let spaced: Vec<u8> = text
        .iter()
        .map(|&byte| if byte == b'+' { b' ' } else { byte })
        .collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// Encodes for a path segment: a space becomes `%20`, so that either decoder reads it.
pub fn encode_percent(bytes: &[u8]) -> String {
    percent_encode(bytes, RESERVED).to_string()
}

/// Appends what [`encode_percent`] returns.
pub(super) fn push_percent(bytes: &[u8], target: &mut String) {
    target.extend(percent_encode(bytes, RESERVED));
}

/// Encodes for a link piece: a space becomes `+`.
pub fn encode_percent_plus(bytes: &[u8]) -> String {
    let mut encoded = String::with_capacity(bytes.len());
    push_percent_plus(bytes, &mut encoded);
    encoded
}

/// Appends what [`encode_percent_plus`] returns.
pub(super) fn push_percent_plus(bytes: &[u8], target: &mut String) {
    for (index, word) in bytes.split(|&byte| byte == b' ').enumerate() {
        if index > 0 {
            target.push('+');
        }
        target.extend(percent_encode(word, RESERVED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_plus_and_broken_escapes_decode_as_in_riak() {
        assert_eq!(&*decode_percent(b"a%20b%2Fc"), b"a b/c");
        assert_eq!(&*decode_percent(b"a+b"), b"a+b");
        assert_eq!(&*decode_percent_and_plus(b"a+b%2B"), b"a b+");
        assert_eq!(&*decode_percent(b"100%zz%4"), b"100%zz%4");
    }

    #[test]
    fn every_byte_survives_encoding() {
        let every_byte: Vec<u8> = (0..=255).collect();
        assert_eq!(
            &*decode_percent_and_plus(encode_percent(&every_byte).as_bytes()),
            every_byte
        );
        let plus = encode_percent_plus(&every_byte);
        assert_eq!(&*decode_percent_and_plus(plus.as_bytes()), every_byte);
        assert_eq!(encode_percent_plus(b"a b/c~.-_\xff"), "a+b%2Fc~.-_%FF");
    }
}

//! User metadata: `X-Riak-Meta-*` headers.
//!
//! Riak keeps the whole header name as the metadata key, spelled the way its HTTP library spells names. It
//! uses any stored key as a header name without a change: `Location` stored through protocol buffers becomes
//! the answer's `Location`. Here a key without the prefix gets it (`object_headers.rs`), and the
//! exact header has the original key (`exact.rs`).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Prefix of user metadata headers, in lower case.
pub const USER_METADATA_HEADER_PREFIX: &str = "x-riak-meta-";

/// Bytes that are escaped in a header's name: those that are invalid in names, and the escape sign.
const NO_NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// The metadata key of a header, or `None` if it is not a user metadata header.
///
/// The key is the whole name with every word capitalised: `X-Riak-Meta-Color`.
pub fn user_metadata_key(header_name: &str) -> Option<String> {
    let prefix = header_name.get(..USER_METADATA_HEADER_PREFIX.len())?;
    if !prefix.eq_ignore_ascii_case(USER_METADATA_HEADER_PREFIX) {
        return None;
    }
    let mut at_word_start = true;
    let capitalised = header_name.chars().map(|letter| {
        let spelled = if at_word_start {
            letter.to_ascii_uppercase()
        } else {
            letter.to_ascii_lowercase()
        };
        at_word_start = letter == '-';
        spelled
    });
    Some(capitalised.collect())
}

/// The value as it may appear in a header, or `None` if it has line breaks or control bytes.
pub fn metadata_header_value(value: &[u8]) -> Option<&[u8]> {
    let is_printable = |&byte: &u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    value.iter().all(is_printable).then_some(value)
}

/// True if the value stays the same in a header. Spaces at the ends are not part of a header's
/// value.
pub(super) fn is_plain_value(value: &[u8]) -> bool {
    let is_padding = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_padded = is_padding(value.first()) || is_padding(value.last());
    !is_padded && metadata_header_value(value).is_some()
}

/// True if a header may have this name.
pub(super) fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_token_byte)
}

/// A valid header name that represents these bytes.
pub(super) fn escape_name(name: &[u8]) -> String {
    percent_encode(name, NO_NAME).to_string()
}

/// The value for a header: unchanged if it is valid there, else with the invalid bytes escaped.
pub(super) fn escape_value(value: &[u8]) -> Vec<u8> {
    if is_plain_value(value) {
        return value.to_vec();
    }
    let mut escaped = Vec::with_capacity(value.len() + 8);
    for (position, &byte) in value.iter().enumerate() {
        let is_end = position == 0 || position + 1 == value.len();
        let is_escaped = byte == b'%' || byte.is_ascii_control() || byte == b' ' && is_end;
        match is_escaped {
            true => escaped.extend(format!("%{byte:02X}").bytes()),
            false => escaped.push(byte),
        }
    }
    escaped
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_whole_header_names_capitalised_by_word() {
        assert_eq!(
            user_metadata_key("x-riak-meta-foo").as_deref(),
            Some("X-Riak-Meta-Foo")
        );
        assert_eq!(
            user_metadata_key("X-RIAK-META-A-bC").as_deref(),
            Some("X-Riak-Meta-A-Bc")
        );
        assert_eq!(user_metadata_key("x-riak-vclock"), None);
        assert_eq!(user_metadata_key("x-riak-met\u{e4}-foo"), None);
    }

    #[test]
    fn values_that_no_header_may_hold_are_escaped() {
        assert_eq!(
            metadata_header_value(b"caf\xc3\xa9\t1"),
            Some(&b"caf\xc3\xa9\t1"[..])
        );
        assert_eq!(metadata_header_value(b"a\r\nSet-Cookie: b"), None);
        for plain in [&b"100 %"[..], b"", b"\xff", b"a b"] {
            assert_eq!(escape_value(plain), plain);
        }
        assert_eq!(escape_value(b" 1 %\r\n\t."), b"%201 %25%0D%0A%09.");
        assert_eq!(escape_value(b"a\0\x7f "), b"a%00%7F%20");
    }

    #[test]
    fn any_name_can_be_escaped() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let name = escape_name(&every_byte);
        assert!(is_token(&name));
        assert_eq!(&*super::super::decode_percent(name.as_bytes()), every_byte);
        assert_eq!(escape_name(b"two words"), "two%20words");
    }
}

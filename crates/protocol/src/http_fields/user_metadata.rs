//! User metadata: `X-Riak-Meta-*` headers in, headers named like the stored key out.
//!
//! Riak keeps the whole header name as the metadata key, spelled the way its HTTP library spells
//! names, and writes a stored key back as a header name as it is. So `foo` stored through protocol
//! buffers comes out as the bare header `foo`. Keys are the client's, so that only names that
//! cannot change the meaning of an answer are let out.

/// Prefix of user metadata headers, in lower case.
pub const USER_METADATA_HEADER_PREFIX: &str = "x-riak-meta-";

/// Names that metadata may not take: they frame the answer, direct the connection, or are the
/// server's own statement about the object.
const OWNED_NAMES: [&str; 20] = [
    "allow",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "link",
    "location",
    "proxy-authenticate",
    "server",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
    "vary",
];

/// The metadata key of a header, or `None` if it is no user metadata header.
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

/// The header name under which a metadata key is answered, or `None` if the key cannot be one:
/// it is empty, holds a byte that names may not hold, or is a name of the server's own.
pub fn metadata_header_name(key: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(key).ok()?;
    let is_token = !name.is_empty() && name.bytes().all(is_token_byte);
    let is_owned = OWNED_NAMES
        .iter()
        .any(|owned| owned.eq_ignore_ascii_case(name))
        || name
            .get(..7)
            .is_some_and(|start| start.eq_ignore_ascii_case("x-riak-"))
            && user_metadata_key(name).is_none();
    (is_token && !is_owned).then_some(name)
}

/// The value as it may stand in a header, or `None` if it holds line breaks or control bytes.
pub fn metadata_header_value(value: &[u8]) -> Option<&[u8]> {
    let is_printable = |&byte: &u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    value.iter().all(is_printable).then_some(value)
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
    fn keys_that_would_change_the_answer_stay_inside() {
        assert_eq!(
            metadata_header_name(b"X-Riak-Meta-Foo"),
            Some("X-Riak-Meta-Foo")
        );
        assert_eq!(metadata_header_name(b"foo"), Some("foo"));
        for bad in [
            &b""[..],
            b"a b",
            b"a:",
            b"a\r\nb",
            b"\xff",
            b"Content-Length",
            b"X-Riak-Vclock",
        ] {
            assert_eq!(metadata_header_name(bad), None, "{bad:?}");
        }
        assert_eq!(
            metadata_header_value(b"caf\xc3\xa9\t1"),
            Some(&b"caf\xc3\xa9\t1"[..])
        );
        assert_eq!(metadata_header_value(b"a\r\nSet-Cookie: b"), None);
    }
}

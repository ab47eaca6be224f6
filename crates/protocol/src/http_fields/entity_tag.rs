//! Entity tags: `ETag`, `If-Match` and `If-None-Match`.

/// The tags of a conditional header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityTags {
    /// `*`: any object that exists.
    Any,
    /// The quoted tags, unquoted. Empty if the header held none, which matches nothing.
    List(Vec<Vec<u8>>),
}

impl EntityTags {
    /// Reads a header. Only quoted strings count, as in Riak; a weak tag counts like a strong one.
    pub fn parse(header: &[u8]) -> EntityTags {
        if header.trim_ascii() == b"*" {
            return EntityTags::Any;
        }
        let mut tags = Vec::new();
        let mut rest = header;
        while let Some(open) = rest.iter().position(|&byte| byte == b'"') {
            let Some((tag, after)) = unquote(&rest[open + 1..]) else {
                break; // the last quote is never closed
            };
            tags.push(tag);
            rest = after;
        }
        EntityTags::List(tags)
    }

    /// True if an object with this tag, unquoted, satisfies the header.
    pub fn matches(&self, entity_tag: &[u8]) -> bool {
        match self {
            EntityTags::Any => true,
            EntityTags::List(tags) => tags.iter().any(|tag| tag == entity_tag),
        }
    }
}

/// Quotes a tag for the `ETag` header.
///
/// Quotes and backslashes are escaped; bytes that are invalid in headers become `?`, since a tag
/// may be a client's.
pub fn format_entity_tag(tag: &[u8]) -> String {
    let mut quoted = String::with_capacity(tag.len() + 2);
    quoted.push('"');
    for &byte in tag {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}

/// The text up to the closing quote, and the rest behind it; backslashes escape.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut tag = Vec::new();
    let mut position = 0;
    while let Some(&byte) = text.get(position) {
        match byte {
            b'"' => return Some((tag, &text[position + 1..])),
            b'\\' => {
                tag.push(*text.get(position + 1)?);
                position += 2;
            }
            _ => {
                tag.push(byte);
                position += 1;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(tags: &[&[u8]]) -> EntityTags {
        EntityTags::List(tags.iter().map(|tag| tag.to_vec()).collect())
    }

    #[test]
    fn lists_stars_and_weak_tags_are_read() {
        assert_eq!(EntityTags::parse(b" * "), EntityTags::Any);
        assert_eq!(
            EntityTags::parse(br#""a", W/"b,c" ,"d\"e""#),
            list(&[b"a", b"b,c", b"d\"e"])
        );
        assert_eq!(EntityTags::parse(b"unquoted"), list(&[]));
        assert_eq!(EntityTags::parse(br#""a", "open\"#), list(&[b"a"]));
    }

    #[test]
    fn matching_compares_whole_tags() {
        assert!(EntityTags::parse(br#""x", "abc""#).matches(b"abc"));
        assert!(!EntityTags::parse(br#""abcd""#).matches(b"abc"));
        assert!(EntityTags::Any.matches(b"abc"));
        assert!(!list(&[]).matches(b""));
    }

    #[test]
    fn quoting_round_trips_what_a_header_may_hold() {
        assert_eq!(format_entity_tag(b"3iVdb7zn"), "\"3iVdb7zn\"");
        assert!(EntityTags::parse(format_entity_tag(br#"a"b\c"#).as_bytes()).matches(br#"a"b\c"#));
        assert_eq!(format_entity_tag(b"a\r\nb"), "\"a??b\"");
    }
}

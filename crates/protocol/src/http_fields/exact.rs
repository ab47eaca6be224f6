//! One header for all values that the other headers of an object cannot express.
//!
//! The metadata of an object are arbitrary bytes, which the protocol-buffer interface carries
//! unchanged. A header can express less: its name has only some ASCII characters and no case, and
//! its value has no line breaks, control characters or spaces at its ends. So the other headers
//! show an object as well as they can, and `X-Riak-Meta-Kvorum-Exact` has the differences from the
//! stored object. It is named like user metadata, because HTTP clients keep these and send them
//! back with an update. The server parses the header and does not store it.
//!
//! ```text
//! header = item *("," item)
//! item   = kind ":" piece *("=" piece)     pieces are percent-encoded
//!   n:SHOWN=NAME           X-Riak-Meta-SHOWN is the metadata NAME
//!   v:SHOWN=NAME=VALUE     the same; while the header is as it was sent, its value is VALUE
//!   u:SHOWN=NAME           the same; while it is empty, NAME has no value at all
//!   i:FIELD=VALUE          an index entry that no header can express
//!   l:BUCKET=KEY=TAG       a link that no header can express
//!   t:SHOWN=TYPE=CHARSET   while Content-Type is SHOWN, the media type and charset are these
//!   e:SHOWN=ENCODING       while Content-Encoding is SHOWN (empty: absent), it is ENCODING
//! ```
//!
//! An item whose header a client has changed is ignored: the new value is stored.

use bytes::Bytes;
use percent_encoding::percent_decode;

use super::link::Link;
use super::percent::push_percent;
use super::user_metadata::{escape_value, user_metadata_key};

/// The end of the header's name, behind `x-riak-meta-`, in lower case.
pub(super) const EXACT_SUFFIX: &str = "kvorum-exact";

/// The header's name, in lower case.
pub const EXACT_HEADER: &str = "x-riak-meta-kvorum-exact";

/// An exact header that cannot be read; the request is answered with 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("item {item:?} cannot be read")]
pub struct ExactError {
    /// The item; lossy if it was not text.
    item: String,
}

impl ExactError {
    /// The text of the 400 answer.
    pub fn response_text(&self) -> String {
        format!(
            "X-Riak-Meta-Kvorum-Exact: {self}; send the header back unchanged, or leave it out\n"
        )
    }
}

/// The header under construction.
#[derive(Debug, Default)]
pub(super) struct ExactWriter {
    header: String,
}

impl ExactWriter {
    pub(super) fn push(&mut self, kind: Kind, pieces: &[&[u8]]) {
        if !self.header.is_empty() {
            self.header.push(',');
        }
        self.header.extend([kind.letter(), ':']);
        for (position, piece) in pieces.iter().enumerate() {
            if position > 0 {
                self.header.push('=');
            }
            push_percent(piece, &mut self.header);
        }
    }

    /// The header; empty if the other headers express everything.
    pub(super) fn finish(self) -> String {
        self.header
    }
}

/// The subject of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Value,
    Valueless,
    Index,
    Link,
    ContentType,
    ContentEncoding,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Name,
        Self::Value,
        Self::Valueless,
        Self::Index,
        Self::Link,
        Self::ContentType,
        Self::ContentEncoding,
    ];

    fn letter(self) -> char {
        match self {
            Self::Name => 'n',
            Self::Value => 'v',
            Self::Valueless => 'u',
            Self::Index => 'i',
            Self::Link => 'l',
            Self::ContentType => 't',
            Self::ContentEncoding => 'e',
        }
    }
}

/// The header, taken apart. An empty one changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExactFields {
    names: Vec<ExactName>,
    indexes: Vec<(Bytes, Bytes)>,
    links: Vec<Link>,
    content_type: Option<[Bytes; 3]>,
    content_encoding: Option<[Bytes; 2]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ExactName {
    /// The end of the header's name, in lower case.
    shown: Bytes,
    name: Bytes,
    value: ExactValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExactValue {
    AsSent,
    Unsaid(Bytes),
    None,
}

impl ExactFields {
    /// Reads the header.
    ///
    /// # Errors
    /// [`ExactError`] with the first malformed item.
    pub fn parse(header: &[u8]) -> Result<Self, ExactError> {
        let mut fields = Self::default();
        for item in header.split(|&byte| byte == b',') {
            let item = item.trim_ascii();
            if !item.is_empty() && fields.take(item).is_none() {
                let item = String::from_utf8_lossy(item).into_owned();
                return Err(ExactError { item });
            }
        }
        Ok(fields)
    }

    fn take(&mut self, item: &[u8]) -> Option<()> {
        let [letter, b':', pieces @ ..] = item else {
            return None;
        };
        let is_meant = |kind: &Kind| kind.letter() == char::from(*letter);
        let kind = Kind::ALL.into_iter().find(is_meant)?;
        let pieces = pieces.split(|&byte| byte == b'=');
        let pieces: Vec<Bytes> = pieces
            .map(|piece| Bytes::from(percent_decode(piece).collect::<Vec<u8>>()))
            .collect();
        match (kind, pieces.as_slice()) {
            (Kind::Name, [shown, name]) => self.name(shown, name, ExactValue::AsSent),
            (Kind::Valueless, [shown, name]) => self.name(shown, name, ExactValue::None),
            (Kind::Value, [shown, name, value]) => {
                self.name(shown, name, ExactValue::Unsaid(value.clone()));
            }
            (Kind::Index, [field, value]) => self.indexes.push((field.clone(), value.clone())),
            (Kind::Link, [bucket, key, tag]) => self.links.push(Link {
                bucket: bucket.clone(),
                key: key.clone(),
                tag: tag.clone(),
            }),
            (Kind::ContentType, [shown, media_type, charset]) => {
                self.content_type = Some([shown.clone(), media_type.clone(), charset.clone()]);
            }
            (Kind::ContentEncoding, [shown, encoding]) => {
                self.content_encoding = Some([shown.clone(), encoding.clone()]);
            }
            _ => return None,
        }
        Some(())
    }

    fn name(&mut self, shown: &Bytes, name: &Bytes, value: ExactValue) {
        self.names.push(ExactName {
            shown: shown.to_ascii_lowercase().into(),
            name: name.clone(),
            value,
        });
    }

    /// The name and value of the user metadata in a header; `None` for a header without the prefix,
    /// and for the exact header itself.
    pub fn user_metadata(&self, header_name: &str, sent: Bytes) -> Option<(Bytes, Option<Bytes>)> {
        let plain = user_metadata_key(header_name)?;
        let suffix = plain[super::USER_METADATA_HEADER_PREFIX.len()..].to_ascii_lowercase();
        if suffix == EXACT_SUFFIX {
            return None;
        }
        let Some(exact) = self.names.iter().find(|exact| exact.shown == suffix) else {
            return Some((plain.into(), Some(sent)));
        };
        let value = match &exact.value {
            ExactValue::Unsaid(value) if escape_value(value) == sent => Some(value.clone()),
            ExactValue::None if sent.is_empty() => None,
            _ => Some(sent),
        };
        Some((exact.name.clone(), value))
    }

    /// Index entries, as field and value, that have no header of their own.
    pub fn indexes(&self) -> &[(Bytes, Bytes)] {
        &self.indexes
    }

    /// Links that are not in the `Link` header.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The media type and charset of a `Content-Type` that is unchanged since it was sent.
    pub fn content_type(&self, sent: &[u8]) -> Option<(&Bytes, &Bytes)> {
        let [shown, media_type, charset] = self.content_type.as_ref()?;
        (shown == sent).then_some((media_type, charset))
    }

    /// The encoding of a `Content-Encoding` that is unchanged since it was sent.
    pub fn content_encoding(&self, sent: Option<&[u8]>) -> Option<&Bytes> {
        let [shown, encoding] = self.content_encoding.as_ref()?;
        (shown == sent.unwrap_or_default()).then_some(encoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_whose_header_was_changed_says_nothing() {
        let header = b"v:note=note=a%0Ab, u:none=none ,t:a%2Fb=a%2Fb%3Bc=,e:=%01,n:x=X";
        let fields = ExactFields::parse(header).unwrap();
        let pair = |name: &str, sent: &'static str| {
            fields.user_metadata(&format!("x-riak-meta-{name}"), sent.into())
        };
        let said = |name: &'static str, value: &'static str| {
            Some((Bytes::from(name), Some(Bytes::from(value))))
        };
        assert_eq!(pair("note", "a%0Ab"), said("note", "a\nb"));
        assert_eq!(pair("note", "a%41b"), said("note", "a%41b"));
        assert_eq!(pair("None", ""), Some(("none".into(), None)));
        assert_eq!(pair("none", "x"), said("none", "x"));
        assert_eq!(pair("x", "1"), said("X", "1"));
        assert_eq!(pair("other", "1"), said("X-Riak-Meta-Other", "1"));
        assert_eq!(pair("kvorum-EXACT", "n:x=X"), None);
        let (media_type, charset) = fields.content_type(b"a/b").unwrap();
        assert_eq!((&media_type[..], &charset[..]), (&b"a/b;c"[..], &b""[..]));
        assert_eq!(fields.content_type(b"a/c"), None);
        assert_eq!(fields.content_encoding(None).unwrap(), "\x01");
        assert_eq!(fields.content_encoding(Some(b"gzip")), None);
    }

    #[test]
    fn items_that_are_none_are_refused_by_name() {
        for bad in ["x", "n", "n:", "n:a", "n:a=b=c", "q:a=b", "i:a", "l:a=b"] {
            let header = format!("n:a=b,{bad}");
            let error = ExactFields::parse(header.as_bytes()).unwrap_err();
            assert_eq!(error.item, bad);
            assert!(error.response_text().contains(bad));
        }
        assert_eq!(ExactFields::parse(b" ,"), Ok(ExactFields::default()));
    }
}

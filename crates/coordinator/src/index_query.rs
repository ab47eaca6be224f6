//! An index query from the words of a request, and the continuations of its pages.

use std::num::NonZeroU32;
use std::ops::Bound;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use kvorum_encoding::{Bucket, BucketType, ByteReader, Key, checksum, put_varint};
use kvorum_object::IndexOrder;
use kvorum_vnode::{IndexPosition, IndexScan, InvalidPattern, TermPattern};

/// The index of a bucket's keys.
const KEY_FIELD: &[u8] = b"$key";
/// The index of all keys of a bucket.
const BUCKET_FIELD: &[u8] = b"$bucket";

/// An index query.
#[derive(Clone, Debug)]
pub struct IndexQuery {
    /// The bucket's type.
    pub bucket_type: BucketType,
    /// The bucket.
    pub bucket: Bucket,
    /// The entries of one index.
    pub selection: IndexSelection,
    /// The form in which they are returned.
    pub options: IndexOptions,
}

/// The form in which the entries of a query are returned.
#[derive(Clone, Debug, Default)]
pub struct IndexOptions {
    /// A pattern that terms must match, or keys if the index is `$key` or `$bucket`.
    pub pattern: Option<TermPattern>,
    /// The most entries; implies an order.
    pub results_max: Option<NonZeroU32>,
    /// The end of an earlier query with [`IndexOptions::results_max`].
    pub after: Option<Continuation>,
    /// Entries come in order, even without a limit.
    pub is_sorted: bool,
    /// The deadline; `None` for never.
    pub timeout: Option<Duration>,
}

/// The values of a query, as the client gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexValues {
    /// One.
    Equal(Bytes),
    /// From the first to the last, inclusive.
    Range(Bytes, Bytes),
}

/// The wanted entries of one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSelection {
    pub(crate) scan: IndexScan,
    /// Order of the terms; `None` for keys.
    order: Option<IndexOrder>,
    is_range: bool,
}

/// The reason why a field and its values are not an index query. The texts are Riak's terms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexQueryError {
    /// The field ends in neither `_bin` nor `_int`.
    #[error("{{unknown_field_type,<<\"{}\">>}}", text(.0))]
    UnknownFieldType(Bytes),
    /// A value of an `_int` field is not a whole number.
    #[error(
        "{{field_parsing_failed,{{<<\"{}\">>,<<\"{}\">>}}}}",
        text(field),
        text(value)
    )]
    FieldParsing {
        /// The field.
        field: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Numbers have no pattern.
    #[error("Can not use term regular expression in integer query")]
    PatternOnNumbers,
    /// The pattern cannot be compiled.
    #[error("Invalid term regular expression {} : {reason}", text(pattern))]
    InvalidPattern {
        /// The pattern.
        pattern: Bytes,
        /// The reason.
        reason: String,
    },
    /// The continuation was not made by a server of this kind.
    #[error("invalid_continuation")]
    InvalidContinuation,
}

impl IndexSelection {
    /// Reads a field's name and values. `$bucket` selects the whole bucket, whatever the values.
    pub fn new(field: &[u8], values: &IndexValues) -> Result<Self, IndexQueryError> {
        let field = Bytes::from(field.to_ascii_lowercase());
        let is_range = matches!(values, IndexValues::Range(..));
        let included =
            |from: &Bytes, to: &Bytes| (Bound::Included(from.clone()), Bound::Included(to.clone()));
        let (first, last) = match values {
            IndexValues::Equal(value) => (value, value),
            IndexValues::Range(first, last) => (first, last),
        };
        if field == BUCKET_FIELD || field == KEY_FIELD {
            let (from, to) = if field == KEY_FIELD {
                included(first, last)
            } else {
                (Bound::Unbounded, Bound::Unbounded)
            };
            return Ok(Self {
                scan: IndexScan::Keys { from, to },
                order: None,
                is_range,
            });
        }
        let Some(order) = IndexOrder::of_field(&field) else {
            return Err(IndexQueryError::UnknownFieldType(field));
        };
        let term = |value: &Bytes| {
            order
                .term_of(value)
                .ok_or_else(|| IndexQueryError::FieldParsing {
                    field: field.clone(),
                    value: value.clone(),
                })
        };
        let (from, to) = included(&term(first)?, &term(last)?);
        Ok(Self {
            scan: IndexScan::Terms { field, from, to },
            order: Some(order),
            is_range,
        })
    }

    /// All keys of a bucket from one on, up to another.
    pub fn keys(from: Bound<Bytes>, to: Bound<Bytes>) -> Self {
        Self {
            scan: IndexScan::Keys { from, to },
            order: None,
            is_range: true,
        }
    }

    /// True when results can have terms: for ranges of terms.
    pub fn has_terms(&self) -> bool {
        self.order.is_some() && self.is_range
    }

    /// The pattern of a query on these entries.
    pub fn pattern(&self, text: &Bytes) -> Result<TermPattern, IndexQueryError> {
        if self.order == Some(IndexOrder::Numbers) {
            return Err(IndexQueryError::PatternOnNumbers);
        }
        let invalid = |reason| IndexQueryError::InvalidPattern {
            pattern: text.clone(),
            reason,
        };
        let text = std::str::from_utf8(text).map_err(|error| invalid(error.to_string()))?;
        TermPattern::new(text).map_err(|InvalidPattern { reason }| invalid(reason))
    }

    /// The value of a term, as clients see it.
    pub(crate) fn value_of(&self, term: &Bytes) -> Bytes {
        self.order
            .map_or_else(|| term.clone(), |order| order.value_of(term))
    }

    /// True when the range can have no entry.
    pub(crate) fn is_empty(&self) -> bool {
        let (IndexScan::Keys { from, to } | IndexScan::Terms { from, to, .. }) = &self.scan;
        match (from, to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
            | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
            _ => false,
        }
    }
}

/// The end of a page of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation(pub(crate) IndexPosition);

const CONTINUATION_VERSION: u8 = 1;

impl Continuation {
    /// The text for clients: URL-safe base64 of
    ///
    /// ```text
    /// version   u8   1
    /// term, key      varint length, bytes; twice
    /// checksum  u32  CRC-32C of what is in front, little-endian
    /// ```
    pub fn to_text(&self) -> String {
        let mut bytes = vec![CONTINUATION_VERSION];
        for part in [&self.0.term[..], self.0.key.as_bytes()] {
            put_varint(&mut bytes, part.len() as u64);
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads what [`Continuation::to_text`] writes.
    ///
    /// # Errors
    /// [`IndexQueryError::InvalidContinuation`] for anything else.
    pub fn parse(text: &[u8]) -> Result<Self, IndexQueryError> {
        let position = URL_SAFE_NO_PAD
            .decode(text)
            .ok()
            .and_then(|it| position_of(&it));
        position
            .map(Self)
            .ok_or(IndexQueryError::InvalidContinuation)
    }
}

fn position_of(bytes: &[u8]) -> Option<IndexPosition> {
    let (content, sum) = bytes.split_last_chunk::<4>()?;
    if checksum(content) != u32::from_le_bytes(*sum) {
        return None;
    }
    let mut reader = ByteReader::new(content);
    let version = reader.u8().ok()?;
    let term = Bytes::copy_from_slice(reader.take_prefixed().ok()?);
    let key = Key::new(reader.take_prefixed().ok()?.to_vec());
    let is_whole = reader.is_empty() && version == CONTINUATION_VERSION;
    is_whole.then_some(IndexPosition { term, key })
}

fn text(bytes: &Bytes) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(field: &str, values: &IndexValues) -> Result<IndexSelection, IndexQueryError> {
        IndexSelection::new(field.as_bytes(), values)
    }

    #[test]
    fn fields_are_read_without_regard_to_case_and_refused_in_riaks_words() {
        let equal = |value: &'static str| IndexValues::Equal(value.into());
        assert_eq!(
            selection("Age_INT", &equal("07")),
            selection("age_int", &equal("7"))
        );
        let refused = |field, value| selection(field, &equal(value)).unwrap_err().to_string();
        assert_eq!(refused("color", "x"), "{unknown_field_type,<<\"color\">>}");
        assert_eq!(
            refused("a_int", "x"),
            "{field_parsing_failed,{<<\"a_int\">>,<<\"x\">>}}"
        );
        for field in ["$bucket", "$key"] {
            assert!(!selection(field, &equal("x")).unwrap().has_terms());
        }
        let range = IndexValues::Range("-2".into(), "-10".into());
        let range = selection("a_int", &range).unwrap();
        assert!(range.has_terms() && range.is_empty());
        assert!(!selection("a_int", &equal("1")).unwrap().has_terms());
    }

    #[test]
    fn patterns_are_for_text() {
        let equal = IndexValues::Equal("1".into());
        let numbers = selection("a_int", &equal).unwrap();
        assert_eq!(
            numbers.pattern(&"a".into()),
            Err(IndexQueryError::PatternOnNumbers)
        );
        let words = selection("a_bin", &equal).unwrap();
        assert!(words.pattern(&"a+".into()).is_ok());
        let refused = words.pattern(&"a(".into()).unwrap_err().to_string();
        assert!(
            refused.starts_with("Invalid term regular expression a( : "),
            "{refused}"
        );
        assert!(words.pattern(&Bytes::from_static(b"\xff")).is_err());
    }

    #[test]
    fn a_continuation_returns_and_garbage_does_not() {
        let continuation = Continuation(IndexPosition {
            term: Bytes::from_static(b"\0term\xff"),
            key: Key::from("key"),
        });
        let text = continuation.to_text();
        assert_eq!(Continuation::parse(text.as_bytes()), Ok(continuation));
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            assert!(Continuation::parse(&other).is_err(), "{at}");
            assert!(Continuation::parse(&text.as_bytes()[..at]).is_err(), "{at}");
        }
    }
}

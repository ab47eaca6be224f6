//! Metadata of a Riak object: a dictionary whose known names are imported.

use bytes::Bytes;
use kvorum_encoding::{Address, Bucket, BucketType, Key};
use kvorum_erlang_terms::external_term::Term;

use crate::version_vector::RiakDot;

/// Metadata of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RiakMetadata {
    /// Time of writing, in microseconds since the Unix epoch; 0 if Riak did not record it.
    pub last_modified_micros: u64,
    /// Riak's tag of the version; empty for none.
    pub vtag: Bytes,
    /// True for a tombstone.
    pub deleted: bool,
    /// The media type; empty for none.
    pub content_type: Bytes,
    /// The character set; empty for none.
    pub charset: Bytes,
    /// The content encoding; empty for none.
    pub content_encoding: Bytes,
    /// Links to other objects.
    pub links: Vec<RiakLink>,
    /// The client's own pairs.
    pub user_metadata: Vec<(Bytes, Bytes)>,
    /// Secondary index entries; integers as decimal text.
    pub indexes: Vec<(Bytes, Bytes)>,
    /// The write that made this version, if the bucket kept dots.
    pub dot: Option<RiakDot>,
    /// Number of entries of unknown names.
    pub not_understood: u32,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RiakLink {
    /// True if the link names a bucket type, which our links cannot.
    pub is_typed: bool,
    /// The bucket linked to.
    pub bucket: Bytes,
    /// The key linked to.
    pub key: Bytes,
    /// The tag.
    pub tag: Bytes,
}

impl RiakMetadata {
    /// Reads an Erlang `dict`:
    ///
    /// ```text
    /// {dict, Size, N, MaxN, Bso, ExpSize, ConSize, Empty, Segments}
    /// ```
    ///
    /// where `Segments` is a tuple of tuples of lists of cells `[Name|Value]`.
    pub(crate) fn from_dictionary(term: Term) -> Option<Self> {
        let Term::Tuple(mut fields) = term else {
            return None;
        };
        if fields.len() != 9 || !fields[0].is_atom("dict") {
            return None;
        }
        let Some(Term::Tuple(segments)) = fields.pop() else {
            return None;
        };
        let mut metadata = Self::default();
        for segment in segments {
            let Term::Tuple(slots) = segment else {
                return None;
            };
            for slot in slots {
                for cell in slot.into_list()? {
                    let (name, value) = cell_parts(cell)?;
                    metadata.set(&name, value);
                }
            }
        }
        Some(metadata)
    }

    /// Sets the field of one entry.
    pub(crate) fn set(&mut self, name: &Term, value: Term) {
        let known = name.to_text().and_then(|name| self.set_known(&name, value));
        if known.is_none() {
            self.not_understood += 1;
        }
    }

    pub(crate) fn set_last_modified(&mut self, mega: u64, seconds: u64, micros: u64) {
        // The fields have at most 32 bits, so the sum stays far below 64 bits.
        let seconds = mega.saturating_mul(1_000_000).saturating_add(seconds);
        self.last_modified_micros = seconds.saturating_mul(1_000_000).saturating_add(micros);
    }

    fn set_known(&mut self, name: &[u8], value: Term) -> Option<()> {
        match name {
            b"content-type" => self.content_type = value.to_text()?,
            b"charset" => self.charset = optional_text(&value)?,
            b"content-encoding" => self.content_encoding = optional_text(&value)?,
            b"Links" => self.links = each(value, link)?,
            b"X-Riak-Meta" => self.user_metadata = each(value, text_pair)?,
            b"index" => self.indexes = each(value, index_entry)?,
            b"X-Riak-VTag" => self.vtag = value.to_text()?,
            b"X-Riak-Last-Modified" => {
                let parts: Option<Vec<u64>> = value.as_tuple()?.iter().map(Term::as_u64).collect();
                let [mega, seconds, micros] = parts?[..] else {
                    return None;
                };
                self.set_last_modified(mega, seconds, micros);
            }
            b"X-Riak-Deleted" => self.deleted = value.to_text()? != "false",
            // The form of the value, which the value itself also names.
            b"X-Riak-Val-Encoding" => {}
            b"dot" => self.dot = Some(RiakDot::from_term(&value)?),
            _ => return None,
        }
        Some(())
    }
}

/// The parts of a cell `[Name|Value]`. With a list as the value, the cell is one longer list.
fn cell_parts(cell: Term) -> Option<(Term, Term)> {
    match cell {
        Term::List(mut elements, tail) if !elements.is_empty() => {
            let name = elements.remove(0);
            let value = match (elements.is_empty(), tail) {
                (true, Some(tail)) => *tail,
                (_, tail) => Term::List(elements, tail),
            };
            Some((name, value))
        }
        _ => None,
    }
}

fn optional_text(value: &Term) -> Option<Bytes> {
    match value.is_atom("undefined") {
        true => Some(Bytes::new()),
        false => value.to_text(),
    }
}

fn each<T>(list: Term, read: impl Fn(&Term) -> Option<T>) -> Option<Vec<T>> {
    list.into_list()?.iter().map(read).collect()
}

fn text_pair(term: &Term) -> Option<(Bytes, Bytes)> {
    match term.as_tuple()? {
        [name, value] => Some((name.to_text()?, value.to_text()?)),
        _ => None,
    }
}

fn index_entry(term: &Term) -> Option<(Bytes, Bytes)> {
    match term.as_tuple()? {
        [field, Term::Integer(value)] => Some((field.to_text()?, value.to_string().into())),
        _ => text_pair(term),
    }
}

fn link(term: &Term) -> Option<RiakLink> {
    let [place, tag] = term.as_tuple()? else {
        return None;
    };
    let [bucket, key] = place.as_tuple()? else {
        return None;
    };
    let (bucket_type, bucket) = bucket_of_term(bucket)?;
    Some(RiakLink {
        is_typed: bucket_type.is_some(),
        bucket,
        key: key.to_text()?,
        tag: tag.to_text()?,
    })
}

/// The address with these names; `None` if one is empty.
pub fn address_of(bucket_type: Option<Bytes>, bucket: Bytes, key: Bytes) -> Option<Address> {
    let is_nameless =
        bucket.is_empty() || key.is_empty() || bucket_type.as_ref().is_some_and(Bytes::is_empty);
    (!is_nameless).then(|| Address {
        bucket_type: bucket_type.map_or_else(BucketType::default_type, BucketType::new),
        bucket: Bucket::new(bucket),
        key: Key::new(key),
    })
}

/// Type and bucket of a bucket as a term: a binary, or both in a tuple.
pub fn bucket_of_term(term: &Term) -> Option<(Option<Bytes>, Bytes)> {
    match term {
        Term::Binary(bucket) => Some((None, bucket.clone())),
        Term::Tuple(parts) => match &parts[..] {
            [Term::Binary(bucket_type), Term::Binary(bucket)] => {
                Some((Some(bucket_type.clone()), bucket.clone()))
            }
            _ => None,
        },
        _ => None,
    }
}

//! Replies that carry an object, laid out straight from it.
//!
//! The generated messages own their fields: filling one in would allocate a list of contents and
//! clone every name before a byte is written. Here lengths are added up first and the bytes written
//! once, and a large value is sent from where the store handed it out.

use bytes::{BufMut as _, BytesMut};
use kvorum_coordinator::Detail;
use kvorum_object::{Link, Metadata, Object, Sibling};
use kvorum_protocol::MessageCode;
use kvorum_protocol::frame::{FrameError, HEADER_BYTES};
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::output::Output;

/// Room made for a reply at once, large values apart, in bytes.
const RESERVED_BYTES_MAX: usize = 4096;

/// Whether values are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// They are.
    Whole,
    /// An empty one stands for each.
    Empty,
}

/// A reply to a get or a put: both have contents and vclock at the same places.
///
/// ```text
/// field  type        meaning
/// 1      RpbContent  a sibling, once for each
/// 2      bytes       vclock
/// 3      bytes       generated key; of puts alone
/// ```
pub(crate) struct ObjectReply<'a> {
    pub(crate) code: MessageCode,
    pub(crate) object: &'a Object,
    pub(crate) values: Values,
    pub(crate) key: Option<&'a [u8]>,
}

impl Values {
    /// What a get of this detail shows.
    pub(crate) fn of(detail: Detail) -> Self {
        match detail {
            Detail::Whole => Self::Whole,
            Detail::Head => Self::Empty,
        }
    }

    fn len_of(self, sibling: &Sibling) -> usize {
        match self {
            Self::Whole => sibling.value.len(),
            Self::Empty => 0,
        }
    }
}

impl ObjectReply<'_> {
    /// Appends the reply; after an error nothing is appended.
    pub(crate) fn encode(&self, output: &mut Output) -> Result<(), FrameError> {
        let vclock = self.object.clock().encode();
        let siblings = self.object.siblings();
        let contents: usize = siblings
            .iter()
            .map(|sibling| field_len(content_len(sibling, self.values)))
            .sum();
        let key_len = self.key.map_or(0, |key| field_len(key.len()));
        let payload_bytes = contents + field_len(vclock.len()) + key_len;
        let unsendable = |_| FrameError::Unsendable {
            code: self.code,
            payload_bytes,
        };
        let length = u32::try_from(1 + payload_bytes).map_err(unsendable)?;
        let buffer = output.buffer();
        buffer.reserve((HEADER_BYTES + payload_bytes).min(RESERVED_BYTES_MAX));
        buffer.put_u32(length);
        buffer.put_u8(self.code.0);
        for sibling in siblings {
            put_content(output, sibling, self.values);
        }
        put_field(2, &vclock, output.buffer());
        if let Some(key) = self.key {
            put_field(3, key, output.buffer());
        }
        Ok(())
    }
}

/// Length of a length-delimited field with a number below 16.
fn field_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

/// Length of a numeric field with a number below 16.
fn number_len(number: u32) -> usize {
    1 + encoded_len_varint(number.into())
}

/// Appends the tag and length of a length-delimited field with a number below 16.
fn put_field_head(number: u8, len: usize, buffer: &mut BytesMut) {
    buffer.put_u8(number << 3 | 2);
    encode_varint(len as u64, buffer);
}

fn put_field(number: u8, bytes: &[u8], buffer: &mut BytesMut) {
    put_field_head(number, bytes.len(), buffer);
    buffer.put_slice(bytes);
}

fn put_number(number: u8, value: u32, buffer: &mut BytesMut) {
    buffer.put_u8(number << 3);
    encode_varint(value.into(), buffer);
}

/// Length of what [`put_content`] writes between its own length and its end.
fn content_len(sibling: &Sibling, values: Values) -> usize {
    let metadata = &sibling.metadata;
    let names = names(metadata).map(|(_, name)| name.len());
    let names = names.filter(|len| *len > 0).map(field_len).sum::<usize>();
    let (seconds, micros) = last_modified(metadata);
    let links = metadata.links.iter().map(|link| field_len(link_len(link)));
    field_len(values.len_of(sibling))
        + names
        + field_len(sibling.etag().as_bytes().len())
        + links.sum::<usize>()
        + number_len(seconds)
        + number_len(micros)
        + pairs(metadata)
            .map(|(_, name, value)| field_len(pair_len(name, value)))
            .sum::<usize>()
        + if metadata.deleted { number_len(1) } else { 0 }
}

/// ```text
/// RpbContent, field by field; absent where marked so
/// 1   bytes    value
/// 2   bytes    content type      absent when empty
/// 3   bytes    charset           absent when empty
/// 4   bytes    content encoding  absent when empty
/// 5   bytes    vtag
/// 6   RpbLink  bucket 1, key 2, tag 3; once for each link
/// 7   uint32   last modified, whole seconds
/// 8   uint32   and the microseconds behind them
/// 9   RpbPair  key 1, value 2 (may be absent); once for each of the client's own pairs
/// 10  RpbPair  key 1, value 2; once for each index entry
/// 11  bool     true for a tombstone, else absent
/// ```
fn put_content(output: &mut Output, sibling: &Sibling, values: Values) {
    let metadata = &sibling.metadata;
    put_field_head(1, content_len(sibling, values), output.buffer());
    put_field_head(1, values.len_of(sibling), output.buffer());
    if values == Values::Whole {
        output.put_value(&sibling.value);
    }
    let buffer = output.buffer();
    for (number, name) in names(metadata).filter(|(_, name)| !name.is_empty()) {
        put_field(number, name, buffer);
    }
    put_field(5, sibling.etag().as_bytes(), buffer);
    for link in &metadata.links {
        put_field_head(6, link_len(link), buffer);
        put_field(1, &link.bucket, buffer);
        put_field(2, &link.key, buffer);
        put_field(3, &link.tag, buffer);
    }
    let (seconds, micros) = last_modified(metadata);
    put_number(7, seconds, buffer);
    put_number(8, micros, buffer);
    for (number, name, value) in pairs(metadata) {
        put_field_head(number, pair_len(name, value), buffer);
        put_field(1, name, buffer);
        if let Some(value) = value {
            put_field(2, value, buffer);
        }
    }
    if metadata.deleted {
        put_number(11, 1, buffer);
    }
}

fn names(metadata: &Metadata) -> impl Iterator<Item = (u8, &[u8])> {
    let names = [
        (2, &metadata.content_type[..]),
        (3, &metadata.charset[..]),
        (4, &metadata.content_encoding[..]),
    ];
    names.into_iter()
}

fn pairs(metadata: &Metadata) -> impl Iterator<Item = (u8, &[u8], Option<&[u8]>)> {
    let user = metadata.user_metadata.iter();
    let user = user.map(|pair| (9, &pair.name[..], pair.value.as_deref()));
    let indexes = metadata.indexes.iter();
    user.chain(indexes.map(|entry| (10, &entry.field[..], Some(&entry.value[..]))))
}

fn pair_len(name: &[u8], value: Option<&[u8]>) -> usize {
    field_len(name.len()) + value.map_or(0, |value| field_len(value.len()))
}

fn link_len(link: &Link) -> usize {
    field_len(link.bucket.len()) + field_len(link.key.len()) + field_len(link.tag.len())
}

/// Whole seconds, as far as the field reaches (the year 2106), and microseconds.
fn last_modified(metadata: &Metadata) -> (u32, u32) {
    let time = metadata.last_modified;
    let saturated = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    (saturated(time.as_secs()), saturated(time.subsec_micros()))
}

#[cfg(test)]
#[path = "object_reply_test.rs"]
mod tests;

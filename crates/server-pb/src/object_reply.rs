//! Replies that carry an object, laid out straight from it.
//!
//! The generated messages own their fields: filling one in would allocate a list of contents and
//! clone every name before a byte is written. Here lengths are added up first and the bytes written
//! once, and a large value is sent from the store's buffer.

use bytes::{BufMut as _, Bytes};
use kvorum_coordinator::Detail;
use kvorum_encoding::{put_varint, varint_len};
use kvorum_object::{Etag, Link, Metadata, Object, Sibling};
use kvorum_protocol::MessageCode;
use kvorum_protocol::frame::{FrameError, HEADER_BYTES};

use crate::expiry;
use crate::output::Output;

/// Room reserved for a reply, without large values, in bytes.
const RESERVED_BYTES_MAX: usize = 4096;

/// The values of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// The values are sent.
    Whole,
    /// An empty value is sent for each.
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
    /// The values that a get of this detail sends.
    pub(crate) fn of(detail: Detail) -> Self {
        match detail {
            Detail::Whole => Self::Whole,
            Detail::Head => Self::Empty,
        }
    }
}

impl ObjectReply<'_> {
    /// Appends the reply; after an error nothing is appended.
    pub(crate) fn encode(&self, output: &mut Output) -> Result<(), FrameError> {
        let clock = self.object.clock();
        let clock_len = clock.encoded_len();
        let content = |sibling| WireContent::new(sibling, self.values);
        let (only, several): ([_; 1], Vec<_>);
        let contents = match self.object.siblings() {
            [sibling] => {
                only = [content(sibling)];
                &only[..]
            }
            _ => {
                let siblings = self.object.siblings_by_value();
                several = siblings.into_iter().map(content).collect();
                &several[..]
            }
        };
        let contents_len: usize = contents.iter().map(|content| field_len(content.len)).sum();
        let key_len = self.key.map_or(0, |key| field_len(key.len()));
        let payload_bytes = contents_len + field_len(clock_len) + key_len;
        let unsendable = |_| FrameError::Unsendable {
            code: self.code,
            payload_bytes,
        };
        let length = u32::try_from(1 + payload_bytes).map_err(unsendable)?;
        let buffer = output.buffer();
        buffer.reserve((HEADER_BYTES + payload_bytes).min(RESERVED_BYTES_MAX));
        buffer.put_u32(length);
        buffer.put_u8(self.code.0);
        for content in contents {
            content.put(output);
        }
        let buffer = output.buffer();
        put_field_head(2, clock_len, buffer);
        clock.put_encoded(buffer);
        if let Some(key) = self.key {
            put_field(3, key, buffer);
        }
        Ok(())
    }
}

/// A sibling about to be written as a content, with values computed once for both its length and its
/// bytes.
struct WireContent<'a> {
    sibling: &'a Sibling,
    /// The value; `None` if it is not requested.
    value: Option<&'a Bytes>,
    etag: Etag,
    /// The sibling's time of expiry.
    end: Option<String>,
    seconds: u32,
    micros: u32,
    /// The length of the content, which [`WireContent::put`] writes first.
    len: usize,
}

/// Length of a length-delimited field with a number below 16.
fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Length of a numeric field with a number below 16.
fn number_len(number: u32) -> usize {
    1 + varint_len(number.into())
}

/// Appends the tag and length of a length-delimited field with a number below 16.
fn put_field_head(number: u8, len: usize, buffer: &mut Vec<u8>) {
    buffer.put_u8(number << 3 | 2);
    put_varint(buffer, len as u64);
}

fn put_field(number: u8, bytes: &[u8], buffer: &mut Vec<u8>) {
    put_field_head(number, bytes.len(), buffer);
    buffer.put_slice(bytes);
}

fn put_number(number: u8, value: u32, buffer: &mut Vec<u8>) {
    buffer.put_u8(number << 3);
    put_varint(buffer, value.into());
}

impl<'a> WireContent<'a> {
    fn new(sibling: &'a Sibling, values: Values) -> Self {
        let metadata = &sibling.metadata;
        let value = (values == Values::Whole).then_some(&sibling.value);
        let names = names(metadata).map(|(_, name)| name.len());
        let names = names.filter(|len| *len > 0).map(field_len).sum::<usize>();
        let (seconds, micros) = last_modified(metadata);
        let etag = sibling.etag();
        let end = metadata.expires_at.map(expiry::shown);
        let links = metadata.links.iter().map(|link| field_len(link_len(link)));
        let pairs = pairs(metadata, end.as_deref());
        let pairs = pairs.map(|(_, name, value)| field_len(pair_len(name, value)));
        let len = field_len(value.map_or(0, Bytes::len))
            + names
            + field_len(etag.as_bytes().len())
            + links.sum::<usize>()
            + number_len(seconds)
            + number_len(micros)
            + pairs.sum::<usize>()
            + if metadata.deleted { number_len(1) } else { 0 };
        Self {
            sibling,
            value,
            etag,
            end,
            seconds,
            micros,
            len,
        }
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
    /// 9   RpbPair  key 1, value 2 (may be absent); once for each of the client's own pairs, and for the end
    ///              if there is one
    /// 10  RpbPair  key 1, value 2; once for each index entry
    /// 11  bool     true for a tombstone, else absent
    /// ```
    fn put(&self, output: &mut Output) {
        let metadata = &self.sibling.metadata;
        let buffer = output.buffer();
        put_field_head(1, self.len, buffer);
        put_field_head(1, self.value.map_or(0, Bytes::len), buffer);
        if let Some(value) = self.value {
            output.put_value(value);
        }
        let buffer = output.buffer();
        for (number, name) in names(metadata).filter(|(_, name)| !name.is_empty()) {
            put_field(number, name, buffer);
        }
        put_field(5, self.etag.as_bytes(), buffer);
        for link in &metadata.links {
            put_field_head(6, link_len(link), buffer);
            put_field(1, &link.bucket, buffer);
            put_field(2, &link.key, buffer);
            put_field(3, &link.tag, buffer);
        }
        put_number(7, self.seconds, buffer);
        put_number(8, self.micros, buffer);
        for (number, name, value) in pairs(metadata, self.end.as_deref()) {
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
}

fn names(metadata: &Metadata) -> impl Iterator<Item = (u8, &[u8])> {
    let names = [
        (2, &metadata.content_type[..]),
        (3, &metadata.charset[..]),
        (4, &metadata.content_encoding[..]),
    ];
    names.into_iter()
}

fn pairs<'a>(
    metadata: &'a Metadata,
    end: Option<&'a str>,
) -> impl Iterator<Item = (u8, &'a [u8], Option<&'a [u8]>)> {
    let user = metadata.user_metadata.iter();
    let user = user.map(|pair| (9, &pair.name[..], pair.value.as_deref()));
    let end = end.map(|date| (9, expiry::EXPIRES_AT, Some(date.as_bytes())));
    let indexes = metadata.indexes.iter();
    let indexes = indexes.map(|entry| (10, &entry.field[..], Some(&entry.value[..])));
    user.chain(end).chain(indexes)
}

fn pair_len(name: &[u8], value: Option<&[u8]>) -> usize {
    field_len(name.len()) + value.map_or(0, |value| field_len(value.len()))
}

fn link_len(link: &Link) -> usize {
    field_len(link.bucket.len()) + field_len(link.key.len()) + field_len(link.tag.len())
}

/// Whole seconds, as far as the field reaches (the year 2106), and microseconds.
pub(crate) fn last_modified(metadata: &Metadata) -> (u32, u32) {
    let time = metadata.last_modified;
    let saturated = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    (saturated(time.as_secs()), saturated(time.subsec_micros()))
}

#[cfg(test)]
#[path = "object_reply_test.rs"]
mod tests;

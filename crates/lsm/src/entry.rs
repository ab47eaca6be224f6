//! An entry: the value of a key, or its removal.

use std::ops::Range;

use bytes::Bytes;
use kvorum_backend::{Fields, Tag, Timestamp};
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_segment::Location;
use kvorum_sst::{BlockHandle, Facts};
use kvorum_value_log::LogPlace;

use crate::logged::{LoggedPlace, counted};
use crate::older::Older;

const REMOVAL: u8 = 1;
const EXPIRES: u8 = 1 << 1;
const BODY_IN_BLOB: u8 = 1 << 2;
const HAS_EXTRA: u8 = 1 << 3;
const IN_LOG: u8 = 1 << 4;
const HAS_OLDER: u8 = 1 << 5;
const UNKNOWN: u8 = !(REMOVAL | EXPIRES | BODY_IN_BLOB | HAS_EXTRA | IN_LOG | HAS_OLDER);

/// A write to a key, and its sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The batch that wrote it.
    pub sequence: u64,
    /// `None` when the key was removed.
    pub value: Option<Value>,
    /// The place of a removal in the log, in a store that keeps a journal.
    pub removed_at: Option<Box<LogPlace>>,
    /// The segments that may still have older records of the key, in a store with a journal.
    pub older: Older,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Fields that folds filter by.
    pub fields: Fields,
    /// Bytes that the store's user keeps with the head and reads with it.
    pub extra: Bytes,
    /// The head.
    pub head: Bytes,
    /// The body, or its place.
    pub body: Body,
}

/// The body of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// In the entry.
    Inline(Bytes),
    /// In a blob file.
    Blob(BlobPlace),
    /// In the value log, where the entry was put.
    Logged(LoggedPlace),
}

/// The place of a body in the blob files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobPlace {
    /// The blob file.
    pub file: u64,
    /// The body's number in that file, for as long as the file exists.
    pub ordinal: u64,
    /// The body's block until the file is rewritten.
    pub block: BlockHandle,
    /// Its length, in bytes.
    pub len: u64,
}

impl BlobPlace {
    /// The body's share in a table's properties: the file, and the bytes that the body takes there.
    fn counted(&self) -> (u64, u64) {
        (self.file, u64::from(self.block.len))
    }
}

impl Entry {
    /// The removal of a key.
    pub fn removal(sequence: u64) -> Self {
        Self::of(sequence, None)
    }

    /// A batch's write to a key; `None` for a removal.
    pub fn of(sequence: u64, value: Option<Value>) -> Self {
        Self {
            sequence,
            value,
            removed_at: None,
            older: Older::default(),
        }
    }

    /// The place in the log of the removal or the body, if it has one.
    pub(crate) fn logged_at(&self) -> Option<LogPlace> {
        match self.value.as_ref().map(|it| &it.body) {
            None => self.removed_at.as_deref().copied(),
            Some(Body::Logged(place)) => Some(place.at),
            Some(Body::Inline(_) | Body::Blob(_)) => None,
        }
    }

    /// Notes that the record of an older entry of the same key may still be where it was logged.
    pub(crate) fn hide(&mut self, older: &Self) {
        self.older.add_all(&older.older);
        if let Some(at) = older.logged_at() {
            self.older.add(at.segment);
        }
    }

    /// True when the record of this batch at this place, a segment and an offset, is the entry's.
    pub(crate) fn is_record(&self, sequence: u64, place: (u32, u64)) -> bool {
        let at = self.logged_at().filter(|_| self.sequence == sequence);
        at.is_some_and(|it| (it.segment, it.record.offset) == place)
    }

    /// True for an encoded entry with segments that may hold older records of its key.
    pub(crate) fn has_older(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|flags| flags & HAS_OLDER != 0)
    }

    /// Facts for the table to which the entry is written.
    pub fn facts(&self) -> Facts {
        let Some(value) = &self.value else {
            return Facts {
                sequence: self.sequence,
                is_removal: true,
                blob: self.removed_at.as_deref().map(counted),
                ..Facts::default()
            };
        };
        Facts {
            sequence: self.sequence,
            last_modified: value.fields.last_modified.0,
            expiry: value.fields.expiry.map(|it| it.0),
            segment: value.fields.segment,
            is_removal: false,
            blob: match &value.body {
                Body::Inline(_) => None,
                Body::Blob(place) => Some(place.counted()),
                Body::Logged(place) => Some(counted(&place.at)),
            },
        }
    }

    /// Appends the entry:
    ///
    /// ```text
    /// size    field
    /// 1       flags: 0 removal, 1 expires, 2 body in a blob file, 3 has extra bytes, 4 body in the
    ///         value log, or a removal with its place there, 5 older records may be left
    /// varint  sequence
    /// varint  older records, if there may be any, as `Older::encode` has them
    ///         a removal ends here, or with varints: segment of the log, offset of the record, length up to
    ///         the end of its front, length of the record
    /// varint  anti-entropy segment
    /// varint  last modified
    /// varint  expiry, if it expires
    /// 1       tag
    /// varint  length of the extra bytes, then the bytes, if there are any
    /// varint  length of the head, then the head
    ///         the body to the end, or varints: blob file, ordinal, block offset, block length, length;
    ///         or varints: segment of the log, offset of the record, length up to the end of its front,
    ///         length of the record, length of the body
    /// ```
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = Head {
            sequence: self.sequence,
            removed_at: self.removed_at.as_deref().copied(),
            older: &self.older,
        };
        encode(out, &head, self.value.as_ref());
    }

    /// Decodes the form of [`Entry::encode`]; parts are slices of `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Self, Truncated> {
        let parts = Parts::decode(bytes)?;
        Ok(Self {
            sequence: parts.sequence,
            value: parts.value.map(|value| value.cut_from(bytes)),
            removed_at: parts.removed_at.map(Box::new),
            older: parts.older,
        })
    }

    /// Decodes an entry with copied parts, so that `bytes` need not stay.
    pub(crate) fn copied(bytes: &[u8]) -> Result<Self, Truncated> {
        let parts = Parts::decode(bytes)?;
        let copy = |part: Range<usize>| Bytes::copy_from_slice(&bytes[part]);
        let value = parts.value.map(|value| Value {
            fields: value.fields,
            extra: copy(value.extra),
            head: copy(value.head),
            body: match value.body {
                BodyPart::Inline { from } => Body::Inline(copy(from..bytes.len())),
                BodyPart::Blob(place) => Body::Blob(place),
                BodyPart::Logged(place) => Body::Logged(place),
            },
        });
        Ok(Self {
            sequence: parts.sequence,
            value,
            removed_at: parts.removed_at.map(Box::new),
            older: parts.older,
        })
    }

    /// Facts of an encoded entry, for moving its bytes unchanged.
    pub fn facts_of(bytes: &[u8]) -> Result<Facts, Truncated> {
        let parts = Parts::decode(bytes)?;
        let Some(value) = parts.value else {
            let removal = Self {
                removed_at: parts.removed_at.map(Box::new),
                ..Self::removal(parts.sequence)
            };
            return Ok(removal.facts());
        };
        Ok(Facts {
            sequence: parts.sequence,
            last_modified: value.fields.last_modified.0,
            expiry: value.fields.expiry.map(|it| it.0),
            segment: value.fields.segment,
            is_removal: false,
            blob: match value.body {
                BodyPart::Inline { .. } => None,
                BodyPart::Blob(place) => Some(place.counted()),
                BodyPart::Logged(place) => Some(counted(&place.at)),
            },
        })
    }
}

/// The beginning of an entry.
pub(crate) struct Head<'a> {
    pub(crate) sequence: u64,
    /// As in [`Entry::removed_at`].
    pub(crate) removed_at: Option<LogPlace>,
    pub(crate) older: &'a Older,
}

/// Encodes as [`Entry::encode`] does.
pub(crate) fn encode(out: &mut Vec<u8>, head: &Head<'_>, value: Option<&Value>) {
    encode_but_body(out, head, value);
    match value.map(|value| &value.body) {
        None => {}
        Some(Body::Inline(body)) => out.extend_from_slice(body),
        Some(Body::Blob(place)) => {
            for number in [
                place.file,
                place.ordinal,
                place.block.offset,
                u64::from(place.block.len),
                place.len,
            ] {
                put_varint(out, number);
            }
        }
        Some(Body::Logged(place)) => {
            put_place(out, &place.at);
            put_varint(out, place.len);
        }
    }
}

fn put_place(out: &mut Vec<u8>, at: &LogPlace) {
    let record = &at.record;
    for number in [
        u64::from(at.segment),
        record.offset,
        record.front_end,
        record.len,
    ] {
        put_varint(out, number);
    }
}

/// Encodes an entry up to its inline body, which a log keeps apart.
pub(crate) fn encode_but_body(out: &mut Vec<u8>, head: &Head<'_>, value: Option<&Value>) {
    let mut flags = 0;
    if !head.older.is_empty() {
        flags |= HAS_OLDER;
    }
    let put_head = |out: &mut Vec<u8>, flags: u8| {
        out.push(flags);
        put_varint(out, head.sequence);
        if !head.older.is_empty() {
            head.older.encode(out);
        }
    };
    let Some(value) = value else {
        let in_log = head.removed_at.map_or(0, |_| IN_LOG);
        put_head(out, flags | REMOVAL | in_log);
        if let Some(at) = &head.removed_at {
            put_place(out, at);
        }
        return;
    };
    if value.fields.expiry.is_some() {
        flags |= EXPIRES;
    }
    if matches!(value.body, Body::Blob(_)) {
        flags |= BODY_IN_BLOB;
    }
    if matches!(value.body, Body::Logged(_)) {
        flags |= IN_LOG;
    }
    if !value.extra.is_empty() {
        flags |= HAS_EXTRA;
    }
    put_head(out, flags);
    put_varint(out, u64::from(value.fields.segment));
    put_varint(out, value.fields.last_modified.0);
    if let Some(expiry) = value.fields.expiry {
        put_varint(out, expiry.0);
    }
    out.push(value.fields.tag.0);
    if !value.extra.is_empty() {
        put_varint(out, value.extra.len() as u64);
        out.extend_from_slice(&value.extra);
    }
    put_varint(out, value.head.len() as u64);
    out.extend_from_slice(&value.head);
}

/// Offsets of the parts of an encoded entry.
pub(crate) struct Parts {
    pub(crate) sequence: u64,
    pub(crate) older: Older,
    pub(crate) removed_at: Option<LogPlace>,
    pub(crate) value: Option<ValueParts>,
}

pub(crate) struct ValueParts {
    pub(crate) fields: Fields,
    extra: Range<usize>,
    pub(crate) head: Range<usize>,
    pub(crate) body: BodyPart,
}

pub(crate) enum BodyPart {
    Inline { from: usize },
    Blob(BlobPlace),
    Logged(LoggedPlace),
}

impl ValueParts {
    /// The parts as slices of the bytes that were decoded.
    pub(crate) fn cut_from(&self, bytes: &Bytes) -> Value {
        Value {
            fields: self.fields,
            extra: bytes.slice(self.extra.clone()),
            head: bytes.slice(self.head.clone()),
            body: self.body.cut_from(bytes),
        }
    }
}

impl BodyPart {
    /// The body, or its place, in the bytes that were decoded.
    pub(crate) fn cut_from(&self, bytes: &Bytes) -> Body {
        match self {
            Self::Inline { from } => Body::Inline(bytes.slice(from..)),
            Self::Blob(place) => Body::Blob(*place),
            Self::Logged(place) => Body::Logged(*place),
        }
    }
}

impl Parts {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let flags = reader.u8()?;
        if flags & UNKNOWN != 0 {
            return Err(Truncated { offset: 0 });
        }
        let sequence = reader.varint()?;
        let older = match flags & HAS_OLDER {
            0 => Older::default(),
            _ => Older::decode(&mut reader)?,
        };
        let mut parts = Self {
            sequence,
            older,
            removed_at: None,
            value: None,
        };
        if flags & REMOVAL != 0 {
            if flags & IN_LOG != 0 {
                parts.removed_at = Some(take_log_place(&mut reader)?);
            }
            return Ok(parts);
        }
        let offset = reader.offset();
        let segment = u32::try_from(reader.varint()?).map_err(|_| Truncated { offset })?;
        let last_modified = Timestamp(reader.varint()?);
        let expiry = match flags & EXPIRES {
            0 => None,
            _ => Some(Timestamp(reader.varint()?)),
        };
        let fields = Fields {
            segment,
            last_modified,
            expiry,
            tag: Tag(reader.u8()?),
        };
        let extra = match flags & HAS_EXTRA {
            0 => 0..0,
            _ => take_range(&mut reader)?,
        };
        let head = take_range(&mut reader)?;
        let body = match flags & (BODY_IN_BLOB | IN_LOG) {
            0 => BodyPart::Inline {
                from: reader.offset(),
            },
            BODY_IN_BLOB => BodyPart::Blob(take_place(&mut reader)?),
            IN_LOG => BodyPart::Logged(LoggedPlace {
                at: take_log_place(&mut reader)?,
                len: reader.varint()?,
            }),
            // A body is in one place.
            _ => return Err(Truncated { offset: 0 }),
        };
        parts.value = Some(ValueParts {
            fields,
            extra,
            head,
            body,
        });
        Ok(parts)
    }
}

impl Value {
    /// Bytes of its parts in memory.
    pub(crate) fn payload_bytes(&self) -> usize {
        let body = match &self.body {
            Body::Inline(body) => body.len(),
            Body::Blob(_) | Body::Logged(_) => 0,
        };
        self.extra.len() + self.head.len() + body
    }

    /// The same entry with its body in the value log. The other parts are copied: slices of the
    /// put's bytes would keep the body in memory.
    pub(crate) fn with_body_at(&self, place: LoggedPlace) -> Self {
        Self {
            fields: self.fields,
            extra: Bytes::copy_from_slice(&self.extra),
            head: Bytes::copy_from_slice(&self.head),
            body: Body::Logged(place),
        }
    }

    /// The length of the body, in bytes.
    pub fn body_len(&self) -> u64 {
        match &self.body {
            Body::Inline(body) => body.len() as u64,
            Body::Blob(place) => place.len,
            Body::Logged(place) => place.len,
        }
    }
}

fn take_range(reader: &mut ByteReader<'_>) -> Result<Range<usize>, Truncated> {
    let len = reader.take_prefixed()?.len();
    let end = reader.offset();
    Ok(end - len..end)
}

fn take_place(reader: &mut ByteReader<'_>) -> Result<BlobPlace, Truncated> {
    let (file, ordinal, at) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let offset = reader.offset();
    let len = u32::try_from(reader.varint()?).map_err(|_| Truncated { offset })?;
    Ok(BlobPlace {
        file,
        ordinal,
        block: BlockHandle { offset: at, len },
        len: reader.varint()?,
    })
}

fn take_log_place(reader: &mut ByteReader<'_>) -> Result<LogPlace, Truncated> {
    let offset = reader.offset();
    let segment = u32::try_from(reader.varint()?).map_err(|_| Truncated { offset })?;
    let record = Location {
        offset: reader.varint()?,
        front_end: reader.varint()?,
        len: reader.varint()?,
    };
    Ok(LogPlace { segment, record })
}

#[cfg(test)]
pub(crate) mod tests {
    use kvorum_golden::assert_bytes;
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        let place =
            any::<(u64, u64, u64, u32, u64)>().prop_map(|(file, ordinal, offset, size, len)| {
                Body::Blob(BlobPlace {
                    file,
                    ordinal,
                    block: BlockHandle { offset, len: size },
                    len,
                })
            });
        let logged = any::<(u32, u64, u64, u64, u64)>().prop_map(
            |(segment, offset, front_end, len, body_len)| {
                let record = Location {
                    offset,
                    front_end,
                    len: len >> 8,
                };
                let at = LogPlace { segment, record };
                Body::Logged(LoggedPlace { at, len: body_len })
            },
        );
        let body = prop_oneof![bytes().prop_map(Body::Inline), place, logged];
        let fields = any::<(u32, u64, Option<u64>, u8)>();
        (fields, bytes(), bytes(), body).prop_map(|(fields, extra, head, body)| Value {
            fields: Fields {
                segment: fields.0,
                last_modified: Timestamp(fields.1),
                expiry: fields.2.map(Timestamp),
                tag: Tag(fields.3),
            },
            extra,
            head,
            body,
        })
    }

    /// With something in every part.
    pub(crate) fn full_entry() -> Entry {
        let value = Value {
            fields: Fields {
                segment: 5,
                last_modified: Timestamp(6),
                expiry: Some(Timestamp(7)),
                tag: Tag(8),
            },
            extra: Bytes::from_static(b"ex"),
            head: Bytes::from_static(b"head"),
            body: Body::Inline(Bytes::from_static(b"body")),
        };
        Entry::of(300, Some(value))
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let entry = full_entry();
        let mut out = Vec::new();
        entry.encode(&mut out);
        let drawing = [
            ("flags", 1),
            ("sequence", 2),
            ("anti-entropy segment", 1),
            ("last modified", 1),
            ("expiry", 1),
            ("tag", 1),
            ("length of the extra bytes", 1),
            ("extra bytes", 2),
            ("length of the head", 1),
            ("head", 4),
            ("body", 4),
        ];
        assert_bytes("entry.hex", &drawing, &out);
        out.clear();
        Entry::removal(3).encode(&mut out);
        assert_eq!(out, [1, 3]);
    }

    #[test]
    fn a_body_in_the_log_is_named_by_its_record() {
        let at = LogPlace {
            segment: 3,
            record: Location {
                offset: 64,
                front_end: 40,
                len: 900,
            },
        };
        let value = Value {
            fields: Fields::default(),
            extra: Bytes::new(),
            head: Bytes::from_static(b"h"),
            body: Body::Logged(LoggedPlace { at, len: 860 }),
        };
        let entry = Entry::of(2, Some(value));
        let mut out = Vec::new();
        entry.encode(&mut out);
        assert_eq!(out[0], 0x10);
        assert_eq!(out[out.len() - 7..], [3, 64, 40, 0x84, 7, 0xdc, 6]);
        let (file, bytes) = entry.facts().blob.unwrap();
        assert_eq!(crate::logged::segment_of(file), Some(3));
        assert_eq!(bytes, 904);
        // In a blob file as well: no version writes that.
        out[0] |= BODY_IN_BLOB;
        assert!(Entry::copied(&out).is_err());
        // A removal ends with the same place.
        let removal = Entry {
            removed_at: Some(Box::new(at)),
            older: [1, 2].into_iter().collect(),
            ..Entry::removal(9)
        };
        out.clear();
        removal.encode(&mut out);
        assert_eq!(out, [0x31, 9, 1, 1, 1, 3, 64, 40, 0x84, 7]);
        assert_eq!(removal.facts().blob, Some((file, 904)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn entries_round_trip(
            sequence: u64,
            value in proptest::option::of(value()),
            older in proptest::collection::vec(any::<u32>(), 0..4),
        ) {
            let entry = Entry { older: older.into_iter().collect(), ..Entry::of(sequence, value) };
            let mut out = Vec::new();
            entry.encode(&mut out);
            prop_assert_eq!(Entry::facts_of(&out), Ok(entry.facts()));
            prop_assert_eq!(Entry::copied(&out).unwrap(), entry.clone());
            prop_assert_eq!(Entry::decode(&Bytes::from(out)).unwrap(), entry);
        }

        #[test]
        fn hostile_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let facts = Entry::facts_of(&bytes);
            let copied = Entry::copied(&bytes);
            let decoded = Entry::decode(&Bytes::from(bytes));
            prop_assert_eq!(&decoded, &copied);
            prop_assert_eq!(decoded.map(|it| it.facts()), facts);
        }
    }
}

//! The entry of a key in a leaf.

use bytes::Bytes;
use kvorum_backend::{Fields, Tag, Timestamp};
use kvorum_encoding::{ByteReader, Truncated, put_varint};

use crate::place::PagePlace;

const HAS_EXPIRY: u8 = 1;
const IS_APART: u8 = 1 << 1;
const IS_LOST: u8 = 1 << 2;

/// The place of an entry's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// With the head.
    Inline(Bytes),
    /// On a page of its own.
    Apart {
        /// The page.
        place: PagePlace,
        /// The length of the body, in bytes.
        len: u64,
    },
    /// The body was lost before it came to the tree. Reading it returns an error.
    Lost,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The batch that wrote it.
    pub sequence: u64,
    /// Fields that folds filter by.
    pub fields: Fields,
    /// Bytes that the tree's user keeps with the head.
    pub extra: Bytes,
    /// The head.
    pub head: Bytes,
    /// The body.
    pub body: Body,
}

impl Entry {
    /// The length of the body, in bytes.
    pub fn body_len(&self) -> u64 {
        match &self.body {
            Body::Inline(body) => body.len() as u64,
            Body::Apart { len, .. } => *len,
            Body::Lost => 0,
        }
    }

    /// True when the body is on this page.
    pub(crate) fn is_at(&self, page: &PagePlace) -> bool {
        matches!(&self.body, Body::Apart { place, .. } if place == page)
    }

    /// Appends the entry:
    ///
    /// ```text
    /// size    field
    /// varint  sequence
    /// 1       flags: 0 has an expiry, 1 has its body on a page of its own, 2 its body is lost
    /// 4       anti-entropy segment
    /// varint  last modified, in microseconds since 1970
    /// varint  expiry likewise, with flag 0
    /// 1       tag
    /// varint  length of the extra bytes, and those
    /// varint  length of the head, and the head
    ///         without flags 1 and 2: the body, to the end
    /// varint  with flag 1: length of the body, and the place as `PagePlace::encode` draws it
    /// ```
    pub fn encode(&self, out: &mut Vec<u8>) {
        let fields = &self.fields;
        put_varint(out, self.sequence);
        let expiry_flag = if fields.expiry.is_some() {
            HAS_EXPIRY
        } else {
            0
        };
        let body_flag = match &self.body {
            Body::Inline(_) => 0,
            Body::Apart { .. } => IS_APART,
            Body::Lost => IS_LOST,
        };
        out.push(expiry_flag | body_flag);
        out.extend_from_slice(&fields.segment.to_le_bytes());
        put_varint(out, fields.last_modified.0);
        if let Some(expiry) = fields.expiry {
            put_varint(out, expiry.0);
        }
        out.push(fields.tag.0);
        for part in [&self.extra, &self.head] {
            put_varint(out, part.len() as u64);
            out.extend_from_slice(part);
        }
        match &self.body {
            Body::Inline(body) => out.extend_from_slice(body),
            Body::Apart { place, len } => {
                put_varint(out, *len);
                place.encode(out);
            }
            Body::Lost => {}
        }
    }

    /// Decodes the form of [`Entry::encode`]; the parts are slices of `bytes`.
    ///
    /// # Errors
    /// [`Truncated`] when the bytes end within the entry.
    pub fn decode(bytes: &Bytes) -> Result<Self, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let sequence = reader.varint()?;
        let flags = reader.u8()?;
        let fields = decode_fields(&mut reader, flags)?;
        let extra = bytes.slice_ref(reader.take_prefixed()?);
        let head = bytes.slice_ref(reader.take_prefixed()?);
        let body = match flags & (IS_APART | IS_LOST) {
            0 => Body::Inline(bytes.slice_ref(reader.take_rest())),
            IS_APART => {
                let len = reader.varint()?;
                let place = PagePlace::decode(&mut reader)?;
                Body::Apart { place, len }
            }
            _ => Body::Lost,
        };
        Ok(Self {
            sequence,
            fields,
            extra,
            head,
            body,
        })
    }
}

fn decode_fields(reader: &mut ByteReader<'_>, flags: u8) -> Result<Fields, Truncated> {
    let segment = reader.u32()?;
    let last_modified = Timestamp(reader.varint()?);
    let expiry = match flags & HAS_EXPIRY {
        0 => None,
        _ => Some(Timestamp(reader.varint()?)),
    };
    let tag = Tag(reader.u8()?);
    Ok(Fields {
        segment,
        last_modified,
        expiry,
        tag,
    })
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    fn entry(body: Body, expiry: Option<Timestamp>) -> Entry {
        Entry {
            sequence: 300,
            fields: Fields {
                segment: 7,
                last_modified: Timestamp(1_000_000),
                expiry,
                tag: Tag(2),
            },
            extra: Bytes::from_static(b"extra"),
            head: Bytes::from_static(b"head"),
            body,
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes_of = |body, expiry| {
            let mut bytes = Vec::new();
            entry(body, expiry).encode(&mut bytes);
            bytes
        };
        let front = [
            ("sequence", 2),
            ("flags: 0 expiry, 1 body apart, 2 body lost", 1),
            ("anti-entropy segment", 4),
            ("last modified", 3),
        ];
        let behind = [
            ("tag", 1),
            ("length of the extra bytes", 1),
            ("extra bytes", 5),
            ("length of the head", 1),
            ("head", 4),
        ];
        let (expiry, body) = ([("expiry", 2)], [("body", 4)]);
        let inline = Body::Inline(Bytes::from_static(b"body"));
        let drawing = [&front[..], &expiry, &behind, &body].concat();
        assert_bytes(
            "entry.inline.hex",
            &drawing,
            &bytes_of(inline, Some(Timestamp(300))),
        );
        let place = PagePlace {
            file: 3,
            offset: 1 << 33,
            len: 5_000,
            check: 0xdead_beef,
        };
        let apart = [
            ("length of the body", 2),
            ("place: file", 1),
            ("offset", 5),
            ("length", 2),
            ("checksum", 4),
        ];
        let drawing = [&front[..], &behind, &apart].concat();
        let body = Body::Apart { place, len: 4_900 };
        assert_bytes("entry.apart.hex", &drawing, &bytes_of(body, None));
    }

    #[test]
    fn entries_come_back_with_their_bodies_beside_them_or_apart() {
        let place = PagePlace {
            file: 3,
            offset: 1 << 33,
            len: 5_000,
            check: 0xdead_beef,
        };
        let bodies = [
            Body::Inline(Bytes::new()),
            Body::Inline(Bytes::from_static(b"body")),
            Body::Apart { place, len: 4_900 },
            Body::Lost,
        ];
        for body in bodies {
            for expiry in [None, Some(Timestamp(9))] {
                let entry = entry(body.clone(), expiry);
                let mut bytes = Vec::new();
                entry.encode(&mut bytes);
                assert_eq!(Entry::decode(&bytes.into()), Ok(entry));
            }
        }
    }

    #[test]
    fn an_entry_that_is_cut_before_its_body_is_refused() {
        let mut bytes = Vec::new();
        entry(Body::Inline(Bytes::new()), None).encode(&mut bytes);
        for cut in 0..bytes.len() {
            let cut_bytes = Bytes::copy_from_slice(&bytes[..cut]);
            assert!(Entry::decode(&cut_bytes).is_err(), "cut at {cut}");
        }
    }
}

//! The engine's form of a record's front: fields, key, head.

use bytes::Bytes;
use kvorum_backend::{Fields, Tag, Timestamp};
use kvorum_encoding::{ByteReader, StorageKey, Truncated};

/// The kind of record with a key.
pub(crate) const KIND_ENTRY: u8 = 1;
/// The kind of record for an empty batch, which records the batch's sequence.
pub(crate) const KIND_NOTHING: u8 = 2;

/// Bytes before the key.
const FIXED_BYTES: usize = 28;
const FLAG_EXPIRES: u8 = 1;
/// The fields of removals.
const NO_FIELDS: Fields = Fields {
    segment: 0,
    last_modified: Timestamp(0),
    expiry: None,
    tag: Tag(0),
};

/// A front, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) key: Bytes,
    pub(crate) fields: Fields,
    pub(crate) head: Bytes,
}

/// Appends a front:
///
/// ```text
/// offset  size  field
///      0     4  anti-entropy segment
///      4     8  last modified, microseconds since the Unix epoch
///     12     8  expiry, likewise; 0 without flag 0
///     20     1  tag
///     21     1  flags: 0 expires
///     22     2  zero
///     24     4  length of the key (k)
///     28     k  key
///   28+k        head, to the end
/// ```
pub(crate) fn encode_front(out: &mut Vec<u8>, key: &StorageKey, fields: &Fields, head: &[u8]) {
    let key = key.as_bytes();
    out.reserve(FIXED_BYTES + key.len() + head.len());
    out.extend_from_slice(&fields.segment.to_le_bytes());
    out.extend_from_slice(&fields.last_modified.0.to_le_bytes());
    out.extend_from_slice(&fields.expiry.map_or(0, |expiry| expiry.0).to_le_bytes());
    let flags = if fields.expiry.is_some() {
        FLAG_EXPIRES
    } else {
        0
    };
    out.extend_from_slice(&[fields.tag.0, flags, 0, 0]);
    // Fronts are limited to far less than 32 bits; a longer key is refused by the segment.
    let key_len = u32::try_from(key.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&key_len.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(head);
}

/// The length of a front, in bytes.
pub(crate) fn front_len(key: &StorageKey, head: &[u8]) -> usize {
    FIXED_BYTES + key.as_bytes().len() + head.len()
}

/// Appends the front of a removal.
pub(crate) fn encode_removal(out: &mut Vec<u8>, key: &StorageKey) {
    encode_front(out, key, &NO_FIELDS, &[]);
}

/// Decodes a front whose checksum was right.
pub(crate) fn decode_front(front: &Bytes) -> Result<Front, Truncated> {
    let (fields, key_end) = decode_fields(front)?;
    Ok(Front {
        key: front.slice(FIXED_BYTES..key_end),
        fields,
        head: front.slice(key_end..),
    })
}

/// The fields at the beginning of a front, and the offset between its key and its head.
pub(crate) fn decode_fields(front: &[u8]) -> Result<(Fields, usize), Truncated> {
    let mut reader = ByteReader::new(front);
    let segment = reader.u32()?;
    let last_modified = Timestamp(reader.u64()?);
    let expiry = Timestamp(reader.u64()?);
    let tag = Tag(reader.u8()?);
    let flags = reader.u8()?;
    let _zero = reader.u16()?;
    let key_len = reader.u32()? as usize;
    let _key = reader.take(key_len)?;
    let fields = Fields {
        segment,
        last_modified,
        expiry: (flags & FLAG_EXPIRES != 0).then_some(expiry),
        tag,
    };
    Ok((fields, FIXED_BYTES + key_len))
}

/// The key in a front, without decoding the rest.
pub(crate) fn key_of(front: &[u8]) -> Option<&[u8]> {
    let mut reader = ByteReader::new(front);
    let _fixed = reader.take(FIXED_BYTES - 4).ok()?;
    let key_len = reader.u32().ok()? as usize;
    reader.take(key_len).ok()
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    fn fields() -> Fields {
        Fields {
            segment: 0x0102,
            last_modified: Timestamp(3),
            expiry: Some(Timestamp(4)),
            tag: Tag(5),
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let mut out = Vec::new();
        let key = StorageKey::from_encoded(&b"key"[..]);
        encode_front(&mut out, &key, &fields(), b"head");
        let drawing = [
            ("anti-entropy segment", 4),
            ("last modified", 8),
            ("expiry", 8),
            ("tag", 1),
            ("flags: 0 expires", 1),
            ("zero", 2),
            ("length of the key", 4),
            ("key", 3),
            ("head", 4),
        ];
        assert_bytes("entry.hex", &drawing, &out);
        let front = Bytes::from(out);
        assert_eq!(key_of(&front), Some(&b"key"[..]));
        let decoded = decode_front(&front).unwrap();
        assert_eq!(decoded.fields, fields());
        assert_eq!(
            (&decoded.key[..], &decoded.head[..]),
            (&b"key"[..], &b"head"[..])
        );
    }

    #[test]
    fn a_cut_front_is_refused() {
        let mut out = Vec::new();
        let key = StorageKey::from_encoded(&b"key"[..]);
        encode_removal(&mut out, &key);
        for len in 0..out.len() {
            let cut = Bytes::copy_from_slice(&out[..len]);
            assert!(decode_front(&cut).is_err());
            assert_eq!(key_of(&cut), None);
        }
    }
}

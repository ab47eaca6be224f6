//! Entries as bytes, shared by the spikes.

use bytes::Bytes;
use kvorum_backend::{Fields, Sequence, StoredEntry, StoredHead, Tag, Timestamp, Write};
use kvorum_encoding::{ByteReader, StorageKey, Truncated, checksum, mask_checksum, put_varint};

/// A spike's value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) sequence: Sequence,
    pub(crate) fields: Fields,
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
}

impl Value {
    pub(crate) fn to_stored(&self) -> StoredEntry {
        StoredEntry {
            sequence: self.sequence,
            fields: self.fields,
            head: self.head.clone(),
            body: self.body.clone(),
        }
    }

    pub(crate) fn to_head(&self) -> StoredHead {
        StoredHead {
            sequence: self.sequence,
            fields: self.fields,
            head: self.head.clone(),
            body_len: self.body.len() as u64,
            place: None,
        }
    }
}

/// A key and its value; `None` for a removal.
pub(crate) type Change = (StorageKey, Option<Value>);

/// The change of a write, in the batch with this sequence.
pub(crate) fn change_of(write: &Write, sequence: Sequence) -> Change {
    match write {
        Write::Remove { key, .. } => (key.clone(), None),
        Write::Put {
            key,
            fields,
            head,
            body,
            ..
        } => {
            let value = Value {
                sequence,
                fields: *fields,
                head: head.clone(),
                body: body.clone(),
            };
            (key.clone(), Some(value))
        }
    }
}

/// key, 0 or 1, and for 1: sequence, segment, last modified, expiry + 1 or 0, tag, head, body.
/// Numbers are varints; byte strings are prefixed with their length.
pub(crate) fn put_change(out: &mut Vec<u8>, key: &StorageKey, value: Option<&Value>) {
    put_bytes(out, key.as_bytes());
    let Some(value) = value else {
        out.push(0);
        return;
    };
    out.push(1);
    put_varint(out, value.sequence.0);
    put_varint(out, u64::from(value.fields.segment));
    put_varint(out, value.fields.last_modified.0);
    put_varint(out, value.fields.expiry.map_or(0, |expiry| expiry.0 + 1));
    out.push(value.fields.tag.0);
    put_bytes(out, &value.head);
    put_bytes(out, &value.body);
}

pub(crate) fn take_change(reader: &mut ByteReader<'_>) -> Result<Change, Truncated> {
    let key = StorageKey::from_encoded(take_bytes(reader)?);
    if reader.u8()? == 0 {
        return Ok((key, None));
    }
    let sequence = Sequence(reader.varint()?);
    let fields = Fields {
        segment: u32::try_from(reader.varint()?).unwrap_or(u32::MAX),
        last_modified: Timestamp(reader.varint()?),
        expiry: reader.varint()?.checked_sub(1).map(Timestamp),
        tag: Tag(reader.u8()?),
    };
    let head = take_bytes(reader)?;
    let body = take_bytes(reader)?;
    let value = Value {
        sequence,
        fields,
        head,
        body,
    };
    Ok((key, Some(value)))
}

/// Length and checksum, four bytes each, then the payload.
pub(crate) fn framed(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + FRAME_BYTES);
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&mask_checksum(checksum(payload)).to_le_bytes());
    out.extend_from_slice(payload);
    out
}

pub(crate) const FRAME_BYTES: usize = 8;

/// The payload of the frame at the start of `bytes`, if it is whole and sound.
pub(crate) fn unframed(bytes: &[u8]) -> Option<&[u8]> {
    let mut reader = ByteReader::new(bytes);
    let len = usize::try_from(reader.u32().ok()?).ok()?;
    let expected = reader.u32().ok()?;
    let payload = reader.take(len).ok()?;
    (len > 0 && mask_checksum(checksum(payload)) == expected).then_some(payload)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes(reader: &mut ByteReader<'_>) -> Result<Bytes, Truncated> {
    Ok(Bytes::copy_from_slice(reader.take_prefixed()?))
}

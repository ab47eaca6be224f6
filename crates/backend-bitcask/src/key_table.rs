//! What a segment says of its keys: entries without head and body, sorted by key.
//!
//! Packed into one buffer, because a segment of small values has millions of them.

use bytes::Bytes;
use kvorum_backend::{Fields, Tag, Timestamp};
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_segment::{Location, RECORD_ALIGN_BYTES, StoredFront};

use crate::entry::{KIND_ENTRY, decode_front};

const FLAG_REMOVAL: u8 = 1;
const FLAG_EXPIRES: u8 = 1 << 1;

/// What a record says of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    pub(crate) key: Bytes,
    pub(crate) sequence: u64,
    pub(crate) at: Location,
    pub(crate) removal: bool,
    /// Empty for removals.
    pub(crate) fields: Fields,
}

impl KeyEntry {
    /// What a record says; `None` when it is about no key or cannot be understood.
    pub(crate) fn of(record: &StoredFront) -> Option<Self> {
        if record.kind != KIND_ENTRY {
            return None;
        }
        let front = decode_front(&record.front).ok()?;
        Some(Self {
            key: front.key,
            sequence: record.sequence,
            at: record.location,
            removal: record.removal,
            fields: front.fields,
        })
    }

    /// Appends an entry:
    ///
    /// ```text
    /// size    field
    /// varint  length of the key, then the key
    /// varint  sequence
    /// varint  offset of the record, in units of 8
    /// varint  where its front ends, in bytes
    /// varint  its length, in bytes
    /// 1       flags: 0 removal, 1 expires
    ///         of an entry that is no removal:
    /// 4         anti-entropy segment
    /// varint    last modified
    /// varint    expiry, if it expires
    /// 1         tag
    /// ```
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.key.len() as u64);
        out.extend_from_slice(&self.key);
        put_varint(out, self.sequence);
        put_varint(out, self.at.offset / RECORD_ALIGN_BYTES);
        put_varint(out, self.at.front_end);
        put_varint(out, self.at.len);
        if self.removal {
            out.push(FLAG_REMOVAL);
            return;
        }
        let expiry = self.fields.expiry;
        out.push(if expiry.is_some() { FLAG_EXPIRES } else { 0 });
        out.extend_from_slice(&self.fields.segment.to_le_bytes());
        put_varint(out, self.fields.last_modified.0);
        if let Some(expiry) = expiry {
            put_varint(out, expiry.0);
        }
        out.push(self.fields.tag.0);
    }

    /// Decodes the entry at the front of `bytes` and returns how long it is.
    pub(crate) fn decode(bytes: &Bytes) -> Result<(Self, usize), Truncated> {
        let mut reader = ByteReader::new(bytes);
        let key_len = reader.take_prefixed()?.len();
        let key_end = reader.offset();
        let sequence = reader.varint()?;
        let offset = reader.varint()?.saturating_mul(RECORD_ALIGN_BYTES);
        let front_end = reader.varint()?;
        let len = reader.varint()?;
        let flags = reader.u8()?;
        let removal = flags & FLAG_REMOVAL != 0;
        let fields = if removal {
            Fields::default()
        } else {
            decode_fields(&mut reader, flags)?
        };
        let entry = Self {
            key: bytes.slice(key_end - key_len..key_end),
            sequence,
            at: Location {
                offset,
                front_end,
                len,
            },
            removal,
            fields,
        };
        Ok((entry, reader.offset()))
    }
}

fn decode_fields(reader: &mut ByteReader<'_>, flags: u8) -> Result<Fields, Truncated> {
    Ok(Fields {
        segment: reader.u32()?,
        last_modified: Timestamp(reader.varint()?),
        expiry: if flags & FLAG_EXPIRES != 0 {
            Some(Timestamp(reader.varint()?))
        } else {
            None
        },
        tag: Tag(reader.u8()?),
    })
}

/// Gathers entries in any order.
#[derive(Default)]
pub(crate) struct KeyTableBuilder {
    packed: Vec<u8>,
    starts: Vec<usize>,
}

impl KeyTableBuilder {
    pub(crate) fn push(&mut self, entry: &KeyEntry) {
        self.starts.push(self.packed.len());
        entry.encode(&mut self.packed);
    }

    /// Sorts by key and keeps the newest entry of each.
    pub(crate) fn finish(self) -> KeyTable {
        let packed = Bytes::from(self.packed);
        let mut starts = self.starts;
        let order = |start: &usize| {
            let (key, sequence) = key_and_sequence(&packed[*start..]);
            (key, std::cmp::Reverse(sequence))
        };
        starts.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        starts.dedup_by(|later, kept| order(later).0 == order(kept).0);
        KeyTable { packed, starts }
    }
}

/// Entries sorted by key, one for each key.
pub(crate) struct KeyTable {
    packed: Bytes,
    starts: Vec<usize>,
}

impl KeyTable {
    /// The entry at a position in key order.
    pub(crate) fn get(&self, position: usize) -> Option<KeyEntry> {
        let start = *self.starts.get(position)?;
        let (entry, _) = KeyEntry::decode(&self.packed.slice(start..)).ok()?;
        Some(entry)
    }

    /// The position of the first entry whose key is at or behind `key`.
    pub(crate) fn position_of(&self, key: &[u8]) -> usize {
        self.starts
            .partition_point(|start| key_and_sequence(&self.packed[*start..]).0 < key)
    }
}

/// The parts that order entries. What we encoded ourselves decodes; anything else sorts first.
fn key_and_sequence(bytes: &[u8]) -> (&[u8], u64) {
    let mut reader = ByteReader::new(bytes);
    let key = reader.take_prefixed().unwrap_or_default();
    (key, reader.varint().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &'static str, sequence: u64, removal: bool) -> KeyEntry {
        let fields = Fields {
            segment: 9,
            last_modified: Timestamp(1 << 50),
            expiry: (sequence == 2).then_some(Timestamp(1 << 51)),
            tag: Tag(4),
        };
        KeyEntry {
            key: Bytes::from(key),
            sequence,
            at: Location {
                offset: 4096,
                front_end: 70,
                len: 1000,
            },
            removal,
            fields: if removal { Fields::default() } else { fields },
        }
    }

    #[test]
    fn entries_come_back_as_they_were() {
        for expected in [
            entry("a", 1, false),
            entry("", 2, false),
            entry("b", 3, true),
        ] {
            let mut out = Vec::new();
            expected.encode(&mut out);
            let bytes = Bytes::from(out);
            let (decoded, len) = KeyEntry::decode(&bytes).unwrap();
            assert_eq!((decoded, len), (expected, bytes.len()));
            for cut in 0..bytes.len() {
                assert!(KeyEntry::decode(&bytes.slice(..cut)).is_err());
            }
        }
    }

    #[test]
    fn a_table_is_sorted_and_keeps_the_newest() {
        let mut builder = KeyTableBuilder::default();
        for entry in [
            entry("b", 1, false),
            entry("a", 4, false),
            entry("b", 3, true),
            entry("c", 5, false),
            entry("b", 2, false),
        ] {
            builder.push(&entry);
        }
        let table = builder.finish();
        let found: Vec<u64> = (0..)
            .map_while(|position| table.get(position))
            .map(|entry| entry.sequence)
            .collect();
        assert_eq!(found, [4, 3, 5]);
        assert_eq!(table.position_of(b"b"), 1);
        assert_eq!(table.position_of(b"bb"), 2);
        assert_eq!(table.position_of(b"z"), 3);
    }
}

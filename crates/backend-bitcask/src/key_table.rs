//! The entries of a segment, keys and fields without head and body, sorted by key.
//!
//! They are packed into a few buffers, because a segment of small values has millions of entries.

use bytes::Bytes;
use kvorum_backend::{Fields, Tag, Timestamp};
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_segment::{Location, RECORD_ALIGN_BYTES, StoredFront};

use crate::entry::{KIND_ENTRY, decode_front};

const FLAG_REMOVAL: u8 = 1;
const FLAG_EXPIRES: u8 = 1 << 1;
const FLAG_SEGMENT: u8 = 1 << 2;
const FLAG_TAG: u8 = 1 << 3;

/// The bit that separates the numbers of the store's own segments from those of the value log.
pub(crate) const OWN: u32 = 1 << 31;

/// The facts of a record without its head and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    pub(crate) key: Bytes,
    pub(crate) sequence: u64,
    /// The record's segment in the value log, or, with [`OWN`], of the store's own; 0 if the owner
    /// of the entry has the segment.
    pub(crate) segment: u32,
    pub(crate) at: Location,
    pub(crate) removal: bool,
    /// Empty for removals.
    pub(crate) fields: Fields,
}

impl KeyEntry {
    /// The entry of a record; `None` if the record has no key or cannot be decoded.
    pub(crate) fn of(record: &StoredFront) -> Option<Self> {
        if record.kind != KIND_ENTRY {
            return None;
        }
        let front = decode_front(&record.front).ok()?;
        Some(Self {
            key: front.key,
            sequence: record.sequence,
            segment: 0,
            at: record.location,
            removal: record.removal,
            fields: front.fields,
        })
    }

    /// Appends an entry: the length of its key as a varint, the key, and the rest.
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.key.len() as u64);
        out.extend_from_slice(&self.key);
        self.encode_value(Timestamp::default(), out);
    }

    /// Appends an entry without its key, with its times relative to `base`:
    ///
    /// ```text
    /// size    field
    /// varint  sequence
    /// varint  offset of the record, in units of 8
    /// varint  end of its front, in bytes
    /// varint  its length, in bytes
    /// 1       flags: 0 removal, 1 expires, 2 has a segment, 3 has a tag
    /// varint  segment, if it has one
    ///         of an entry that is not a removal:
    /// varint    anti-entropy segment
    /// varint    last modified less `base`, doubled; 1 more where that is negative
    /// varint    expiry, if it expires
    /// 1         tag, if it has one
    /// ```
    pub(crate) fn encode_value(&self, base: Timestamp, out: &mut Vec<u8>) {
        put_varint(out, self.sequence);
        put_varint(out, self.at.offset / RECORD_ALIGN_BYTES);
        put_varint(out, self.at.front_end);
        put_varint(out, self.at.len);
        let expiry = self.fields.expiry.filter(|_| !self.removal);
        let has_tag = !self.removal && self.fields.tag != Tag::default();
        let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
        out.push(
            flag(FLAG_REMOVAL, self.removal)
                | flag(FLAG_EXPIRES, expiry.is_some())
                | flag(FLAG_SEGMENT, self.segment != 0)
                | flag(FLAG_TAG, has_tag),
        );
        if self.segment != 0 {
            put_varint(out, u64::from(self.segment));
        }
        if self.removal {
            return;
        }
        put_varint(out, u64::from(self.fields.segment));
        let modified = self.fields.last_modified.0;
        put_varint(out, folded(modified.wrapping_sub(base.0)));
        if let Some(expiry) = expiry {
            put_varint(out, expiry.0);
        }
        if has_tag {
            out.push(self.fields.tag.0);
        }
    }

    /// Decodes the entry at the front of `bytes`.
    fn decode(bytes: &Bytes) -> Result<Self, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let key_len = reader.take_prefixed()?.len();
        let key_end = reader.offset();
        let key = bytes.slice(key_end - key_len..key_end);
        let (entry, _) = Self::decode_value(Timestamp::default(), &bytes[key_end..])?;
        Ok(Self { key, ..entry })
    }

    /// Decodes the form of [`KeyEntry::encode_value`] at the front of `bytes`, and returns its
    /// length. The caller sets the key.
    pub(crate) fn decode_value(base: Timestamp, bytes: &[u8]) -> Result<(Self, usize), Truncated> {
        let mut reader = ByteReader::new(bytes);
        let sequence = reader.varint()?;
        let at = Location {
            offset: reader.varint()?.saturating_mul(RECORD_ALIGN_BYTES),
            front_end: reader.varint()?,
            len: reader.varint()?,
        };
        let flags = reader.u8()?;
        let removal = flags & FLAG_REMOVAL != 0;
        let segment = match flags & FLAG_SEGMENT {
            0 => 0,
            _ => number(&mut reader)?,
        };
        let fields = if removal {
            Fields::default()
        } else {
            decode_fields(&mut reader, flags, base)?
        };
        let entry = Self {
            key: Bytes::new(),
            sequence,
            segment,
            at,
            removal,
            fields,
        };
        Ok((entry, reader.offset()))
    }
}

fn decode_fields(
    reader: &mut ByteReader<'_>,
    flags: u8,
    base: Timestamp,
) -> Result<Fields, Truncated> {
    Ok(Fields {
        segment: number(reader)?,
        last_modified: Timestamp(base.0.wrapping_add(unfolded(reader.varint()?))),
        expiry: match flags & FLAG_EXPIRES {
            0 => None,
            _ => Some(Timestamp(reader.varint()?)),
        },
        tag: match flags & FLAG_TAG {
            0 => Tag::default(),
            _ => Tag(reader.u8()?),
        },
    })
}

/// A small number for a small difference of either sign.
fn folded(difference: u64) -> u64 {
    let sign = if difference >> 63 == 0 { 0 } else { u64::MAX };
    difference << 1 ^ sign
}

fn unfolded(folded: u64) -> u64 {
    let sign = if folded & 1 == 0 { 0 } else { u64::MAX };
    folded >> 1 ^ sign
}

/// A number of 32 bits.
fn number(reader: &mut ByteReader<'_>) -> Result<u32, Truncated> {
    let offset = reader.offset();
    u32::try_from(reader.varint()?).map_err(|_| Truncated { offset })
}

/// The size of the pieces that entries are packed into: a single buffer would be copied at each
/// growth, and be up to twice as large as needed.
const PIECE_BYTES: usize = 1 << PIECE_BITS;
const PIECE_BITS: u32 = 18;

/// The start of an entry: the number of its piece, then the offset in the piece.
#[derive(Clone, Copy)]
struct Start(u32);

impl Start {
    fn new(piece: usize, offset: usize) -> Self {
        // Pieces of 4 GiB in all, which no segment's keys reach.
        Self(u32::try_from(piece << PIECE_BITS | offset).unwrap_or(u32::MAX))
    }

    fn in_pieces<T: AsRef<[u8]>>(self, pieces: &[T]) -> &[u8] {
        let bytes = pieces.get(self.piece()).map(AsRef::as_ref);
        bytes
            .and_then(|bytes| bytes.get(self.offset()..))
            .unwrap_or_default()
    }

    fn piece(self) -> usize {
        (self.0 >> PIECE_BITS) as usize
    }

    fn offset(self) -> usize {
        self.0 as usize & (PIECE_BYTES - 1)
    }
}

/// Gathers entries in any order.
#[derive(Default)]
pub(crate) struct KeyTableBuilder {
    pieces: Vec<Bytes>,
    packed: Vec<u8>,
    starts: Vec<Start>,
}

impl KeyTableBuilder {
    pub(crate) fn push(&mut self, entry: &KeyEntry) {
        // Varints and fields take far less than the 128 bytes.
        let len_max = entry.key.len() + 128;
        if !self.packed.is_empty() && self.packed.len() + len_max > PIECE_BYTES {
            self.pieces
                .push(Bytes::from(std::mem::take(&mut self.packed)));
            self.packed.reserve_exact(PIECE_BYTES);
        }
        self.starts
            .push(Start::new(self.pieces.len(), self.packed.len()));
        entry.encode(&mut self.packed);
    }

    /// The number of entries. A key may have several.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Sorts by key and keeps the newest entry of each.
    pub(crate) fn finish(mut self) -> KeyTable {
        self.packed.shrink_to_fit();
        self.pieces.push(Bytes::from(self.packed));
        let pieces = self.pieces;
        let mut starts = self.starts;
        let order = |start: &Start| {
            let (key, sequence) = key_and_sequence(start.in_pieces(&pieces));
            (key, std::cmp::Reverse(sequence))
        };
        starts.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        starts.dedup_by(|later, kept| order(later).0 == order(kept).0);
        KeyTable { pieces, starts }
    }
}

/// Entries sorted by key, one for each key.
pub(crate) struct KeyTable {
    pieces: Vec<Bytes>,
    starts: Vec<Start>,
}

impl KeyTable {
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The entry at a position in key order.
    pub(crate) fn get(&self, position: usize) -> Option<KeyEntry> {
        let start = self.starts.get(position)?;
        let piece = self.pieces.get(start.piece())?;
        KeyEntry::decode(&piece.slice(start.offset()..)).ok()
    }

    /// The position of the first entry whose key is at or behind `key`.
    pub(crate) fn position_of(&self, key: &[u8]) -> usize {
        self.starts
            .partition_point(|start| key_and_sequence(start.in_pieces(&self.pieces)).0 < key)
    }
}

/// The parts that order entries. Entries that do not decode, which this module never writes, sort
/// first.
fn key_and_sequence(bytes: &[u8]) -> (&[u8], u64) {
    let mut reader = ByteReader::new(bytes);
    let key = reader.take_prefixed().unwrap_or_default();
    (key, reader.varint().unwrap_or_default())
}

/// Gathers the smallest keys of a range of any size, in bounded memory.
pub(crate) struct SmallestKeys {
    builder: KeyTableBuilder,
    keys_max: usize,
    /// Keys behind this one were left out.
    last: Option<Bytes>,
}

impl SmallestKeys {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self {
            builder: KeyTableBuilder::default(),
            keys_max: keys_max.max(1),
            last: None,
        }
    }

    pub(crate) fn push(&mut self, entry: &KeyEntry) {
        if self.last.as_ref().is_some_and(|last| entry.key > *last) {
            return;
        }
        self.builder.push(entry);
        if self.builder.len() >= 2 * self.keys_max {
            self.leave_out_largest();
        }
    }

    fn leave_out_largest(&mut self) {
        let table = std::mem::take(&mut self.builder).finish();
        let kept = table.len().min(self.keys_max);
        if kept < table.len() {
            self.last = table.get(kept - 1).map(|entry| entry.key);
        }
        for entry in (0..kept).filter_map(|position| table.get(position)) {
            self.builder.push(&entry);
        }
    }

    /// The gathered entries, and the last key up to which they are complete, if there are more.
    pub(crate) fn finish(self) -> (KeyTable, Option<Bytes>) {
        (self.builder.finish(), self.last)
    }
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

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
            segment: if sequence == 4 { 300 } else { 0 },
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
    fn the_bytes_are_as_drawn() {
        let mut full = entry("key", 300, false);
        full.segment = 9;
        full.fields.expiry = Some(Timestamp(1 << 51));
        let mut bytes = Vec::new();
        full.encode(&mut bytes);
        let place = [
            ("offset of the record, in units of 8", 2),
            ("end of its front, in bytes", 1),
            ("its length, in bytes", 2),
        ];
        let drawing = [
            &[("length of the key", 1), ("key", 3), ("sequence", 2)][..],
            &place,
            &[
                ("flags: 1 expires, 2 has a segment, 3 has a tag", 1),
                ("segment", 1),
                ("anti-entropy segment", 1),
                ("last modified, doubled", 8),
                ("expiry", 8),
                ("tag", 1),
            ],
        ]
        .concat();
        assert_bytes("key_table.entry.hex", &drawing, &bytes);
        assert_eq!(KeyEntry::decode(&bytes.into()).as_ref(), Ok(&full));
        let mut value = Vec::new();
        entry("", 3, true).encode_value(Timestamp(7), &mut value);
        let (sequence, flags) = ([("sequence", 1)], [("flags: 0 removal", 1)]);
        let drawing = [&sequence[..], &place, &flags].concat();
        assert_bytes("key_table.removal.hex", &drawing, &value);
    }

    #[test]
    fn entries_come_back_as_they_were() {
        for expected in [
            entry("a", 1, false),
            entry("", 2, false),
            entry("b", 3, true),
            entry("b", 4, true),
            entry("b", 4, false),
        ] {
            let mut out = Vec::new();
            expected.encode(&mut out);
            let bytes = Bytes::from(out);
            assert_eq!(KeyEntry::decode(&bytes).as_ref(), Ok(&expected));
            let mut value = Vec::new();
            let base = Timestamp((1 << 50) + 1000);
            expected.encode_value(base, &mut value);
            let (decoded, len) = KeyEntry::decode_value(base, &value).unwrap();
            let key = expected.key.clone();
            assert_eq!((KeyEntry { key, ..decoded }, len), (expected, value.len()));
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

    #[test]
    fn entries_of_several_pieces_are_found() {
        let mut builder = KeyTableBuilder::default();
        let key = |number: u64| format!("{:0>200}", number * 7919 % 20_011);
        for number in 0..20_011 {
            builder.push(&KeyEntry {
                key: Bytes::from(key(number)),
                ..entry("", 1, false)
            });
        }
        let table = builder.finish();
        assert!(table.pieces.len() > 16);
        for number in [0u64, 1, 5000, 12_345, 20_010] {
            let wanted = format!("{number:0>200}");
            let at = table.position_of(wanted.as_bytes());
            assert_eq!(u64::try_from(at).unwrap(), number);
            assert_eq!(table.get(at).unwrap().key, wanted);
        }
        assert!(table.get(20_011).is_none());
    }

    #[test]
    fn the_smallest_keys_are_kept_whatever_comes_behind_them() {
        let key = |number: u64| format!("{:05}", number * 7919 % 10_007);
        let mut smallest = SmallestKeys::new(100);
        for number in 0..30_000 {
            smallest.push(&KeyEntry {
                key: Bytes::from(key(number)),
                ..entry("", number, false)
            });
        }
        let (table, last) = smallest.finish();
        let last = last.unwrap();
        assert!(table.len() < 200);
        assert_eq!(table.get(table.len() - 1).unwrap().key, last);
        for position in 0..table.len() {
            let found = table.get(position).unwrap();
            assert_eq!(found.key, format!("{position:05}"));
            assert!(found.sequence >= 10_007, "the newest of its key");
        }
        let mut few = SmallestKeys::new(100);
        few.push(&entry("a", 1, false));
        assert_eq!(few.finish().1, None);
    }
}

//! Properties of a whole table: sums over the facts of its entries.

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated, put_varint};

use crate::Marks;

/// Facts about an entry for its table, besides key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The batch that wrote it.
    pub sequence: u64,
    /// The time of the entry's last change, in microseconds.
    pub last_modified: u64,
    /// The time of its expiry, in microseconds; `None` for never.
    pub expiry: Option<u64>,
    /// The anti-entropy segment of the key.
    pub segment: u32,
    /// The entry is a removal.
    pub is_removal: bool,
    /// The blob file with its body, and the bytes that the body takes there.
    pub blob: Option<(u64, u64)>,
}

/// The use of a blob file by a table's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobUse {
    /// The blob file.
    pub file: u64,
    /// Entries that point into it.
    pub count: u64,
    /// The bytes that they take there.
    pub bytes: u64,
}

/// Sums over a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Entries, removals included.
    pub entries: u64,
    /// Entries that are removals.
    pub removals: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// The lowest key, marks included.
    pub smallest: Bytes,
    /// The highest key, the ends of marks included.
    pub largest: Bytes,
    /// The lowest sequence.
    pub sequence_min: u64,
    /// The highest sequence, marks included.
    pub sequence_max: u64,
    /// The earliest change.
    pub last_modified_min: u64,
    /// The latest change.
    pub last_modified_max: u64,
    /// Entries that expire.
    pub expiring: u64,
    /// The earliest expiry among them; 0 for none.
    pub expiry_min: u64,
    /// The latest expiry among them; 0 for none.
    pub expiry_max: u64,
    /// The entries' use of blob files, by file.
    pub blobs: Vec<BlobUse>,
    /// The marks over ranges of keys.
    pub marks: Marks,
}

impl Properties {
    pub(crate) fn count(&mut self, key: &[u8], value: &[u8], facts: &Facts) {
        if self.entries == 0 {
            self.smallest = Bytes::copy_from_slice(key);
            self.sequence_min = facts.sequence;
            self.last_modified_min = facts.last_modified;
        }
        self.entries += 1;
        self.removals += u64::from(facts.is_removal);
        self.raw_bytes += (key.len() + value.len()) as u64;
        self.sequence_min = self.sequence_min.min(facts.sequence);
        self.sequence_max = self.sequence_max.max(facts.sequence);
        self.last_modified_min = self.last_modified_min.min(facts.last_modified);
        self.last_modified_max = self.last_modified_max.max(facts.last_modified);
        if let Some(expiry) = facts.expiry {
            self.expiry_min = match self.expiring {
                0 => expiry,
                _ => self.expiry_min.min(expiry),
            };
            self.expiry_max = self.expiry_max.max(expiry);
            self.expiring += 1;
        }
        if let Some((file, bytes)) = facts.blob {
            self.count_blob(file, bytes);
        }
    }

    fn count_blob(&mut self, file: u64, bytes: u64) {
        let at = match self.blobs.binary_search_by_key(&file, |it| it.file) {
            Ok(at) => at,
            Err(at) => {
                let none = BlobUse {
                    file,
                    count: 0,
                    bytes: 0,
                };
                self.blobs.insert(at, none);
                at
            }
        };
        self.blobs[at].count += 1;
        self.blobs[at].bytes += bytes;
    }

    pub(crate) fn close(&mut self, last_key: &[u8], marks: Marks) {
        self.largest = Bytes::copy_from_slice(last_key);
        for mark in marks.iter() {
            self.sequence_max = self.sequence_max.max(mark.sequence);
            if self.entries == 0 && self.smallest.is_empty() || mark.from < self.smallest {
                self.smallest = mark.from.clone();
            }
            if mark.to > self.largest {
                self.largest = mark.to.clone();
            }
        }
        self.marks = marks;
    }

    /// True when the table may have a key from `from` to `to`, both included.
    pub fn overlaps(&self, from: &[u8], to: &[u8]) -> bool {
        &self.smallest[..] <= to && from <= &self.largest[..]
    }

    /// Appends the properties: ten varints in the order of the fields without the two keys, then
    /// varint length and bytes of the lowest and the highest key, varint number of blob uses with
    /// three varints each, and the marks.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [
            self.entries,
            self.removals,
            self.raw_bytes,
            self.sequence_min,
            self.sequence_max,
            self.last_modified_min,
            self.last_modified_max,
            self.expiring,
            self.expiry_min,
            self.expiry_max,
        ] {
            put_varint(out, number);
        }
        for key in [&self.smallest, &self.largest] {
            put_varint(out, key.len() as u64);
            out.extend_from_slice(key);
        }
        put_varint(out, self.blobs.len() as u64);
        for blob in &self.blobs {
            for number in [blob.file, blob.count, blob.bytes] {
                put_varint(out, number);
            }
        }
        self.marks.encode(out);
    }

    /// Decodes the form of [`Properties::encode`].
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        let mut properties = Self {
            entries: reader.varint()?,
            removals: reader.varint()?,
            raw_bytes: reader.varint()?,
            sequence_min: reader.varint()?,
            sequence_max: reader.varint()?,
            last_modified_min: reader.varint()?,
            last_modified_max: reader.varint()?,
            expiring: reader.varint()?,
            expiry_min: reader.varint()?,
            expiry_max: reader.varint()?,
            smallest: Bytes::copy_from_slice(reader.take_prefixed()?),
            largest: Bytes::copy_from_slice(reader.take_prefixed()?),
            blobs: Vec::new(),
            marks: Marks::default(),
        };
        for _ in 0..reader.varint_len()? {
            properties.blobs.push(BlobUse {
                file: reader.varint()?,
                count: reader.varint()?,
                bytes: reader.varint()?,
            });
        }
        properties.marks = Marks::decode(reader)?;
        Ok(properties)
    }
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;
    use crate::{Mark, MarkKind};

    #[test]
    fn properties_round_trip_and_refuse_to_be_cut() {
        let mut properties = Properties::default();
        let facts = Facts {
            sequence: 9,
            last_modified: 70,
            expiry: Some(300),
            segment: 1,
            is_removal: false,
            blob: Some((4, 1000)),
        };
        properties.count(b"b", b"value", &facts);
        let facts = Facts {
            sequence: 5,
            last_modified: 60,
            is_removal: true,
            expiry: None,
            ..facts
        };
        properties.count(b"c", b"", &facts);
        let mark = Mark {
            from: Bytes::from("a"),
            to: Bytes::from("d"),
            sequence: 12,
            kind: MarkKind::Removed,
            filter: Bytes::new(),
        };
        properties.close(b"c", Marks::new(vec![mark]));
        assert_eq!(
            (&properties.smallest[..], &properties.largest[..]),
            (&b"a"[..], &b"d"[..])
        );
        assert_eq!((properties.sequence_min, properties.sequence_max), (5, 12));
        assert_eq!((properties.expiring, properties.expiry_min), (1, 300));
        assert_eq!(properties.blobs[0].bytes, 2000);
        assert!(properties.overlaps(b"d", b"z") && !properties.overlaps(b"e", b"z"));
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        assert_eq!(
            Properties::decode(&mut ByteReader::new(&bytes)),
            Ok(properties)
        );
        for cut in 0..bytes.len() {
            assert!(Properties::decode(&mut ByteReader::new(&bytes[..cut])).is_err());
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let blob = |file, count, bytes| BlobUse { file, count, bytes };
        let mark = Mark {
            from: Bytes::from("a"),
            to: Bytes::from("d"),
            sequence: 12,
            kind: MarkKind::Removed,
            filter: Bytes::from("f"),
        };
        let properties = Properties {
            entries: 1,
            removals: 2,
            raw_bytes: 300,
            sequence_min: 4,
            sequence_max: 5,
            last_modified_min: 6,
            last_modified_max: 7,
            expiring: 8,
            expiry_min: 9,
            expiry_max: 10,
            smallest: Bytes::from("b"),
            largest: Bytes::from("cd"),
            blobs: vec![blob(11, 12, 13), blob(14, 15, 16)],
            marks: Marks::new(vec![mark]),
        };
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        let numbers = [
            ("entries", 1),
            ("removals", 1),
            ("bytes before compression", 2),
            ("lowest sequence", 1),
            ("highest sequence", 1),
            ("earliest last-modified", 1),
            ("latest", 1),
            ("entries that expire", 1),
            ("earliest expiry", 1),
            ("latest", 1),
        ];
        let keys = [
            ("length of the lowest key", 1),
            ("lowest key", 1),
            ("length of the highest key", 1),
            ("highest key", 2),
        ];
        let blobs = [
            ("number of blob files", 1),
            ("file, count, bytes", 3),
            ("file, count, bytes", 3),
        ];
        let marks = [
            ("number of marks", 1),
            ("kind of the mark: 0 removed", 1),
            ("its sequence", 1),
            ("its first key", 2),
            ("the key behind", 2),
            ("its filter", 2),
        ];
        let drawing = [&numbers[..], &keys, &blobs, &marks].concat();
        assert_bytes("properties.hex", &drawing, &bytes);
    }
}

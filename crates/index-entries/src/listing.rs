//! The list of an object's index entries, which is kept with the object's head.
//!
//! ```text
//! for each entry, in order: varint length and bytes of the field, varint length and bytes of the term
//! ```

use std::collections::BTreeSet;

use bytes::Bytes;
use kvorum_backend::IndexEntry;
use kvorum_encoding::{ByteReader, Truncated, put_varint};

/// Encodes a list.
pub fn encode(entries: &BTreeSet<IndexEntry>) -> Bytes {
    let mut out = Vec::new();
    for entry in entries {
        for part in [&entry.field, &entry.term] {
            put_varint(&mut out, part.len() as u64);
            out.extend_from_slice(part);
        }
    }
    out.into()
}

/// Decodes a list.
///
/// # Errors
/// [`Truncated`] when the bytes end within an entry.
pub fn decode(bytes: &[u8]) -> Result<BTreeSet<IndexEntry>, Truncated> {
    let mut reader = ByteReader::new(bytes);
    let mut entries = BTreeSet::new();
    while !reader.is_empty() {
        entries.insert(IndexEntry {
            field: Bytes::copy_from_slice(reader.take_prefixed()?),
            term: Bytes::copy_from_slice(reader.take_prefixed()?),
        });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let entry = |field: &'static str, term: &'static str| IndexEntry {
            field: Bytes::from(field),
            term: Bytes::from(term),
        };
        let entries = BTreeSet::from([entry("age_int", "7"), entry("city_bin", "")]);
        let bytes = encode(&entries);
        let drawing = [
            ("length of the field", 1),
            ("field", 7),
            ("length of the term", 1),
            ("term", 1),
            ("length of the second field", 1),
            ("field", 8),
            ("length of no term", 1),
        ];
        assert_bytes("listing.hex", &drawing, &bytes);
        assert_eq!(decode(&bytes), Ok(entries));
    }
}

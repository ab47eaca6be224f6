//! The list of an object's index entries, which is kept beside its head.
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

//! The store's form of an entry, and its counted bytes.

use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{Fields, IndexEntry, Sequence, StoredEntry, StoredHead, Timestamp};
use kvorum_encoding::StorageKey;

/// The counted bytes of an entry beyond its key, head and body: its fields and buffer handles, its
/// places in the table and the map by key and in the maps by expiry and by age, and the allocator's
/// overhead. Measured with half a million entries: 350 bytes in a store without a bound, 430 with a
/// bound, 530 if all entries expire too. (The table came later; its 10 to 20 bytes were saved in
/// the entry.) If the count was too low the system could kill the process, so the highest figure is
/// used for all.
pub const ENTRY_OVERHEAD_BYTES: u64 = 530;

/// The counted bytes of an index entry beyond its field and term: its place in the entry and in the
/// index map, each with the handles of field, term and key. Measured as above.
pub const INDEX_ENTRY_OVERHEAD_BYTES: u64 = 510;

/// A stored entry. It is immutable: an overwrite makes another.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) sequence: Sequence,
    pub(crate) fields: Fields,
    /// The time of its expiry: its own or the store's TTL, the earlier of the two.
    pub(crate) expires_at: Option<Timestamp>,
    /// Key, head and body in one piece.
    pub(crate) bytes: Bytes,
    pub(crate) head_start: usize,
    pub(crate) body_start: usize,
    pub(crate) index_entries: Vec<IndexEntry>,
    /// Its position in the order of the store's writes.
    pub(crate) position: u64,
    /// Its counted bytes.
    pub(crate) memory_bytes: u64,
}

impl Entry {
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[..self.head_start]
    }

    pub(crate) fn head(&self) -> Bytes {
        self.bytes.slice(self.head_start..self.body_start)
    }

    pub(crate) fn body(&self) -> Bytes {
        self.bytes.slice(self.body_start..)
    }

    pub(crate) fn to_stored(&self) -> StoredEntry {
        StoredEntry {
            sequence: self.sequence,
            fields: self.fields,
            head: self.head(),
            body: self.body(),
        }
    }

    pub(crate) fn to_head(&self) -> StoredHead {
        StoredHead {
            sequence: self.sequence,
            fields: self.fields,
            head: self.head(),
            body_len: (self.bytes.len() - self.body_start) as u64,
            place: None,
        }
    }
}

/// Key, head and body in one buffer of their own.
pub(crate) struct OwnedBytes {
    pub(crate) bytes: Bytes,
    pub(crate) head_start: usize,
    pub(crate) body_start: usize,
}

impl OwnedBytes {
    pub(crate) fn key(&self) -> StorageKey {
        StorageKey::from_encoded(self.bytes.slice(..self.head_start))
    }
}

/// Copies a request's bytes, which are slices of its whole frame: otherwise they would keep the
/// frame in memory, and the memory bound would be a guess.
pub(crate) fn own(key: &StorageKey, head: &Bytes, body: &Bytes) -> OwnedBytes {
    let head_start = key.as_bytes().len();
    let body_start = head_start + head.len();
    let mut buffer = Vec::with_capacity(body_start + body.len());
    buffer.extend_from_slice(key.as_bytes());
    buffer.extend_from_slice(head);
    buffer.extend_from_slice(body);
    OwnedBytes {
        bytes: buffer.into(),
        head_start,
        body_start,
    }
}

/// An index entry in a buffer of its own.
pub(crate) fn own_index_entry(entry: &IndexEntry) -> IndexEntry {
    let mut buffer = Vec::with_capacity(entry.field.len() + entry.term.len());
    buffer.extend_from_slice(&entry.field);
    buffer.extend_from_slice(&entry.term);
    let buffer = Bytes::from(buffer);
    IndexEntry {
        field: buffer.slice(..entry.field.len()),
        term: buffer.slice(entry.field.len()..),
    }
}

/// The counted bytes of an entry of these sizes.
pub(crate) fn memory_bytes(payload_bytes: usize, index_entries: &[IndexEntry]) -> u64 {
    let index_bytes: u64 = index_entries.iter().map(index_entry_bytes).sum();
    payload_bytes as u64 + ENTRY_OVERHEAD_BYTES + index_bytes
}

fn index_entry_bytes(entry: &IndexEntry) -> u64 {
    (entry.field.len() + entry.term.len()) as u64 + INDEX_ENTRY_OVERHEAD_BYTES
}

/// The time of expiry of an entry with these fields in a store with this TTL.
pub(crate) fn expires_at(fields: &Fields, ttl: Option<Duration>) -> Option<Timestamp> {
    let by_ttl = ttl.map(|ttl| {
        let micros = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        Timestamp(fields.last_modified.0.saturating_add(micros))
    });
    match (fields.expiry, by_ttl) {
        (Some(own), Some(by_ttl)) => Some(own.min(by_ttl)),
        (own, by_ttl) => own.or(by_ttl),
    }
}

//! A B+tree behind the trait: redb, over the disk seam.
//!
//! redb commits each transaction with a sync of its own and gives multi-version snapshots; the
//! spike adds fields, expiry and indexes as tables beside the entries. Every put is a durable
//! commit: redb could commit without a sync, but loses such commits when it is opened again after
//! an error, and a visible put must not vanish from an open store.

mod engine;
mod snapshot;
mod storage;

use kvorum_backend::{BackendError, ErrorKind, IndexEntry};
use kvorum_encoding::{ByteReader, StorageKey, Truncated, put_varint};
use redb::TableDefinition;

use crate::entry_encoding::{Value, framed, put_change, take_change, unframed};

/// Prefix of the bucket, field, term, key.
type IndexKey<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a [u8]);

const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");
const INDEX: TableDefinition<'_, IndexKey<'_>, ()> = TableDefinition::new("index");
const EXPIRY: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("expiry");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The contents of a row of the entries table.
struct Row {
    value: Value,
    /// All index entries of the object, for their removal when it expires.
    index_entries: Vec<IndexEntry>,
}

impl Row {
    fn encode(&self, key: &StorageKey) -> Vec<u8> {
        let mut payload = Vec::new();
        put_change(&mut payload, key, Some(&self.value));
        for entry in &self.index_entries {
            for part in [&entry.field, &entry.term] {
                put_varint(&mut payload, part.len() as u64);
                payload.extend_from_slice(part);
            }
        }
        framed(&payload)
    }

    fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, BackendError> {
        let damaged = |_| corrupt(&format!("row of {}", key.escape_ascii()));
        let payload = unframed(bytes).ok_or(()).map_err(damaged)?;
        let row = Self::take(&mut ByteReader::new(payload)).map_err(|_| damaged(()))?;
        match row {
            (stored, row) if stored.as_bytes() == key => Ok(row),
            _ => Err(damaged(())),
        }
    }

    fn take(reader: &mut ByteReader<'_>) -> Result<(StorageKey, Self), Truncated> {
        let offset = reader.offset();
        let (key, value) = take_change(reader)?;
        let mut row = Self {
            value: value.ok_or(Truncated { offset })?,
            index_entries: Vec::new(),
        };
        while !reader.is_empty() {
            row.index_entries.push(IndexEntry {
                field: reader.take_prefixed()?.to_vec().into(),
                term: reader.take_prefixed()?.to_vec().into(),
            });
        }
        Ok((key, row))
    }
}

fn corrupt(detail: &str) -> BackendError {
    BackendError::new(ErrorKind::Corrupt, detail)
}

/// The part of a key that names its bucket.
fn bucket_prefix(key: &StorageKey) -> &[u8] {
    &key.as_bytes()[..key.bucket_prefix_len().unwrap_or(0)]
}

/// Any of redb's errors, by the possible reactions.
fn tree_error(error: impl Into<redb::Error>) -> BackendError {
    let error = error.into();
    let kind = match &error {
        redb::Error::Corrupted(_) | redb::Error::RepairAborted => ErrorKind::Corrupt,
        redb::Error::UpgradeRequired(_) => ErrorKind::NewerFormat,
        redb::Error::Io(io) => match io.kind() {
            std::io::ErrorKind::StorageFull => ErrorKind::Full,
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => {
                ErrorKind::Corrupt
            }
            _ => ErrorKind::Failed,
        },
        _ => ErrorKind::Failed,
    };
    BackendError::new(kind, error.to_string())
}

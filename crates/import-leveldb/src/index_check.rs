//! A comparison of a store's index entries with the index entries of its objects.
//!
//! The server makes its own entries from the objects, so nothing is lost if Riak's entries differ.
//! But a store whose entries and objects disagree has answered queries wrongly, so the operator
//! gets the counts. Entries are sorted by field and term, objects by key. Their hashes, spread over
//! files on disk, bring them together.

use std::path::Path;

use kvorum_disk::Disk;
use kvorum_encoding::{StorageKey, checksum, mask_checksum};
use kvorum_import::{Counts, ImportError, SpreadWriter, read_spread};
use xxhash_rust::xxh3::Xxh3;

use crate::riak_key::IndexKey;

/// The length of an entry, in bytes.
const ENTRY_BYTES: usize = 24;

/// An index entry, found in the store or required by an object:
///
/// ```text
/// offset  size  field (little-endian)
///      0    16  hash of store, object, field and term
///     16     4  1 if it was found in the store, 0 if an object calls for it
///     20     4  masked CRC-32C of bytes 0..20
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CheckEntry {
    hash: u128,
    is_found: bool,
}

impl CheckEntry {
    pub(crate) fn new(store: usize, entry: &IndexKey, is_found: bool) -> Self {
        let mut hasher = Xxh3::new();
        let key = StorageKey::from_address(&entry.address);
        for part in [key.as_bytes(), &entry.field, &entry.term] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.update(&(store as u64).to_le_bytes());
        let hash = hasher.digest128();
        Self { hash, is_found }
    }

    /// Appends the entry to the file that also gets its counterpart.
    pub(crate) fn write(self, writer: &mut SpreadWriter) -> Result<(), ImportError> {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..16].copy_from_slice(&self.hash.to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::from(self.is_found).to_le_bytes());
        let sum = mask_checksum(checksum(&bytes[..20]));
        bytes[20..].copy_from_slice(&sum.to_le_bytes());
        writer.add(self.hash, &bytes)
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let (hash, rest) = bytes.split_first_chunk::<16>()?;
        let (found, rest) = rest.split_first_chunk::<4>()?;
        let sum = rest.first_chunk::<4>()?;
        let is_right = mask_checksum(checksum(&bytes[..20])) == u32::from_le_bytes(*sum);
        is_right.then_some(Self {
            hash: u128::from_le_bytes(*hash),
            is_found: *found != [0; 4],
        })
    }
}

/// Compares the entries of files of these lengths, and counts entries of one side only.
pub(crate) fn compare(
    disk: &dyn Disk,
    directory: &Path,
    lens: &[u64],
    counts: &mut Counts,
) -> Result<(), ImportError> {
    for (number, len) in lens.iter().enumerate() {
        let mut entries = read_spread(disk, directory, number, *len, CheckEntry::decode)?;
        entries.sort_unstable();
        for same in entries.chunk_by(|a, b| a.hash == b.hash) {
            let found = same.iter().any(|entry| entry.is_found);
            let called_for = same.iter().any(|entry| !entry.is_found);
            counts.index_entries_missing += u64::from(!found);
            counts.index_entries_stray += u64::from(!called_for);
        }
    }
    Ok(())
}

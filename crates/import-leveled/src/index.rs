//! The index on disk: an entry for every record found, spread over files by key, so that all
//! entries of a key are read together.

use kvorum_encoding::{checksum, mask_checksum};
use kvorum_import::{ImportError, IndexPlace, read_spread};

/// The length of an entry, in bytes.
pub(crate) const ENTRY_BYTES: usize = 48;
const KIND_SHIFT: u32 = 29;
const FILE_MASK: u32 = (1 << KIND_SHIFT) - 1;

/// Place and properties of a record:
///
/// ```text
/// offset  size  field (little-endian)
///      0    16  hash of the key
///     16     8  sequence number
///     24     8  hash of the value
///     32     4  number of the journal file; highest three bits: kind of the record
///     36     4  offset of the record in its file
///     40     4  length of the record
///     44     4  masked CRC-32C of bytes 0..44
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) key_hash: u128,
    pub(crate) sequence: u64,
    pub(crate) value_digest: u64,
    pub(crate) file: u32,
    pub(crate) kind: EntryKind,
    pub(crate) offset: u32,
    pub(crate) total_len: u32,
}

/// The kind of a record for an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EntryKind {
    /// Index changes of a replaced object. An object with the same sequence counts as newer.
    IndexChanges,
    /// An object of Riak's.
    Object,
    /// The deletion of a key.
    Tombstone,
    /// A record that is not an object of Riak's.
    Other,
}

const KINDS: [EntryKind; 4] = [
    EntryKind::IndexChanges,
    EntryKind::Object,
    EntryKind::Tombstone,
    EntryKind::Other,
];

impl IndexEntry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let kind = KINDS.iter().position(|kind| *kind == self.kind);
        let kind = u32::try_from(kind.unwrap_or(0)).unwrap_or(0);
        bytes[..16].copy_from_slice(&self.key_hash.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.value_digest.to_le_bytes());
        bytes[32..36].copy_from_slice(&(self.file & FILE_MASK | kind << KIND_SHIFT).to_le_bytes());
        bytes[36..40].copy_from_slice(&self.offset.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.total_len.to_le_bytes());
        let sum = mask_checksum(checksum(&bytes[..44]));
        bytes[44..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let word = |at: usize| -> u32 {
            let four = bytes[at..].first_chunk().copied();
            u32::from_le_bytes(four.unwrap_or_default())
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let kind = KINDS.get(usize::try_from(word(32) >> KIND_SHIFT).ok()?);
        let is_right = word(44) == mask_checksum(checksum(&bytes[..44]));
        Some(Self {
            key_hash: u128::from(long(0)) | u128::from(long(8)) << 64,
            sequence: long(16),
            value_digest: long(24),
            file: word(32) & FILE_MASK,
            kind: *kind.filter(|_| is_right)?,
            offset: word(36),
            total_len: word(40),
        })
    }
}

/// Reads the entries of one file.
pub(crate) fn read(place: &IndexPlace<'_>) -> Result<Vec<IndexEntry>, ImportError> {
    let (number, len) = (place.number, place.len);
    read_spread(place.disk, place.directory, number, len, IndexEntry::decode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_every_flipped_bit_is_noticed() {
        for kind in KINDS {
            let entry = IndexEntry {
                key_hash: u128::MAX / 3,
                sequence: 1 << 40,
                value_digest: u64::MAX / 5,
                file: FILE_MASK - 1,
                kind,
                offset: u32::MAX - 7,
                total_len: 99,
            };
            let bytes = entry.encode();
            assert_eq!(IndexEntry::decode(&bytes), Some(entry));
            for bit in 0..ENTRY_BYTES * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(IndexEntry::decode(&flipped), None, "bit {bit}");
            }
        }
    }
}

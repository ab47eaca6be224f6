//! The index of the places of all records of the source.
//!
//! A key's newest record may be anywhere, and its replicas are in other partitions. So entries are
//! spread by key, and all entries of a key are read together.

use kvorum_encoding::{checksum, mask_checksum};
use kvorum_import::{ImportError, IndexPlace, read_spread};

/// The length of an entry, in bytes.
pub(crate) const ENTRY_BYTES: usize = 48;
const TOMBSTONE_FLAG: u32 = 1 << 31;

/// Place and properties of a record:
///
/// ```text
/// offset  size  field (little-endian)
///      0    16  hash of the key
///     16     8  offset of the record in its data file
///     24     8  hash of the value; 0 where it was not read
///     32     4  number of the data file; highest bit: the record deletes its key
///     36     4  length of the record
///     40     4  time of writing, seconds since the Unix epoch
///     44     4  masked CRC-32C of bytes 0..44
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) key_hash: u128,
    pub(crate) offset: u64,
    pub(crate) value_digest: u64,
    pub(crate) file: u32,
    pub(crate) is_tombstone: bool,
    pub(crate) total_len: u32,
    pub(crate) timestamp: u32,
}

impl IndexEntry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let flag = if self.is_tombstone { TOMBSTONE_FLAG } else { 0 };
        bytes[..16].copy_from_slice(&self.key_hash.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.value_digest.to_le_bytes());
        bytes[32..36].copy_from_slice(&(self.file | flag).to_le_bytes());
        bytes[36..40].copy_from_slice(&self.total_len.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.timestamp.to_le_bytes());
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
        let is_right = word(44) == mask_checksum(checksum(&bytes[..44]));
        is_right.then(|| Self {
            key_hash: u128::from(long(0)) | u128::from(long(8)) << 64,
            offset: long(16),
            value_digest: long(24),
            file: word(32) & !TOMBSTONE_FLAG,
            is_tombstone: word(32) & TOMBSTONE_FLAG != 0,
            total_len: word(36),
            timestamp: word(40),
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
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use kvorum_disk::{Disk, MemoryDisk, OpenMode, Reading};
    use kvorum_import::SpreadWriter;

    use super::*;

    fn entry(number: u64) -> IndexEntry {
        IndexEntry {
            key_hash: u128::from(number) << 96 | u128::from(number),
            offset: number * 100,
            value_digest: number + 1,
            file: 7,
            is_tombstone: number.is_multiple_of(2),
            total_len: 99,
            timestamp: 1_700_000_000,
        }
    }

    fn read_file(
        disk: &Arc<dyn Disk>,
        number: usize,
        len: u64,
    ) -> Result<Vec<IndexEntry>, ImportError> {
        read(&IndexPlace {
            disk: &**disk,
            directory: Path::new("i"),
            number,
            len,
            store_of: &[],
        })
    }

    fn written(disk: &Arc<dyn Disk>, count: u64) -> Vec<u64> {
        disk.create_directory(Path::new("i")).unwrap();
        let mut writer = SpreadWriter::resume(disk.clone(), Path::new("i"), &[0; 4]);
        for number in 0..count {
            let entry = entry(number << 20);
            writer.add(entry.key_hash, &entry.encode()).unwrap();
        }
        writer.flush().unwrap()
    }

    #[test]
    fn entries_come_back_from_the_file_of_their_key() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let lens = written(&disk, 4096);
        let mut found = 0;
        for (number, len) in lens.iter().enumerate() {
            let entries = read_file(&disk, number, *len).unwrap();
            found += entries.len();
        }
        assert_eq!(found, 4096);
        assert!(lens.iter().all(|len| *len > 0), "{lens:?}");
    }

    #[test]
    fn every_flipped_byte_of_an_index_is_noticed() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let lens = written(&disk, 2);
        let path = PathBuf::from("i/0000.index");
        for at in 0..lens[0] {
            let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at, Reading::MayBlock).unwrap();
            file.write_at(&[byte[0] ^ 1], at).unwrap();
            let read = read_file(&disk, 0, lens[0]);
            assert!(
                matches!(read, Err(ImportError::StateDamaged { .. })),
                "{at}"
            );
            file.write_at(&byte, at).unwrap();
        }
    }
}

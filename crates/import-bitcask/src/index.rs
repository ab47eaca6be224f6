//! The index: where every record of the source is, spread by key over files that fit into memory.
//!
//! A key's newest record may be anywhere, and its replicas are in other partitions. To know them
//! all, a table of all keys would have to be kept, for tens of millions of them. Instead the survey
//! appends an entry for each record to one of up to a thousand files, chosen by the key's hash; all
//! records of a key meet in one file, and one file at a time is sorted in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::{Disk, DiskFile, ErrorKind, OpenMode, Reading};
use kvorum_encoding::{checksum, mask_checksum};

use crate::error::ImportError;

/// The length of an entry, in bytes.
pub(crate) const ENTRY_BYTES: usize = 48;
/// Entries a file is meant to get; one file of so many is what an import keeps in memory.
const ENTRIES_WANTED: u64 = 1 << 20;
/// More files than this, and their write buffers would be the memory.
const FILES_MAX: u64 = 1024;
const WRITE_BYTES: usize = 32 << 10;
const TOMBSTONE_FLAG: u32 = 1 << 31;

/// Where a record is, and what is known of it:
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
    fn encode(&self) -> [u8; ENTRY_BYTES] {
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

/// How many files an index of about so many records is spread over.
pub(crate) fn file_count(records: u64) -> usize {
    let wanted = (records / ENTRIES_WANTED + 1).next_power_of_two();
    usize::try_from(wanted.min(FILES_MAX)).unwrap_or(1)
}

/// Appends entries.
pub(crate) struct IndexWriter {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    files: Vec<IndexFile>,
}

struct IndexFile {
    file: Option<Arc<dyn DiskFile>>,
    written: u64,
    pending: Vec<u8>,
}

impl IndexWriter {
    /// Goes on with files that had these lengths, in bytes; what they hold beyond is forgotten.
    pub(crate) fn resume(disk: Arc<dyn Disk>, directory: &Path, lens: &[u64]) -> Self {
        let files = lens.iter().map(|written| IndexFile {
            file: None,
            written: *written,
            pending: Vec::new(),
        });
        Self {
            disk,
            directory: directory.to_owned(),
            files: files.collect(),
        }
    }

    pub(crate) fn add(&mut self, entry: &IndexEntry) -> Result<(), ImportError> {
        let number = file_of(entry.key_hash, self.files.len());
        self.files[number]
            .pending
            .extend_from_slice(&entry.encode());
        if self.files[number].pending.len() >= WRITE_BYTES {
            self.write(number)?;
        }
        Ok(())
    }

    /// Writes everything, and returns the files' lengths.
    pub(crate) fn flush(&mut self) -> Result<Vec<u64>, ImportError> {
        for number in 0..self.files.len() {
            self.write(number)?;
        }
        Ok(self.files.iter().map(|file| file.written).collect())
    }

    /// Makes everything durable.
    pub(crate) fn sync(&mut self) -> Result<(), ImportError> {
        for file in self.files.iter().filter_map(|file| file.file.as_ref()) {
            file.sync()?;
        }
        Ok(self.disk.sync_directory(&self.directory)?)
    }

    fn write(&mut self, number: usize) -> Result<(), ImportError> {
        let index_file = &mut self.files[number];
        if index_file.pending.is_empty() {
            return Ok(());
        }
        let file = match &index_file.file {
            Some(file) => file,
            None => {
                let path = path_of(&self.directory, number);
                index_file
                    .file
                    .insert(self.disk.open(&path, OpenMode::Create)?)
            }
        };
        file.write_at(&index_file.pending, index_file.written)?;
        index_file.written += index_file.pending.len() as u64;
        index_file.pending.clear();
        Ok(())
    }
}

/// Reads the entries of one file.
pub(crate) fn read(
    disk: &dyn Disk,
    directory: &Path,
    number: usize,
    len: u64,
) -> Result<Vec<IndexEntry>, ImportError> {
    let path = path_of(directory, number);
    let damaged = |reason: String| ImportError::StateDamaged {
        what: "index",
        path: path.clone(),
        reason,
    };
    if len == 0 {
        return Ok(Vec::new());
    }
    let file = match disk.open(&path, OpenMode::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(damaged("it is missing".to_owned()));
        }
        opened => opened?,
    };
    if file.len()? < len {
        return Err(damaged("it is shorter than it was".to_owned()));
    }
    let mut entries = Vec::with_capacity(usize::try_from(len).unwrap_or(0) / ENTRY_BYTES);
    let mut chunk = vec![0; ENTRY_BYTES * 4096];
    let mut at = 0;
    while at < len {
        let wanted = chunk
            .len()
            .min(usize::try_from(len - at).unwrap_or(usize::MAX));
        let read = file.read_at(&mut chunk[..wanted], at, Reading::MayBlock)?;
        let (whole, rest) = chunk[..read].as_chunks::<ENTRY_BYTES>();
        for bytes in whole {
            let place = at;
            let entry = IndexEntry::decode(bytes);
            entries
                .push(entry.ok_or_else(|| damaged(format!("wrong checksum near byte {place}")))?);
        }
        if read == 0 || !rest.is_empty() {
            return Err(damaged(format!("it ends at byte {at}")));
        }
        at += read as u64;
    }
    Ok(entries)
}

fn path_of(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("{number:04}.index"))
}

/// The file of a key: by the highest bits of its hash, of which any are as good.
fn file_of(key_hash: u128, files: usize) -> usize {
    let top = u64::try_from(key_hash >> 64).unwrap_or(0);
    let place = (u128::from(top) * files as u128) >> 64;
    usize::try_from(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;

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

    fn written(disk: &Arc<dyn Disk>, count: u64) -> Vec<u64> {
        disk.create_directory(Path::new("i")).unwrap();
        let mut writer = IndexWriter::resume(disk.clone(), Path::new("i"), &[0; 4]);
        for number in 0..count {
            writer.add(&entry(number << 20)).unwrap();
        }
        writer.flush().unwrap()
    }

    #[test]
    fn entries_come_back_from_the_file_of_their_key() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let lens = written(&disk, 4096);
        let mut found = 0;
        for (number, len) in lens.iter().enumerate() {
            let entries = read(&*disk, Path::new("i"), number, *len).unwrap();
            assert!(
                entries
                    .iter()
                    .all(|entry| file_of(entry.key_hash, 4) == number)
            );
            found += entries.len();
        }
        assert_eq!(found, 4096);
        assert!(lens.iter().all(|len| *len > 0), "{lens:?}");
    }

    #[test]
    fn every_flipped_byte_of_an_index_is_noticed() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let lens = written(&disk, 2);
        let path = path_of(Path::new("i"), 0);
        for at in 0..lens[0] {
            let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at, Reading::MayBlock).unwrap();
            file.write_at(&[byte[0] ^ 1], at).unwrap();
            let read = read(&*disk, Path::new("i"), 0, lens[0]);
            assert!(
                matches!(read, Err(ImportError::StateDamaged { .. })),
                "{at}"
            );
            file.write_at(&byte, at).unwrap();
        }
    }

    #[test]
    fn a_few_records_make_one_file_and_many_make_many() {
        assert_eq!(file_count(0), 1);
        assert_eq!(file_count(3_000_000), 4);
        assert_eq!(file_count(u64::MAX / 2), 1024);
    }
}

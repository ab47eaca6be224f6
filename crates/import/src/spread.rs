//! Entries spread by key over files that fit into memory one at a time.
//!
//! The records of one key may be anywhere in the source. Joining them directly would need a table
//! of all keys, tens of millions of them. Instead an entry for each record is appended to one of up
//! to a thousand files, chosen by the key's hash. All entries of a key are in one file, and one
//! file at a time is sorted in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::{Disk, DiskFile, ErrorKind, OpenMode, Reading};

use crate::error::ImportError;

/// The target number of entries in a file, which an import keeps in memory.
const ENTRIES_WANTED: u64 = 1 << 20;
/// Maximum number of files; more write buffers would take too much memory.
const FILES_MAX: u64 = 1024;
const WRITE_BYTES: usize = 32 << 10;
/// Entries read from disk at once.
const READ_ENTRIES: usize = 4096;

/// The number of files for about this many entries.
pub fn file_count(records: u64) -> usize {
    let wanted = (records / ENTRIES_WANTED + 1).next_power_of_two();
    usize::try_from(wanted.min(FILES_MAX)).unwrap_or(1)
}

/// Appends entries.
pub struct SpreadWriter {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    files: Vec<SpreadFile>,
}

struct SpreadFile {
    file: Option<Arc<dyn DiskFile>>,
    written: u64,
    pending: Vec<u8>,
}

impl SpreadWriter {
    /// Continues files of these lengths, in bytes; longer ones are truncated.
    pub fn resume(disk: Arc<dyn Disk>, directory: &Path, lens: &[u64]) -> Self {
        let files = lens.iter().map(|written| SpreadFile {
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

    /// Appends an entry to the file of its key.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn add(&mut self, key_hash: u128, entry: &[u8]) -> Result<(), ImportError> {
        let number = file_of(key_hash, self.files.len());
        self.files[number].pending.extend_from_slice(entry);
        if self.files[number].pending.len() >= WRITE_BYTES {
            self.write(number)?;
        }
        Ok(())
    }

    /// Writes everything, and returns the files' lengths.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn flush(&mut self) -> Result<Vec<u64>, ImportError> {
        for number in 0..self.files.len() {
            self.write(number)?;
        }
        Ok(self.files.iter().map(|file| file.written).collect())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn sync(&mut self) -> Result<(), ImportError> {
        for file in self.files.iter().filter_map(|file| file.file.as_ref()) {
            file.sync()?;
        }
        Ok(self.disk.sync_directory(&self.directory)?)
    }

    fn write(&mut self, number: usize) -> Result<(), ImportError> {
        let spread_file = &mut self.files[number];
        if spread_file.pending.is_empty() {
            return Ok(());
        }
        let file = match &spread_file.file {
            Some(file) => file,
            None => {
                let path = path_of(&self.directory, number);
                spread_file
                    .file
                    .insert(self.disk.open(&path, OpenMode::Create)?)
            }
        };
        file.write_at(&spread_file.pending, spread_file.written)?;
        spread_file.written += spread_file.pending.len() as u64;
        spread_file.pending.clear();
        Ok(())
    }
}

/// Reads the entries of one file, of `N` bytes each.
///
/// # Errors
/// If the disk fails, the file has another length, or `decode` refuses an entry.
pub fn read_spread<T, const N: usize>(
    disk: &dyn Disk,
    directory: &Path,
    number: usize,
    len: u64,
    decode: impl Fn(&[u8; N]) -> Option<T>,
) -> Result<Vec<T>, ImportError> {
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
    let mut entries = Vec::with_capacity(usize::try_from(len).unwrap_or(0) / N);
    let mut chunk = vec![0; N * READ_ENTRIES];
    let mut at = 0;
    while at < len {
        let left = usize::try_from(len - at).unwrap_or(usize::MAX);
        let wanted = chunk.len().min(left);
        let read = file.read_at(&mut chunk[..wanted], at, Reading::MayBlock)?;
        let (whole, rest) = chunk[..read].as_chunks::<N>();
        for bytes in whole {
            let entry = decode(bytes);
            entries.push(entry.ok_or_else(|| damaged(format!("wrong checksum near byte {at}")))?);
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

/// The file of a key, chosen by the highest bits of its hash.
fn file_of(key_hash: u128, files: usize) -> usize {
    let top = u64::try_from(key_hash >> 64).unwrap_or(0);
    let place = (u128::from(top) * files as u128) >> 64;
    usize::try_from(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_records_make_one_file_and_many_make_many() {
        assert_eq!(file_count(0), 1);
        assert_eq!(file_count(3_000_000), 4);
        assert_eq!(file_count(u64::MAX / 2), 1024);
    }

    #[test]
    fn a_key_has_one_file_and_keys_have_all() {
        let mut hit = [false; 4];
        for number in 0..64u128 {
            hit[file_of(number << 122, 4)] = true;
        }
        assert_eq!(hit, [true; 4]);
    }
}

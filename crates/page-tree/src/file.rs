//! Files of pages: their names, their headers, and reading them.
//!
//! Files are only appended to, and the pages of a root never change. Numbers are not reused within
//! a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Disk, DiskError, DiskFile, OpenMode, Reading};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};

use crate::place::PagePlace;

/// The length of the header before the first page, in bytes.
pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const MAGIC: [u8; 8] = *b"KVpgtree";
const VERSION: u8 = 1;
const SUFFIX: &str = ".pages";

/// A file in a manifest's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Its number.
    pub number: u64,
    /// Its valid length in bytes; an unfinished rewrite may have left pages behind it.
    pub len: u64,
    /// Bytes of the file's pages that the root's tree needs, with branches counted twice.
    pub live_bytes: u64,
}

/// An open file of pages.
pub struct PageFile {
    number: u64,
    handle: Arc<dyn DiskFile>,
}

/// The name of a file.
pub fn file_name(number: u64) -> String {
    format!("{number:010}{SUFFIX}")
}

/// The number in the name of a file; `None` for other names.
pub fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

pub(crate) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(file_name(number))
}

/// Encodes the header before the first page:
///
/// ```text
/// offset  size  field
///      0     8  magic "KVpgtree"
///      8     1  format version, 1
///      9     3  zero
///     12     4  masked CRC-32C of bytes 0..12 and 16..32
///     16     8  identity of the store
///     24     8  number of the file
/// ```
pub(crate) fn encode_header(store: u64, number: u64) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8] = VERSION;
    out[16..24].copy_from_slice(&store.to_le_bytes());
    out[24..32].copy_from_slice(&number.to_le_bytes());
    let check = header_check(&out);
    out[12..16].copy_from_slice(&check.to_le_bytes());
    out
}

fn header_check(header: &[u8; HEADER_BYTES]) -> u32 {
    mask_checksum(checksum_append(checksum(&header[..12]), &header[16..]))
}

/// The store in a file's header; `None` if the header is damaged.
///
/// # Errors
/// Those of the disk.
pub fn store_of_file(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Option<u64>> {
    let file = disk.open(path, OpenMode::Read)?;
    let mut header = [0; HEADER_BYTES];
    let read = file.read_at(&mut header, 0, Reading::MayBlock)?;
    let is_whole = read == HEADER_BYTES && header[..8] == MAGIC;
    if !is_whole || header[12..16] != header_check(&header).to_le_bytes() {
        return Ok(None);
    }
    let store = header[16..24].first_chunk::<8>();
    Ok(store.map(|it| u64::from_le_bytes(*it)))
}

impl PageFile {
    /// Opens the file with this number.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn open(disk: &dyn Disk, directory: &Path, number: u64) -> kvorum_disk::Result<Self> {
        let handle = disk.open(&path_of(directory, number), OpenMode::Read)?;
        Ok(Self { number, handle })
    }

    /// Creates a file with its header, which is not durable yet.
    pub(crate) fn create(
        disk: &dyn Disk,
        directory: &Path,
        store: u64,
        number: u64,
    ) -> kvorum_disk::Result<Self> {
        let handle = disk.open(&path_of(directory, number), OpenMode::CreateNew)?;
        handle.write_at(&encode_header(store, number), 0)?;
        Ok(Self { number, handle })
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its present length, in bytes; 0 if the disk does not report it.
    pub fn bytes(&self) -> u64 {
        self.handle.len().unwrap_or(0)
    }

    pub(crate) fn handle(&self) -> &dyn DiskFile {
        &*self.handle
    }

    /// The bytes of a page, or of its second copy right behind; fewer at the end of the file.
    pub(crate) fn read(
        &self,
        place: &PagePlace,
        is_twin: bool,
        reading: Reading,
    ) -> Result<Bytes, DiskError> {
        let mut bytes = vec![0; place.len as usize];
        let skipped = if is_twin { u64::from(place.len) } else { 0 };
        let offset = place.offset.saturating_add(skipped);
        let read = self.handle.read_at(&mut bytes, offset, reading)?;
        bytes.truncate(read);
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let drawing = [
            ("magic \"KVpgtree\"", 8),
            ("format version, 1", 1),
            ("zero", 3),
            ("masked CRC-32C of bytes 0..12 and 16..32", 4),
            ("identity of the store", 8),
            ("number of the file", 8),
        ];
        assert_bytes("file.hex", &drawing, &encode_header(0x0102, 300));
    }

    #[test]
    fn names_have_their_numbers_and_others_have_none() {
        for number in [0, 7, 9_999_999_999, u64::MAX] {
            assert_eq!(number_of(&file_name(number)), Some(number));
        }
        for name in [
            "7.pages",
            "0000000007",
            "0000000007.sst",
            "+000000007.pages",
        ] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_header_says_whose_file_it_is_until_a_byte_of_it_is_wrong() {
        let disk = MemoryDisk::new();
        let path = path_of(Path::new(""), 5);
        let file = disk.open(&path, OpenMode::CreateNew).unwrap();
        let good = encode_header(77, 5);
        file.write_at(&good, 0).unwrap();
        assert_eq!(store_of_file(&disk, &path).unwrap(), Some(77));
        for at in 0..HEADER_BYTES {
            let mut bad = good;
            bad[at] ^= 1;
            file.write_at(&bad, 0).unwrap();
            assert_eq!(store_of_file(&disk, &path).unwrap(), None, "byte {at}");
        }
    }
}

//! Damaged parts that a store set aside: bytes in a directory below its own, and an index of their
//! contents. Engines differ in the time of writing; the format is the same.
//!
//! A failure to keep this record is ignored: on a full or failing disk the ranges are known while
//! the store is open, and the next opening finds them again.

use std::path::{Path, PathBuf};

use kvorum_disk::anatomy::{Dissection, Piece};
use kvorum_disk::{Disk, OpenMode, Reading, create_directory_durably, read_file, replace_file};
use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum, put_varint};

use crate::status::LostRange;

/// Its name below a store's directory.
pub const LOST_NAME: &str = "lost";
/// The most bytes of an index.
pub const LOST_INDEX_BYTES_MAX: u64 = 16 << 20;

const VERSION: u8 = 1;
/// The most ranges in the list; a store with more is beyond repair by range.
const RANGES_MAX: usize = 10_000;
/// The most bytes that are copied from one range.
const COPIED_BYTES_MAX: u64 = 16 << 20;

/// The directory for a store's damaged parts.
#[derive(Clone, Debug)]
pub struct LostDirectory {
    path: PathBuf,
    index: &'static str,
    magic: [u8; 8],
}

impl LostDirectory {
    /// The directory of a store, with this name and magic of its index.
    pub fn of(store: &Path, index: &'static str, magic: [u8; 8]) -> Self {
        Self {
            path: store.join(LOST_NAME),
            index,
            magic,
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ranges in the index.
    ///
    /// # Errors
    /// A damaged index is itself a lost range.
    pub fn read(&self, disk: &dyn Disk) -> Result<Vec<LostRange>, LostRange> {
        let path = self.path.join(self.index);
        let Ok(Some(info)) = disk.info(&path) else {
            return Ok(Vec::new());
        };
        let read = read_file(disk, &path, LOST_INDEX_BYTES_MAX);
        match read.map(|bytes| decode(&bytes, self.magic)) {
            Ok(Ok(ranges)) => Ok(ranges),
            _ => Err(LostRange {
                file: format!("{LOST_NAME}/{}", self.index),
                offset: 0,
                len: info.len,
                held: "the list of what was lost before".to_owned(),
            }),
        }
    }

    /// Copies the bytes of a range, as far as they can be read.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn set_aside(&self, disk: &dyn Disk, range: &LostRange) -> kvorum_disk::Result<()> {
        let store = self.path.parent().unwrap_or(Path::new("."));
        create_directory_durably(disk, &self.path)?;
        let source = disk.open(&store.join(&range.file), OpenMode::Read)?;
        let rest = source.len()?.saturating_sub(range.offset);
        let len = range.len.min(COPIED_BYTES_MAX).min(rest);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = source.read_at(&mut bytes, range.offset, Reading::MayBlock)?;
        replace_file(disk, &self.copy_of(range), &bytes[..read])
    }

    /// The path of a range's copy.
    pub fn copy_of(&self, range: &LostRange) -> PathBuf {
        let name = format!("{}-{}", range.file.replace('/', "-"), range.offset);
        self.path.join(name)
    }

    /// Writes the index.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write(&self, disk: &dyn Disk, ranges: &[LostRange]) -> kvorum_disk::Result<()> {
        create_directory_durably(disk, &self.path)?;
        let bytes = encode(ranges, self.magic);
        replace_file(disk, &self.path.join(self.index), &bytes)
    }

    /// Removes everything, as after an erasure.
    pub fn remove(&self, disk: &dyn Disk) {
        if let Ok(Some(_)) = disk.info(&self.path) {
            let _removed_or_failing_disk = disk.remove_directory(&self.path);
        }
    }
}

/// True if a range has to be added to the listed ones.
pub fn is_news(ranges: &[LostRange], range: &LostRange) -> bool {
    let is_same =
        |it: &LostRange| (&it.file, it.offset, it.len) == (&range.file, range.offset, range.len);
    ranges.len() < RANGES_MAX && !ranges.iter().any(is_same)
}

/// Encodes the index:
///
/// ```text
/// size    field
/// 8       magic, the engine's
/// 1       format version, 1
/// varint  number of ranges, and for each:
///   varint  length of the file's name, then the name
///   varint  offset
///   varint  length
///   varint  length of the text about its contents, then the text
/// 4       masked CRC-32C of all before
/// ```
fn encode(ranges: &[LostRange], magic: [u8; 8]) -> Vec<u8> {
    let mut out = magic.to_vec();
    out.push(VERSION);
    put_varint(&mut out, ranges.len() as u64);
    for range in ranges {
        put_varint(&mut out, range.file.len() as u64);
        out.extend_from_slice(range.file.as_bytes());
        put_varint(&mut out, range.offset);
        put_varint(&mut out, range.len);
        put_varint(&mut out, range.held.len() as u64);
        out.extend_from_slice(range.held.as_bytes());
    }
    let check = mask_checksum(checksum(&out));
    out.extend_from_slice(&check.to_le_bytes());
    out
}

fn decode(bytes: &[u8], magic: [u8; 8]) -> Result<Vec<LostRange>, Truncated> {
    let refused = Err(Truncated { offset: 0 });
    let Some((covered, stored)) = bytes.split_last_chunk::<4>() else {
        return refused;
    };
    if mask_checksum(checksum(covered)).to_le_bytes() != *stored {
        return refused;
    }
    let mut reader = ByteReader::new(covered);
    if reader.array::<8>()? != magic || reader.u8()? != VERSION {
        return refused;
    }
    let count = reader.varint_len()?;
    let mut ranges = Vec::new();
    for _ in 0..count {
        let file = String::from_utf8_lossy(reader.take_prefixed()?).into_owned();
        ranges.push(LostRange {
            file,
            offset: reader.varint()?,
            len: reader.varint()?,
            held: String::from_utf8_lossy(reader.take_prefixed()?).into_owned(),
        });
    }
    Ok(ranges)
}

/// The annotated bytes of an index.
pub fn lost_index_piece(bytes: &[u8], magic: [u8; 8]) -> Piece {
    let covered = bytes.len().saturating_sub(4);
    let mut fields = Dissection::new(bytes, 0);
    fields.magic(&magic);
    fields.number("format version", 1);
    let count = varint(&mut fields, "number of ranges").unwrap_or(0);
    for _ in 0..count {
        if fields.position() >= covered || range(&mut fields).is_none() {
            break;
        }
    }
    if fields.position() < covered {
        let rest = covered - fields.position();
        fields.bytes("rest", rest);
    }
    let computed = mask_checksum(checksum(&bytes[..covered]));
    fields.checksum("checksum of the file", computed);
    fields.nothing_more();
    fields.finish("what was lost")
}

fn range(fields: &mut Dissection<'_>) -> Option<()> {
    let len = varint(fields, "length of the name")?;
    fields.bytes("file", usize::try_from(len).ok()?)?;
    varint(fields, "offset")?;
    varint(fields, "length")?;
    let len = varint(fields, "length of the words")?;
    fields.bytes("what it held", usize::try_from(len).ok()?)?;
    Some(())
}

fn varint(fields: &mut Dissection<'_>, name: &str) -> Option<u64> {
    fields.varying(name, |bytes| {
        let mut reader = ByteReader::new(bytes);
        let value = reader.varint().ok()?;
        Some((value, reader.offset()))
    })
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;
    use kvorum_golden::assert_bytes;

    use super::*;

    const MAGIC: [u8; 8] = *b"KVtestxx";

    fn range(offset: u64) -> LostRange {
        LostRange {
            file: "data".to_owned(),
            offset,
            len: 4,
            held: "a record".to_owned(),
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = encode(&[range(2), range(300)], MAGIC);
        let drawing = [
            ("magic, the engine's", 8),
            ("format version, 1", 1),
            ("number of ranges", 1),
            ("length of the file's name", 1),
            ("name", 4),
            ("offset", 1),
            ("length", 1),
            ("length of the text about its contents", 1),
            ("text", 8),
            ("length of the second file's name", 1),
            ("name", 4),
            ("offset", 2),
            ("length", 1),
            ("length of the text about its contents", 1),
            ("text", 8),
            ("masked CRC-32C of all before", 4),
        ];
        assert_bytes("lost_directory.hex", &drawing, &bytes);
        assert_eq!(decode(&bytes, MAGIC), Ok(vec![range(2), range(300)]));
    }

    #[test]
    fn what_is_written_is_read_and_what_is_set_aside_is_there() {
        let disk = MemoryDisk::new();
        let store = Path::new("s");
        disk.create_directory(store).unwrap();
        let file = disk.open(&store.join("data"), OpenMode::CreateNew).unwrap();
        file.write_at(b"0123456789", 0).unwrap();
        let lost = LostDirectory::of(store, "index", MAGIC);
        assert_eq!(lost.read(&disk), Ok(Vec::new()));
        lost.set_aside(&disk, &range(2)).unwrap();
        lost.write(&disk, &[range(2), range(5)]).unwrap();
        assert_eq!(lost.read(&disk), Ok(vec![range(2), range(5)]));
        assert_eq!(
            read_file(&disk, &lost.copy_of(&range(2)), 10).unwrap(),
            b"2345"
        );
        lost.remove(&disk);
        assert_eq!(lost.read(&disk), Ok(Vec::new()));
    }

    #[test]
    fn any_flip_or_cut_of_the_index_is_reported() {
        let good = encode(&[range(2)], MAGIC);
        assert_eq!(decode(&good, MAGIC), Ok(vec![range(2)]));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert!(decode(&bad, MAGIC).is_err(), "byte {at}");
            assert!(decode(&good[..at], MAGIC).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_range_is_news_once() {
        assert!(is_news(&[range(1)], &range(2)));
        assert!(!is_news(&[range(1)], &range(1)));
        assert!(!is_news(&vec![range(1); RANGES_MAX], &range(2)));
    }
}

//! What was set aside as damaged: bytes in `lost/`, and an index of what they held.
//!
//! Keeping this record is worth trying and never worth failing for: on a full or failing disk the
//! ranges are known for as long as the store is open, and are found again by the next opening.

use std::path::{Path, PathBuf};

use kvorum_backend::LostRange;
use kvorum_disk::{Disk, OpenMode, Reading, create_directory_durably, read_file, replace_file};
use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum, put_varint};

use crate::shared::is_lost_name;

const DIRECTORY: &str = "lost";
const INDEX: &str = "index";
pub(crate) const MAGIC: [u8; 8] = *b"KVbclost";
const VERSION: u8 = 1;
pub(crate) const INDEX_BYTES_MAX: u64 = 16 << 20;
/// What is listed at most; a store with more is past repair by range.
const RANGES_MAX: usize = 10_000;
/// What is copied of one range at most.
const COPIED_BYTES_MAX: u64 = 16 << 20;

/// The ranges that were lost since ever.
pub(crate) struct LostLog {
    directory: PathBuf,
    ranges: Vec<LostRange>,
}

impl LostLog {
    /// Reads the index, if there is one. A damaged index is itself listed as lost.
    pub(crate) fn open(disk: &dyn Disk, store: &Path) -> Self {
        let directory = store.join(DIRECTORY);
        let path = directory.join(INDEX);
        let mut log = Self {
            directory,
            ranges: Vec::new(),
        };
        let Ok(Some(info)) = disk.info(&path) else {
            return log;
        };
        match read_file(disk, &path, INDEX_BYTES_MAX).map(|bytes| decode(&bytes)) {
            Ok(Ok(ranges)) => log.ranges = ranges,
            _ => log.add(
                disk,
                LostRange {
                    file: format!("{DIRECTORY}/{INDEX}"),
                    offset: 0,
                    len: info.len,
                    held: "the list of what was lost before".to_owned(),
                },
            ),
        }
        log
    }

    pub(crate) fn ranges(&self) -> &[LostRange] {
        &self.ranges
    }

    /// True when records are among what was lost, so that older ones of their keys may show.
    pub(crate) fn has_records(&self) -> bool {
        self.ranges.iter().any(|range| {
            is_lost_name(&range.file) || kvorum_segment::parse_file_name(&range.file).is_some()
        })
    }

    /// Adds a range, copies its bytes and writes the index. A range that is known is left as it is.
    pub(crate) fn add(&mut self, disk: &dyn Disk, range: LostRange) {
        let is_known = self.ranges.iter().any(|known| {
            (&known.file, known.offset, known.len) == (&range.file, range.offset, range.len)
        });
        if is_known || self.ranges.len() >= RANGES_MAX {
            return;
        }
        let _copied_or_failing_disk = self.set_aside(disk, &range);
        self.ranges.push(range);
        let _written_or_failing_disk = self.write(disk);
    }

    /// Forgets everything, as after an erasure.
    pub(crate) fn clear(&mut self, disk: &dyn Disk) {
        self.ranges.clear();
        if let Ok(Some(_)) = disk.info(&self.directory) {
            let _removed_or_failing_disk = disk.remove_directory(&self.directory);
        }
    }

    fn set_aside(&self, disk: &dyn Disk, range: &LostRange) -> kvorum_disk::Result<()> {
        let store = self.directory.parent().unwrap_or(Path::new("."));
        create_directory_durably(disk, &self.directory)?;
        let source = disk.open(&store.join(&range.file), OpenMode::Read)?;
        let rest = source.len()?.saturating_sub(range.offset);
        let len = range.len.min(COPIED_BYTES_MAX).min(rest);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = source.read_at(&mut bytes, range.offset, Reading::MayBlock)?;
        let name = format!("{}-{}", range.file.replace('/', "-"), range.offset);
        replace_file(disk, &self.directory.join(name), &bytes[..read])
    }

    fn write(&self, disk: &dyn Disk) -> kvorum_disk::Result<()> {
        create_directory_durably(disk, &self.directory)?;
        replace_file(disk, &self.directory.join(INDEX), &encode(&self.ranges))
    }
}

/// Encodes the index:
///
/// ```text
/// size    field
/// 8       magic "KVbclost"
/// 1       format version, 1
/// varint  number of ranges, and for each:
///   varint  length of the file's name, then the name
///   varint  offset
///   varint  length
///   varint  length of what it held, then the words
/// 4       masked CRC-32C of all before
/// ```
fn encode(ranges: &[LostRange]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
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

fn decode(bytes: &[u8]) -> Result<Vec<LostRange>, Truncated> {
    let refused = Err(Truncated { offset: 0 });
    let Some((covered, stored)) = bytes.split_last_chunk::<4>() else {
        return refused;
    };
    if mask_checksum(checksum(covered)).to_le_bytes() != *stored {
        return refused;
    }
    let mut reader = ByteReader::new(covered);
    if reader.array::<8>()? != MAGIC || reader.u8()? != VERSION {
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

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;

    use super::*;

    fn range(offset: u64) -> LostRange {
        LostRange {
            file: "data".to_owned(),
            offset,
            len: 4,
            held: "a record".to_owned(),
        }
    }

    #[test]
    fn what_was_lost_is_known_to_the_next_opening_once() {
        let disk = MemoryDisk::new();
        disk.create_directory(Path::new("s")).unwrap();
        let file = disk.open(Path::new("s/data"), OpenMode::CreateNew).unwrap();
        file.write_at(b"0123456789", 0).unwrap();
        let mut log = LostLog::open(&disk, Path::new("s"));
        log.add(&disk, range(2));
        log.add(&disk, range(2));
        log.add(&disk, range(5));
        let again = LostLog::open(&disk, Path::new("s"));
        assert_eq!(again.ranges(), [range(2), range(5)]);
        let kept = read_file(&disk, Path::new("s/lost/data-2"), 10).unwrap();
        assert_eq!(kept, b"2345");
    }

    #[test]
    fn a_damaged_index_is_told() {
        let disk = MemoryDisk::new();
        disk.create_directory(Path::new("s")).unwrap();
        LostLog::open(&disk, Path::new("s")).add(&disk, range(2));
        let path = Path::new("s/lost/index");
        let file = disk.open(path, OpenMode::ReadWrite).unwrap();
        file.write_at(&[9], 12).unwrap();
        let again = LostLog::open(&disk, Path::new("s"));
        assert_eq!(again.ranges().len(), 1);
        assert_eq!(again.ranges()[0].file, "lost/index");
    }
}

//! What was set aside as damaged: bytes in `lost/`, and `lost/BLOCKS.bad`, which says what they held.
//!
//! Damage is met by reads that must not wait for a device, so it is noted in memory first and written
//! by the next upkeep, and before a damaged file goes. Keeping the record is worth trying and never
//! worth failing for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::LostRange;
use kvorum_disk::{Disk, OpenMode, Reading, read_file, replace_file};
use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum, put_varint};
use kvorum_sst::{DamageSink, TableDamage};
use parking_lot::Mutex;

pub(crate) const DIRECTORY: &str = "lost";
pub(crate) const INDEX: &str = "BLOCKS.bad";
pub(crate) const MAGIC: [u8; 8] = *b"KVlsmbad";
const VERSION: u8 = 1;
pub(crate) const INDEX_BYTES_MAX: u64 = 16 << 20;
/// What is listed at most; a store with more is past repair by range.
const RANGES_MAX: usize = 10_000;
/// What is copied of one range at most.
const COPIED_BYTES_MAX: u64 = 16 << 20;
/// What is told of a key at most.
const KEY_SHOWN_BYTES: usize = 64;

/// The ranges that were lost since ever.
pub(crate) struct LostLog {
    directory: PathBuf,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    ranges: Vec<LostRange>,
    /// How many of them are in the index on disk.
    written: usize,
}

impl LostLog {
    /// Reads the index, if there is one. A damaged index is itself listed as lost.
    pub(crate) fn open(disk: &dyn Disk, store: &Path) -> Self {
        let directory = store.join(DIRECTORY);
        let path = directory.join(INDEX);
        let mut known = Known::default();
        if let Ok(Some(info)) = disk.info(&path) {
            match read_file(disk, &path, INDEX_BYTES_MAX).map(|bytes| decode(&bytes)) {
                Ok(Ok(ranges)) => {
                    known.written = ranges.len();
                    known.ranges = ranges;
                }
                _ => known.ranges.push(LostRange {
                    file: format!("{DIRECTORY}/{INDEX}"),
                    offset: 0,
                    len: info.len,
                    held: "the list of what was lost before".to_owned(),
                }),
            }
        }
        Self {
            directory,
            known: Mutex::new(known),
        }
    }

    pub(crate) fn ranges(&self) -> Vec<LostRange> {
        self.known.lock().ranges.clone()
    }

    /// Notes a range; one that is known is left as it is.
    pub(crate) fn note(&self, range: LostRange) {
        let mut known = self.known.lock();
        let is_known = known
            .ranges
            .iter()
            .any(|it| (&it.file, it.offset, it.len) == (&range.file, range.offset, range.len));
        if !is_known && known.ranges.len() < RANGES_MAX {
            known.ranges.push(range);
        }
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        let known = self.known.lock();
        known.written < known.ranges.len()
    }

    /// Copies what was noted and writes the index.
    pub(crate) fn write(&self, disk: &dyn Disk) {
        let (ranges, written) = {
            let known = self.known.lock();
            (known.ranges.clone(), known.written)
        };
        if written >= ranges.len() {
            return;
        }
        for range in &ranges[written..] {
            let _copied_or_failing_disk = self.set_aside(disk, range);
        }
        if self.write_index(disk, &ranges).is_ok() {
            self.known.lock().written = ranges.len();
        }
    }

    /// Forgets everything, as after an erasure.
    pub(crate) fn clear(&self, disk: &dyn Disk) {
        *self.known.lock() = Known::default();
        if let Ok(Some(_)) = disk.info(&self.directory) {
            let _removed_or_failing_disk = disk.remove_directory(&self.directory);
        }
    }

    fn set_aside(&self, disk: &dyn Disk, range: &LostRange) -> kvorum_disk::Result<()> {
        let store = self.directory.parent().unwrap_or(Path::new("."));
        disk.create_directory(&self.directory)?;
        let source = disk.open(&store.join(&range.file), OpenMode::Read)?;
        let rest = source.len()?.saturating_sub(range.offset);
        let len = range.len.min(COPIED_BYTES_MAX).min(rest);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = source.read_at(&mut bytes, range.offset, Reading::MayBlock)?;
        let name = format!("{}-{}", range.file.replace('/', "-"), range.offset);
        replace_file(disk, &self.directory.join(name), &bytes[..read])
    }

    fn write_index(&self, disk: &dyn Disk, ranges: &[LostRange]) -> kvorum_disk::Result<()> {
        disk.create_directory(&self.directory)?;
        replace_file(disk, &self.directory.join(INDEX), &encode(ranges))?;
        disk.sync_directory(self.directory.parent().unwrap_or(Path::new(".")))
    }
}

/// Notes damage to files of one kind.
pub(crate) struct LostSink {
    pub(crate) log: Arc<LostLog>,
    /// What the files' names end with.
    pub(crate) suffix: &'static str,
}

impl DamageSink for LostSink {
    fn met(&self, damage: TableDamage) {
        let held = match &damage.keys {
            Some((from, to)) => format!(
                "{} with the keys from {} up to {} ({})",
                damage.part,
                shown(from),
                shown(to),
                damage.found
            ),
            None => format!("{} ({})", damage.part, damage.found),
        };
        self.log.note(LostRange {
            file: format!("{:010}{}", damage.number, self.suffix),
            offset: damage.offset,
            len: damage.len,
            held,
        });
    }
}

pub(crate) fn shown(key: &[u8]) -> String {
    let cut = &key[..key.len().min(KEY_SHOWN_BYTES)];
    format!("\"{}\"", cut.escape_ascii())
}

/// Encodes the index:
///
/// ```text
/// size    field
/// 8       magic "KVlsmbad"
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

    #[test]
    fn what_was_lost_is_known_to_the_next_opening_once_and_a_damaged_list_is_told() {
        let disk = MemoryDisk::new();
        let store = Path::new("s");
        disk.create_directory(store).unwrap();
        let file = disk.open(Path::new("s/data"), OpenMode::CreateNew).unwrap();
        file.write_at(b"0123456789", 0).unwrap();
        let range = |offset| LostRange {
            file: "data".to_owned(),
            offset,
            len: 4,
            held: "a record".to_owned(),
        };
        let log = LostLog::open(&disk, store);
        for offset in [2, 2, 5] {
            log.note(range(offset));
        }
        log.write(&disk);
        let again = LostLog::open(&disk, store);
        assert_eq!(again.ranges(), [range(2), range(5)]);
        assert!(!again.has_unwritten());
        let kept = read_file(&disk, Path::new("s/lost/data-2"), 10).unwrap();
        assert_eq!(kept, b"2345");
        let index = disk
            .open(Path::new("s/lost/BLOCKS.bad"), OpenMode::ReadWrite)
            .unwrap();
        index.write_at(&[9], 12).unwrap();
        let again = LostLog::open(&disk, store).ranges();
        assert_eq!((again.len(), &again[0].file[..]), (1, "lost/BLOCKS.bad"));
    }
}

//! Damaged parts that were set aside: bytes in `lost/`, and `lost/BLOCKS.bad`, which lists their
//! keys.
//!
//! Reads that must not wait for a device may find damage, so damage is noted in memory first. The
//! next upkeep writes the note, as does the removal of a damaged file. A failure to write is
//! ignored.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{LostDirectory, LostRange, is_news};
use kvorum_disk::Disk;
use kvorum_encoding::KeyRange;
use kvorum_ordered_tree::Doubts;
use kvorum_sst::{DamageSink, Part, TableDamage};
use parking_lot::Mutex;

pub(crate) const INDEX: &str = "BLOCKS.bad";
pub(crate) const MAGIC: [u8; 8] = *b"KVlsmbad";
/// The most bytes of a key that a report shows.
const KEY_SHOWN_BYTES: usize = 64;

/// All ranges lost since the store was created or erased.
pub struct LostLog {
    directory: LostDirectory,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    ranges: Vec<LostRange>,
    /// Ranges that are in the index on disk.
    written: usize,
}

impl LostLog {
    /// Reads the index, if there is one. A damaged index is itself listed as lost.
    pub fn open(disk: &dyn Disk, store: &Path) -> Self {
        let directory = LostDirectory::of(store, INDEX, MAGIC);
        let known = match directory.read(disk) {
            Ok(ranges) => Known {
                written: ranges.len(),
                ranges,
            },
            Err(damaged) => Known {
                written: 0,
                ranges: vec![damaged],
            },
        };
        Self {
            directory,
            known: Mutex::new(known),
        }
    }

    /// All ranges known to be lost.
    pub fn ranges(&self) -> Vec<LostRange> {
        self.known.lock().ranges.clone()
    }

    /// Notes a range; a known one does not change.
    pub fn note(&self, range: LostRange) {
        let mut known = self.known.lock();
        if is_news(&known.ranges, &range) {
            known.ranges.push(range);
        }
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        let known = self.known.lock();
        known.written < known.ranges.len()
    }

    /// Copies the noted ranges' bytes and writes the index.
    pub fn write(&self, disk: &dyn Disk) {
        let (ranges, written) = {
            let known = self.known.lock();
            (known.ranges.clone(), known.written)
        };
        if written >= ranges.len() {
            return;
        }
        for range in &ranges[written..] {
            let _copied_or_failing_disk = self.directory.set_aside(disk, range);
        }
        if self.directory.write(disk, &ranges).is_ok() {
            self.known.lock().written = ranges.len();
        }
    }

    /// Removes all ranges, as after an erasure.
    pub(crate) fn clear(&self, disk: &dyn Disk) {
        *self.known.lock() = Known::default();
        self.directory.remove(disk);
    }

    /// Removes an unreferenced file of the store. A file with damaged bytes that could not be
    /// copied goes to `lost/`: the device may recover.
    pub(crate) fn retire(&self, disk: &dyn Disk, path: &Path) {
        let Some(name) = path.file_name().and_then(|it| it.to_str()) else {
            return;
        };
        let _gone_or_left_over = match self.is_uncopied(disk, path, name) {
            true => disk.rename(path, &self.directory.path().join(name)),
            false => disk.remove_file(path),
        };
    }

    fn is_uncopied(&self, disk: &dyn Disk, path: &Path, file: &str) -> bool {
        let known = self.known.lock();
        let mut ranges = known.ranges.iter().filter(|it| it.file == file);
        let len_of = |path: &Path| disk.info(path).ok().flatten().map(|it| it.len);
        ranges.any(|range| {
            let Some(file_len) = len_of(path) else {
                return false;
            };
            let wanted = range.len.min(file_len.saturating_sub(range.offset));
            let copied = len_of(&self.directory.copy_of(range));
            copied.is_none_or(|copied| copied < wanted)
        })
    }
}

/// Notes damage to files of one kind.
pub(crate) struct LostSink {
    pub(crate) log: Arc<LostLog>,
    /// The doubts about their keys; `None` if the files have no keys of the store.
    pub(crate) doubts: Option<Arc<Doubts>>,
    /// The suffix of the files' names.
    pub(crate) suffix: &'static str,
}

impl DamageSink for LostSink {
    fn met(&self, damage: TableDamage) {
        if let Some(doubts) = &self.doubts
            && let Some(range) = in_doubt(&damage)
        {
            doubts.open_for(damage.number, damage.offset, range);
        }
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

/// The keys that are lost with a part of a table; `None` for parts that can be rebuilt or are not
/// needed.
fn in_doubt(damage: &TableDamage) -> Option<KeyRange> {
    match (&damage.keys, damage.part) {
        (Some((from, to)), _) => Some(KeyRange {
            from: from.clone(),
            to: Some(to.clone()),
        }),
        (None, Part::Data) => Some(KeyRange::everything()),
        (None, _) => None,
    }
}

/// A key's text in reports.
pub fn shown(key: &[u8]) -> String {
    let cut = &key[..key.len().min(KEY_SHOWN_BYTES)];
    format!("\"{}\"", cut.escape_ascii())
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{MemoryDisk, OpenMode, read_file};

    use super::*;

    #[test]
    fn what_was_lost_is_known_to_the_next_opening_once_and_a_damaged_list_is_reported() {
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

//! Damaged parts that were set aside: bytes in `lost/`, and an index of their keys, which is
//! written as soon as damage is found.

use std::path::Path;

use kvorum_backend::{LOST_NAME, LostDirectory, LostRange, is_news};
use kvorum_disk::Disk;

use crate::shared_place::is_lost_name;

pub(crate) const DIRECTORY: &str = LOST_NAME;
pub(crate) const MAGIC: [u8; 8] = *b"KVbclost";
const INDEX: &str = "index";

/// All ranges lost since the store was created or erased.
pub(crate) struct LostLog {
    directory: LostDirectory,
    ranges: Vec<LostRange>,
}

impl LostLog {
    /// Reads the index, if there is one. A damaged index is itself listed as lost.
    pub(crate) fn open(disk: &dyn Disk, store: &Path) -> Self {
        let directory = LostDirectory::of(store, INDEX, MAGIC);
        let (ranges, damaged) = match directory.read(disk) {
            Ok(ranges) => (ranges, None),
            Err(damaged) => (Vec::new(), Some(damaged)),
        };
        let mut log = Self { directory, ranges };
        if let Some(damaged) = damaged {
            log.add(disk, damaged);
        }
        log
    }

    pub(crate) fn ranges(&self) -> &[LostRange] {
        &self.ranges
    }

    /// True when records were lost, so that older records of their keys may appear.
    pub(crate) fn has_records(&self) -> bool {
        self.ranges.iter().any(|range| {
            is_lost_name(&range.file) || kvorum_segment::parse_file_name(&range.file).is_some()
        })
    }

    /// Adds a range, copies its bytes and writes the index. A known range does not change.
    pub(crate) fn add(&mut self, disk: &dyn Disk, range: LostRange) {
        if !is_news(&self.ranges, &range) {
            return;
        }
        let _copied_or_failing_disk = self.directory.set_aside(disk, &range);
        self.ranges.push(range);
        let _written_or_failing_disk = self.directory.write(disk, &self.ranges);
    }

    /// Removes all ranges, as after an erasure.
    pub(crate) fn clear(&mut self, disk: &dyn Disk) {
        self.ranges.clear();
        self.directory.remove(disk);
    }
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{MemoryDisk, OpenMode, read_file};

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
    fn a_damaged_index_is_reported() {
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

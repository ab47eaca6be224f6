//! Hint files: the sorted keys of one finished segment, so that openings and folds need not read
//! its values.
//!
//! A hint is bound to its segment by log, number, length and range of sequences, and is ignored if
//! one of these differs. A damaged hint costs time, not data.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use kvorum_disk::Disk;
use kvorum_encoding::{ByteReader, put_varint};
use kvorum_planted_defects::is_planted;
use kvorum_segment::{Seal, SegmentId};
use kvorum_sst::TableId;

use crate::hint_table::{HintError, HintTable, HintTableWriter, check_version, split_note};

const VERSION: u8 = 1;

/// A hint's facts about its segment. A hint with a wrong fact is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HintedSegment {
    id: TableId,
    seal: Seal,
}

/// The name of a segment's hint file.
pub(crate) fn hint_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:010}.hint"))
}

impl HintedSegment {
    pub(crate) fn of(segment: &SegmentId, seal: Seal) -> Self {
        let id = TableId {
            store: segment.log_id,
            number: segment.number,
        };
        Self { id, seal }
    }

    /// Begins to write the segment's hint.
    pub(crate) fn create_hint(
        &self,
        disk: &dyn Disk,
        path: &Path,
    ) -> kvorum_sst::Result<HintTableWriter> {
        HintTableWriter::create(disk, path, self.id)
    }

    /// The note of the segment's hint; log and number are in the table's header.
    ///
    /// ```text
    /// 1       format version, 1
    /// varint  end of the segment's records, in bytes
    /// varint  number of the segment's records
    /// varint  lowest sequence
    /// varint  highest sequence
    /// ```
    pub(crate) fn note(&self) -> Vec<u8> {
        let mut note = vec![VERSION];
        for number in self.numbers() {
            put_varint(&mut note, number);
        }
        note
    }

    fn numbers(&self) -> [u64; 4] {
        let it = &self.seal;
        [it.data_end, it.records, it.sequence_min, it.sequence_max]
    }

    /// Opens the segment's hint.
    pub(crate) fn open_hint(&self, disk: &dyn Disk, path: &Path) -> Result<HintTable, HintError> {
        let (hint, note) = HintTable::open(disk, path, self.id)?;
        let bound = decode_note(&note)?;
        if bound != self.numbers() && !is_planted!(StaleHintTrusted) {
            let what = "not of this segment as it is";
            return Err(HintError::Unusable(what.to_owned()));
        }
        Ok(hint)
    }
}

fn decode_note(note: &[u8]) -> Result<[u64; 4], HintError> {
    let mut reader = ByteReader::new(note);
    check_version(&mut reader, VERSION)?;
    let mut numbers = [0; 4];
    for number in &mut numbers {
        *number = reader.varint()?;
    }
    Ok(numbers)
}

/// A note as text.
pub(crate) fn note_shown(note: &Bytes) -> Option<String> {
    let note = split_note(note).ok()?.1;
    let [data_end, records, sequence_min, sequence_max] = decode_note(&note).ok()?;
    Some(format!(
        "of a segment with {records} records up to byte {data_end}, sequences {sequence_min} to \
         {sequence_max}"
    ))
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use kvorum_backend::Fields;
    use kvorum_disk::{MemoryDisk, OpenMode, Reading};
    use kvorum_golden::assert_bytes;
    use kvorum_segment::Location;

    use super::*;
    use crate::key_table::KeyEntry;

    const SEAL: Seal = Seal {
        data_end: 3,
        records: 4,
        sequence_min: 5,
        sequence_max: 6,
    };
    const SEGMENT: HintedSegment = HintedSegment {
        id: TableId {
            store: 1,
            number: 2,
        },
        seal: SEAL,
    };

    fn entry(number: u64) -> KeyEntry {
        KeyEntry {
            key: Bytes::from(format!("key {number:05}")),
            sequence: number,
            segment: 0,
            at: Location {
                offset: number * 8,
                front_end: 64,
                len: 100,
            },
            removal: false,
            fields: Fields::default(),
        }
    }

    fn write(disk: &MemoryDisk, count: u64) {
        let mut writer = SEGMENT.create_hint(disk, Path::new("h")).unwrap();
        for number in 0..count {
            writer.push(&entry(number)).unwrap();
        }
        writer.finish(disk, &SEGMENT.note()).unwrap();
    }

    fn open(disk: &MemoryDisk) -> Result<HintTable, HintError> {
        SEGMENT.open_hint(disk, Path::new("h"))
    }

    /// Opens a hint, checks its frame, and reads all entries.
    fn read_all(disk: &MemoryDisk) -> Result<Vec<KeyEntry>, HintError> {
        let hint = open(disk)?;
        hint.check_frame()?;
        let mut scan = hint.scan();
        let mut entries = Vec::new();
        while let Some(entry) = scan.next()? {
            entries.push(entry);
        }
        assert!(scan.next()?.is_none());
        Ok(entries)
    }

    #[test]
    fn the_bytes_of_a_note_are_as_drawn() {
        let seal = Seal {
            data_end: 4_096,
            records: 7,
            sequence_min: 300,
            sequence_max: 306,
        };
        let note = HintedSegment { seal, ..SEGMENT }.note();
        let drawing = [
            ("format version, 1", 1),
            ("end of the segment's records, in bytes", 2),
            ("number of the segment's records", 1),
            ("lowest sequence", 2),
            ("highest sequence", 2),
        ];
        assert_bytes("hint.hex", &drawing, &note);
        assert_eq!(decode_note(&note).unwrap(), [4_096, 7, 300, 306]);
    }

    #[test]
    fn entries_are_read_in_order_and_from_a_key_on() {
        let disk = MemoryDisk::new();
        write(&disk, 3000);
        let all = read_all(&disk).unwrap();
        assert_eq!(all, (0..3000).map(entry).collect::<Vec<_>>());
        let hint = open(&disk).unwrap();
        for number in [0, 1, 777, 2999] {
            let wanted = entry(number);
            let (from, to) = (Bound::Included(wanted.key.clone()), Bound::Unbounded);
            let mut scan = hint.range(from, to, None);
            let said = scan.get(&wanted.key).unwrap();
            assert_eq!(scan.next().unwrap().as_ref(), Some(&wanted));
            assert_eq!(said, [wanted]);
            scan.seek(entry(2000).key);
            assert_eq!(scan.next().unwrap(), Some(entry(2000)));
        }
    }

    #[test]
    fn a_hint_without_entries_is_one() {
        let disk = MemoryDisk::new();
        write(&disk, 0);
        assert_eq!(read_all(&disk).unwrap(), []);
    }

    #[test]
    fn a_hint_of_another_segment_is_not_used() {
        let disk = MemoryDisk::new();
        write(&disk, 10);
        let seal = Seal {
            data_end: 4,
            ..SEAL
        };
        let longer = HintedSegment { seal, ..SEGMENT };
        let opened = longer.open_hint(&disk, Path::new("h"));
        assert!(matches!(opened, Err(HintError::Unusable(_))));
    }

    #[test]
    fn any_flip_or_cut_is_noticed() {
        let disk = MemoryDisk::new();
        write(&disk, 40);
        let file = disk.open(Path::new("h"), OpenMode::ReadWrite).unwrap();
        let len = file.len().unwrap();
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        file.read_at(&mut bytes, 0, Reading::MayBlock).unwrap();
        for (at, byte) in (0..).zip(&bytes) {
            file.write_at(&[byte ^ 4], at).unwrap();
            assert!(read_all(&disk).is_err(), "byte {at}");
            file.write_at(&[*byte], at).unwrap();
        }
        for cut in (0..len).rev() {
            file.truncate(cut).unwrap();
            assert!(read_all(&disk).is_err(), "cut at {cut}");
        }
    }
}

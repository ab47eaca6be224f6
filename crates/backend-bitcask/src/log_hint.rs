//! Log hints: sorted keys of records in the value log, so that a fold need not read the front of
//! each.
//!
//! A segment of the log has a few records of each of many stores, and no index of their keys. So a
//! store writes a hint for many segments at a time, for its records that begin in certain ranges.
//! The contents of a range never change and a segment's number is never reused, so a hint may be
//! outdated but never wrong: records outside its ranges are read themselves, and entries of dropped
//! segments are skipped.
//!
//! A hint has the newest record of each key within its ranges, removals included. All records were
//! durable before the hint had its name.
//!
//! In the same way, a hint covers records that were copied out of the log to an unfinished segment
//! of the store's own: in ranges from the segment's beginning on.
//!
//! A damaged log hint costs time, not data, and is rewritten.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kvorum_disk::Disk;
use kvorum_encoding::{ByteReader, put_varint};
use kvorum_segment::RECORD_ALIGN_BYTES;
use kvorum_sst::TableId;

use crate::hint_table::{HintError, HintTable, HintTableWriter, check_version, split_note};
use crate::key_table::KeyEntry;

const VERSION: u8 = 1;
const SUFFIX: &str = ".loghint";
/// The first number of log hints as tables, above the numbers of segments' hints.
const TABLES_FROM: u64 = 1 << 32;

/// A range of a segment that a hint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HintedPart {
    /// The segment's number; with [`crate::key_table::OWN`], of the store's own.
    pub(crate) number: u32,
    /// The offset of the store's first record in the part, or an offset before that.
    pub(crate) from: u64,
    /// The end: records that begin at this offset or behind are not in the part.
    pub(crate) to: u64,
    /// Entries of the hint in this segment, counted at the first of its parts.
    pub(crate) entries: u64,
}

/// The name of a log hint.
pub(crate) fn log_hint_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:010}{SUFFIX}"))
}

/// The number of a log hint, from its file's name.
pub(crate) fn log_hint_number(name: &str) -> Option<u32> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

/// The store and the log of a log hint's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoundTo {
    /// The identity of the store's contents.
    pub(crate) store: u64,
    pub(crate) log_id: u64,
}

impl BoundTo {
    fn table_id(&self, number: u32) -> TableId {
        TableId {
            store: self.store,
            number: table_number(number),
        }
    }
}

/// The number of a log hint as a table.
pub(crate) fn table_number(number: u32) -> u64 {
    TABLES_FROM + u64::from(number)
}

/// Writes a log hint, entry by entry in key order.
pub(crate) struct LogHintWriter {
    table: HintTableWriter,
    log_id: u64,
    by_segment: BTreeMap<u32, u64>,
}

impl LogHintWriter {
    pub(crate) fn create(
        disk: &dyn Disk,
        directory: &Path,
        number: u32,
        bound: BoundTo,
    ) -> kvorum_sst::Result<Self> {
        let path = log_hint_path(directory, number);
        Ok(Self {
            table: HintTableWriter::create(disk, &path, bound.table_id(number))?,
            log_id: bound.log_id,
            by_segment: BTreeMap::new(),
        })
    }

    /// Takes the next entry.
    pub(crate) fn push(&mut self, entry: &KeyEntry) -> kvorum_sst::Result<()> {
        *self.by_segment.entry(entry.segment).or_default() += 1;
        self.table.push(entry)
    }

    /// The present length of the file, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.table.len()
    }

    /// Writes the rest and gives the file its name. The records have to be durable. Returns the
    /// file's length, in bytes.
    pub(crate) fn finish(
        mut self,
        disk: &dyn Disk,
        parts: &[HintedPart],
    ) -> kvorum_sst::Result<u64> {
        let mut counted = parts.to_vec();
        for part in &mut counted {
            part.entries = self.by_segment.remove(&part.number).unwrap_or(0);
        }
        self.table.finish(disk, &encode_note(self.log_id, &counted))
    }
}

/// Encodes the note of a hint, with the store in the table's header:
///
/// ```text
/// 1       format version, 1
/// 8       log id
/// varint  number of parts; for each, ascending: varint segment of the log (2^31 more: one of the
///         store's own), varint where the part begins and varint where it ends, both in units of 8,
///         varint entries
/// ```
fn encode_note(log_id: u64, parts: &[HintedPart]) -> Vec<u8> {
    let mut note = vec![VERSION];
    note.extend_from_slice(&log_id.to_le_bytes());
    put_varint(&mut note, parts.len() as u64);
    for part in parts {
        put_varint(&mut note, u64::from(part.number));
        put_varint(&mut note, part.from / RECORD_ALIGN_BYTES);
        put_varint(&mut note, part.to.div_ceil(RECORD_ALIGN_BYTES));
        put_varint(&mut note, part.entries);
    }
    note
}

fn decode_note(note: &[u8]) -> Result<(u64, Vec<HintedPart>), HintError> {
    let mut reader = ByteReader::new(note);
    check_version(&mut reader, VERSION)?;
    let log_id = reader.u64()?;
    let count = reader.varint()?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let Ok(number) = u32::try_from(reader.varint()?) else {
            let what = "a segment without a number";
            return Err(HintError::Unusable(what.to_owned()));
        };
        parts.push(HintedPart {
            number,
            from: reader.varint()?.saturating_mul(RECORD_ALIGN_BYTES),
            to: reader.varint()?.saturating_mul(RECORD_ALIGN_BYTES),
            entries: reader.varint()?,
        });
    }
    parts.shrink_to_fit();
    Ok((log_id, parts))
}

/// A note as text.
pub(crate) fn note_shown(note: &Bytes) -> Option<String> {
    let (log_id, parts) = decode_note(&split_note(note).ok()?.1).ok()?;
    let shown = parts.iter().map(|it| {
        let (of, number) = match it.number & crate::key_table::OWN {
            0 => ("value log", it.number),
            own => ("store", it.number - own),
        };
        let HintedPart {
            from, to, entries, ..
        } = it;
        format!("; segment {number} of the {of} from {from} to {to}, {entries} entries")
    });
    let shown: String = shown.collect();
    Some(format!("value log {log_id:#018x}{shown}"))
}

/// An open log hint.
pub(crate) struct LogHint {
    pub(crate) number: u32,
    pub(crate) parts: Vec<HintedPart>,
    pub(crate) entries: u64,
    pub(crate) table: HintTable,
    is_wrong: AtomicBool,
}

impl LogHint {
    /// Opens a log hint; `None` for a hint of another store, another log, or an earlier version.
    pub(crate) fn open(
        disk: &dyn Disk,
        directory: &Path,
        number: u32,
        bound: BoundTo,
    ) -> Result<Option<Self>, HintError> {
        let path = log_hint_path(directory, number);
        let (table, note) = match HintTable::open(disk, &path, bound.table_id(number)) {
            Err(HintError::Earlier | HintError::Foreign(_)) => return Ok(None),
            opened => opened?,
        };
        let (log_id, parts) = decode_note(&note)?;
        Ok((log_id == bound.log_id).then(|| Self {
            number,
            entries: parts.iter().map(|part| part.entries).sum(),
            parts,
            table,
            is_wrong: AtomicBool::new(false),
        }))
    }

    /// Its parts of a segment.
    pub(crate) fn parts_of(&self, number: u32) -> &[HintedPart] {
        let from = self.parts.partition_point(|it| it.number < number);
        let to = self.parts.partition_point(|it| it.number <= number);
        &self.parts[from..to]
    }

    /// Marks it as damaged: it is no longer used, and is rewritten.
    pub(crate) fn set_wrong(&self) {
        self.is_wrong.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_wrong(&self) -> bool {
        self.is_wrong.load(Ordering::Relaxed)
    }

    /// Its memory in bytes while it is open.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let own = size_of::<Self>() + self.parts.capacity() * size_of::<HintedPart>();
        own as u64 + self.table.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use kvorum_backend::{Fields, Tag, Timestamp};
    use kvorum_disk::{MemoryDisk, OpenMode, Reading};
    use kvorum_golden::assert_bytes;
    use kvorum_segment::Location;

    use super::*;

    const BOUND: BoundTo = BoundTo {
        store: 1,
        log_id: 2,
    };

    fn entry(number: u64) -> KeyEntry {
        let removal = number % 7 == 3;
        let fields = Fields {
            segment: 77,
            last_modified: Timestamp((1 << 50) + number * 7919 % 1000),
            expiry: number.is_multiple_of(5).then_some(Timestamp(1 << 51)),
            tag: Tag(3),
        };
        KeyEntry {
            key: Bytes::from(format!("a bucket and key {number:05}")),
            sequence: number * 3,
            segment: 4 + u32::try_from(number % 3).unwrap(),
            at: Location {
                offset: number * 8,
                front_end: 64,
                len: 2100,
            },
            removal,
            fields: if removal { Fields::default() } else { fields },
        }
    }

    fn parts() -> [HintedPart; 3] {
        [4, 5, 6].map(|number| HintedPart {
            number,
            from: 32,
            to: 1 << 20,
            entries: 0,
        })
    }

    fn disk() -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.create_directory(Path::new("h")).unwrap();
        disk
    }

    fn write(disk: &MemoryDisk, count: u64) {
        let mut writer = LogHintWriter::create(disk, Path::new("h"), 1, BOUND).unwrap();
        for number in 0..count {
            writer.push(&entry(number)).unwrap();
        }
        writer.finish(disk, &parts()).unwrap();
    }

    fn open(disk: &MemoryDisk) -> Result<LogHint, HintError> {
        LogHint::open(disk, Path::new("h"), 1, BOUND).map(|it| it.unwrap())
    }

    fn read_all(disk: &MemoryDisk) -> Result<Vec<KeyEntry>, HintError> {
        let hint = open(disk)?;
        hint.table.check_frame()?;
        let mut scan = hint.table.scan();
        let mut entries = Vec::new();
        while let Some(entry) = scan.next()? {
            entries.push(entry);
        }
        Ok(entries)
    }

    #[test]
    fn the_bytes_of_a_note_are_as_drawn() {
        let part = |number, entries| HintedPart {
            number,
            from: 32,
            to: 1 << 20,
            entries,
        };
        let parts = [part(4, 300), part(crate::key_table::OWN | 5, 7)];
        let note = encode_note(0x0102, &parts);
        let drawing = [
            ("format version, 1", 1),
            ("log id", 8),
            ("number of parts", 1),
            ("segment of the log", 1),
            ("beginning of the part, in units of 8", 1),
            ("end of the part, in units of 8", 3),
            ("entries", 2),
            ("segment of the store's own: 2^31 more", 5),
            ("beginning of the part, in units of 8", 1),
            ("end of the part, in units of 8", 3),
            ("entries", 1),
        ];
        assert_bytes("log_hint.hex", &drawing, &note);
        assert_eq!(decode_note(&note).unwrap(), (0x0102, parts.to_vec()));
    }

    #[test]
    fn entries_and_parts_are_read_as_they_were_written() {
        let disk = disk();
        write(&disk, 3000);
        assert_eq!(
            read_all(&disk).unwrap(),
            (0..3000).map(entry).collect::<Vec<_>>()
        );
        let hint = open(&disk).unwrap();
        assert_eq!(hint.entries, 3000);
        let of = |number| hint.parts_of(number).to_vec();
        let part = HintedPart {
            entries: 1000,
            ..parts()[1]
        };
        assert_eq!((of(3), of(5), of(7)), (vec![], vec![part], vec![]));
        for number in [0, 1, 777, 2999] {
            let wanted = entry(number);
            assert_eq!(hint.table.scan().get(&wanted.key).unwrap(), [wanted]);
        }
    }

    /// An entry that is written twice has to stay below 5 % of a value of 2,000 bytes.
    #[test]
    fn an_entry_takes_about_twenty_seven_bytes_and_the_end_of_its_key() {
        let disk = disk();
        let mut writer = LogHintWriter::create(&disk, Path::new("h"), 1, BOUND).unwrap();
        let mixed = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut order: Vec<u64> = (1..=4096).collect();
        order.sort_unstable_by_key(|number| mixed(*number));
        for number in order {
            let entry = KeyEntry {
                key: Bytes::from(format!("\0\x01a bucket\0\x01{:016x}", mixed(number))),
                sequence: 1_000_000 + number,
                segment: 4 + u32::try_from(number / 500).unwrap(),
                at: Location {
                    offset: (number % 500) << 17,
                    front_end: 180,
                    len: 2200,
                },
                removal: false,
                fields: Fields {
                    segment: u32::try_from(mixed(number) >> 44).unwrap(),
                    // A hundred entries a second.
                    last_modified: Timestamp(1_700_000_000_000_000 + number * 10_000),
                    ..Fields::default()
                },
            };
            writer.push(&entry).unwrap();
        }
        writer.finish(&disk, &parts()).unwrap();
        let each = open(&disk).unwrap().table.len() as f64 / 4096.0;
        assert!(each < 27.0 + 14.0, "{each}");
    }

    #[test]
    fn one_of_another_store_or_log_is_not_used() {
        let disk = disk();
        write(&disk, 10);
        for bound in [
            BoundTo { store: 9, ..BOUND },
            BoundTo { log_id: 9, ..BOUND },
        ] {
            let opened = LogHint::open(&disk, Path::new("h"), 1, bound);
            assert!(matches!(opened, Ok(None)));
        }
    }

    #[test]
    fn any_flip_or_cut_is_noticed() {
        let disk = disk();
        write(&disk, 40);
        let file = disk
            .open(&log_hint_path(Path::new("h"), 1), OpenMode::ReadWrite)
            .unwrap();
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

//! Marks of the log's durable end, which distinguish a log that lost its end from one with a torn
//! record.
//!
//! A crash may tear the record that was being written, and nothing before it. The file alone cannot
//! distinguish that torn record from an older record whose end was lost, so a mark names the log's
//! durable end. The mark is written after the sync of the log and before the record is
//! acknowledged. So no power cut leaves a mark ahead of the log, and a log that ends before its
//! mark has lost records.
//!
//! Two files hold the mark. One is beside the log, so that backups and copies include it. The other
//! is in the data directory, where it also reveals that the log's whole directory is gone or is an
//! older copy. A mark is a lower bound: if it cannot be written, as on a full disk, the failure is
//! logged and the log continues.
//!
//! ```text
//! file of a mark, 4160 bytes: a slot at byte 0 and one at byte 4096, zeros between; written in turn
//!
//! slot, 64 bytes
//! size  field
//! 8     "KvAgrEnd"
//! 4     format, 1
//! 16    the node
//! 8     the log's number, drawn when it was begun
//! 8     generation of the log's file
//! 8     durable end of that file, bytes; 0 while it is being begun
//! 8     sequence: number of writes of this mark; the slot with the higher one counts
//! 4     masked CRC-32C of the 60 bytes before
//! ```
//!
//! Numbers are little-endian. A slot lies within one sector, which devices write whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::anatomy::{Check, Dissection, Piece};
use kvorum_disk::{Disk, DiskFile, ErrorKind, OpenMode, read_file, replace_file};
use kvorum_encoding::{checksum, mask_checksum};
use kvorum_ring::NodeId;

pub(crate) const MAGIC: &[u8; 8] = b"KvAgrEnd";
const FORMAT: u32 = 1;
const SLOT_BYTES: usize = 64;
const SUM_AT: usize = SLOT_BYTES - 4;
/// Puts the slots on different sectors, for all sector sizes in use.
const SECOND_SLOT: usize = 4096;
const FILE_BYTES: usize = SECOND_SLOT + SLOT_BYTES;
/// Longer than any mark.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A durable end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) node: NodeId,
    /// The log's number.
    pub(crate) log: u64,
    /// Generation of the log's file.
    pub(crate) generation: u64,
    pub(crate) bytes: u64,
}

/// Content of one file of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MarkFound {
    /// There is no file.
    Missing,
    /// Neither slot is intact.
    Damaged(String),
    /// The newest end.
    End {
        end: End,
        sequence: u64,
        /// True when only one of the slots is intact.
        is_half: bool,
    },
}

impl MarkFound {
    pub(crate) fn end(&self) -> Option<End> {
        match self {
            Self::End { end, .. } => Some(*end),
            Self::Missing | Self::Damaged(_) => None,
        }
    }
}

/// Both files of a log's mark.
pub(crate) struct EndMarks {
    disk: Arc<dyn Disk>,
    files: [MarkFile; 2],
    marked: Option<End>,
}

struct MarkFile {
    path: PathBuf,
    /// `None` until the first write, and after a failure.
    file: Option<Arc<dyn DiskFile>>,
    sequence: u64,
    /// The last write failed.
    is_failing: bool,
    found: MarkFound,
}

impl EndMarks {
    /// Reads both files.
    pub(crate) fn read(disk: Arc<dyn Disk>, paths: [&Path; 2]) -> Self {
        let files = paths.map(|path| {
            let found = read_mark(&*disk, path);
            let sequence = match found {
                MarkFound::End { sequence, .. } => sequence,
                MarkFound::Missing | MarkFound::Damaged(_) => 0,
            };
            MarkFile {
                path: path.to_owned(),
                file: None,
                sequence,
                is_failing: false,
                found,
            }
        });
        let marked = None;
        Self {
            disk,
            files,
            marked,
        }
    }

    /// Contents of both files at their reading.
    pub(crate) fn found(&self) -> Vec<(PathBuf, MarkFound)> {
        let files = self.files.iter();
        files
            .map(|it| (it.path.clone(), it.found.clone()))
            .collect()
    }

    /// Notes a durable end in both files. A failure is logged; the next end replaces the missed
    /// one.
    pub(crate) fn note(&mut self, end: End) {
        if self.marked == Some(end) {
            return;
        }
        let mut is_marked = true;
        for mark in &mut self.files {
            match mark.write(&*self.disk, end) {
                Ok(()) => mark.is_failing = false,
                Err(error) => {
                    is_marked = false;
                    mark.file = None;
                    if !std::mem::replace(&mut mark.is_failing, true) {
                        tracing::warn!(
                            event = "agreed_log_end_not_marked",
                            file = %mark.path.display(),
                            error = %error,
                        );
                    }
                }
            }
        }
        self.marked = is_marked.then_some(end);
    }
}

impl MarkFile {
    fn write(&mut self, disk: &dyn Disk, end: End) -> kvorum_disk::Result<()> {
        let sequence = self.sequence + 1;
        let slot = encode(end, sequence);
        let is_whole = matches!(self.found, MarkFound::End { is_half: false, .. });
        if !is_whole {
            let mut bytes = vec![0; FILE_BYTES];
            bytes[..SLOT_BYTES].copy_from_slice(&slot);
            bytes[SECOND_SLOT..].copy_from_slice(&slot);
            replace_file(disk, &self.path, &bytes)?;
        } else {
            let file = match &self.file {
                Some(file) => file.clone(),
                None => disk.open(&self.path, OpenMode::ReadWrite)?,
            };
            let at = if sequence.is_multiple_of(2) {
                0
            } else {
                SECOND_SLOT as u64
            };
            file.write_at(&slot, at)?;
            file.sync()?;
            self.file = Some(file);
        }
        self.sequence = sequence;
        self.found = MarkFound::End {
            end,
            sequence,
            is_half: false,
        };
        Ok(())
    }
}

/// Reads the mark in a file. A file that the disk cannot read counts as damaged.
pub(crate) fn read_mark(disk: &dyn Disk, path: &Path) -> MarkFound {
    match read_file(disk, path, FILE_BYTES_MAX) {
        Ok(bytes) => decode(&bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => MarkFound::Missing,
        Err(error) => MarkFound::Damaged(error.to_string()),
    }
}

fn encode(end: End, sequence: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(end.node.as_bytes());
    for number in [end.log, end.generation, end.bytes, sequence] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let sum = mask_checksum(checksum(&bytes));
    let mut slot = [0; SLOT_BYTES];
    slot[..SUM_AT].copy_from_slice(&bytes);
    slot[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    slot
}

fn decode(bytes: &[u8]) -> MarkFound {
    let slot = |at: usize| decode_slot(bytes.get(at..)?.first_chunk::<SLOT_BYTES>()?);
    let slots = [slot(0), slot(SECOND_SLOT)];
    let newest = slots.iter().flatten().max_by_key(|(_, sequence)| *sequence);
    match newest {
        Some((end, sequence)) => MarkFound::End {
            end: *end,
            sequence: *sequence,
            is_half: slots.contains(&None),
        },
        None => MarkFound::Damaged("neither of its slots has its written contents".to_owned()),
    }
}

/// A slot of a later format counts as damaged: its log has a later format, too.
fn decode_slot(slot: &[u8; SLOT_BYTES]) -> Option<(End, u64)> {
    let number = |at: usize| {
        let bytes = slot[at..].first_chunk::<8>();
        bytes.map(|bytes| u64::from_le_bytes(*bytes))
    };
    let (covered, sum) = slot.split_at(SUM_AT);
    let is_whole = mask_checksum(checksum(covered)).to_le_bytes() == *sum;
    let is_known = covered.starts_with(MAGIC) && covered[8..12] == FORMAT.to_le_bytes();
    if !is_whole || !is_known {
        return None;
    }
    let end = End {
        node: NodeId::from_bytes(*slot[12..].first_chunk::<16>()?),
        log: number(28)?,
        generation: number(36)?,
        bytes: number(44)?,
    };
    Some((end, number(52)?))
}

/// Dissects a mark.
pub(crate) fn dissect(bytes: &[u8]) -> Piece {
    if bytes.len() != FILE_BYTES {
        let found = format!("{} bytes", bytes.len());
        return Piece::damage(0, bytes.len() as u64, &found, "a mark of 4160 bytes");
    }
    let mut fields = Dissection::new(bytes, 0);
    for at in [0, SECOND_SLOT] {
        fields.magic(MAGIC);
        fields.number("format", 4);
        fields.bytes("node", 16);
        for name in ["log", "generation", "durable end, bytes", "sequence"] {
            fields.number(name, 8);
        }
        let covered = &bytes[at..at + SUM_AT];
        fields.checksum("checksum of the slot", mask_checksum(checksum(covered)));
        if at == 0 {
            let between = &bytes[SLOT_BYTES..SECOND_SLOT];
            let check = if between.iter().all(|byte| *byte == 0) {
                Check::Covered
            } else {
                Check::Bad {
                    got: "other bytes".to_owned(),
                    expected: "zeros".to_owned(),
                }
            };
            fields.field("unused", between.len(), "zeros".to_owned(), check);
        }
    }
    fields.finish("end of an agreed log")
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{CrashOptions, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
    use kvorum_golden::assert_bytes;

    use super::*;

    fn end(bytes: u64) -> End {
        End {
            node: NodeId::from_bytes([3; 16]),
            log: 77,
            generation: 5,
            bytes,
        }
    }

    fn marks(disk: &MemoryDisk) -> EndMarks {
        EndMarks::read(
            Arc::new(disk.clone()),
            [Path::new("one"), Path::new("other")],
        )
    }

    fn ends(disk: &MemoryDisk) -> Vec<Option<u64>> {
        let ends = marks(disk).found().into_iter();
        let ends = ends.map(|(_, found)| found.end());
        ends.map(|end| end.map(|end| end.bytes)).collect()
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let disk = MemoryDisk::new();
        for bytes in [100, 200] {
            marks(&disk).note(end(bytes));
        }
        let bytes = read_file(&disk, Path::new("one"), FILE_BYTES_MAX).unwrap();
        let slot = [
            ("\"KvAgrEnd\"", 8),
            ("format, 1", 4),
            ("node", 16),
            ("number of the log", 8),
            ("generation of the log's file", 8),
            ("durable end of that file, bytes", 8),
            ("sequence", 8),
            ("masked CRC-32C of the 60 bytes before", 4),
        ];
        let between = [("zeros", SECOND_SLOT - SLOT_BYTES)];
        let drawing = [&slot[..], &between, &slot].concat();
        assert_bytes("end_mark.hex", &drawing, &bytes);
        assert_eq!(decode(&bytes).end(), Some(end(200)));
    }

    #[test]
    fn a_power_cut_leaves_the_end_of_before_or_the_new_one_whole() {
        let noted = |cut: Option<u64>| {
            let disk = MemoryDisk::new();
            let mut marks = marks(&disk);
            if let Some(cut) = cut {
                disk.cut_after(cut);
            }
            for bytes in [0, 100, 200, 300] {
                marks.note(end(bytes));
            }
            disk
        };
        let operations = noted(None).operations();
        for cut in 0..=operations {
            let disk = noted(Some(cut));
            let drawn = (0..10).map(|seed| CrashOptions::drawn(cut * 10 + seed));
            for options in CrashOptions::extremes().into_iter().chain(drawn) {
                let image = disk.crash_image(options);
                for path in ["one", "other"] {
                    match read_mark(&image, Path::new(path)) {
                        MarkFound::Missing => {}
                        MarkFound::End { is_half, .. } => assert!(!is_half, "{cut} {options:?}"),
                        damaged @ MarkFound::Damaged(_) => panic!("{damaged:?} {cut} {options:?}"),
                    }
                }
            }
        }
        assert_eq!(ends(&noted(None)), [Some(300), Some(300)]);
    }

    #[test]
    fn every_flip_costs_a_slot_at_most_is_damage_to_a_check_and_is_mended() {
        let disk = MemoryDisk::new();
        for bytes in [100, 200] {
            marks(&disk).note(end(bytes));
        }
        let good = read_file(&disk, Path::new("one"), FILE_BYTES_MAX).unwrap();
        assert!(!dissect(&good).is_damaged());
        assert_eq!(dissect(&good).end(), good.len() as u64);
        for at in 0..good.len() {
            let mut flipped = good.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(dissect(&flipped).is_damaged(), "byte {at}");
            assert!(decode(&flipped).end().unwrap().bytes >= 100);
        }
        for len in 0..good.len() {
            assert!(dissect(&good[..len]).is_damaged());
        }
        for damaged in [vec![], good[..70].to_vec(), vec![0; FILE_BYTES]] {
            replace_file(&disk, Path::new("one"), &damaged).unwrap();
            marks(&disk).note(end(300));
            assert_eq!(ends(&disk), [Some(300), Some(300)]);
        }
    }

    #[test]
    fn an_end_that_could_not_be_noted_is_noted_with_the_next_one() {
        for operation in [Operation::Write, Operation::Sync] {
            let disk = MemoryDisk::new();
            let faulty = FaultyDisk::over_memory(&disk);
            let paths = [Path::new("one"), Path::new("other")];
            let mut marks = EndMarks::read(Arc::new(faulty.clone()), paths);
            marks.note(end(100));
            let rule = Rule::new(Fault::Error(ErrorKind::Device)).on(operation);
            faulty.add_rule(rule.path(Path::new("one")));
            marks.note(end(200));
            faulty.heal();
            assert_eq!(ends(&disk)[1], Some(200));
            marks.note(end(300));
            assert_eq!(ends(&disk), [Some(300), Some(300)]);
        }
    }
}

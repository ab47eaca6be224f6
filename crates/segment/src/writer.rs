//! The writer of one segment: appends, marks, seals.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use kvorum_disk::{Disk, DiskError, DiskFile, ErrorKind, OpenMode, Operation, Reading};

use crate::file_header::encode_file_header;
use crate::record::{ChecksumSeed, Purpose, aligned, encode_front, stored_lens};
use crate::{
    BACK_BYTES_MAX, BatchPlace, EncodedBack, FILE_HEADER_BYTES, FRONT_BYTES_MAX, Location, Record,
    Result, Seal, SegmentError, SegmentId, SegmentReader, SegmentSync,
};

/// The largest segment: offsets are stored in 32 bits, in units of 8 bytes.
pub const SEGMENT_BYTES_MAX: u64 = (u32::MAX as u64) * crate::RECORD_ALIGN_BYTES;

/// The most bytes that a write gathers in one buffer: up to this, copying costs less than a longer
/// list of parts.
const GATHERED_BYTES_MAX: u64 = 64 << 10;
/// Systems take at most 1,024 parts in one write.
const PARTS_MAX: usize = 1000;
const REWRITTEN_AT_ONCE_BYTES: usize = 1 << 20;
/// After this many differences between two reads of a segment, the segment is not rewritten.
const DIFFERENCES_MAX: u32 = 8;
const PADDING: [u8; 8] = [0; 8];

/// The point at which a writer continues an unsealed segment, as found by a scan.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResumeAt {
    /// The end of the whole records: [`crate::ScanEnd::clean_to`].
    pub end: u64,
    /// The number of records before it.
    pub records: u64,
    /// Their lowest sequence; 0 for none.
    pub sequence_min: u64,
    /// Their highest sequence; 0 for none.
    pub sequence_max: u64,
}

/// Appends to one segment. A segment has one writer, whose owner serialises calls.
pub struct SegmentWriter {
    file: Arc<dyn DiskFile>,
    id: SegmentId,
    seed: ChecksumSeed,
    sync: SegmentSync,
    at: ResumeAt,
    marked_to: u64,
    allocated_to: u64,
    /// The file may have bytes of a failed append behind the end.
    needs_cut: bool,
    buffer: Vec<u8>,
}

impl SegmentWriter {
    /// Creates a segment, which must not exist. On return, the file and its name are durable.
    pub fn create(disk: &dyn Disk, path: &Path, id: SegmentId) -> Result<Self> {
        let file = disk.open(path, OpenMode::CreateNew)?;
        if let Err(error) = publish(disk, &*file, path, &id) {
            // A leftover file would only hinder the next attempt; the next opening of the log
            // handles it if it cannot be removed now.
            let _gone_or_not = disk.remove_file(path);
            return Err(error);
        }
        let at = ResumeAt {
            end: FILE_HEADER_BYTES,
            ..ResumeAt::default()
        };
        Ok(Self::over(file, id, at))
    }

    /// Continues an unsealed segment: cuts the bytes behind `at.end` and makes the rest durable.
    ///
    /// With `rewrite_from`, bytes from there on are first written again: after a failed sync, pages
    /// that the device never got may be clean in the page cache.
    pub fn resume(
        disk: &dyn Disk,
        path: &Path,
        id: SegmentId,
        at: ResumeAt,
        rewrite_from: Option<u64>,
    ) -> Result<Self> {
        let file = disk.open(path, OpenMode::ReadWrite)?;
        let end = aligned(at.end.max(FILE_HEADER_BYTES));
        if file.len()? != end {
            file.truncate(end)?;
        }
        if let Some(from) = rewrite_from {
            rewrite(&*file, path, from, end)?;
        }
        file.sync()?;
        Ok(Self::over(file, id, ResumeAt { end, ..at }))
    }

    fn over(file: Arc<dyn DiskFile>, id: SegmentId, at: ResumeAt) -> Self {
        Self {
            sync: SegmentSync::new(file.clone(), at.end),
            file,
            id,
            seed: ChecksumSeed::of(&id),
            at,
            marked_to: at.end,
            allocated_to: at.end,
            needs_cut: false,
            buffer: Vec::new(),
        }
    }

    /// The segment's identity.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// The offset of the next record.
    pub fn end(&self) -> u64 {
        self.at.end
    }

    /// The end and the counts of records so far.
    pub fn position(&self) -> ResumeAt {
        self.at
    }

    /// The handle that syncs the segment.
    pub fn sync_handle(&self) -> SegmentSync {
        self.sync.clone()
    }

    /// A reader over the same open file, which finds each record once its append has returned.
    pub fn reader(&self) -> SegmentReader {
        SegmentReader::over(self.file.clone(), self.id)
    }

    /// Reserves space up to `end` of the file ahead of the appends that will need it.
    pub fn reserve_to(&mut self, end: u64) -> Result<()> {
        if end > self.allocated_to {
            self.file.allocate(end)?;
            self.allocated_to = end;
        }
        Ok(())
    }

    /// The length of records, alignment included, for deciding whether to start a new segment
    /// first.
    pub fn appended_len(records: &[Record<'_>]) -> u64 {
        records
            .iter()
            .map(|record| aligned(stored_lens(record).1))
            .sum()
    }

    /// Appends records in one write and pushes the place of each.
    ///
    /// # Errors
    /// On a failure no record exists; the writer may be used again (on a full disk, as
    /// soon as there is room), except after a failed sync.
    pub fn append(&mut self, records: &[Record<'_>], locations: &mut Vec<Location>) -> Result<()> {
        self.check_fits(records)?;
        let known = locations.len();
        let written = self.write(records, Purpose::Data, locations);
        if written.is_err() {
            locations.truncate(known);
            return written;
        }
        for record in records {
            self.count(record.sequence);
        }
        Ok(())
    }

    /// Appends a mark of the synced length, unless a later record has it already. The mark costs a
    /// small write and is not synced. It lets a later scan distinguish corruption from a torn tail
    /// in the last promised records.
    pub fn mark(&mut self) -> Result<()> {
        if self.sync.synced_to() <= self.marked_to {
            return Ok(());
        }
        let mark = bare_record(0, &[]);
        self.write(&[mark], Purpose::Mark, &mut Vec::new())
    }

    /// Finishes the segment: syncs it, appends the seal, cuts the file to its end and syncs again.
    /// So a seal that survives a crash proves everything before it. The writer cannot be used
    /// afterwards; on a full disk the call can be repeated.
    pub fn seal(&mut self) -> Result<Seal> {
        // A mark needs no sync of its own, but has to precede the seal.
        self.sync.set_written(self.at.end);
        self.sync.sync()?;
        let seal = Seal {
            data_end: self.at.end,
            records: self.at.records,
            sequence_min: self.at.sequence_min,
            sequence_max: self.at.sequence_max,
        };
        let front = seal.encode();
        let record = bare_record(seal.sequence_max, &front);
        self.write(&[record], Purpose::Seal, &mut Vec::new())?;
        if self.allocated_to > self.at.end {
            self.file.truncate(self.at.end)?;
        }
        self.sync.sync()?;
        Ok(seal)
    }

    fn check_fits(&self, records: &[Record<'_>]) -> Result<()> {
        let too_large = |got: u64, expected: u64| SegmentError::TooLarge {
            path: self.file.path().to_owned(),
            got,
            expected,
        };
        for record in records {
            let front = record.front.len() as u64;
            let back = record.back.stored_len().max(record.back.raw_len);
            if front > FRONT_BYTES_MAX - PADDING.len() as u64 {
                return Err(too_large(front, FRONT_BYTES_MAX));
            }
            if back > BACK_BYTES_MAX {
                return Err(too_large(back, BACK_BYTES_MAX));
            }
        }
        let end = self.at.end + Self::appended_len(records);
        if end > SEGMENT_BYTES_MAX {
            return Err(too_large(end, SEGMENT_BYTES_MAX));
        }
        Ok(())
    }

    fn write(
        &mut self,
        records: &[Record<'_>],
        purpose: Purpose,
        locations: &mut Vec<Location>,
    ) -> Result<()> {
        if self.sync.is_suspect() {
            return Err(SegmentError::Suspect {
                path: self.file.path().to_owned(),
            });
        }
        let len = Self::appended_len(records);
        let end = self.at.end + len;
        self.cut_if_needed()?;
        let synced_to = self.sync.synced_to();
        let is_gathered = len <= GATHERED_BYTES_MAX || 3 * records.len() > PARTS_MAX;
        let fronts = self.encode(records, purpose, synced_to, is_gathered, locations);
        let written = if is_gathered {
            self.file.write_at(&self.buffer, self.at.end)
        } else {
            let parts = interleave(&self.buffer, &fronts, records);
            self.file.write_parts_at(&parts, self.at.end)
        };
        if let Err(error) = written {
            self.needs_cut = true;
            // Best effort now; the next append retries it.
            let _tried_again_later = self.cut_if_needed();
            return Err(error.into());
        }
        self.at.end = end;
        self.marked_to = self.marked_to.max(synced_to);
        if purpose != Purpose::Mark {
            self.sync.set_written(end);
        }
        Ok(())
    }

    /// Fills the buffer with whole records (gathered) or with fronts; returns the end of each front
    /// in the buffer.
    fn encode(
        &mut self,
        records: &[Record<'_>],
        purpose: Purpose,
        synced_to: u64,
        is_gathered: bool,
        locations: &mut Vec<Location>,
    ) -> Vec<usize> {
        let mut fronts = Vec::new();
        let mut offset = self.at.end;
        self.buffer.clear();
        for record in records {
            let (front_end, len) = stored_lens(record);
            encode_front(
                &mut self.buffer,
                record,
                purpose,
                self.seed,
                offset,
                synced_to,
            );
            if is_gathered {
                self.buffer.extend_from_slice(&record.back.bytes);
                let padding = padding_behind(offset + len);
                self.buffer.extend_from_slice(padding);
            } else {
                fronts.push(self.buffer.len());
            }
            locations.push(Location {
                offset,
                front_end,
                len,
            });
            offset = aligned(offset + len);
        }
        fronts
    }

    fn cut_if_needed(&mut self) -> Result<()> {
        if self.needs_cut {
            self.file.truncate(self.at.end)?;
            self.allocated_to = self.at.end;
            self.needs_cut = false;
        }
        Ok(())
    }

    fn count(&mut self, sequence: u64) {
        let at = &mut self.at;
        at.sequence_min = match at.records {
            0 => sequence,
            _ => at.sequence_min.min(sequence),
        };
        at.sequence_max = at.sequence_max.max(sequence);
        at.records += 1;
    }
}

fn publish(disk: &dyn Disk, file: &dyn DiskFile, path: &Path, id: &SegmentId) -> Result<()> {
    file.write_at(&encode_file_header(id), 0)?;
    file.sync()?;
    Ok(disk.sync_directory(path.parent().unwrap_or(Path::new(".")))?)
}

/// Writes the present bytes again, after two equal reads: a bit flipped by one read would otherwise
/// become permanent.
fn rewrite(file: &dyn DiskFile, path: &Path, from: u64, end: u64) -> Result<()> {
    let mut piece = vec![0; REWRITTEN_AT_ONCE_BYTES];
    let mut again = vec![0; REWRITTEN_AT_ONCE_BYTES];
    let (mut at, mut differences) = (from, 0);
    while at < end {
        let rest = usize::try_from(end - at).unwrap_or(usize::MAX);
        let len = rest.min(piece.len());
        let read = file.read_at(&mut piece[..len], at, Reading::MayBlock)?;
        let read_again = file.read_at(&mut again[..len], at, Reading::MayBlock)?;
        if piece[..read] != again[..read_again] {
            differences += 1;
            if differences == DIFFERENCES_MAX {
                return Err(unsteady(path, at));
            }
            continue;
        }
        if read == 0 {
            break;
        }
        file.write_at(&piece[..read], at)?;
        at += read as u64;
    }
    Ok(())
}

fn unsteady(path: &Path, offset: u64) -> SegmentError {
    let detail = "the same bytes are read differently each time";
    let error = DiskError::new(Operation::Read, path, ErrorKind::Device, detail);
    error.at(offset).into()
}

fn bare_record(sequence: u64, front: &[u8]) -> Record<'_> {
    Record {
        sequence,
        kind: 0,
        removal: false,
        batch: BatchPlace::Alone,
        front,
        back: EncodedBack::empty(),
    }
}

fn interleave<'a>(
    buffer: &'a [u8],
    fronts: &[usize],
    records: &'a [Record<'_>],
) -> Vec<IoSlice<'a>> {
    let mut parts = Vec::with_capacity(3 * records.len());
    let mut start = 0;
    for (end, record) in fronts.iter().zip(records) {
        parts.push(IoSlice::new(&buffer[start..*end]));
        parts.push(IoSlice::new(&record.back.bytes));
        // The record's offset is aligned, so its length alone decides.
        parts.push(IoSlice::new(padding_behind(stored_lens(record).1)));
        start = *end;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn padding_behind(end: u64) -> &'static [u8] {
    let missing = (aligned(end) - end) & 7;
    &PADDING[..usize::from(missing.to_le_bytes()[0])]
}

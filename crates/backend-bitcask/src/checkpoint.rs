//! The checkpoint: the key directory on disk, so that opening reads 22 bytes a key and the tail.
//!
//! It is taken while puts go on. What it covers is noted first, then shard after shard is copied;
//! records behind what is covered are replayed over it when it is loaded. Before it gets its name,
//! everything that its slots may point to is synced.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::{Disk, DiskFile, OpenMode, Reading, temporary_name};
use kvorum_encoding::{ByteReader, Truncated, checksum, checksum_append, mask_checksum};

use crate::keydir::{Keydir, Slot};
use crate::segments::SegmentStats;

pub(crate) const CHECKPOINT_NAME: &str = "checkpoint";

const MAGIC: [u8; 8] = *b"KVbcchkp";
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 56;
const SEGMENT_BYTES: usize = 72;
const SLOT_BYTES: usize = 22;
const CHUNK_HEADER_BYTES: u64 = 8;
/// Slots in a chunk at most: a megabyte.
const CHUNK_SLOTS_MAX: usize = 48_000;
const CHUNK_BYTES_MAX: u64 = (CHUNK_SLOTS_MAX * SLOT_BYTES) as u64;
const SEGMENTS_MAX: usize = 1 << 20;

/// What a checkpoint says apart from the slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Covered {
    pub(crate) log_id: u64,
    /// The last batch before it.
    pub(crate) sequence: u64,
    pub(crate) next_segment: u32,
    /// Written by closing: nothing came after it.
    pub(crate) is_clean: bool,
    /// What each segment held. The live counts are left out.
    pub(crate) segments: BTreeMap<u32, SegmentStats>,
}

/// Writes a checkpoint in pieces under a temporary name.
///
/// ```text
/// offset  size  field
///      0     8  magic "KVbcchkp"
///      8     1  format version, 1
///      9     1  flags: 0 clean
///     10     2  zero
///     12     4  masked CRC-32C of bytes 0..12 and 16 to the end of the segments
///     16     8  log id
///     24     8  last sequence before
///     32     8  number of slots
///     40     8  length of the file
///     48     4  next segment
///     52     4  number of segments (s)
///     56  72*s  segments
///               chunks, to the end of the file
///
/// segment: 4 number, 4 zero, 8 covered to, 8 records, 8 removals, 8 bytes of removals,
///          8 lowest sequence, 8 highest sequence, 8 expires by, 8 modified by
/// chunk:   4 length of the slots, 4 masked CRC-32C of: offset of the chunk (64 bits, not stored),
///          the slots
/// slot:    8 fingerprint, 4 segment, 4 offset in units of 8, 4 length, 2 front in units of 16
/// ```
pub(crate) struct CheckpointWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    covered: Covered,
    offset: u64,
    slots: u64,
}

impl CheckpointWriter {
    pub(crate) fn create(
        disk: &dyn Disk,
        directory: &Path,
        covered: Covered,
    ) -> kvorum_disk::Result<Self> {
        let path = directory.join(CHECKPOINT_NAME);
        let temporary = temporary_name(&path);
        if disk.info(&temporary)?.is_some() {
            disk.remove_file(&temporary)?;
        }
        let header = FIXED_BYTES + covered.segments.len() * SEGMENT_BYTES;
        Ok(Self {
            file: disk.open(&temporary, OpenMode::CreateNew)?,
            path,
            covered,
            offset: header as u64,
            slots: 0,
        })
    }

    /// Writes slots and returns how many bytes that took.
    pub(crate) fn write(&mut self, slots: &[Slot]) -> kvorum_disk::Result<u64> {
        let start = self.offset;
        for chunk in slots.chunks(CHUNK_SLOTS_MAX) {
            let mut payload = Vec::with_capacity(chunk.len() * SLOT_BYTES);
            chunk.iter().for_each(|slot| put_slot(&mut payload, *slot));
            let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            let mut framed = Vec::with_capacity(payload.len() + 8);
            framed.extend_from_slice(&len.to_le_bytes());
            framed.extend_from_slice(&chunk_checksum(self.offset, &payload).to_le_bytes());
            framed.extend_from_slice(&payload);
            self.file.write_at(&framed, self.offset)?;
            self.offset += framed.len() as u64;
            self.slots += chunk.len() as u64;
        }
        Ok(self.offset - start)
    }

    /// Writes the header, syncs, and gives the file its name.
    pub(crate) fn finish(self, disk: &dyn Disk) -> kvorum_disk::Result<u64> {
        let header = self.header();
        self.file.write_at(&header, 0)?;
        self.file.sync()?;
        disk.rename(&temporary_name(&self.path), &self.path)?;
        disk.sync_directory(self.path.parent().unwrap_or(Path::new(".")))?;
        Ok(header.len() as u64)
    }

    fn header(&self) -> Vec<u8> {
        let covered = &self.covered;
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[VERSION, u8::from(covered.is_clean), 0, 0, 0, 0, 0, 0]);
        for number in [covered.log_id, covered.sequence, self.slots, self.offset] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&covered.next_segment.to_le_bytes());
        let segments = u32::try_from(covered.segments.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&segments.to_le_bytes());
        for (number, stats) in &covered.segments {
            put_segment(&mut out, *number, stats);
        }
        let check = header_checksum(&out);
        out[12..16].copy_from_slice(&check.to_le_bytes());
        out
    }
}

/// Why a checkpoint is not used.
#[derive(Debug)]
pub(crate) enum CheckpointError {
    /// There is none.
    Missing,
    /// The disk failed.
    Disk(kvorum_disk::DiskError),
    /// Its bytes are damaged, or it belongs to another log.
    Unusable(&'static str),
    /// It was written by this newer version.
    Newer(u8),
}

impl From<kvorum_disk::DiskError> for CheckpointError {
    fn from(error: kvorum_disk::DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<Truncated> for CheckpointError {
    fn from(_: Truncated) -> Self {
        Self::Unusable("cut short")
    }
}

/// Loads a checkpoint; `keep` says which slots are taken over.
pub(crate) fn load(
    disk: &dyn Disk,
    directory: &Path,
    log_id: u64,
    keep: impl Fn(&Slot) -> bool,
) -> Result<(Covered, Keydir), CheckpointError> {
    let path = directory.join(CHECKPOINT_NAME);
    if disk.info(&path)?.is_none() {
        return Err(CheckpointError::Missing);
    }
    let file = disk.open(&path, OpenMode::Read)?;
    let file_len = file.len()?;
    let (covered, slots, header_len) = load_header(&*file, file_len)?;
    if covered.log_id != log_id {
        return Err(CheckpointError::Unusable("of another log"));
    }
    let keydir = load_slots(&*file, header_len, file_len, slots, keep)?;
    Ok((covered, keydir))
}

/// What a checkpoint covers, how many slots it has, and where they start.
fn load_header(file: &dyn DiskFile, file_len: u64) -> Result<(Covered, u64, u64), CheckpointError> {
    let start = read_exact(file, 0, FIXED_BYTES as u64, file_len)?;
    let mut reader = ByteReader::new(&start);
    if reader.array::<8>()? != MAGIC {
        return Err(CheckpointError::Unusable("no checkpoint"));
    }
    let _version_to_next_segment = reader.take(FIXED_BYTES - 12)?;
    let segments = reader.u32()? as usize;
    if segments > SEGMENTS_MAX {
        return Err(CheckpointError::Unusable("damaged header"));
    }
    // Everything is taken from this one read, which is the one that is checked.
    let header_len = (FIXED_BYTES + segments * SEGMENT_BYTES) as u64;
    let header = read_exact(file, 0, header_len, file_len)?;
    let mut reader = ByteReader::new(&header);
    let _magic = reader.array::<8>()?;
    let (version, flags) = (reader.u8()?, reader.u8()?);
    let (_zero, stored) = (reader.u16()?, reader.u32()?);
    if header_checksum(&header) != stored {
        return Err(CheckpointError::Unusable("damaged header"));
    }
    if version > VERSION {
        return Err(CheckpointError::Newer(version));
    }
    let log_id = reader.u64()?;
    let (sequence, slots, len) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (next_segment, _segments) = (reader.u32()?, reader.u32()?);
    if len != file_len {
        return Err(CheckpointError::Unusable("of another length"));
    }
    let covered = Covered {
        log_id,
        sequence,
        next_segment,
        is_clean: flags & 1 != 0,
        segments: take_segments(&header[FIXED_BYTES..])?,
    };
    Ok((covered, slots, header_len))
}

fn load_slots(
    file: &dyn DiskFile,
    from: u64,
    file_len: u64,
    expected: u64,
    keep: impl Fn(&Slot) -> bool,
) -> Result<Keydir, CheckpointError> {
    // The header was checked, and yet memory is reserved for no more than the file can hold.
    let mut keydir = Keydir::new();
    keydir.reserve(expected.min(file_len / SLOT_BYTES as u64));
    let (mut at, mut found) = (from, 0);
    while at < file_len {
        let frame = read_exact(file, at, CHUNK_HEADER_BYTES, file_len)?;
        let mut reader = ByteReader::new(&frame);
        let (len, stored) = (u64::from(reader.u32()?), reader.u32()?);
        if len > CHUNK_BYTES_MAX || len % SLOT_BYTES as u64 != 0 {
            return Err(CheckpointError::Unusable("damaged chunk"));
        }
        let payload = read_exact(file, at + CHUNK_HEADER_BYTES, len, file_len)?;
        if chunk_checksum(at, &payload) != stored {
            return Err(CheckpointError::Unusable("damaged chunk"));
        }
        for bytes in payload.chunks_exact(SLOT_BYTES) {
            let slot = take_slot(bytes)?;
            found += 1;
            if keep(&slot) {
                keydir.insert(slot);
            }
        }
        at += CHUNK_HEADER_BYTES + len;
    }
    if found != expected {
        return Err(CheckpointError::Unusable("slots are missing"));
    }
    Ok(keydir)
}

fn put_segment(out: &mut Vec<u8>, number: u32, stats: &SegmentStats) {
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for field in [
        stats.data_end,
        stats.records,
        stats.removals,
        stats.removal_bytes,
        stats.sequence_min,
        stats.sequence_max,
        stats.expires_by,
        stats.modified_by,
    ] {
        out.extend_from_slice(&field.to_le_bytes());
    }
}

fn take_segments(bytes: &[u8]) -> Result<BTreeMap<u32, SegmentStats>, Truncated> {
    let mut reader = ByteReader::new(bytes);
    let mut segments = BTreeMap::new();
    while !reader.is_empty() {
        let number = reader.u32()?;
        let _zero = reader.u32()?;
        let stats = SegmentStats {
            data_end: reader.u64()?,
            records: reader.u64()?,
            removals: reader.u64()?,
            removal_bytes: reader.u64()?,
            sequence_min: reader.u64()?,
            sequence_max: reader.u64()?,
            expires_by: reader.u64()?,
            modified_by: reader.u64()?,
            live_records: 0,
            live_bytes: 0,
        };
        segments.insert(number, stats);
    }
    Ok(segments)
}

fn put_slot(out: &mut Vec<u8>, slot: Slot) {
    let (fingerprint, segment, offset, len, front_end) = slot.to_parts();
    out.extend_from_slice(&fingerprint.to_le_bytes());
    out.extend_from_slice(&segment.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&front_end.to_le_bytes());
}

fn take_slot(bytes: &[u8]) -> Result<Slot, Truncated> {
    let mut reader = ByteReader::new(bytes);
    Ok(Slot::from_parts((
        reader.u64()?,
        reader.u32()?,
        reader.u32()?,
        reader.u32()?,
        reader.u16()?,
    )))
}

fn read_exact(
    file: &dyn DiskFile,
    at: u64,
    len: u64,
    file_len: u64,
) -> Result<Vec<u8>, CheckpointError> {
    if at.saturating_add(len) > file_len {
        return Err(CheckpointError::Unusable("cut short"));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = file.read_at(&mut bytes, at, Reading::MayBlock)?;
    if read < bytes.len() {
        return Err(CheckpointError::Unusable("cut short"));
    }
    Ok(bytes)
}

fn header_checksum(header: &[u8]) -> u32 {
    mask_checksum(checksum_append(checksum(&header[..12]), &header[16..]))
}

fn chunk_checksum(offset: u64, payload: &[u8]) -> u32 {
    mask_checksum(checksum_append(checksum(&offset.to_le_bytes()), payload))
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;
    use kvorum_segment::Location;

    use super::*;

    fn covered() -> Covered {
        let stats = SegmentStats {
            records: 7,
            sequence_max: 99,
            ..SegmentStats::default()
        };
        Covered {
            log_id: 5,
            sequence: 99,
            next_segment: 4,
            is_clean: true,
            segments: BTreeMap::from([(1, stats), (3, SegmentStats::default())]),
        }
    }

    fn slots() -> Vec<Slot> {
        let at = |number: u64| Location {
            offset: number * 8,
            front_end: 100,
            len: 500,
        };
        (0..50u64)
            .map(|number| Slot::new(number << 50, 1, at(number)))
            .collect()
    }

    fn write(disk: &MemoryDisk) {
        let mut writer = CheckpointWriter::create(disk, Path::new(""), covered()).unwrap();
        writer.write(&slots()[..20]).unwrap();
        writer.write(&slots()[20..]).unwrap();
        writer.finish(disk).unwrap();
    }

    fn load_all(disk: &MemoryDisk, log_id: u64) -> Result<(Covered, Keydir), CheckpointError> {
        load(disk, Path::new(""), log_id, |_| true)
    }

    #[test]
    fn what_was_written_is_loaded() {
        let disk = MemoryDisk::new();
        write(&disk);
        let (found, keydir) = load_all(&disk, 5).unwrap();
        assert_eq!(found, covered());
        assert_eq!(keydir.len(), 50);
        assert!(slots().iter().all(|slot| keydir.contains(slot)));
        assert!(load_all(&disk, 6).is_err());
    }

    #[test]
    fn any_flip_or_cut_is_noticed() {
        let disk = MemoryDisk::new();
        write(&disk);
        let path = Path::new(CHECKPOINT_NAME);
        let file = disk.open(path, OpenMode::ReadWrite).unwrap();
        let bytes = kvorum_disk::read_file(&disk, path, 1 << 20).unwrap();
        for (at, byte) in (0..).zip(&bytes) {
            file.write_at(&[byte ^ 1], at).unwrap();
            assert!(load_all(&disk, 5).is_err(), "byte {at}");
            file.write_at(&[*byte], at).unwrap();
        }
        for cut in (0..bytes.len() as u64).rev() {
            file.truncate(cut).unwrap();
            assert!(load_all(&disk, 5).is_err(), "cut at {cut}");
        }
    }
}

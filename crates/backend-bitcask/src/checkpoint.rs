//! The checkpoint: the key directory on disk, so that opening reads 16 bytes for each key, and the
//! tail.
//!
//! Puts continue while it is written. The covered sequence is noted first, then the shards are
//! copied one by one; an opening replays later records over it. Before the file gets its name, all
//! records that its slots may point to are synced. Slots have the same form and order as in memory,
//! so that loading copies them and hashes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::{Disk, DiskFile, OpenMode, Reading, remove_if_there, temporary_name};
use kvorum_encoding::{ByteReader, Truncated, checksum, checksum_append, mask_checksum};

use crate::expiries::{Expiries, STEPS, Step};
use crate::keydir::{Keydir, SHARDS};
use crate::places::{Place, Places};
use crate::segment_stats::SegmentStats;
use crate::shared::{CoveredLog, Standing};
use crate::slot::Packed;

pub(crate) const CHECKPOINT_NAME: &str = "checkpoint";

pub(crate) const MAGIC: [u8; 8] = *b"KVbcchkp";
/// Version 2 had no log, and is read as a checkpoint of a store without one. Version 1 had slots of
/// another form, and counts as missing.
const VERSION: u8 = 3;
const VERSION_MIN: u8 = 2;
pub(crate) const HEADER_BYTES: usize = 72;
pub(crate) const SEGMENT_BYTES: usize = 72;
pub(crate) const PLACE_BYTES: usize = 16;
const PLACE_OWN: u8 = 1;
const PLACE_SHARED: u8 = 2;
const LOG_ID: u8 = 3;
const LOG_START: u8 = 4;
const LOG_REMOVAL: u8 = 5;
const SEGMENT_OWN: u32 = 0;
const SEGMENT_SHARED: u32 = 1;
const EXPIRIES_OWN: u32 = 2;
const EXPIRIES_SHARED: u32 = 3;
pub(crate) const SLOT_BYTES: usize = size_of::<Packed>();
pub(crate) const CHUNK_HEADER_BYTES: usize = 16;
/// The most slots in a chunk: a megabyte.
pub(crate) const CHUNK_SLOTS_MAX: usize = 64 << 10;
/// The approximate size of reads and writes.
const BUFFER_BYTES: usize = 256 << 10;
pub(crate) const TABLES_BYTES_MAX: u64 = 1 << 30;

/// The contents of a checkpoint without its slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Covered {
    pub(crate) log_id: u64,
    /// The last batch before it.
    pub(crate) sequence: u64,
    pub(crate) next_segment: u32,
    /// Closing wrote it: no record came after it.
    pub(crate) is_clean: bool,
    /// Statistics of each segment, without the live counts.
    pub(crate) segments: BTreeMap<u32, SegmentStats>,
    /// The part of the value log that the checkpoint covers.
    pub(crate) log: CoveredLog,
}

/// Writes a checkpoint in pieces under a temporary name.
///
/// ```text
/// offset  size  field
///      0     8  magic "KVbcchkp"
///      8     1  format version, 3
///      9     1  flags: 0 clean
///     10     2  zero
///     12     4  masked CRC-32C of bytes 0..12, 16..72 and both tables
///     16     8  log id
///     24     8  last sequence before
///     32     8  number of slots
///     40     8  offset of the tables (t)
///     48     8  length of the file
///     56     4  next segment
///     60     4  number of rows about segments (s)
///     64     4  number of places and what else is said of the log (p)
///     68     4  number of shards
///     72        chunks, to t
///      t  72*s  segments
///         16*p  places
///
/// chunk:   4 shard, 4 number of slots (n), 4 zero, 4 masked CRC-32C of: offset of the chunk (64 bits,
///          not stored), the 12 bytes before, the slots; 16*n slots, sorted by fingerprint. Shards in
///          ascending order; a large one has several chunks.
/// slot:    16, as in memory (slot)
/// segment: 4 number, 4 kind (0: of the store, 1: of the value log, its own records alone), 8 covered to, 8 records, 8 removals, 8 bytes of removals,
///          8 lowest sequence, 8 highest sequence, 8 expires by, 8 modified by
///          kinds 2 and 3, of segments of kinds 0 and 1 with entries that expire: 4 number, 4 kind, then four
///          times: 8 gone by (microseconds), 8 bytes of entries. A reader passes over kinds that it does not know
/// place:   4 what slots call it, 1 kind (1: a segment of the store, 2: of the log), 3 zero, 8 number
///          kind 3: 4 zero, 1 kind, 3 zero, 8 the log's id
///          kind 4: 4 number of a segment of the log, 1 kind, 3 zero, 8 the store's first sequence there
///          kind 5: 4 number of a segment of the log, 1 kind, 3 zero, 4 in which bit 31 is set, 4 offset of a
///          removal, in units of 8
/// ```
pub(crate) struct CheckpointWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    covered: Covered,
    /// Bytes not written yet; they will end at `offset`.
    buffer: Vec<u8>,
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
        remove_if_there(disk, &temporary)?;
        Ok(Self {
            file: disk.open(&temporary, OpenMode::CreateNew)?,
            path,
            covered,
            buffer: Vec::new(),
            offset: HEADER_BYTES as u64,
            slots: 0,
        })
    }

    /// Writes the sorted slots of a shard, and returns their bytes.
    pub(crate) fn write(&mut self, shard: usize, slots: &[Packed]) -> kvorum_disk::Result<u64> {
        let start = self.offset;
        for chunk in slots.chunks(CHUNK_SLOTS_MAX) {
            let at = self.buffer.len();
            for number in [shard, chunk.len(), 0] {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                self.buffer.extend_from_slice(&number.to_le_bytes());
            }
            self.buffer.extend_from_slice(&[0; 4]);
            for slot in chunk {
                self.buffer.extend_from_slice(&slot.0.to_le_bytes());
            }
            let (frame, slots) = self.buffer[at..].split_at_mut(CHUNK_HEADER_BYTES);
            let check = chunk_checksum(self.offset, &frame[..12], slots);
            frame[12..].copy_from_slice(&check.to_le_bytes());
            self.offset += (self.buffer.len() - at) as u64;
            self.slots += chunk.len() as u64;
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(self.offset - start)
    }

    /// Writes the tables and the header, syncs, and gives the file its name. `places` are the
    /// present places of slots.
    pub(crate) fn finish(mut self, disk: &dyn Disk, places: &Places) -> kvorum_disk::Result<u64> {
        let tables_at = self.offset;
        let mut tables = Vec::new();
        put_segments(&mut tables, &self.covered);
        let segments_written = count_of(tables.len() / SEGMENT_BYTES);
        let mut places_written = 0;
        for (index, place) in places.iter() {
            let (kind, number) = match place {
                Place::Own(segment) => (PLACE_OWN, segment.number),
                Place::Shared(shared) => (PLACE_SHARED, shared.number()),
            };
            put_row(&mut tables, index, kind, u64::from(number));
            places_written += 1;
        }
        places_written += put_log(&mut tables, &self.covered.log);
        self.buffer.extend_from_slice(&tables);
        self.offset += tables.len() as u64;
        self.flush()?;
        let counts = (segments_written, places_written);
        let header = self.header(tables_at, counts, &tables);
        self.file.write_at(&header, 0)?;
        self.file.sync()?;
        disk.rename(&temporary_name(&self.path), &self.path)?;
        disk.sync_directory(self.path.parent().unwrap_or(Path::new(".")))?;
        Ok((header.len() + tables.len()) as u64)
    }

    fn flush(&mut self) -> kvorum_disk::Result<()> {
        let at = self.offset - self.buffer.len() as u64;
        self.file.write_at(&self.buffer, at)?;
        self.buffer.clear();
        Ok(())
    }

    fn header(&self, tables_at: u64, (segments, places): (u32, u32), tables: &[u8]) -> Vec<u8> {
        let covered = &self.covered;
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[VERSION, u8::from(covered.is_clean), 0, 0, 0, 0, 0, 0]);
        for number in [
            covered.log_id,
            covered.sequence,
            self.slots,
            tables_at,
            self.offset,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [covered.next_segment, segments, places, count_of(SHARDS)] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let check = header_checksum(&out, tables);
        out[12..16].copy_from_slice(&check.to_le_bytes());
        out
    }
}

/// Reason to ignore a checkpoint.
#[derive(Debug)]
pub(crate) enum CheckpointError {
    /// No checkpoint, or one of an older version.
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

/// A checkpoint being loaded: its header and tables were checked, and its slots are not read yet.
pub(crate) struct Checkpoint {
    pub(crate) covered: Covered,
    /// The segment of each place that slots may refer to.
    pub(crate) places: BTreeMap<u32, PlaceNumber>,
    file: Arc<dyn DiskFile>,
    slots: u64,
    tables_at: u64,
}

struct Header {
    covered: Covered,
    slots: u64,
    tables_at: u64,
    segments: u64,
    places: u64,
    check: u32,
    bytes: Vec<u8>,
}

impl Checkpoint {
    /// Opens the checkpoint of a log.
    pub(crate) fn open(
        disk: &dyn Disk,
        directory: &Path,
        log_id: u64,
    ) -> Result<Self, CheckpointError> {
        let checkpoint = Self::open_any(disk, directory)?;
        if checkpoint.covered.log_id != log_id {
            return Err(CheckpointError::Unusable("of another log"));
        }
        Ok(checkpoint)
    }

    fn open_any(disk: &dyn Disk, directory: &Path) -> Result<Self, CheckpointError> {
        let path = directory.join(CHECKPOINT_NAME);
        if disk.info(&path)?.is_none() {
            return Err(CheckpointError::Missing);
        }
        let file = disk.open(&path, OpenMode::Read)?;
        let file_len = file.len()?;
        let header = read_header(&*file, file_len)?;
        let segments_len = header.segments * SEGMENT_BYTES as u64;
        let len = segments_len + header.places * PLACE_BYTES as u64;
        if header.tables_at.checked_add(len) != Some(file_len) || len > TABLES_BYTES_MAX {
            return Err(CheckpointError::Unusable("of another length"));
        }
        let tables = read_exact(&*file, header.tables_at, len)?;
        if header_checksum(&header.bytes, &tables) != header.check {
            return Err(CheckpointError::Unusable("damaged header"));
        }
        if header.bytes[8] > VERSION {
            return Err(CheckpointError::Newer(header.bytes[8]));
        }
        let (segments, places) = tables.split_at(usize::try_from(segments_len).unwrap_or(0));
        let mut covered = header.covered;
        take_segments(segments, &mut covered)?;
        let places = take_places(places, &mut covered.log)?;
        Ok(Self {
            covered,
            places,
            file,
            slots: header.slots,
            tables_at: header.tables_at,
        })
    }

    /// Begins to read the slots again, to verify them.
    pub(crate) fn reread(self) -> Reread {
        Reread {
            at: HEADER_BYTES as u64,
            found: 0,
            checkpoint: self,
        }
    }

    /// Loads the slots whose place `keep` admits into an empty directory, which is unusable after a
    /// failure.
    pub(crate) fn load(
        &self,
        keydir: &Keydir,
        keep: impl Fn(u32) -> bool,
    ) -> Result<(), CheckpointError> {
        let mut window = Window {
            file: &*self.file,
            at: HEADER_BYTES as u64,
            end: self.tables_at,
            bytes: Vec::new(),
            used: 0,
        };
        let mut slots = Vec::new();
        let (mut shard, mut found) = (0, 0);
        while !window.is_at_end() {
            let (next_shard, payload) = next_chunk(&mut window)?;
            if next_shard < shard {
                return Err(CheckpointError::Unusable("damaged chunk"));
            }
            if next_shard != shard {
                keydir.load_shard(shard, &slots);
                slots.clear();
                shard = next_shard;
            }
            found += (payload.len() / SLOT_BYTES) as u64;
            slots.extend(packed_of(payload).filter(|slot| keep(slot.place())));
        }
        keydir.load_shard(shard, &slots);
        if found != self.slots {
            return Err(CheckpointError::Unusable("slots are missing"));
        }
        Ok(())
    }
}

/// The id of the log, and so of the store, of the checkpoint in a directory; `None` without a
/// readable checkpoint.
///
/// # Errors
/// Those of the disk.
pub(crate) fn log_id_of(disk: &dyn Disk, directory: &Path) -> kvorum_disk::Result<Option<u64>> {
    match Checkpoint::open_any(disk, directory) {
        Ok(checkpoint) => Ok(Some(checkpoint.covered.log_id)),
        Err(CheckpointError::Disk(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// A checkpoint being read again.
pub(crate) struct Reread {
    checkpoint: Checkpoint,
    at: u64,
    /// Slots that were read.
    found: u64,
}

impl Reread {
    /// Reads about this many bytes; returns the number read, and true at the end.
    pub(crate) fn step(&mut self, bytes_max: u64) -> Result<(u64, bool), CheckpointError> {
        let begun_at = self.at;
        let mut window = Window {
            file: &*self.checkpoint.file,
            at: self.at,
            end: self.checkpoint.tables_at,
            bytes: Vec::new(),
            used: 0,
        };
        while !window.is_at_end() {
            if window.at > begun_at && window.at - begun_at >= bytes_max {
                self.at = window.at;
                return Ok((self.at - begun_at, false));
            }
            self.found += next_chunk(&mut window)?.1.len() as u64 / SLOT_BYTES as u64;
        }
        self.at = window.at;
        if self.found != self.checkpoint.slots {
            return Err(CheckpointError::Unusable("slots are missing"));
        }
        Ok((self.at - begun_at, true))
    }
}

/// The shard of the next chunk, and its slots.
fn next_chunk<'w>(window: &'w mut Window<'_>) -> Result<(usize, &'w [u8]), CheckpointError> {
    let chunk_at = window.at;
    let frame: [u8; CHUNK_HEADER_BYTES] = window
        .take(CHUNK_HEADER_BYTES)?
        .try_into()
        .map_err(|_| CheckpointError::Unusable("cut short"))?;
    let mut reader = ByteReader::new(&frame);
    let (shard, count) = (reader.u32()? as usize, reader.u32()? as usize);
    let (_zero, stored) = (reader.u32()?, reader.u32()?);
    if count > CHUNK_SLOTS_MAX || shard >= SHARDS {
        return Err(CheckpointError::Unusable("damaged chunk"));
    }
    let payload = window.take(count * SLOT_BYTES)?;
    if chunk_checksum(chunk_at, &frame[..12], payload) != stored {
        return Err(CheckpointError::Unusable("damaged chunk"));
    }
    Ok((shard, payload))
}

pub(crate) fn packed_of(payload: &[u8]) -> impl Iterator<Item = Packed> + '_ {
    let (slots, _rest) = payload.as_chunks::<SLOT_BYTES>();
    slots.iter().map(|slot| Packed(u128::from_le_bytes(*slot)))
}

/// Reads the header, which is checked together with the tables.
fn read_header(file: &dyn DiskFile, file_len: u64) -> Result<Header, CheckpointError> {
    if file_len < HEADER_BYTES as u64 {
        return Err(CheckpointError::Unusable("cut short"));
    }
    let bytes = read_exact(file, 0, HEADER_BYTES as u64)?;
    let mut reader = ByteReader::new(&bytes);
    if reader.array::<8>()? != MAGIC {
        return Err(CheckpointError::Unusable("no checkpoint"));
    }
    let (version, flags) = (reader.u8()?, reader.u8()?);
    if version < VERSION_MIN {
        return Err(CheckpointError::Missing);
    }
    let (_zero, check) = (reader.u16()?, reader.u32()?);
    let (log_id, sequence) = (reader.u64()?, reader.u64()?);
    let (slots, tables_at, len) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (next_segment, segments) = (reader.u32()?, reader.u32()?);
    let (places, shards) = (reader.u32()?, reader.u32()? as usize);
    if len != file_len || shards != SHARDS {
        return Err(CheckpointError::Unusable("of another length"));
    }
    let covered = Covered {
        log_id,
        sequence,
        next_segment,
        is_clean: flags & 1 != 0,
        ..Covered::default()
    };
    Ok(Header {
        covered,
        slots,
        tables_at,
        segments: u64::from(segments),
        places: u64::from(places),
        check,
        bytes,
    })
}

/// Reads a file from front to end through a buffer.
struct Window<'f> {
    file: &'f dyn DiskFile,
    /// The offset of the next byte in the file.
    at: u64,
    end: u64,
    bytes: Vec<u8>,
    used: usize,
}

impl Window<'_> {
    fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    fn take(&mut self, len: usize) -> Result<&[u8], CheckpointError> {
        let unused = self.bytes.len() - self.used;
        if unused < len {
            let rest = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            if len > rest {
                return Err(CheckpointError::Unusable("cut short"));
            }
            self.bytes.drain(..self.used);
            self.used = 0;
            self.bytes.resize(len.max(BUFFER_BYTES).min(rest), 0);
            let from = self.at + unused as u64;
            let fresh = &mut self.bytes[unused..];
            if self.file.read_at(fresh, from, Reading::MayBlock)? < fresh.len() {
                return Err(CheckpointError::Unusable("cut short"));
            }
        }
        let start = self.used;
        self.used += len;
        self.at += len as u64;
        Ok(&self.bytes[start..self.used])
    }
}

/// A segment, by the kind of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceNumber {
    /// A segment of the store's own.
    Own(u32),
    /// A segment of the value log.
    Shared(u32),
}

fn put_row(out: &mut Vec<u8>, index: u32, kind: u8, number: u64) {
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends the rows about the log and returns their number.
fn put_log(out: &mut Vec<u8>, log: &CoveredLog) -> u32 {
    if *log == CoveredLog::default() {
        return 0;
    }
    let before = out.len();
    put_row(out, 0, LOG_ID, log.log_id);
    for (number, start) in &log.starts {
        put_row(out, *number, LOG_START, *start);
    }
    for (number, standing) in &log.removals {
        put_row(out, *number, LOG_REMOVAL, standing.bits());
    }
    count_of((out.len() - before) / PLACE_BYTES)
}

fn count_of(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

fn put_segments(out: &mut Vec<u8>, covered: &Covered) {
    let own = &covered.segments;
    let shared = &covered.log.segments;
    for (segments, kind) in [(own, SEGMENT_OWN), (shared, SEGMENT_SHARED)] {
        for (number, stats) in segments {
            put_segment_row(out, *number, kind, row_of(stats));
        }
    }
    for (segments, kind) in [(own, EXPIRIES_OWN), (shared, EXPIRIES_SHARED)] {
        let expiring = segments.iter().filter(|(_, it)| !it.expiries.is_empty());
        for (number, stats) in expiring {
            let steps = stats.expiries.steps().iter();
            put_segment_row(out, *number, kind, steps.flat_map(|it| [it.by, it.bytes]));
        }
    }
}

fn put_segment_row(
    out: &mut Vec<u8>,
    number: u32,
    kind: u32,
    fields: impl IntoIterator<Item = u64>,
) {
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    for field in fields {
        out.extend_from_slice(&field.to_le_bytes());
    }
}

fn row_of(stats: &SegmentStats) -> [u64; 8] {
    [
        stats.data_end,
        stats.records,
        stats.removals,
        stats.removal_bytes,
        stats.sequence_min,
        stats.sequence_max,
        stats.expires_by,
        stats.modified_by,
    ]
}

fn take_segments(bytes: &[u8], covered: &mut Covered) -> Result<(), Truncated> {
    let mut reader = ByteReader::new(bytes);
    while !reader.is_empty() {
        let number = reader.u32()?;
        let kind = reader.u32()?;
        let mut row = [0; 8];
        for field in &mut row {
            *field = reader.u64()?;
        }
        let segments = match kind {
            SEGMENT_OWN | EXPIRIES_OWN => &mut covered.segments,
            SEGMENT_SHARED | EXPIRIES_SHARED => &mut covered.log.segments,
            _ => continue,
        };
        if !is_about_expiries(kind) {
            segments.insert(number, stats_of(row));
        } else if let Some(stats) = segments.get_mut(&number) {
            stats.expiries = expiries_of(row);
        }
    }
    Ok(())
}

/// True for the kind of a row with expiries of a segment.
pub(crate) fn is_about_expiries(kind: u32) -> bool {
    kind == EXPIRIES_OWN || kind == EXPIRIES_SHARED
}

fn stats_of(row: [u64; 8]) -> SegmentStats {
    let [data_end, records, removals, removal_bytes, ..] = row;
    let [.., sequence_min, sequence_max, expires_by, modified_by] = row;
    SegmentStats {
        data_end,
        records,
        removals,
        removal_bytes,
        sequence_min,
        sequence_max,
        expires_by,
        modified_by,
        ..SegmentStats::default()
    }
}

fn expiries_of(row: [u64; 8]) -> Expiries {
    let (pairs, _none) = row.as_chunks::<2>();
    let mut steps = [Step::default(); STEPS];
    for (step, [by, bytes]) in steps.iter_mut().zip(pairs) {
        (step.by, step.bytes) = (*by, *bytes);
    }
    Expiries::of(steps)
}

/// Takes the places of known kinds; other places and their slots are left out.
fn take_places(
    bytes: &[u8],
    log: &mut CoveredLog,
) -> Result<BTreeMap<u32, PlaceNumber>, Truncated> {
    let mut reader = ByteReader::new(bytes);
    let mut places = BTreeMap::new();
    while !reader.is_empty() {
        let index = reader.u32()?;
        let kind = reader.u8()?;
        let _zero = reader.take(3)?;
        let number = reader.u64()?;
        let narrow = u32::try_from(number).unwrap_or(u32::MAX);
        match kind {
            PLACE_OWN => drop(places.insert(index, PlaceNumber::Own(narrow))),
            PLACE_SHARED => drop(places.insert(index, PlaceNumber::Shared(narrow))),
            LOG_ID => log.log_id = number,
            LOG_START => drop(log.starts.insert(index, number)),
            LOG_REMOVAL => log.removals.push((index, Standing::from_bits(number))),
            _ => {}
        }
    }
    Ok(places)
}

/// Reads `len` bytes, which are known to lie within the file.
fn read_exact(file: &dyn DiskFile, at: u64, len: u64) -> Result<Vec<u8>, CheckpointError> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = file.read_at(&mut bytes, at, Reading::MayBlock)?;
    if read < bytes.len() {
        return Err(CheckpointError::Unusable("cut short"));
    }
    Ok(bytes)
}

pub(crate) fn header_checksum(header: &[u8], tables: &[u8]) -> u32 {
    let start = checksum_append(checksum(&header[..12]), &header[16..]);
    mask_checksum(checksum_append(start, tables))
}

pub(crate) fn chunk_checksum(offset: u64, frame: &[u8], slots: &[u8]) -> u32 {
    let start = checksum_append(checksum(&offset.to_le_bytes()), frame);
    mask_checksum(checksum_append(start, slots))
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;
    use kvorum_golden::assert_bytes;
    use kvorum_segment::{Location, SegmentReader};

    use super::*;
    use crate::fingerprint::Fingerprints;
    use crate::places::Place;
    use crate::segment::{Segment, segment_id};
    use crate::slot::Slot;

    fn covered() -> Covered {
        let mut expiries = Expiries::default();
        expiries.add(1_000, 64);
        expiries.add(2_000, 128);
        let stats = SegmentStats {
            records: 7,
            sequence_max: 99,
            expiries,
            ..SegmentStats::default()
        };
        Covered {
            log_id: 5,
            sequence: 99,
            next_segment: 4,
            is_clean: true,
            segments: BTreeMap::from([(1, stats), (3, SegmentStats::default())]),
            log: CoveredLog {
                log_id: 77,
                segments: BTreeMap::from([(3, stats)]),
                starts: BTreeMap::from([(2, 5), (3, 90)]),
                removals: vec![(3, Standing::from_bits(9 << 32 | 1 << 31))],
            },
        }
    }

    fn empty() -> Keydir {
        Keydir::new(&Fingerprints::new((1, 2), None))
    }

    fn full() -> Keydir {
        let keydir = empty();
        for number in 0..50u64 {
            let at = Location {
                offset: number * 8,
                front_end: 100,
                len: 500,
            };
            keydir.insert(Slot::new(number << 60 | number << 20, 6, at));
        }
        keydir
    }

    fn write(disk: &MemoryDisk) {
        write_slots(disk, &full());
    }

    fn write_slots(disk: &MemoryDisk, keydir: &Keydir) {
        let mut writer = CheckpointWriter::create(disk, Path::new(""), covered()).unwrap();
        for shard in 0..SHARDS {
            writer.write(shard, &keydir.shard(shard)).unwrap();
        }
        disk.open(Path::new("s"), OpenMode::Create).unwrap();
        let reader = SegmentReader::open(disk, Path::new("s"), segment_id(5, 3, false)).unwrap();
        let segment = Segment::new(reader, 3, 6, false);
        let places = Places::default().with(6, Some(Place::Own(segment)));
        writer.finish(disk, &places).unwrap();
    }

    fn load_all(disk: &MemoryDisk, log_id: u64) -> Result<(Covered, Keydir), CheckpointError> {
        let checkpoint = Checkpoint::open(disk, Path::new(""), log_id)?;
        let keydir = empty();
        checkpoint.load(&keydir, |place| {
            checkpoint.places.get(&place) == Some(&PlaceNumber::Own(3))
        })?;
        Ok((checkpoint.covered, keydir))
    }

    /// A checkpoint with one chunk of two slots.
    #[test]
    fn the_bytes_are_as_drawn() {
        let disk = MemoryDisk::new();
        let keydir = empty();
        for fingerprint in [5 << 20, 6 << 20] {
            let at = Location {
                offset: 4_096,
                front_end: 100,
                len: 500,
            };
            keydir.insert(Slot::new(fingerprint, 6, at));
        }
        write_slots(&disk, &keydir);
        let bytes = kvorum_disk::read_file(&disk, Path::new(CHECKPOINT_NAME), 1 << 20).unwrap();
        let header = [
            ("magic \"KVbcchkp\"", 8),
            ("format version, 3", 1),
            ("flags: 0 clean", 1),
            ("zero", 2),
            ("masked CRC-32C of bytes 0..12, 16..72 and both tables", 4),
            ("log id", 8),
            ("last sequence before", 8),
            ("number of slots", 8),
            ("offset of the tables", 8),
            ("length of the file", 8),
            ("next segment", 4),
            ("number of rows about segments", 4),
            ("number of places and other rows about the log", 4),
            ("number of shards", 4),
        ];
        let chunk = [
            ("shard", 4),
            ("number of slots", 4),
            ("zero", 4),
            (
                "masked CRC-32C of its offset, the 12 bytes before, the slots",
                4,
            ),
            ("slot", SLOT_BYTES),
            ("slot", SLOT_BYTES),
        ];
        let tables = [
            ("segment of the store", SEGMENT_BYTES),
            ("segment of the store", SEGMENT_BYTES),
            ("segment of the value log", SEGMENT_BYTES),
            ("expiries of a segment of the store", SEGMENT_BYTES),
            ("expiries of a segment of the value log", SEGMENT_BYTES),
            ("place: a segment of the store", PLACE_BYTES),
            ("the log's id", PLACE_BYTES),
            (
                "the store's first sequence in a segment of the log",
                PLACE_BYTES,
            ),
            (
                "the store's first sequence in a segment of the log",
                PLACE_BYTES,
            ),
            ("a removal in a segment of the log", PLACE_BYTES),
        ];
        let drawing = [&header[..], &chunk, &tables].concat();
        assert_bytes("checkpoint.hex", &drawing, &bytes);
        assert_eq!(load_all(&disk, 5).unwrap().0, covered());
    }

    #[test]
    fn what_was_written_is_loaded() {
        let disk = MemoryDisk::new();
        write(&disk);
        let (found, keydir) = load_all(&disk, 5).unwrap();
        assert_eq!(found, covered());
        assert_eq!(keydir.len(), 50);
        full().for_each(|slot| assert!(keydir.contains(&slot)));
        assert!(load_all(&disk, 6).is_err());
    }

    #[test]
    fn slots_of_a_place_that_is_gone_are_left_out() {
        let disk = MemoryDisk::new();
        write(&disk);
        let checkpoint = Checkpoint::open(&disk, Path::new(""), 5).unwrap();
        let keydir = empty();
        checkpoint.load(&keydir, |_| false).unwrap();
        assert_eq!(keydir.len(), 0);
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

    #[test]
    fn the_version_before_is_taken_for_missing() {
        let disk = MemoryDisk::new();
        write(&disk);
        let path = Path::new(CHECKPOINT_NAME);
        let file = disk.open(path, OpenMode::ReadWrite).unwrap();
        file.write_at(&[1], 8).unwrap();
        assert!(matches!(load_all(&disk, 5), Err(CheckpointError::Missing)));
    }
}

//! Log hints: keys of records that stand in the node's log, sorted, so that a fold need not read the
//! front of each.
//!
//! A segment of the log holds records of many stores, few of each, and nothing in it says which keys
//! those are. So a store writes a hint of its own for many segments at a time: for its records that
//! begin in certain ranges of them. What a range of a segment holds never changes and its number is
//! never given to another one, so that a hint may be behind and is never wrong: records outside of its
//! ranges are read themselves, and entries of segments that are gone are passed over.
//!
//! A hint has the newest record of each key within its ranges, removals as well. All of it was durable
//! before the hint had its name.
//!
//! It speaks in the same way of what was copied out of the log to a segment of the store's own that is not
//! full yet: ranges from its beginning on.
//!
//! What is wrong with a log hint costs time, not data, and it is written again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kvorum_backend::{Fields, Tag, Timestamp};
use kvorum_disk::{Disk, DiskFile, OpenMode, Reading};
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_segment::{Location, RECORD_ALIGN_BYTES};

use crate::key_blocks::{BlockIndex, BlockWriter, HintError, header_checksum, read_block};
use crate::key_table::KeyEntry;

pub(crate) const MAGIC: [u8; 8] = *b"KVlghint";
const VERSION: u8 = 1;
pub(crate) const HEADER_BYTES: usize = 64;
/// A block is closed when it is this long. Shorter than those of other hints: a part of a listing
/// reads a block of every log hint.
const BLOCK_BYTES: usize = 8 << 10;
const SUFFIX: &str = ".loghint";

const FLAG_REMOVAL: u8 = 1;
const FLAG_EXPIRES: u8 = 1 << 1;

/// A range of a segment of the log that a hint speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HintedPart {
    /// The segment; of the store's own with [`crate::key_table::OWN`].
    pub(crate) number: u32,
    /// Where the store's first record in it begins, or before that. Bytes.
    pub(crate) from: u64,
    /// The store's records that begin here or behind are not in it. Bytes.
    pub(crate) to: u64,
    /// Entries of the hint that stand in this segment, where it has several parts at the first of them.
    pub(crate) entries: u64,
}

/// The name of a log hint.
pub(crate) fn log_hint_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:010}{SUFFIX}"))
}

/// The number of a log hint, if a file's name is that of one.
pub(crate) fn log_hint_number(name: &str) -> Option<u32> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

/// Writes a log hint, entry by entry in key order.
///
/// ```text
/// offset  size  field
///      0     8  magic "KVlghint"
///      8     1  format version, 1
///      9     3  zero
///     12     4  masked CRC-32C of bytes 0..12 and 16..64
///     16     8  identity of the store
///     24     8  log id
///     32     8  highest sequence
///     40     8  number of entries
///     48     8  offset of the index
///     56     8  length of the index block
///     64        blocks, then the index as one more block, as [`BlockWriter`] draws them
///
/// in the index, before the blocks:
///   varint  number of parts; for each, ascending: varint segment of the log (2^31 more: one of the
///           store's own), varint where the part
///           begins and varint where it ends, both in units of 8, varint entries
///
/// entry:
///   varint  how many bytes of its key are those of the key before it in the block
///   varint  length of the rest of the key, then the rest
///   varint  sequence
///   varint  segment, likewise
///   varint  offset of the record, in units of 8
///   varint  where its front ends, in bytes
///   varint  its length, in bytes
///   1       flags: 0 removal, 1 expires
///           of an entry that is no removal:
///   4         anti-entropy segment
///   varint    last modified, less than that of the entry before it in the block (none: 0): the
///             difference, doubled; 1 more where it is negative
///   varint    expiry, if it expires
///   1         tag
/// ```
pub(crate) struct LogHintWriter {
    blocks: BlockWriter,
    bound: BoundTo,
    payload: Vec<u8>,
    first_key: Bytes,
    last: Last,
    entries: u64,
    sequence_max: u64,
    by_segment: BTreeMap<u32, u64>,
}

/// Whose records a log hint speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoundTo {
    /// The identity of the store's contents.
    pub(crate) store: u64,
    pub(crate) log_id: u64,
}

/// What an entry is told apart from.
#[derive(Default)]
struct Last {
    key: Bytes,
    modified: u64,
}

impl LogHintWriter {
    pub(crate) fn create(
        disk: &dyn Disk,
        path: &Path,
        bound: BoundTo,
    ) -> kvorum_disk::Result<Self> {
        Ok(Self {
            blocks: BlockWriter::create(disk, path, HEADER_BYTES)?,
            bound,
            payload: Vec::new(),
            first_key: Bytes::new(),
            last: Last::default(),
            entries: 0,
            sequence_max: 0,
            by_segment: BTreeMap::new(),
        })
    }

    /// Takes the next entry; returns what was written, if it begins another block.
    pub(crate) fn push(&mut self, entry: &KeyEntry) -> kvorum_disk::Result<u64> {
        // A key is found by the first block that may have it: it stands in one alone.
        let is_full = self.payload.len() >= BLOCK_BYTES && self.last.key != entry.key;
        let written = if is_full { self.close_block()? } else { 0 };
        if self.payload.is_empty() {
            self.first_key = separator(&self.last.key, &entry.key);
            self.last = Last::default();
        }
        encode(entry, &mut self.last, &mut self.payload);
        self.entries += 1;
        self.sequence_max = self.sequence_max.max(entry.sequence);
        *self.by_segment.entry(entry.segment).or_default() += 1;
        Ok(written)
    }

    fn close_block(&mut self) -> kvorum_disk::Result<u64> {
        let payload = std::mem::take(&mut self.payload);
        if payload.is_empty() {
            return Ok(0);
        }
        self.blocks.write(&self.first_key, &payload)
    }

    /// Writes what is left and gives the file its name. What it speaks of has to be durable. Returns the
    /// bytes written.
    pub(crate) fn finish(
        mut self,
        disk: &dyn Disk,
        parts: &[HintedPart],
    ) -> kvorum_disk::Result<u64> {
        let block_len = self.close_block()?;
        let mut preface = Vec::new();
        put_varint(&mut preface, parts.len() as u64);
        for part in parts {
            let entries = self.by_segment.remove(&part.number).unwrap_or(0);
            put_varint(&mut preface, u64::from(part.number));
            put_varint(&mut preface, part.from / RECORD_ALIGN_BYTES);
            put_varint(&mut preface, part.to.div_ceil(RECORD_ALIGN_BYTES));
            put_varint(&mut preface, entries);
        }
        let (index_at, index_len) = self.blocks.write_index(&preface)?;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&[VERSION, 0, 0, 0, 0, 0, 0, 0]);
        for number in [
            self.bound.store,
            self.bound.log_id,
            self.sequence_max,
            self.entries,
            index_at,
            index_len,
        ] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        let check = header_checksum(&header);
        header[12..16].copy_from_slice(&check.to_le_bytes());
        self.blocks.finish(disk, &header)?;
        Ok(block_len + index_len + header.len() as u64)
    }
}

/// The shortest key that is behind `last` and not behind `next`: indexes are in memory.
fn separator(last: &[u8], next: &Bytes) -> Bytes {
    let pairs = next.iter().zip(last);
    let shared = pairs.take_while(|(one, other)| one == other).count();
    next.slice(..next.len().min(shared + 1))
}

fn encode(entry: &KeyEntry, last: &mut Last, out: &mut Vec<u8>) {
    let pairs = entry.key.iter().zip(&last.key);
    let shared = pairs.take_while(|(one, other)| one == other).count();
    put_varint(out, shared as u64);
    put_varint(out, (entry.key.len() - shared) as u64);
    out.extend_from_slice(&entry.key[shared..]);
    last.key = entry.key.clone();
    put_varint(out, entry.sequence);
    put_varint(out, u64::from(entry.segment));
    put_varint(out, entry.at.offset / RECORD_ALIGN_BYTES);
    put_varint(out, entry.at.front_end);
    put_varint(out, entry.at.len);
    if entry.removal {
        out.push(FLAG_REMOVAL);
        return;
    }
    let fields = &entry.fields;
    out.push(fields.expiry.map_or(0, |_| FLAG_EXPIRES));
    out.extend_from_slice(&fields.segment.to_le_bytes());
    let modified = fields.last_modified.0;
    put_varint(out, folded(modified.wrapping_sub(last.modified)));
    last.modified = modified;
    if let Some(expiry) = fields.expiry {
        put_varint(out, expiry.0);
    }
    out.push(fields.tag.0);
}

/// Small for a small difference of either sign.
fn folded(difference: u64) -> u64 {
    let sign = if difference >> 63 == 0 { 0 } else { u64::MAX };
    difference << 1 ^ sign
}

fn unfolded(folded: u64) -> u64 {
    let sign = if folded & 1 == 0 { 0 } else { u64::MAX };
    folded >> 1 ^ sign
}

/// The entries of a block, each with its length.
pub(crate) fn decode_block(payload: &[u8]) -> Result<Vec<(KeyEntry, usize)>, HintError> {
    let mut reader = ByteReader::new(payload);
    let mut last = Last::default();
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let begin = reader.offset();
        let entry = decode(&mut reader, &mut last)?;
        entries.push((entry, reader.offset() - begin));
    }
    Ok(entries)
}

fn decode(reader: &mut ByteReader<'_>, last: &mut Last) -> Result<KeyEntry, HintError> {
    let shared = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    let rest = reader.take_prefixed()?;
    let Some(shared) = last.key.get(..shared) else {
        return Err(HintError::Unusable("a key that begins with nothing"));
    };
    let key = Bytes::from([shared, rest].concat());
    last.key = key.clone();
    let sequence = reader.varint()?;
    let Ok(segment) = u32::try_from(reader.varint()?) else {
        return Err(HintError::Unusable("a segment without a number"));
    };
    let at = Location {
        offset: reader.varint()?.saturating_mul(RECORD_ALIGN_BYTES),
        front_end: reader.varint()?,
        len: reader.varint()?,
    };
    let flags = reader.u8()?;
    let removal = flags & FLAG_REMOVAL != 0;
    let fields = match removal {
        true => Fields::default(),
        false => decode_fields(reader, flags, last)?,
    };
    Ok(KeyEntry {
        key,
        sequence,
        segment,
        at,
        removal,
        fields,
    })
}

fn decode_fields(
    reader: &mut ByteReader<'_>,
    flags: u8,
    last: &mut Last,
) -> Result<Fields, Truncated> {
    let segment = reader.u32()?;
    last.modified = last.modified.wrapping_add(unfolded(reader.varint()?));
    Ok(Fields {
        segment,
        last_modified: Timestamp(last.modified),
        expiry: match flags & FLAG_EXPIRES {
            0 => None,
            _ => Some(Timestamp(reader.varint()?)),
        },
        tag: Tag(reader.u8()?),
    })
}

/// An open log hint whose header and index were found right.
pub(crate) struct LogHint {
    pub(crate) number: u32,
    pub(crate) parts: Vec<HintedPart>,
    pub(crate) entries: u64,
    file: Arc<dyn DiskFile>,
    blocks: BlockIndex,
    len: u64,
    is_wrong: AtomicBool,
}

impl LogHint {
    /// Opens a log hint; `None` for one that does not speak of the records of this store in this log.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: &Path,
        number: u32,
        bound: BoundTo,
    ) -> Result<Option<Self>, HintError> {
        let file = disk.open(path, OpenMode::Read)?;
        let frame = read_frame(&*file)?;
        if frame.bound != bound {
            return Ok(None);
        }
        let mut reader = ByteReader::new(&frame.index);
        Ok(Some(Self {
            number,
            parts: decode_parts(&mut reader)?,
            entries: frame.entries,
            len: file.len()?,
            blocks: BlockIndex::decode(&mut reader)?,
            file,
            is_wrong: AtomicBool::new(false),
        }))
    }

    /// Reads the header and the index again.
    pub(crate) fn check_frame(&self) -> Result<(), HintError> {
        read_frame(&*self.file).map(drop)
    }

    /// The length of the file, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn index(&self) -> &BlockIndex {
        &self.blocks
    }

    /// The entries of a block, in key order.
    pub(crate) fn read(&self, block: usize) -> Result<Vec<KeyEntry>, HintError> {
        let Some(payload) = self.blocks.read(&*self.file, block)? else {
            return Ok(Vec::new());
        };
        let entries = decode_block(&payload)?.into_iter();
        Ok(entries.map(|(entry, _)| entry).collect())
    }

    /// Its parts of a segment.
    pub(crate) fn parts_of(&self, number: u32) -> &[HintedPart] {
        let from = self.parts.partition_point(|it| it.number < number);
        let to = self.parts.partition_point(|it| it.number <= number);
        &self.parts[from..to]
    }

    /// It was found damaged: it is not used any more, and is written again.
    pub(crate) fn set_wrong(&self) {
        self.is_wrong.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_wrong(&self) -> bool {
        self.is_wrong.load(Ordering::Relaxed)
    }

    /// What it takes while it is open, in bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let own = size_of::<Self>() + self.parts.capacity() * size_of::<HintedPart>();
        own as u64 + self.blocks.memory_bytes()
    }
}

struct Frame {
    bound: BoundTo,
    entries: u64,
    index: Bytes,
}

fn read_frame(file: &dyn DiskFile) -> Result<Frame, HintError> {
    let mut header = [0; HEADER_BYTES];
    let read = file.read_at(&mut header, 0, Reading::MayBlock)?;
    let mut reader = ByteReader::new(&header[..read]);
    if reader.array::<8>()? != MAGIC {
        return Err(HintError::Unusable("no log hint"));
    }
    let version = reader.u8()?;
    let _zero = reader.take(3)?;
    let stored = reader.u32()?;
    if read < HEADER_BYTES || header_checksum(&header) != stored {
        return Err(HintError::Unusable("damaged header"));
    }
    if version > VERSION {
        return Err(HintError::Newer);
    }
    let bound = BoundTo {
        store: reader.u64()?,
        log_id: reader.u64()?,
    };
    let _sequence_max = reader.u64()?;
    let entries = reader.u64()?;
    let (index_at, index_len) = (reader.u64()?, reader.u64()?);
    let index = read_block(file, index_at, index_len)?;
    Ok(Frame {
        bound,
        entries,
        index,
    })
}

fn decode_parts(reader: &mut ByteReader<'_>) -> Result<Vec<HintedPart>, HintError> {
    let count = reader.varint()?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let number = reader.varint()?;
        parts.push(HintedPart {
            number: u32::try_from(number)
                .map_err(|_| HintError::Unusable("a segment without a number"))?,
            from: reader.varint()?.saturating_mul(RECORD_ALIGN_BYTES),
            to: reader.varint()?.saturating_mul(RECORD_ALIGN_BYTES),
            entries: reader.varint()?,
        });
    }
    parts.shrink_to_fit();
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use kvorum_disk::MemoryDisk;

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

    fn write(disk: &MemoryDisk, count: u64) {
        let mut writer = LogHintWriter::create(disk, Path::new("h"), BOUND).unwrap();
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
        let mut entries = Vec::new();
        for block in 0..hint.index().len() {
            entries.extend(hint.read(block)?);
        }
        Ok(entries)
    }

    #[test]
    fn entries_and_parts_are_read_as_they_were_written() {
        let disk = MemoryDisk::new();
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
            let block = hint.read(hint.index().block_of(&wanted.key)).unwrap();
            assert!(block.contains(&wanted));
        }
    }

    /// What it adds to a value of 2,000 bytes has to stay below 5 % when it is written twice.
    #[test]
    fn an_entry_takes_about_twenty_seven_bytes_and_the_end_of_its_key() {
        let disk = MemoryDisk::new();
        let mut writer = LogHintWriter::create(&disk, Path::new("h"), BOUND).unwrap();
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
                    segment: 77,
                    // A hundred a second.
                    last_modified: Timestamp(1_700_000_000_000_000 + number * 10_000),
                    ..Fields::default()
                },
            };
            writer.push(&entry).unwrap();
        }
        writer.finish(&disk, &parts()).unwrap();
        let each = open(&disk).unwrap().len() as f64 / 4096.0;
        assert!(each < 27.0 + 14.0, "{each}");
    }

    #[test]
    fn one_of_another_store_or_log_is_not_used() {
        let disk = MemoryDisk::new();
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

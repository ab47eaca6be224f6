//! Hint files: the keys of one finished segment, sorted, so that opening and folding need not read
//! its values.
//!
//! A hint is bound to its segment by log, number, length and range of sequences, and never believed
//! otherwise; each block has its own checksum. What is wrong with a hint costs time, not data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Disk, DiskFile, OpenMode, Reading};
use kvorum_encoding::ByteReader;
use kvorum_planted_defects::is_planted;

use crate::key_blocks::{BlockIndex, BlockWriter, HintError, header_checksum, read_block};
use crate::key_table::{KeyEntry, KeyTable};

pub(crate) const MAGIC: [u8; 8] = *b"KVbchint";
const VERSION: u8 = 1;
pub(crate) const HEADER_BYTES: usize = 88;
/// A block is closed when it is this long.
const BLOCK_BYTES: usize = 16 << 10;

/// What a hint says of its segment. All of it has to be right for the hint to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HintedSegment {
    pub(crate) log_id: u64,
    pub(crate) number: u64,
    pub(crate) data_end: u64,
    pub(crate) records: u64,
    pub(crate) sequence_min: u64,
    pub(crate) sequence_max: u64,
}

/// The name of a segment's hint file.
pub(crate) fn hint_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:010}.hint"))
}

/// Writes a hint in pieces under a temporary name.
///
/// ```text
/// offset  size  field
///      0     8  magic "KVbchint"
///      8     1  format version, 1
///      9     3  zero
///     12     4  masked CRC-32C of bytes 0..12 and 16..88
///     16     8  log id
///     24     8  segment number
///     32     8  end of the segment's records
///     40     8  number of the segment's records
///     48     8  lowest sequence
///     56     8  highest sequence
///     64     8  number of entries
///     72     8  offset of the index
///     80     8  length of the index block
///     88        blocks, then the index as one more block, as [`BlockWriter`] draws them
/// ```
pub(crate) struct HintWriter {
    blocks: BlockWriter,
    segment: HintedSegment,
    position: usize,
}

impl HintWriter {
    pub(crate) fn create(
        disk: &dyn Disk,
        path: &Path,
        segment: HintedSegment,
    ) -> kvorum_disk::Result<Self> {
        Ok(Self {
            blocks: BlockWriter::create(disk, path, HEADER_BYTES)?,
            segment,
            position: 0,
        })
    }

    /// Writes the next block and returns its length; 0 when there are no more.
    pub(crate) fn write_block(
        &mut self,
        table: &KeyTable,
        budget_bytes: u64,
    ) -> kvorum_disk::Result<u64> {
        let full = BLOCK_BYTES.min(usize::try_from(budget_bytes).unwrap_or(BLOCK_BYTES));
        let mut payload = Vec::new();
        let mut first_key = None;
        while let Some(entry) = table.get(self.position) {
            let start = payload.len();
            entry.encode(&mut payload);
            if start > 0 && payload.len() > full {
                payload.truncate(start);
                break;
            }
            first_key.get_or_insert(entry.key);
            self.position += 1;
        }
        let Some(first_key) = first_key else {
            return Ok(0);
        };
        self.blocks.write(&first_key, &payload)
    }

    /// Writes index and header, and gives the file its name.
    pub(crate) fn finish(mut self, disk: &dyn Disk) -> kvorum_disk::Result<u64> {
        let (index_at, index_len) = self.blocks.write_index(&[])?;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&[VERSION, 0, 0, 0, 0, 0, 0, 0]);
        for number in [
            self.segment.log_id,
            self.segment.number,
            self.segment.data_end,
            self.segment.records,
            self.segment.sequence_min,
            self.segment.sequence_max,
            self.position as u64,
            index_at,
            index_len,
        ] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        let check = header_checksum(&header);
        header[12..16].copy_from_slice(&check.to_le_bytes());
        self.blocks.finish(disk, &header)?;
        Ok(index_len + header.len() as u64)
    }
}

/// An open hint file whose header and index were found right.
pub(crate) struct HintFile {
    file: Arc<dyn DiskFile>,
    blocks: BlockIndex,
    len: u64,
}

impl HintFile {
    /// Opens a hint that is bound to this segment.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: &Path,
        segment: &HintedSegment,
    ) -> Result<Self, HintError> {
        let file = disk.open(path, OpenMode::Read)?;
        let (bound, index) = read_frame(&*file)?;
        if bound != *segment && !is_planted!(StaleHintTrusted) {
            return Err(HintError::Unusable("not of this segment as it is"));
        }
        Ok(Self {
            len: file.len()?,
            blocks: BlockIndex::decode(&mut ByteReader::new(&index))?,
            file,
        })
    }

    /// Reads the header and the index again.
    pub(crate) fn check_frame(&self) -> Result<(), HintError> {
        read_frame(&*self.file).map(drop)
    }

    /// The length of the file, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The entries of a block, in key order.
    pub(crate) fn read(&self, block: usize) -> Result<Vec<KeyEntry>, HintError> {
        let Some(mut rest) = self.blocks.read(&*self.file, block)? else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (entry, len) = KeyEntry::decode(&rest)?;
            entries.push(entry);
            rest = rest.slice(len..);
        }
        Ok(entries)
    }

    /// The index of the blocks.
    pub(crate) fn index(&self) -> &BlockIndex {
        &self.blocks
    }
}

/// What binds a hint to its segment, and its index.
fn read_frame(file: &dyn DiskFile) -> Result<(HintedSegment, Bytes), HintError> {
    let mut header = [0; HEADER_BYTES];
    let read = file.read_at(&mut header, 0, Reading::MayBlock)?;
    let mut reader = ByteReader::new(&header[..read]);
    if reader.array::<8>()? != MAGIC {
        return Err(HintError::Unusable("no hint file"));
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
    let bound = HintedSegment {
        log_id: reader.u64()?,
        number: reader.u64()?,
        data_end: reader.u64()?,
        records: reader.u64()?,
        sequence_min: reader.u64()?,
        sequence_max: reader.u64()?,
    };
    let _entries = reader.u64()?;
    let (index_at, index_len) = (reader.u64()?, reader.u64()?);
    let index = read_block(file, index_at, index_len)?;
    Ok((bound, index))
}

#[cfg(test)]
mod tests {
    use kvorum_backend::Fields;
    use kvorum_disk::MemoryDisk;
    use kvorum_segment::Location;

    use super::*;
    use crate::key_table::KeyTableBuilder;

    const SEGMENT: HintedSegment = HintedSegment {
        log_id: 1,
        number: 2,
        data_end: 3,
        records: 4,
        sequence_min: 5,
        sequence_max: 6,
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
        let mut builder = KeyTableBuilder::default();
        (0..count)
            .rev()
            .for_each(|number| builder.push(&entry(number)));
        let table = builder.finish();
        let mut writer = HintWriter::create(disk, Path::new("h"), SEGMENT).unwrap();
        while writer.write_block(&table, u64::MAX).unwrap() > 0 {}
        writer.finish(disk).unwrap();
    }

    fn read_all(disk: &MemoryDisk) -> Result<Vec<KeyEntry>, HintError> {
        let hint = HintFile::open(disk, Path::new("h"), &SEGMENT)?;
        let mut entries = Vec::new();
        for block in 0..hint.index().len() {
            entries.extend(hint.read(block)?);
        }
        Ok(entries)
    }

    #[test]
    fn entries_are_read_in_order_and_from_a_key_on() {
        let disk = MemoryDisk::new();
        write(&disk, 3000);
        let all = read_all(&disk).unwrap();
        assert_eq!(all, (0..3000).map(entry).collect::<Vec<_>>());
        let hint = HintFile::open(&disk, Path::new("h"), &SEGMENT).unwrap();
        assert!(hint.index().len() > 3);
        for number in [0, 1, 777, 2999] {
            let wanted = entry(number);
            let block = hint.read(hint.index().block_of(&wanted.key)).unwrap();
            assert!(block.contains(&wanted));
        }
        assert_eq!(hint.index().block_of(b""), 0);
    }

    #[test]
    fn a_hint_of_another_segment_is_not_used() {
        let disk = MemoryDisk::new();
        write(&disk, 10);
        let longer = HintedSegment {
            data_end: 4,
            ..SEGMENT
        };
        let opened = HintFile::open(&disk, Path::new("h"), &longer);
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

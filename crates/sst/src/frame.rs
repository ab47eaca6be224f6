//! The frame around every block of a table.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{DiskFile, Reading};
use kvorum_encoding::{ByteReader, Codec, checksum, checksum_append, mask_checksum};

use crate::{Part, Result, SstError};

/// The length of a frame's header.
pub(crate) const FRAME_HEADER_BYTES: usize = 20;
/// The largest block, stored or raw, so that a wrong length is detected before the allocation.
pub(crate) const BLOCK_BYTES_MAX: u32 = 1 << 30;

/// The identity of a table: its store and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableId {
    /// The store's identity: random, so that a file of another store is never mistaken for a file
    /// of this one.
    pub store: u64,
    /// The table's number, never reused in a store.
    pub number: u64,
}

/// The place of a block: its frame's first byte, and the length of frame and payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHandle {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length including the frame, in bytes.
    pub len: u32,
}

impl BlockHandle {
    /// The first byte behind the block.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// The number of a part that is a block.
pub(crate) fn kind_byte(part: Part) -> u8 {
    match part {
        Part::FileHeader | Part::Footer => 0,
        Part::Data => 1,
        Part::Index => 2,
        Part::Filter => 3,
        Part::SegmentSets => 4,
        Part::Properties => 5,
        Part::TopIndex => 6,
        Part::Note => 7,
    }
}

fn part_of(kind: u8) -> Option<Part> {
    match kind {
        1 => Some(Part::Data),
        2 => Some(Part::Index),
        3 => Some(Part::Filter),
        4 => Some(Part::SegmentSets),
        5 => Some(Part::Properties),
        6 => Some(Part::TopIndex),
        7 => Some(Part::Note),
        _ => None,
    }
}

/// The start value of a table's checksums, which covers store and table without storing them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksumSeed(u32);

impl ChecksumSeed {
    pub(crate) fn of(id: &TableId) -> Self {
        let store = checksum_append(0, &id.store.to_le_bytes());
        Self(checksum_append(store, &id.number.to_le_bytes()))
    }

    fn at(self, offset: u64) -> u32 {
        checksum_append(self.0, &offset.to_le_bytes())
    }

    fn of_header(self, offset: u64, covered: &[u8]) -> u32 {
        mask_checksum(checksum_append(self.at(offset), covered))
    }
}

/// A frame's header, decoded and checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHeader {
    pub(crate) part: Part,
    pub(crate) codec: Codec,
    pub(crate) payload_checksum: u32,
    pub(crate) stored_len: u32,
    pub(crate) raw_len: u32,
}

impl FrameHeader {
    pub(crate) fn frame_len(&self) -> u32 {
        self.stored_len + FRAME_HEADER_BYTES_U32
    }
}

const FRAME_HEADER_BYTES_U32: u32 = 20;
/// The unit that a device may fail to read.
const SECTOR_BYTES: usize = 4096;

/// Appends the frame's header for a block at `offset`; the payload follows.
///
/// ```text
/// offset  size  field
///      0     4  masked CRC-32C of: store, table, offset of the frame (not stored), bytes 4..20
///      4     4  masked CRC-32C of the payload as stored
///      8     1  part: 1 data, 2 index, 3 filter, 4 segment sets, 5 properties, 6 top index,
///               7 note
///      9     1  codec: 0 none, 1 LZ4, 2 Zstandard
///     10     2  zero
///     12     4  length of the payload as stored
///     16     4  length of the payload before compression
/// ```
pub(crate) fn put_frame_header(
    out: &mut Vec<u8>,
    seed: ChecksumSeed,
    offset: u64,
    part: Part,
    codec: Codec,
    stored: &[u8],
    lens: (u32, u32),
) {
    let mut header = [0; FRAME_HEADER_BYTES];
    header[4..8].copy_from_slice(&mask_checksum(checksum(stored)).to_le_bytes());
    header[8] = kind_byte(part);
    header[9] = codec.number();
    header[12..16].copy_from_slice(&lens.0.to_le_bytes());
    header[16..20].copy_from_slice(&lens.1.to_le_bytes());
    let check = seed.of_header(offset, &header[4..]);
    header[..4].copy_from_slice(&check.to_le_bytes());
    out.extend_from_slice(&header);
}

/// The header of the frame at `offset`, or `None` if these bytes are not a header.
pub(crate) fn decode_frame_header(
    bytes: &[u8],
    seed: ChecksumSeed,
    offset: u64,
) -> Option<FrameHeader> {
    let covered = bytes.get(4..FRAME_HEADER_BYTES)?;
    let mut reader = ByteReader::new(bytes);
    let stored = reader.u32().ok()?;
    // Cheap tests first: a search for the next frame tries every byte.
    let part = part_of(covered[4])?;
    let codec = Codec::from_number(covered[5])?;
    if covered[6..8] != [0, 0] || seed.of_header(offset, covered) != stored {
        return None;
    }
    let payload_checksum = reader.u32().ok()?;
    let _part_codec_zero = reader.u32().ok()?;
    let (stored_len, raw_len) = (reader.u32().ok()?, reader.u32().ok()?);
    let is_plausible = stored_len <= BLOCK_BYTES_MAX && raw_len <= BLOCK_BYTES_MAX;
    is_plausible.then_some(FrameHeader {
        part,
        codec,
        payload_checksum,
        stored_len,
        raw_len,
    })
}

/// A table's file, and the checks of its blocks.
#[derive(Clone)]
pub(crate) struct FrameReader {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) seed: ChecksumSeed,
    /// The end of the table in the file; bytes behind it are not the table's.
    pub(crate) file_len: u64,
    /// True if blocks that the device cannot read count as damaged. Only salvage sets this: a
    /// device may fail for a while, and a serving reader must not skip blocks for that.
    pub(crate) has_bad_sectors: bool,
}

impl FrameReader {
    /// A reader for serving.
    pub(crate) fn new(file: Arc<dyn DiskFile>, id: &TableId, file_len: u64) -> Self {
        Self {
            file,
            seed: ChecksumSeed::of(id),
            file_len,
            has_bad_sectors: false,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Reads bytes; fewer than requested only at the end of the file.
    pub(crate) fn read(&self, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        let rest = usize::try_from(self.file_len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(rest)];
        let read = self.file.read_at(&mut bytes, offset, reading)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// The bytes of blocks.
    pub(crate) fn read_blocks(&self, offset: u64, len: usize, reading: Reading) -> Result<Vec<u8>> {
        match self.has_bad_sectors {
            true => self.read_readable(offset, len, reading),
            false => self.read(offset, len, reading),
        }
    }

    /// Reads bytes, with zeros where the device fails. Zeros fail every checksum, so a bad sector
    /// is damage like any other.
    pub(crate) fn read_readable(
        &self,
        offset: u64,
        len: usize,
        reading: Reading,
    ) -> Result<Vec<u8>> {
        match self.read(offset, len, reading) {
            Err(error) if error.is_of_device() => {}
            read => return read,
        }
        let rest = usize::try_from(self.file_len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(rest)];
        let mut at = 0;
        while at < bytes.len() {
            let from = offset + at as u64;
            let to_boundary = SECTOR_BYTES - usize::try_from(from).unwrap_or(0) % SECTOR_BYTES;
            let piece = to_boundary.min(bytes.len() - at);
            match self.read(from, piece, reading) {
                Ok(read) => bytes[at..at + read.len()].copy_from_slice(&read),
                Err(error) if error.is_of_device() => {}
                Err(error) => return Err(error),
            }
            at += piece;
        }
        Ok(bytes)
    }

    /// Reads and checks a block, and restores its payload. A device may return wrong data once: a
    /// damaged block is read again before it is reported.
    pub(crate) fn read_block(
        &self,
        handle: BlockHandle,
        part: Part,
        reading: Reading,
    ) -> Result<Bytes> {
        let once = || {
            let len = usize::try_from(handle.len).unwrap_or(usize::MAX);
            let bytes = self.read_blocks(handle.offset, len, reading)?;
            self.open_frame(&Bytes::from(bytes), handle, part)
        };
        match once() {
            Err(error) if error.is_damage() => once(),
            outcome => outcome,
        }
    }

    /// Checks the frame in `bytes`, which start at the handle's offset, and restores its payload.
    pub(crate) fn open_frame(
        &self,
        bytes: &Bytes,
        handle: BlockHandle,
        part: Part,
    ) -> Result<Bytes> {
        let damaged = |found: &str| {
            let len = u64::from(handle.len);
            SstError::damaged(self.path(), handle.offset, len, part, found)
        };
        let header = decode_frame_header(bytes, self.seed, handle.offset)
            .ok_or_else(|| damaged("header does not match its checksum"))?;
        if header.part != part || header.frame_len() != handle.len {
            return Err(damaged("another block than expected"));
        }
        let end = FRAME_HEADER_BYTES + header.stored_len as usize;
        if bytes.len() < end {
            return Err(damaged("the file ends inside it"));
        }
        let stored = bytes.slice(FRAME_HEADER_BYTES..end);
        let got = mask_checksum(checksum(&stored));
        if got != header.payload_checksum {
            let expected = header.payload_checksum;
            return Err(damaged(&format!("got {got:#x}, expected {expected:#x}")));
        }
        if header.codec == Codec::Plain {
            return Ok(stored);
        }
        let restored = header.codec.restore(&stored, header.raw_len as usize);
        restored.map(Bytes::from).map_err(|found| damaged(&found))
    }
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn_and_bound_to_their_place() {
        let id = TableId {
            store: 1,
            number: 2,
        };
        let seed = ChecksumSeed::of(&id);
        let mut out = Vec::new();
        put_frame_header(&mut out, seed, 77, Part::Filter, Codec::Lz4, b"xyz", (3, 9));
        let drawing = [
            ("masked CRC-32C of store, table, offset, bytes 4..20", 4),
            ("masked CRC-32C of the payload as stored", 4),
            ("part: 3 filter", 1),
            ("codec: 1 LZ4", 1),
            ("zero", 2),
            ("length of the payload as stored", 4),
            ("length of the payload before compression", 4),
        ];
        assert_bytes("frame.hex", &drawing, &out);
        let header = decode_frame_header(&out, seed, 77).unwrap();
        assert_eq!((header.part, header.frame_len()), (Part::Filter, 23));
        assert!(decode_frame_header(&out, seed, 78).is_none());
        let other = ChecksumSeed::of(&TableId { number: 3, ..id });
        assert!(decode_frame_header(&out, other, 77).is_none());
        for at in 0..out.len() {
            out[at] ^= 0x10;
            assert!(decode_frame_header(&out, seed, 77).is_none(), "byte {at}");
            out[at] ^= 0x10;
        }
    }
}

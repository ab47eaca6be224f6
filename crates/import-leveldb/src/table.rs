//! Tables: sorted records in blocks, with an index of the blocks at the end.

use std::path::Path;

use bytes::Bytes;
use kvorum_encoding::{ByteReader, checksum_append, mask_checksum};
use kvorum_import::OpenFiles;

use crate::block::{BlockEntries, TRAILER_BYTES, inflate};
use crate::internal_key::InternalKey;

const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
const FOOTER_BYTES: usize = 48;
/// Maximum length of a block in a search without an index, in bytes.
const WALKED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of such a block read at once.
const WALK_STEP_BYTES: usize = 256 << 10;

/// The place of a block, without its trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Handle {
    /// `varint offset  varint length`
    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Option<Self> {
        Some(Self {
            offset: reader.varint().ok()?,
            len: reader.varint().ok()?,
        })
    }

    fn end(self) -> Option<u64> {
        self.offset
            .checked_add(self.len)?
            .checked_add(TRAILER_BYTES as u64)
    }
}

/// The blocks of a table, in order; they are contiguous from the file's first byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockList {
    /// Lengths without trailers.
    lens: Vec<u32>,
}

impl BlockList {
    /// The place of block `number`, which begins at `offset`.
    pub(crate) fn at(&self, number: usize, offset: u64) -> Option<Handle> {
        let len = u64::from(*self.lens.get(number)?);
        Some(Handle { offset, len })
    }
}

/// Reads the index of a table of `len` bytes:
///
/// ```text
/// table  = data block*  other blocks  index block  footer
/// footer = handle of the block of other blocks  handle of the index block  zeros up to byte 40
///          u64 0xdb4775248b80fb57                                                little-endian
/// handle = varint offset  varint length without trailer
/// ```
///
/// The index has an entry for each data block: the block's handle, and a key from the block's last
/// key up to before the next block's first. `take` gets the entries in order.
fn read_index(
    files: &mut OpenFiles,
    path: &Path,
    len: u64,
    mut take: impl FnMut(InternalKey, Handle) -> Result<(), String>,
) -> Result<(), String> {
    let footer_at = len.checked_sub(FOOTER_BYTES as u64);
    let footer_at = footer_at.ok_or("the file is too short for a table")?;
    let footer = files.read(path, footer_at, FOOTER_BYTES)?;
    let magic = footer.last_chunk().map(|magic| u64::from_le_bytes(*magic));
    if footer.len() != FOOTER_BYTES || magic != Some(MAGIC) {
        return Err("the file does not end as a table does".to_owned());
    }
    let mut reader = ByteReader::new(&footer);
    let handles = (Handle::decode(&mut reader), Handle::decode(&mut reader));
    let (Some(_others), Some(index)) = handles else {
        return Err("the footer is damaged".to_owned());
    };
    let block = read_block(files, path, len, index).map_err(|error| format!("index: {error}"))?;
    let damaged = || "the index is damaged".to_owned();
    let mut entries = BlockEntries::new(block).map_err(|_| damaged())?;
    let mut end = 0;
    while let Some((key, value)) = entries.advance().map_err(|_| damaged())? {
        let key = InternalKey::decode(&key).ok_or_else(damaged)?;
        let handle = Handle::decode(&mut ByteReader::new(&value)).ok_or_else(damaged)?;
        let next = handle
            .end()
            .filter(|next| *next <= len)
            .ok_or_else(damaged)?;
        if handle.offset != end {
            return Err(damaged());
        }
        end = next;
        take(key, handle)?;
    }
    Ok(())
}

/// The blocks of a table of `len` bytes, and the number and offset of the first block that may have
/// keys after `after`.
pub(crate) fn block_list(
    files: &mut OpenFiles,
    path: &Path,
    len: u64,
    after: Option<&Bytes>,
) -> Result<(BlockList, usize, u64), String> {
    let mut list = BlockList::default();
    let (mut first, mut offset) = (0, 0);
    read_index(files, path, len, |key, handle| {
        let len = u32::try_from(handle.len).map_err(|_| "the index is damaged".to_owned())?;
        list.lens.push(len);
        if after.is_some_and(|after| key.user_key < *after) {
            first = list.lens.len();
            offset = handle.end().unwrap_or(0);
        }
        Ok(())
    })?;
    Ok((list, first, offset))
}

/// The keys before and at the end of the block with this number, if the index can be read up to
/// there.
pub(crate) fn bounds_of(
    files: &mut OpenFiles,
    path: &Path,
    len: u64,
    number: usize,
) -> (Option<Bytes>, Option<Bytes>) {
    let (mut seen, mut bounds) = (0, (None, None));
    // An index that has changed since its last reading may give no keys.
    let _as_far_as_it_reads = read_index(files, path, len, |key, _| {
        if seen + 1 == number {
            bounds.0 = Some(key.user_key.clone());
        } else if seen == number {
            bounds.1 = Some(key.user_key.clone());
        }
        seen += 1;
        Ok(())
    });
    bounds
}

/// Reads, checks and inflates a block of a file of `len` bytes.
pub(crate) fn read_block(
    files: &mut OpenFiles,
    path: &Path,
    len: u64,
    handle: Handle,
) -> Result<Bytes, String> {
    let end = handle.end().filter(|end| *end <= len);
    let end = end.ok_or("the block lies behind the end of the file")?;
    let whole = usize::try_from(end - handle.offset).map_err(|_| "the block is too long")?;
    let bytes = files.read(path, handle.offset, whole)?;
    if bytes.len() != whole {
        return Err("the file ends within the block".to_owned());
    }
    inflate(&bytes).map_err(|error| error.to_string())
}

/// Finds the end of a block that begins at `offset`, by its checksum.
pub(crate) fn walk_block(
    files: &mut OpenFiles,
    path: &Path,
    len: u64,
    offset: u64,
) -> Result<Option<Handle>, String> {
    let limit = len.saturating_sub(offset).min(WALKED_BYTES_MAX);
    let (mut sum, mut summed) = (0, 0u64);
    // The last bytes read: the last four may be the checksum of the bytes before them.
    let mut tail: Vec<u8> = Vec::new();
    let mut at = 0;
    while at < limit {
        let wanted = usize::try_from(limit - at).unwrap_or(usize::MAX);
        let read = files.read(path, offset + at, wanted.min(WALK_STEP_BYTES))?;
        if read.is_empty() {
            return Ok(None);
        }
        at += read.len() as u64;
        tail.extend_from_slice(&read);
        let mut used = 0;
        while let Some(&[kind, c0, c1, c2, c3]) = tail[used..].first_chunk() {
            sum = checksum_append(sum, &[kind]);
            let stored = u32::from_le_bytes([c0, c1, c2, c3]);
            if kind <= 3 && mask_checksum(sum) == stored {
                let len = summed;
                return Ok(Some(Handle { offset, len }));
            }
            summed += 1;
            used += 1;
        }
        tail.drain(..used);
    }
    Ok(None)
}

//! Sorted keys in checked blocks, with an index of the first key of each: what hints are made of.
//!
//! The header in front of the blocks is the file's own. Every block has its checksum, in which its
//! offset counts, and is read alone, so that a walk reads what lies in its range and nothing else.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Disk, DiskFile, OpenMode, Reading, temporary_name};
use kvorum_encoding::{
    ByteReader, Truncated, checksum, checksum_append, mask_checksum, put_varint,
};

/// In front of each block: length and checksum.
pub(crate) const BLOCK_HEADER_BYTES: usize = 8;
/// No block is longer than this: it holds one entry more than fits, and keys are far shorter.
pub(crate) const BLOCK_BYTES_MAX: u64 = 256 << 20;

/// Why a file of blocks is not used.
#[derive(Debug)]
pub(crate) enum HintError {
    /// The disk failed.
    Disk(kvorum_disk::DiskError),
    /// Its bytes are damaged or belong to something else.
    Unusable(&'static str),
    /// It was written by a newer version; what it was made of tells the same.
    Newer,
}

impl From<kvorum_disk::DiskError> for HintError {
    fn from(error: kvorum_disk::DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<Truncated> for HintError {
    fn from(_: Truncated) -> Self {
        Self::Unusable("cut short")
    }
}

/// Writes blocks, and at the end the index, under a temporary name.
///
/// ```text
/// block:  4  length of what follows the checksum (n)
///         4  masked CRC-32C of: offset of the block (64 bits, not stored), those n bytes
///         n  entries in key order; in the index what stands before it, then for each block: varint and
///            bytes of its first key (or of a shorter one behind all keys of the block before it), varint
///            offset, varint length with header
/// ```
pub(crate) struct BlockWriter {
    file: Arc<dyn DiskFile>,
    temporary: PathBuf,
    path: PathBuf,
    offset: u64,
    index: Vec<u8>,
}

impl BlockWriter {
    /// `header_bytes` are left free in front.
    pub(crate) fn create(
        disk: &dyn Disk,
        path: &Path,
        header_bytes: usize,
    ) -> kvorum_disk::Result<Self> {
        let temporary = temporary_name(path);
        if disk.info(&temporary)?.is_some() {
            disk.remove_file(&temporary)?;
        }
        Ok(Self {
            file: disk.open(&temporary, OpenMode::CreateNew)?,
            temporary,
            path: path.to_owned(),
            offset: header_bytes as u64,
            index: Vec::new(),
        })
    }

    /// Writes a block; returns its length with header.
    pub(crate) fn write(&mut self, first_key: &[u8], payload: &[u8]) -> kvorum_disk::Result<u64> {
        let (offset, len) = self.write_framed(payload)?;
        put_varint(&mut self.index, first_key.len() as u64);
        self.index.extend_from_slice(first_key);
        put_varint(&mut self.index, offset);
        put_varint(&mut self.index, len);
        Ok(len)
    }

    /// Writes the index behind `preface`; returns its offset and its length with header.
    pub(crate) fn write_index(&mut self, preface: &[u8]) -> kvorum_disk::Result<(u64, u64)> {
        let index = [preface, &self.index].concat();
        self.write_framed(&index)
    }

    /// Writes the header, makes all durable, and gives the file its name.
    pub(crate) fn finish(self, disk: &dyn Disk, header: &[u8]) -> kvorum_disk::Result<()> {
        self.file.write_at(header, 0)?;
        self.file.sync()?;
        disk.rename(&self.temporary, &self.path)?;
        disk.sync_directory(self.path.parent().unwrap_or(Path::new(".")))
    }

    fn write_framed(&mut self, payload: &[u8]) -> kvorum_disk::Result<(u64, u64)> {
        let offset = self.offset;
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut block = Vec::with_capacity(BLOCK_HEADER_BYTES + payload.len());
        block.extend_from_slice(&len.to_le_bytes());
        block.extend_from_slice(&block_checksum(offset, payload).to_le_bytes());
        block.extend_from_slice(payload);
        self.file.write_at(&block, offset)?;
        self.offset += block.len() as u64;
        Ok((offset, block.len() as u64))
    }
}

/// The blocks of an open file, whose index was found right. It is in memory for as long as the file is
/// open.
pub(crate) struct BlockIndex {
    /// The first keys, back to back.
    keys: Box<[u8]>,
    blocks: Box<[BlockAt]>,
}

struct BlockAt {
    /// Where its first key ends in `keys`; it begins where that of the block before it ends.
    key_end: u32,
    len: u32,
    offset: u64,
}

impl BlockIndex {
    /// Takes over the rest of an index.
    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, HintError> {
        let (mut keys, mut blocks) = (Vec::new(), Vec::new());
        let in_32_bits = |number: u64| {
            u32::try_from(number).map_err(|_| HintError::Unusable("an index of gigabytes"))
        };
        while !reader.is_empty() {
            keys.extend_from_slice(reader.take_prefixed()?);
            let offset = reader.varint()?;
            blocks.push(BlockAt {
                key_end: in_32_bits(keys.len() as u64)?,
                len: in_32_bits(reader.varint()?)?,
                offset,
            });
        }
        Ok(Self {
            keys: keys.into(),
            blocks: blocks.into(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The last block that can hold `key` or what follows it.
    pub(crate) fn block_of(&self, key: &[u8]) -> usize {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            match self.first_key(middle) {
                Some(first) if first <= key => from = middle + 1,
                _ => to = middle,
            }
        }
        from.saturating_sub(1)
    }

    /// The first key of a block, or a shorter one before it and behind the block before.
    pub(crate) fn first_key(&self, block: usize) -> Option<&[u8]> {
        let end = self.blocks.get(block)?.key_end as usize;
        let start = match block {
            0 => 0,
            block => self.blocks[block - 1].key_end as usize,
        };
        self.keys.get(start..end)
    }

    /// What a block holds; `None` behind the last.
    pub(crate) fn read(
        &self,
        file: &dyn DiskFile,
        block: usize,
    ) -> Result<Option<Bytes>, HintError> {
        let Some(at) = self.blocks.get(block) else {
            return Ok(None);
        };
        read_block(file, at.offset, u64::from(at.len)).map(Some)
    }

    /// What it takes, in bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.keys.len() + size_of_val(&*self.blocks)) as u64
    }
}

pub(crate) fn read_block(file: &dyn DiskFile, offset: u64, len: u64) -> Result<Bytes, HintError> {
    if len > BLOCK_BYTES_MAX || len > file.len()? {
        return Err(HintError::Unusable("block beyond the end"));
    }
    let mut block = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = file.read_at(&mut block, offset, Reading::MayBlock)?;
    let mut reader = ByteReader::new(&block[..read]);
    let payload_len = reader.u32()? as usize;
    let stored = reader.u32()?;
    let payload = reader.take(payload_len)?;
    if block_checksum(offset, payload) != stored {
        return Err(HintError::Unusable("damaged block"));
    }
    let end = BLOCK_HEADER_BYTES + payload_len;
    Ok(Bytes::from(block).slice(BLOCK_HEADER_BYTES..end))
}

/// Of a header whose own checksum stands in bytes 12 to 16.
pub(crate) fn header_checksum(header: &[u8]) -> u32 {
    mask_checksum(checksum_append(checksum(&header[..12]), &header[16..]))
}

pub(crate) fn block_checksum(offset: u64, payload: &[u8]) -> u32 {
    mask_checksum(checksum_append(checksum(&offset.to_le_bytes()), payload))
}

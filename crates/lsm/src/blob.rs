//! Blob files: bodies apart from their keys.
//!
//! A blob file is a sorted table with ascending numbers as keys, one body to a block. An entry has
//! the file, the number, and the block's original place; until the file is rewritten, a body takes
//! one read. A collection writes the live bodies to a new file under the same numbers, so no entry
//! has to change: the body is then found by number. So a table serves better than a log with
//! positions: it has an index, is checked and salvaged block by block, and uses the same cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_disk::Disk;
use kvorum_encoding::{ByteReader, put_varint};
use kvorum_sst::{
    Facts, KnownTable, ReadAhead, ReadContext, Table, TableId, TableOptions, TableWriter, hash_key,
};
use kvorum_storage_errors::{IntoBackend, from_sst};

use crate::BlobPlace;

/// A blob file that entries refer to.
pub(crate) struct BlobFile {
    /// The file's number in entries.
    pub(crate) file: u64,
    /// The number of the file that has its bodies now; a collection changes it.
    pub(crate) number: u64,
    /// Bytes of bodies with their frames in the first file: the base for the share in use.
    pub(crate) file_len: u64,
    /// Bytes of the blocks that remain.
    pub(crate) block_bytes: u64,
    /// `None` when the file cannot be opened.
    pub(crate) table: Option<Arc<Table>>,
}

impl BlobFile {
    /// The cost of a walk over the file, in the bytes that steps count: uncompressed bodies.
    pub(crate) fn worked_bytes(&self) -> u64 {
        let raw_bytes = self.table.as_ref().map(|it| it.properties().raw_bytes);
        raw_bytes.unwrap_or(0).max(self.block_bytes)
    }
}

/// The path of a blob file.
pub fn blob_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.blob"))
}

fn key_of(ordinal: u64) -> [u8; 8] {
    // Big-endian, so that byte order is number order.
    ordinal.to_be_bytes()
}

/// Writes a blob file.
pub struct BlobWriter {
    writer: TableWriter,
    file: u64,
    next: u64,
    /// Bytes of the blocks so far.
    pub block_bytes: u64,
    buffer: Vec<u8>,
}

impl BlobWriter {
    /// Begins the blob file with this identity. Entries name its bodies by the number `file`.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn create(
        disk: &dyn Disk,
        directory: &Path,
        id: TableId,
        file: u64,
        options: TableOptions,
    ) -> Result<Self> {
        let path = blob_path(directory, id.number);
        let writer = TableWriter::create(disk, &path, id, options).into_backend()?;
        Ok(Self {
            writer,
            file,
            next: 0,
            block_bytes: 0,
            buffer: Vec::new(),
        })
    }

    /// The number of the file.
    pub fn number(&self) -> u64 {
        self.writer.id().number
    }

    /// Adds the body of a key.
    ///
    /// The block holds: varint length of the key, the key, the body. The key is for collections and
    /// for reports of a damaged block.
    pub(crate) fn add(&mut self, key: &[u8], body: &[u8]) -> Result<BlobPlace> {
        let ordinal = self.next;
        let block = self.add_as(ordinal, key, body)?;
        Ok(BlobPlace {
            file: self.file,
            ordinal,
            block,
            len: body.len() as u64,
        })
    }

    /// Adds a body under its previous number.
    pub fn add_as(
        &mut self,
        ordinal: u64,
        key: &[u8],
        body: &[u8],
    ) -> Result<kvorum_sst::BlockHandle> {
        self.buffer.clear();
        put_varint(&mut self.buffer, key.len() as u64);
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(body);
        let facts = Facts::default();
        let added = self
            .writer
            .add_alone(&key_of(ordinal), &self.buffer, &facts);
        let block = added.into_backend()?;
        self.next = ordinal + 1;
        self.block_bytes += u64::from(block.len);
        Ok(block)
    }

    /// Completes the file and syncs it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn finish(self) -> kvorum_sst::Result<KnownTable> {
        self.writer.finish()
    }
}

/// The blocks of blob files that a walk in key order has read ahead. A flush writes bodies in the
/// order of their keys, so the next body of a file mostly follows the last.
///
/// The value log has bodies in the order of all stores' puts, so nothing can be read ahead. Only
/// the first bodies of a walk there may enter the cache, as with blocks of tables: short walks are
/// repeated, and the rest of a long walk would evict bodies that are read more often.
#[derive(Default)]
pub(crate) struct BlobsAhead {
    /// In order of use, the latest last.
    files: Vec<(u64, ReadAhead)>,
    /// Bytes of the bodies in the value log that the walk has passed.
    logged_bytes: u64,
}

impl BlobsAhead {
    /// About one for each layer that a walk reads.
    const FILES_MAX: usize = 8;
    const BYTES_MAX: usize = 256 << 10;
    const KEPT_BYTES_MAX: u64 = 128 << 10;

    /// Notes a body in the value log; true when it is one of the first.
    pub(crate) fn may_keep(&mut self, body_bytes: u64) -> bool {
        self.logged_bytes += body_bytes;
        self.logged_bytes <= Self::KEPT_BYTES_MAX
    }

    pub(crate) fn of(&mut self, file: u64) -> &mut ReadAhead {
        let at = self.files.iter().position(|(number, _)| *number == file);
        let found = match at {
            Some(at) => self.files.remove(at),
            None => (file, ReadAhead::new(Self::BYTES_MAX)),
        };
        if self.files.len() == Self::FILES_MAX {
            self.files.remove(0);
        }
        &mut self.files.push_mut(found).1
    }
}

/// The key and the body in a block.
pub fn split_blob(value: &Bytes) -> Option<(Bytes, Bytes)> {
    let mut reader = ByteReader::new(value);
    let key = reader.take_prefixed().ok()?.len();
    let end = reader.offset();
    Some((value.slice(end - key..end), value.slice(end..)))
}

/// The number in a blob block's key.
pub fn ordinal_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

impl BlobFile {
    /// Reads a body; `Ok(None)` when the read would have had to wait. A reader of many bodies in
    /// key order passes this file's blocks read ahead.
    pub(crate) fn read(
        &self,
        place: &BlobPlace,
        ahead: Option<&mut ReadAhead>,
        context: &ReadContext<'_>,
    ) -> Result<Option<Bytes>> {
        let lost = || {
            let (file, ordinal) = (self.file, place.ordinal);
            let detail = format!("body {ordinal} of blob file {file} was lost");
            BackendError::new(ErrorKind::Corrupt, detail)
        };
        let table = self.table.as_ref().ok_or_else(lost)?;
        let key = key_of(place.ordinal);
        let hash = hash_key(&key);
        let is_original = self.number == self.file;
        let found = if is_original {
            table.get_at(place.block, &key, hash, ahead, context)
        } else {
            table.get(&key, hash, context)
        };
        let found = match found {
            Err(error) if error.would_block() => return Ok(None),
            Err(error) => {
                if is_original && error.is_damage() {
                    // Finding the body by number reports the damage with the key.
                    let _reported = table.get(&key, hash, context);
                }
                return Err(from_sst(&error));
            }
            Ok(found) => found.ok_or_else(lost)?,
        };
        let (_, body) = split_blob(&found.value).ok_or_else(lost)?;
        if body.len() as u64 == place.len {
            Ok(Some(body))
        } else {
            Err(lost())
        }
    }
}

//! Writing a table, once and in key order.

use std::path::Path;
use std::sync::Arc;

use kvorum_disk::{Disk, DiskFile, OpenMode};

use crate::block_builder::BlockBuilder;
use crate::codec::Compressor;
use crate::filter::{build_filter, hash_key};
use crate::footer::{Footer, encode_file_header};
use crate::frame::{ChecksumSeed, FRAME_HEADER_BYTES, put_frame_header};
use crate::partition::{DataEntry, Modified, Partition, separator};
use crate::segment_sets::put_set;
use crate::{
    BlockHandle, Facts, FilterKind, KnownTable, Mark, Marks, Part, Properties, Result, SstError,
    TableId,
};
use kvorum_encoding::{Codec, Compression, folded_segment};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1 << 20;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 512 << 20;
/// Bytes that are gathered for one write.
const WRITTEN_AT_ONCE_BYTES: usize = 256 << 10;
const INDEX_RESTART_INTERVAL: u32 = 4;

/// The options of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// A data block is finished when it has this many bytes before compression.
    pub block_bytes: usize,
    /// Entries from one restart point to the next: a lower number costs bytes and saves
    /// comparisons.
    pub restart_interval: u32,
    /// True if data blocks have a hash index.
    pub has_hash_index: bool,
    /// A partition is finished when its index has this many bytes.
    pub index_block_bytes: usize,
    /// Compression of blocks of entries.
    pub compression: Compression,
    /// The filter of each partition.
    pub filter: FilterKind,
    /// True if each block gets a set of its anti-entropy segments.
    pub has_segment_sets: bool,
    /// The file is synced each time this many bytes were written, so that the last sync is short; 0
    /// for one sync at the end.
    pub sync_every_bytes: u64,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            restart_interval: 16,
            has_hash_index: true,
            index_block_bytes: 4096,
            compression: Compression::None,
            filter: FilterKind::Bloom { bits_per_key: 10 },
            has_segment_sets: true,
            sync_every_bytes: 0,
        }
    }
}

/// Writes a table.
pub struct TableWriter {
    file: Arc<dyn DiskFile>,
    id: TableId,
    seed: ChecksumSeed,
    options: TableOptions,
    compressor: Compressor,
    /// Bytes not written yet, and their place.
    buffer: Vec<u8>,
    buffer_at: u64,
    synced_to: u64,
    data: BlockBuilder,
    data_modified: Modified,
    segments: Vec<u16>,
    index: BlockBuilder,
    partition_from: u64,
    partition_modified: Modified,
    hashes: Vec<u64>,
    segment_sets: Vec<u8>,
    top_index: BlockBuilder,
    properties: Properties,
    marks: Vec<Mark>,
    note: Vec<u8>,
    last_key: Vec<u8>,
}

impl TableWriter {
    /// Creates the file, which must not exist.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        id: TableId,
        options: TableOptions,
    ) -> Result<Self> {
        let file = disk.open(path, OpenMode::CreateNew)?;
        Ok(Self {
            file,
            id,
            seed: ChecksumSeed::of(&id),
            options,
            compressor: Compressor::new(options.compression),
            buffer: encode_file_header(&id).to_vec(),
            buffer_at: 0,
            synced_to: 0,
            data: BlockBuilder::new(options.restart_interval, options.has_hash_index),
            data_modified: Modified::NONE,
            segments: Vec::new(),
            index: BlockBuilder::new(INDEX_RESTART_INTERVAL, false),
            partition_from: crate::footer::FILE_HEADER_BYTES,
            partition_modified: Modified::NONE,
            hashes: Vec::new(),
            segment_sets: Vec::new(),
            top_index: BlockBuilder::new(INDEX_RESTART_INTERVAL, false),
            properties: Properties::default(),
            marks: Vec::new(),
            note: Vec::new(),
            last_key: Vec::new(),
        })
    }

    /// The table's identity.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// True when the table has neither entries nor marks nor a note, and must not be finished.
    pub fn is_empty(&self) -> bool {
        self.properties.entries == 0 && self.marks.is_empty() && self.note.is_empty()
    }

    /// The present length of the file, in bytes, the unfinished block included.
    pub fn len(&self) -> u64 {
        self.position() + self.data.len() as u64
    }

    /// Adds an entry behind all previous entries.
    pub fn add(&mut self, key: &[u8], value: &[u8], facts: &Facts) -> Result<()> {
        self.check(key, value)?;
        if !self.data.is_empty() && self.data.len() + key.len() + value.len() > self.block_room() {
            self.finish_block(Some(key))?;
        }
        self.data.add(key, value);
        if !facts.is_removal {
            self.data_modified.add(facts.last_modified);
        }
        if self.options.filter != FilterKind::None {
            self.hashes.push(hash_key(key));
        }
        if self.options.has_segment_sets && !facts.is_removal {
            self.segments.push(folded_segment(facts.segment));
        }
        self.properties.count(key, value, facts);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Adds an entry in a block of its own and returns the place, so that the entry can be read
    /// without index and filter.
    pub fn add_alone(&mut self, key: &[u8], value: &[u8], facts: &Facts) -> Result<BlockHandle> {
        if !self.data.is_empty() {
            self.finish_block(Some(key))?;
        }
        self.add(key, value, facts)?;
        let offset = self.position();
        let last = self.data.last_key().to_vec();
        let len = self.end_block(&last)?.len;
        self.end_partition_if(self.index.len() >= self.options.index_block_bytes)?;
        Ok(BlockHandle { offset, len })
    }

    /// Adds a mark over a range of keys, at any time.
    pub fn add_mark(&mut self, mark: Mark) {
        self.marks.push(mark);
    }

    /// Sets the owner's note on the whole table, at any time.
    pub fn set_note(&mut self, note: Vec<u8>) {
        self.note = note;
    }

    /// Completes the table and syncs its file. A sync of the directory has to make the name
    /// durable.
    pub fn finish(mut self) -> Result<KnownTable> {
        if self.is_empty() {
            return Err(self.misuse("a table without entries, marks and a note"));
        }
        self.finish_block(None)?;
        let last_key = std::mem::take(&mut self.last_key);
        let marks = Marks::new(std::mem::take(&mut self.marks));
        self.properties.close(&last_key, marks);
        let mut encoded = Vec::new();
        self.properties.encode(&mut encoded);
        let properties = self.put_block(Part::Properties, &encoded)?;
        let note = std::mem::take(&mut self.note);
        if !note.is_empty() {
            self.put_block(Part::Note, &note)?;
        }
        let top_index = self.top_index.finish();
        let top_index = self.put_block(Part::TopIndex, &top_index)?;
        let footer = Footer {
            top_index,
            properties,
        };
        self.buffer.extend_from_slice(&footer.encode(&self.id));
        self.write_out()?;
        self.file.sync()?;
        Ok(KnownTable {
            id: self.id,
            file_len: self.buffer_at,
            properties: self.properties,
        })
    }

    /// The room in the present block. An entry that would make the block a quarter too large starts
    /// the next one.
    fn block_room(&self) -> usize {
        self.options.block_bytes + self.options.block_bytes / 4
    }

    fn position(&self) -> u64 {
        self.buffer_at + self.buffer.len() as u64
    }

    fn check(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.properties.entries > 0 && key <= &self.last_key[..] {
            return Err(self.misuse("a key at or before the one before"));
        }
        for (what, got, expected) in [
            ("key", key.len(), KEY_BYTES_MAX),
            ("value", value.len(), VALUE_BYTES_MAX),
        ] {
            if got > expected {
                return Err(SstError::TooLarge {
                    path: self.file.path().to_owned(),
                    what,
                    got: got as u64,
                    expected: expected as u64,
                });
            }
        }
        Ok(())
    }

    fn misuse(&self, detail: &'static str) -> SstError {
        SstError::Misuse {
            path: self.file.path().to_owned(),
            detail,
        }
    }

    /// Finishes the data block, and the partition when its index is large enough or no key follows.
    fn finish_block(&mut self, next_key: Option<&[u8]>) -> Result<()> {
        if !self.data.is_empty() {
            let last = self.data.last_key();
            let separator = next_key.map_or_else(|| last.to_vec(), |next| separator(last, next));
            self.end_block(&separator)?;
        }
        let is_full = self.index.len() >= self.options.index_block_bytes;
        self.end_partition_if(is_full || next_key.is_none())
    }

    fn end_block(&mut self, separator: &[u8]) -> Result<BlockHandle> {
        let payload = self.data.finish();
        let handle = self.put_block(Part::Data, &payload)?;
        let modified = std::mem::replace(&mut self.data_modified, Modified::NONE);
        self.partition_modified.widen(modified);
        let entry = DataEntry { handle, modified };
        self.index.add(separator, &entry.encode());
        if self.options.has_segment_sets {
            put_set(&mut self.segment_sets, &mut self.segments);
        }
        if self.buffer.len() >= WRITTEN_AT_ONCE_BYTES {
            self.write_out()?;
        }
        Ok(handle)
    }

    fn end_partition_if(&mut self, is_wanted: bool) -> Result<()> {
        if is_wanted && !self.index.is_empty() {
            self.finish_partition()?;
        }
        Ok(())
    }

    fn finish_partition(&mut self) -> Result<()> {
        let data_to = self.position();
        let sets = std::mem::take(&mut self.segment_sets);
        let segment_sets = match sets.is_empty() {
            true => None,
            false => Some(self.put_block(Part::SegmentSets, &sets)?),
        };
        let filter = build_filter(self.options.filter, &mut self.hashes);
        self.hashes.clear();
        let filter = match filter {
            Some(bytes) => Some(self.put_block(Part::Filter, &bytes)?),
            None => None,
        };
        let separator = self.index.last_key().to_vec();
        let index = self.index.finish();
        let index = self.put_block(Part::Index, &index)?;
        let partition = Partition {
            separator: separator.into(),
            data_from: self.partition_from,
            data_to,
            index,
            filter,
            segment_sets,
            modified: std::mem::replace(&mut self.partition_modified, Modified::NONE),
            rebuilt: std::sync::OnceLock::new(),
            held: None,
        };
        self.top_index
            .add(&partition.separator, &partition.encode());
        self.partition_from = self.position();
        Ok(())
    }

    /// Frames a block and appends it to the unwritten bytes.
    fn put_block(&mut self, part: Part, raw: &[u8]) -> Result<BlockHandle> {
        let offset = self.position();
        let packed = match part {
            // Filters do not shrink, and small blocks that every read uses are not worth the time.
            Part::Data => self.compressor.compress(raw),
            _ => None,
        };
        let (codec, stored) = match &packed {
            Some((codec, bytes)) => (*codec, &bytes[..]),
            None => (Codec::Plain, raw),
        };
        let too_large = |len: usize| SstError::TooLarge {
            path: self.file.path().to_owned(),
            what: "block",
            got: len as u64,
            expected: u64::from(crate::frame::BLOCK_BYTES_MAX),
        };
        let len_of = |len: usize| u32::try_from(len).map_err(|_| too_large(len));
        let lens = (len_of(stored.len())?, len_of(raw.len())?);
        let len = len_of(stored.len() + FRAME_HEADER_BYTES)?;
        put_frame_header(
            &mut self.buffer,
            self.seed,
            offset,
            part,
            codec,
            stored,
            lens,
        );
        self.buffer.extend_from_slice(stored);
        Ok(BlockHandle { offset, len })
    }

    fn write_out(&mut self) -> Result<()> {
        self.file.write_at(&self.buffer, self.buffer_at)?;
        self.buffer_at += self.buffer.len() as u64;
        self.buffer.clear();
        let every = self.options.sync_every_bytes;
        if every > 0 && self.buffer_at - self.synced_to >= every {
            self.file.sync()?;
            self.synced_to = self.buffer_at;
        }
        Ok(())
    }
}

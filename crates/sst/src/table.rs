//! An open table: point reads through a cache, and the treatment of damaged parts.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Disk, OpenMode, Reading};
use kvorum_encoding::{ByteReader, Truncated, successor};

use crate::filter::may_contain;
use crate::footer::{FILE_HEADER_BYTES, FOOTER_BYTES, Footer, check_file_header};
use crate::frame::FrameReader;
use crate::partition::{DataEntry, Partition, decode_top_index};
use crate::salvage::{rebuild_index, rebuild_partitions};
use crate::{
    Block, BlockCache, BlockCursor, BlockHandle, CacheKey, NoCache, Part, Properties, ReadAhead,
    Result, SstError, TableId,
};

/// Facts about a table that its owner has before the opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTable {
    /// The table's identity.
    pub id: TableId,
    /// The length of its file, in bytes. Bytes behind are not read.
    pub file_len: u64,
    /// Its properties, which the owner keeps in a safer place than the table.
    pub properties: Properties,
}

/// A damaged part of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDamage {
    /// The table.
    pub number: u64,
    /// Its first byte.
    pub offset: u64,
    /// Its length, in bytes.
    pub len: u64,
    /// The damaged part.
    pub part: Part,
    /// The finding as text.
    pub found: String,
    /// The range of unreadable keys: its first key, and the first key behind. `None` if no key is
    /// lost.
    pub keys: Option<(Bytes, Bytes)>,
}

/// A receiver of reports of damage; the same damage may be reported again.
pub trait DamageSink: Send + Sync {
    /// Notes the damage.
    fn met(&self, damage: TableDamage);
}

/// A receiver that ignores damage.
#[derive(Clone, Copy, Debug, Default)]
pub struct IgnoreDamage;

impl DamageSink for IgnoreDamage {
    fn met(&self, _damage: TableDamage) {}
}

/// The context of a read.
#[derive(Clone, Copy)]
pub struct ReadContext<'a> {
    /// The cache that is searched first.
    pub cache: &'a dyn BlockCache,
    /// The receiver of reports of damage.
    pub sink: &'a dyn DamageSink,
    /// The permission to wait for a device.
    pub reading: Reading,
    /// True if blocks that were read are offered to the cache.
    pub fills_cache: bool,
}

impl Default for ReadContext<'_> {
    fn default() -> Self {
        Self {
            cache: &NoCache,
            sink: &IgnoreDamage,
            reading: Reading::MayBlock,
            fills_cache: true,
        }
    }
}

/// A value that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The value as it was added: a slice of its block.
    pub value: Bytes,
}

/// An open table. It stays readable after the removal of its file's name.
#[derive(Clone)]
pub struct Table {
    pub(crate) reader: FrameReader,
    id: TableId,
    cache_id: u64,
    pub(crate) partitions: Vec<Partition>,
    properties: Properties,
    file_len: u64,
    memory_bytes: u64,
}

impl Table {
    /// Opens a table. `cache_id` names its blocks in caches; no other table may have it.
    ///
    /// # Errors
    /// Damage is reported to `sink` and is not an error, except for [`SstError::Foreign`]. The
    /// undamaged rest is readable.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        known: KnownTable,
        cache_id: u64,
        sink: &dyn DamageSink,
    ) -> Result<Self> {
        let file = disk.open(path, OpenMode::Read)?;
        let file_len = known.file_len.min(file.len()?);
        let reader = FrameReader::new(file, &known.id, file_len);
        let mut table = Self {
            reader,
            id: known.id,
            cache_id,
            partitions: Vec::new(),
            properties: known.properties,
            file_len: known.file_len,
            memory_bytes: 0,
        };
        table.check_header(sink)?;
        table.partitions = table.find_partitions(sink)?;
        table.report_cut(sink);
        table.count_memory();
        Ok(table)
    }

    fn count_memory(&mut self) {
        let partitions = self.partitions.iter().map(|it| {
            let held = it.held.as_ref().map_or(0, Block::memory_bytes);
            size_of::<Partition>() + it.separator.len() + held
        });
        self.memory_bytes = partitions.sum::<usize>() as u64;
    }

    /// Opens a table by its identity alone; returns its note, or an empty one. The indexes of its
    /// partitions stay in memory. Its blocks must not go to caches: its number there is 0.
    ///
    /// # Errors
    /// Damage to any part that a scan without a filter needs, except for entries.
    pub fn open_whole(disk: &dyn Disk, path: &Path, id: TableId) -> Result<(Self, Bytes)> {
        let file = disk.open(path, OpenMode::Read)?;
        let file_len = file.len()?;
        let reader = FrameReader::new(file, &id, file_len);
        read_header(&reader, &id)?;
        let footer = read_footer(&reader, &id)?;
        let block = |handle, part| reader.read_block(handle, part, Reading::MayBlock);
        let note = footer.note().map(|handle| block(handle, Part::Note));
        let mut table = Self {
            properties: read_properties(&reader, &footer)?,
            partitions: read_partitions(&reader, &footer)?,
            reader: reader.clone(),
            id,
            cache_id: 0,
            file_len,
            memory_bytes: 0,
        };
        for at in 0..table.partitions.len() {
            let handle = table.partitions[at].index;
            let index = Block::of_entries(block(handle, Part::Index)?)
                .map_err(|error| table.undecodable(handle, Part::Index, error))?;
            table.partitions[at].held = Some(index);
        }
        table.count_memory();
        Ok((table, note.transpose()?.unwrap_or_default()))
    }

    /// The same table for salvage: blocks that the device cannot read count as damaged.
    pub fn giving_up_bad_sectors(mut self) -> Self {
        self.reader.has_bad_sectors = true;
        self
    }

    /// The properties in a table's file, for a caller without another copy.
    pub fn read_properties(disk: &dyn Disk, path: &Path, id: TableId) -> Result<Properties> {
        let file = disk.open(path, OpenMode::Read)?;
        let file_len = file.len()?;
        let reader = FrameReader::new(file, &id, file_len);
        read_properties(&reader, &read_footer(&reader, &id)?)
    }

    /// The table's identity.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The file's path when it was opened.
    pub fn path(&self) -> &Path {
        self.reader.path()
    }

    /// The original length of the file, in bytes.
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Memory of an open table in bytes, without its blocks in caches: its top index, and indexes
    /// that stay in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Keys that cut the table into parts of some hundred blocks, in order; the last separator is
    /// at or behind the table's last key.
    pub fn separators(&self) -> impl Iterator<Item = &Bytes> {
        self.partitions.iter().map(|it| &it.separator)
    }

    /// Sums over the entries.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The value of a key. `hash` is the result of [`crate::hash_key`].
    ///
    /// # Errors
    /// [`SstError::Damaged`] when the key's block cannot be read.
    pub fn get(&self, key: &[u8], hash: u64, context: &ReadContext<'_>) -> Result<Option<Found>> {
        let at = self
            .partitions
            .partition_point(|partition| &partition.separator[..] < key);
        let Some(partition) = self.partitions.get(at) else {
            return Ok(None);
        };
        if !self.may_contain(partition, hash, context)? {
            return Ok(None);
        }
        let index = self.index(partition, context)?;
        let entry = index.lower_bound(key).and_then(|value| {
            let decoded = value.map(DataEntry::decode);
            decoded.transpose()
        });
        let entry = entry.map_err(|error| self.undecodable(partition.index, Part::Index, error))?;
        let Some(entry) = entry else {
            return Ok(None);
        };
        let found = self.data(entry.handle, context).and_then(|block| {
            let value = block.get(key, hash);
            value.map_err(|error| self.undecodable(entry.handle, Part::Data, error))
        });
        match found {
            Err(error) if error.is_damage() => {
                self.report_data(at, entry.handle, &error, context);
                Err(error)
            }
            found => Ok(found?.map(|value| Found { value })),
        }
    }

    /// Reads the block at a place that was noted when it was written, and the value of `key` there.
    /// A reader of many such blocks, mostly consecutive, passes the blocks read ahead.
    pub fn get_at(
        &self,
        handle: BlockHandle,
        key: &[u8],
        hash: u64,
        ahead: Option<&mut ReadAhead>,
        context: &ReadContext<'_>,
    ) -> Result<Option<Found>> {
        let value = match ahead {
            Some(ahead) => self.noted(handle, ahead, context)?.get(key, hash),
            None => self.data(handle, context)?.get(key, hash),
        };
        let value = value.map_err(|error| self.undecodable(handle, Part::Data, error))?;
        Ok(value.map(|value| Found { value }))
    }

    /// A block at a place that was noted when it was written. It is read alone, unless it follows
    /// the previous one.
    fn noted(
        &self,
        handle: BlockHandle,
        ahead: &mut ReadAhead,
        context: &ReadContext<'_>,
    ) -> Result<Block> {
        if let Some(block) = self.cached(handle.offset, context) {
            return Ok(Block::clone(&block));
        }
        if !ahead.goes_on(handle) {
            return Ok(Block::clone(&*self.data(handle, context)?));
        }
        let payload = ahead.payload(&self.reader, handle, self.data_end(), context.reading)?;
        Block::of_entries(payload).map_err(|error| self.undecodable(handle, Part::Data, error))
    }

    /// The first byte behind all data blocks.
    pub(crate) fn data_end(&self) -> u64 {
        self.partitions.last().map_or(0, |it| it.data_to)
    }

    pub(crate) fn check_header(&self, sink: &dyn DamageSink) -> Result<()> {
        match read_header(&self.reader, &self.id) {
            Err(error @ SstError::Damaged { .. }) => {
                self.report(sink, &error, None);
                Ok(())
            }
            // Every block is bound to its table, so the header is not needed.
            Err(error) if error.is_of_device() => Ok(()),
            checked => checked,
        }
    }

    fn is_cut(&self) -> bool {
        self.reader.file_len < self.file_len
    }

    /// Reports that the file was cut, and that the keys at its end are lost.
    fn report_cut(&self, sink: &dyn DamageSink) {
        if self.is_cut() {
            let (at, missing) = (self.reader.file_len, self.file_len - self.reader.file_len);
            sink.met(TableDamage {
                number: self.id.number,
                offset: at,
                len: missing,
                part: Part::Footer,
                found: format!("the file ends at byte {at} of {}", self.file_len),
                keys: self.cut_keys(),
            });
        }
    }

    /// The lost keys at the end of a cut file; `None` if all blocks of entries exist.
    fn cut_keys(&self) -> Option<(Bytes, Bytes)> {
        let last = self.partitions.len().checked_sub(1)?;
        let is_missing = |handle: BlockHandle| handle.end() > self.reader.file_len;
        let keys = self.keys_of(last, is_missing, &ReadContext::default());
        keys.unwrap_or_default()
    }

    fn find_partitions(&self, sink: &dyn DamageSink) -> Result<Vec<Partition>> {
        let footer = read_footer(&self.reader, &self.id);
        match footer.and_then(|footer| read_partitions(&self.reader, &footer)) {
            Err(error) if error.is_damage() => {
                if !self.is_cut() {
                    self.report(sink, &error, None);
                }
                let largest = &self.properties.largest[..];
                rebuild_partitions(&self.reader, self.file_len, largest, Reading::MayBlock)
            }
            partitions => partitions,
        }
    }

    /// False if the filter excludes the hash. A damaged filter excludes nothing.
    fn may_contain(
        &self,
        partition: &Partition,
        hash: u64,
        context: &ReadContext<'_>,
    ) -> Result<bool> {
        let Some(handle) = partition.filter else {
            return Ok(true);
        };
        let answer = self
            .opaque(handle, Part::Filter, context)
            .and_then(|block| {
                may_contain(block.payload(), hash)
                    .map_err(|error| self.undecodable(handle, Part::Filter, error))
            });
        match answer {
            Err(error) if error.is_damage() => {
                self.report(context.sink, &error, None);
                Ok(true)
            }
            answer => answer,
        }
    }

    /// The index of a partition, rebuilt if it is damaged.
    pub(crate) fn index(&self, partition: &Partition, context: &ReadContext<'_>) -> Result<Block> {
        if let Some(index) = partition.held.as_ref().or(partition.rebuilt.get()) {
            return Ok(index.clone());
        }
        let read = self.entries(partition.index, Part::Index, context);
        let error = match read {
            Err(error) if error.is_damage() => error,
            read => return read.map(|block| Block::clone(&block)),
        };
        self.report(context.sink, &error, None);
        let upper = Some(&partition.separator[..]);
        let (from, to) = (partition.data_from, partition.data_to);
        match rebuild_index(&self.reader, from, to, upper, context.reading)? {
            Some((block, _)) => Ok(partition.rebuilt.get_or_init(|| block).clone()),
            None => Err(error),
        }
    }

    pub(crate) fn data(
        &self,
        handle: BlockHandle,
        context: &ReadContext<'_>,
    ) -> Result<Arc<Block>> {
        self.entries(handle, Part::Data, context)
    }

    fn entries(
        &self,
        handle: BlockHandle,
        part: Part,
        context: &ReadContext<'_>,
    ) -> Result<Arc<Block>> {
        self.block(handle, part, context, |payload| {
            Block::of_entries(payload).map_err(|error| self.undecodable(handle, part, error))
        })
    }

    pub(crate) fn opaque(
        &self,
        handle: BlockHandle,
        part: Part,
        context: &ReadContext<'_>,
    ) -> Result<Arc<Block>> {
        self.block(handle, part, context, |payload| Ok(Block::opaque(payload)))
    }

    fn block(
        &self,
        handle: BlockHandle,
        part: Part,
        context: &ReadContext<'_>,
        parse: impl Fn(Bytes) -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let key = CacheKey {
            table: self.cache_id,
            offset: handle.offset,
        };
        if let Some(block) = context.cache.get(&key) {
            return Ok(block);
        }
        let payload = self.reader.read_block(handle, part, context.reading)?;
        let block = Arc::new(parse(payload)?);
        // Parts that every read of the partition needs are cached even for a fold.
        if context.fills_cache || part != Part::Data {
            context.cache.insert(key, &block);
        }
        Ok(block)
    }

    pub(crate) fn cached(&self, offset: u64, context: &ReadContext<'_>) -> Option<Arc<Block>> {
        context.cache.get(&CacheKey {
            table: self.cache_id,
            offset,
        })
    }

    pub(crate) fn undecodable(
        &self,
        handle: BlockHandle,
        part: Part,
        error: Truncated,
    ) -> SstError {
        undecodable(&self.reader, handle, part, error)
    }

    pub(crate) fn report(
        &self,
        sink: &dyn DamageSink,
        error: &SstError,
        keys: Option<(Bytes, Bytes)>,
    ) {
        if let SstError::Damaged {
            offset,
            len,
            part,
            found,
            ..
        } = error
        {
            sink.met(TableDamage {
                number: self.id.number,
                offset: *offset,
                len: *len,
                part: *part,
                found: found.clone(),
                keys,
            });
        }
    }

    /// Reports a damaged data block, with the range of its keys.
    fn report_data(
        &self,
        partition: usize,
        handle: BlockHandle,
        error: &SstError,
        context: &ReadContext<'_>,
    ) {
        let is_it = |it: BlockHandle| it == handle;
        let keys = self.keys_of(partition, is_it, context).unwrap_or_default();
        self.report(context.sink, error, keys);
    }

    /// The range of keys of the first matching block in a partition.
    fn keys_of(
        &self,
        partition: usize,
        is_meant: impl Fn(BlockHandle) -> bool,
        context: &ReadContext<'_>,
    ) -> Result<Option<(Bytes, Bytes)>> {
        let mut before = match partition.checked_sub(1) {
            Some(before) => successor(&self.partitions[before].separator),
            None => self.properties.smallest.clone(),
        };
        let index = self.index(&self.partitions[partition], context)?;
        let mut cursor = BlockCursor::new(index);
        while let Ok(true) = cursor.advance() {
            let behind = successor(cursor.key());
            if DataEntry::decode(cursor.value()).is_ok_and(|it| is_meant(it.handle)) {
                return Ok(Some((before, behind)));
            }
            before = behind;
        }
        Ok(None)
    }
}

pub(crate) fn read_footer(reader: &FrameReader, id: &TableId) -> Result<Footer> {
    let read = || -> Result<Option<Footer>> {
        let at = reader.file_len.saturating_sub(FOOTER_BYTES);
        let len = usize::try_from(FOOTER_BYTES).unwrap_or(usize::MAX);
        let bytes = reader.read_blocks(at, len, Reading::MayBlock)?;
        Ok(Footer::decode(&bytes, id))
    };
    let footer = match read()? {
        Some(footer) => Some(footer),
        None => read()?,
    };
    footer.ok_or_else(|| {
        let offset = reader.file_len.saturating_sub(FOOTER_BYTES);
        let found = "does not match its checksum";
        SstError::damaged(reader.path(), offset, FOOTER_BYTES, Part::Footer, found)
    })
}

fn read_header(reader: &FrameReader, id: &TableId) -> Result<()> {
    let header_len = usize::try_from(FILE_HEADER_BYTES).unwrap_or(usize::MAX);
    let check = || {
        let bytes = reader.read_blocks(0, header_len, Reading::MayBlock)?;
        check_file_header(&bytes, id, reader.path())
    };
    match check() {
        Err(SstError::Damaged { .. }) => check(),
        checked => checked,
    }
}

fn read_properties(reader: &FrameReader, footer: &Footer) -> Result<Properties> {
    let (handle, part) = (footer.properties, Part::Properties);
    let payload = reader.read_block(handle, part, Reading::MayBlock)?;
    Properties::decode(&mut ByteReader::new(&payload))
        .map_err(|error| undecodable(reader, handle, part, error))
}

fn read_partitions(reader: &FrameReader, footer: &Footer) -> Result<Vec<Partition>> {
    let (handle, part) = (footer.top_index, Part::TopIndex);
    let payload = reader.read_block(handle, part, Reading::MayBlock)?;
    decode_top_index(payload).map_err(|error| undecodable(reader, handle, part, error))
}

fn undecodable(
    reader: &FrameReader,
    handle: BlockHandle,
    part: Part,
    error: Truncated,
) -> SstError {
    let found = format!("good checksum and yet {error}");
    SstError::damaged(
        reader.path(),
        handle.offset,
        u64::from(handle.len),
        part,
        found,
    )
}

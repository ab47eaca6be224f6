//! Walks over a table in key order, without damaged blocks and blocks that a filter rules out.

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_encoding::{FoldedFilter, SegmentFilter, successor};

use crate::partition::DataEntry;
use crate::segment_sets::SegmentSets;
use crate::{Block, BlockCursor, BlockHandle, Part, ReadAhead, ReadContext, Result, Table};

/// Conditions for reading a block. Only for a table that shares no keys with older tables: a
/// skipped block hides nothing.
#[derive(Clone, Debug, Default)]
pub struct ScanFilter {
    /// Only entries last modified in this range, in microseconds.
    pub last_modified: Option<RangeInclusive<u64>>,
    /// Only entries in these anti-entropy segments, or in these leaves of a tree.
    pub segments: Option<SegmentFilter>,
}

/// Options of a scan.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// The first key.
    pub from: Bound<Bytes>,
    /// Selects the blocks to read; their entries still have to be filtered.
    pub filter: ScanFilter,
    /// Bytes of one read when blocks are not in the cache.
    pub read_ahead_bytes: usize,
    /// The number of first data blocks that are always offered to the cache, since short scans are
    /// often repeated.
    pub blocks_cached: usize,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            from: Bound::Unbounded,
            filter: ScanFilter::default(),
            read_ahead_bytes: 64 << 10,
            blocks_cached: 0,
        }
    }
}

/// A range of unreadable keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first key that may be missing.
    pub from: Bytes,
    /// The first key behind the range.
    pub to: Bytes,
    /// The damaged block.
    pub block: BlockHandle,
    /// The filter of the block's partition; see [`crate::Mark::filter`].
    pub filter: Bytes,
}

/// An item of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanItem {
    /// The scan is at an entry.
    Entry,
    /// A damaged block was passed.
    Gap(Gap),
    /// The end of the table.
    End,
}

/// A walk over a table.
pub struct TableScan {
    table: Arc<Table>,
    options: ScanOptions,
    to: Bound<Bytes>,
    wanted: Option<FoldedFilter>,
    partition: usize,
    index: Option<BlockCursor>,
    segment_sets: Option<SegmentSets>,
    data: Option<BlockCursor>,
    ahead: ReadAhead,
    /// The first key that the next block may have.
    behind: Bytes,
    /// The index cursor is at the next block to read.
    is_sought: bool,
    bytes_read: u64,
}

impl TableScan {
    /// A scan before the first entry of the range.
    pub fn new(table: Arc<Table>, options: ScanOptions) -> Self {
        let from = match &options.from {
            Bound::Included(from) | Bound::Excluded(from) => from.clone(),
            Bound::Unbounded => Bytes::new(),
        };
        let partition = table
            .partitions
            .partition_point(|partition| partition.separator < from);
        let wanted = options.filter.segments.as_ref().map(SegmentFilter::folded);
        Self {
            behind: from.max(table.properties().smallest.clone()),
            table,
            ahead: ReadAhead::new(options.read_ahead_bytes),
            options,
            to: Bound::Unbounded,
            wanted,
            partition,
            index: None,
            segment_sets: None,
            data: None,
            is_sought: false,
            bytes_read: 0,
        }
    }

    /// Ends the scan at a key: blocks that begin behind it are not read. Entries behind the key are
    /// not left out.
    pub fn up_to(mut self, to: Bound<Bytes>) -> Self {
        self.to = to;
        self
    }

    /// The table of the scan.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Bytes of the blocks visited so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The key at the scan's position.
    pub fn key(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], BlockCursor::key)
    }

    /// The value at the scan's position.
    pub fn value(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], BlockCursor::value)
    }

    /// The value as a shared slice.
    pub fn value_bytes(&self) -> Bytes {
        self.data
            .as_ref()
            .map_or_else(Bytes::new, BlockCursor::value_bytes)
    }

    /// Advances to the next entry or gap.
    pub fn advance(&mut self, context: &ReadContext<'_>) -> Result<ScanItem> {
        loop {
            if let Some(data) = &mut self.data {
                match data.advance() {
                    Ok(true) => return Ok(ScanItem::Entry),
                    Ok(false) => self.data = None,
                    Err(_) => {
                        // Entries that do not decode under a right checksum are due to a bug.
                        self.data = None;
                    }
                }
            }
            let Some((separator, entry)) = self.next_block(context)? else {
                return Ok(ScanItem::End);
            };
            let behind = std::mem::replace(&mut self.behind, successor(&separator));
            match self.read_data(entry.handle, context) {
                Ok(block) => {
                    self.bytes_read += u64::from(entry.handle.len);
                    if let Some(item) = self.enter(block)? {
                        return Ok(item);
                    }
                }
                Err(error) if error.is_damage() => {
                    let gap = Gap {
                        from: behind,
                        to: self.behind.clone(),
                        block: entry.handle,
                        filter: self.filter(context)?,
                    };
                    let keys = Some((gap.from.clone(), gap.to.clone()));
                    self.table.report(context.sink, &error, keys);
                    return Ok(ScanItem::Gap(gap));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The filter of the present partition; empty if there is no readable one.
    fn filter(&self, context: &ReadContext<'_>) -> Result<Bytes> {
        let partition = self.table.partitions.get(self.partition);
        let Some(handle) = partition.and_then(|it| it.filter) else {
            return Ok(Bytes::new());
        };
        match self.table.opaque(handle, Part::Filter, context) {
            Ok(block) => Ok(block.payload().clone()),
            Err(error) if error.is_damage() => Ok(Bytes::new()),
            Err(error) => Err(error),
        }
    }

    /// Enters a block: before its first entry, or at the first entry of the range.
    fn enter(&mut self, block: Block) -> Result<Option<ScanItem>> {
        let mut cursor = BlockCursor::new(block);
        let from = std::mem::replace(&mut self.options.from, Bound::Unbounded);
        let is_on_entry = match &from {
            Bound::Unbounded => {
                self.data = Some(cursor);
                return Ok(None);
            }
            Bound::Included(from) => cursor.seek(from),
            Bound::Excluded(from) => cursor.seek(from).and_then(|found| {
                let is_it = found && cursor.key() == &from[..];
                if is_it { cursor.advance() } else { Ok(found) }
            }),
        };
        if matches!(is_on_entry, Ok(true)) {
            self.data = Some(cursor);
            return Ok(Some(ScanItem::Entry));
        }
        // The range begins behind this block's last key; all following entries are in the range.
        Ok(None)
    }

    /// The next block that the filter admits, with its separator.
    fn next_block(&mut self, context: &ReadContext<'_>) -> Result<Option<(Bytes, DataEntry)>> {
        loop {
            if self.is_past_end() || self.index.is_none() && !self.open_partition(context)? {
                return Ok(None);
            }
            let Some(index) = &mut self.index else {
                return Ok(None);
            };
            let partition = &self.table.partitions[self.partition];
            let broken = |error| self.table.undecodable(partition.index, Part::Index, error);
            let is_there = if std::mem::take(&mut self.is_sought) {
                true
            } else {
                index.advance().map_err(broken)?
            };
            if !is_there {
                self.behind = successor(&partition.separator);
                self.index = None;
                self.partition += 1;
                continue;
            }
            let entry = DataEntry::decode(index.value()).map_err(broken)?;
            let separator = Bytes::copy_from_slice(index.key());
            if self.is_wanted(&entry) {
                return Ok(Some((separator, entry)));
            }
            self.behind = successor(&separator);
        }
    }

    fn is_past_end(&self) -> bool {
        match &self.to {
            Bound::Included(to) => self.behind > *to,
            Bound::Excluded(to) => self.behind >= *to,
            Bound::Unbounded => false,
        }
    }

    fn is_wanted(&mut self, entry: &DataEntry) -> bool {
        let times = self.options.filter.last_modified.as_ref();
        let is_in_time = times.is_none_or(|range| entry.modified.meets(range));
        let is_in_segments = match (&mut self.segment_sets, &self.wanted) {
            (Some(sets), Some(wanted)) => match sets.next_meets(wanted) {
                Ok(meets) => meets,
                Err(_) => {
                    self.segment_sets = None;
                    true
                }
            },
            _ => true,
        };
        is_in_time && is_in_segments
    }

    /// Opens the next partition that may have entries; false if there is none.
    fn open_partition(&mut self, context: &ReadContext<'_>) -> Result<bool> {
        let times = self.options.filter.last_modified.clone();
        while let Some(partition) = self.table.partitions.get(self.partition) {
            if times
                .as_ref()
                .is_some_and(|it| !partition.modified.meets(it))
            {
                self.behind = successor(&partition.separator);
                self.partition += 1;
                continue;
            }
            let index = self.table.index(partition, context)?;
            let mut cursor = BlockCursor::new(index);
            let mut is_from_start = true;
            if let Bound::Included(from) | Bound::Excluded(from) = &self.options.from {
                let sought = cursor.seek(from);
                self.is_sought = sought
                    .map_err(|error| self.table.undecodable(partition.index, Part::Index, error))?;
                is_from_start = false;
                if !self.is_sought {
                    self.partition += 1;
                    continue;
                }
            }
            self.segment_sets = None;
            // A rebuilt index has one row for several damaged neighbours, each of which has a
            // segment set.
            let has_row_for_each = is_from_start && partition.rebuilt.get().is_none();
            if let (Some(handle), Some(_), true) =
                (partition.segment_sets, &self.wanted, has_row_for_each)
            {
                match self.table.opaque(handle, Part::SegmentSets, context) {
                    Ok(block) => {
                        self.segment_sets = Some(SegmentSets::new(block.payload().clone()));
                    }
                    Err(error) if error.is_damage() => {
                        self.table.report(context.sink, &error, None);
                    }
                    Err(error) => return Err(error),
                }
            }
            self.index = Some(cursor);
            return Ok(true);
        }
        Ok(false)
    }

    fn read_data(&mut self, handle: BlockHandle, context: &ReadContext<'_>) -> Result<Block> {
        if let Some(block) = self.table.cached(handle.offset, context) {
            return Ok(Block::clone(&block));
        }
        let len = usize::try_from(handle.len).unwrap_or(usize::MAX);
        if context.fills_cache || self.options.read_ahead_bytes <= len {
            let block = self.table.data(handle, context)?;
            return Ok(Block::clone(&block));
        }
        if let Some(left) = self.options.blocks_cached.checked_sub(1) {
            self.options.blocks_cached = left;
            let context = ReadContext {
                fills_cache: true,
                ..*context
            };
            let block = self.table.data(handle, &context)?;
            return Ok(Block::clone(&block));
        }
        let end = self.table.partitions[self.partition].data_to;
        let payload = self
            .ahead
            .payload(&self.table.reader, handle, end, context.reading)?;
        Block::of_entries(payload)
            .map_err(|error| self.table.undecodable(handle, Part::Data, error))
    }
}

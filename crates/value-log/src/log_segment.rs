//! A segment of the value log for its readers: written records come from the file, queued ones from
//! memory.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use kvorum_backend::{Sequence, StoreId};
use kvorum_disk::Reading;
use kvorum_segment::{
    FILE_HEADER_BYTES, Location, Part, RECORD_ALIGN_BYTES, Result, ScanOptions, SegmentError,
    SegmentReader, StoredRecord,
};
use parking_lot::Mutex;

use crate::item::Item;
use crate::record::{LoggedFront, LoggedRecord};
use crate::records::Records;

/// The kind that the headers of the log's segments carry.
pub(crate) const SEGMENT_KIND: u8 = b'V';
/// The latest end of a segment at any settings: engines store the position of a record in 30 bits,
/// in units of 8 bytes.
pub(crate) const LOG_SEGMENT_BYTES_MAX: u64 = RECORD_ALIGN_BYTES << 30;

/// The batches of a store in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The lowest batch.
    pub(crate) first: Sequence,
    /// The highest batch.
    pub(crate) last: Sequence,
    /// The store needs the segment, as far as is known.
    pub(crate) is_needed: bool,
}

impl Holding {
    /// Notes that a store has, and needs, a batch in the segment with these holders.
    pub(crate) fn note(holders: &mut BTreeMap<StoreId, Self>, store: StoreId, sequence: Sequence) {
        let holding = holders.entry(store).or_insert(Self {
            first: sequence,
            last: sequence,
            is_needed: true,
        });
        holding.first = holding.first.min(sequence);
        holding.last = holding.last.max(sequence);
        holding.is_needed = true;
    }
}

/// A segment of the log. It exists before its file does, and its readers keep it open after the
/// file is removed.
pub struct LogSegment {
    pub(crate) number: u32,
    pub(crate) path: PathBuf,
    reader: OnceLock<SegmentReader>,
    /// Records that start below this are in the file.
    written_to: AtomicU64,
    /// The place of the next record.
    end: AtomicU64,
    /// Queued items, in the order of their places.
    unwritten: Mutex<VecDeque<Arc<Item>>>,
    /// The stores with records in it.
    holders: Mutex<BTreeMap<StoreId, Holding>>,
    is_damaged: AtomicBool,
    /// The holders are known without reading the segment.
    is_listed: AtomicBool,
}

impl LogSegment {
    /// A segment that has no file yet.
    pub(crate) fn new(number: u32, path: PathBuf) -> Self {
        Self {
            number,
            path,
            reader: OnceLock::new(),
            written_to: AtomicU64::new(FILE_HEADER_BYTES),
            end: AtomicU64::new(FILE_HEADER_BYTES),
            unwritten: Mutex::default(),
            holders: Mutex::default(),
            is_damaged: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
        }
    }

    /// A segment left by an earlier run.
    pub(crate) fn found(number: u32, path: PathBuf, reader: SegmentReader, end: u64) -> Self {
        let segment = Self::new(number, path);
        let _first = segment.reader.set(reader);
        segment.written_to.store(u64::MAX, Ordering::Release);
        segment.end.store(end, Ordering::Release);
        segment
    }

    /// The end of its last record, queued ones included, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(crate) fn has_records(&self) -> bool {
        self.end() > FILE_HEADER_BYTES
    }

    pub(crate) fn reader(&self) -> Option<&SegmentReader> {
        self.reader.get()
    }

    /// Options for reading all appended records, which must all exist.
    pub(crate) fn scan_options(&self) -> ScanOptions {
        let end = self.end();
        ScanOptions {
            durable_to: end,
            until: Some(end),
            ..ScanOptions::default()
        }
    }

    /// Sets the reader of the newly created file.
    pub(crate) fn set_reader(&self, reader: SegmentReader) {
        let _first = self.reader.set(reader);
    }

    /// Adds an item whose place is the segment's end.
    pub(crate) fn queue(&self, item: Arc<Item>) {
        self.hold(item.store(), item.sequence());
        self.end.store(item.end(), Ordering::Release);
        self.unwritten.lock().push_back(item);
    }

    /// Sets the end after an append that is not a record.
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
        self.written_to.store(end, Ordering::Release);
    }

    /// Notes that all records up to `end` are in the file.
    pub(crate) fn set_written(&self, end: u64) {
        self.written_to.store(end, Ordering::Release);
        let mut unwritten = self.unwritten.lock();
        let written = unwritten.partition_point(|item| item.offset() < end);
        let written: Vec<_> = unwritten.drain(..written).collect();
        drop(unwritten);
        drop(written);
    }

    /// Notes that a store has a batch here.
    pub(crate) fn hold(&self, store: StoreId, sequence: Sequence) {
        Holding::note(&mut self.holders.lock(), store, sequence);
    }

    /// The stores with records in it, needed or not.
    pub(crate) fn holders(&self) -> BTreeMap<StoreId, Holding> {
        self.holders.lock().clone()
    }

    pub(crate) fn set_holders(&self, holders: BTreeMap<StoreId, Holding>) {
        *self.holders.lock() = holders;
    }

    pub(crate) fn holding(&self, store: StoreId) -> Option<Holding> {
        self.holders.lock().get(&store).copied()
    }

    /// Updates the holders' need of the segment, from the last known need of each; false when no
    /// holder needs it.
    pub(crate) fn judge_holders(&self, is_needed_by: impl Fn(StoreId, bool) -> bool) -> bool {
        let mut holders = self.holders.lock();
        for (store, holding) in holders.iter_mut() {
            holding.is_needed = is_needed_by(*store, holding.is_needed);
        }
        holders.values().any(|holding| holding.is_needed)
    }

    /// True when the holders are known from elsewhere, and so are correct despite damage.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_listed(&self) {
        self.is_listed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_damaged(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    /// The queued item with a record at `offset`, and the index of this record.
    fn queued_at(&self, offset: u64) -> Option<(Arc<Item>, usize)> {
        let unwritten = self.unwritten.lock();
        let behind = unwritten.partition_point(|item| item.offset() <= offset);
        let item = unwritten.get(behind.checked_sub(1)?)?;
        let index = item
            .places
            .iter()
            .position(|it| it.record.offset == offset)?;
        Some((item.clone(), index))
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Reads the front of a record. Never waits for a write or a sync of the log; with
    /// [`Reading::CachedOnly`] never for a device.
    ///
    /// # Errors
    /// Those of [`SegmentReader::read_front`]; damage too if no record begins there.
    pub fn read_front(&self, at: Location, reading: Reading) -> Result<LoggedFront> {
        let found = self.find(
            at,
            |item, index| Some(item.logged_front(index)),
            |reader| Ok(LoggedFront::of(reader.read_front(at, reading)?)),
        )?;
        found.ok_or_else(|| self.no_record(at))
    }

    /// Reads a whole record, in the same way.
    ///
    /// # Errors
    /// Those of [`SegmentReader::read`]; damage too if no record begins there.
    pub fn read(&self, at: Location, reading: Reading) -> Result<LoggedRecord> {
        let found = self.find(
            at,
            |item, index| Some(item.logged(index)),
            |reader| Ok(LoggedRecord::of(self.number, reader.read(at, reading)?)),
        )?;
        found.ok_or_else(|| self.no_record(at))
    }

    /// Decompresses the back of a record of this segment.
    ///
    /// # Errors
    /// [`SegmentError::Undecodable`].
    pub fn restore(&self, record: &StoredRecord) -> Result<Bytes> {
        let restored = record.back.restore();
        restored.map_err(|detail| SegmentError::Undecodable {
            path: self.path.clone(),
            offset: record.head.location.offset,
            detail,
        })
    }

    /// The path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all records that are in its file, in the order of their places; `None` while it has no file.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn records(&self) -> Result<Option<Records>> {
        let scan = self.reader().map(|it| it.scan(self.scan_options()));
        Ok(scan.transpose()?.map(|it| Records::of(self.number, it)))
    }

    /// True when a part is known to be unreadable. An offer of the whole segment by
    /// [`Tenant::relocate`](crate::Tenant::relocate) may then miss records.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Finds a record in memory or in the file.
    fn find<T>(
        &self,
        at: Location,
        in_memory: impl FnOnce(&Item, usize) -> T,
        in_file: impl FnOnce(&SegmentReader) -> Result<T>,
    ) -> Result<T> {
        let is_written = || at.offset < self.written_to.load(Ordering::Acquire);
        if !is_written() {
            if let Some((item, index)) = self.queued_at(at.offset) {
                return Ok(in_memory(&item, index));
            }
            // It may have been written meanwhile.
            if !is_written() {
                return Err(self.no_record(at));
            }
        }
        let reader = self.reader.get().ok_or_else(|| self.no_record(at))?;
        in_file(reader)
    }

    /// An error: no record with a store's identity begins there.
    fn no_record(&self, at: Location) -> SegmentError {
        SegmentError::Damaged {
            path: self.path.clone(),
            offset: at.offset,
            part: Part::Front,
            got: 0,
            expected: at.front_end,
        }
    }
}

//! A segment of the value log as its readers see it: written records come from the file, queued ones
//! from memory.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use kvorum_backend::{
    BackendError, ErrorKind, LogBack, LogPlace, LogRecord, LoggedFront, LoggedRecord, Lookup,
    Reading, Result, Sequence, SharedSegment, StoreId,
};
use kvorum_segment::{
    FILE_HEADER_BYTES, Location, ScanOptions, SegmentError, SegmentReader, StoredFront,
    StoredRecord,
};
use parking_lot::Mutex;

use crate::error::from_segment;
use crate::value_log::item::{Item, place_of};

/// What a store has in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The lowest batch.
    pub(crate) first: Sequence,
    /// The highest batch.
    pub(crate) last: Sequence,
    /// The store needs it, as far as is known.
    pub(crate) is_needed: bool,
}

/// A segment. It is there before its file is, and for its readers it stays when the file's name goes.
pub(crate) struct LogSegment {
    pub(crate) number: u32,
    pub(crate) path: PathBuf,
    reader: OnceLock<SegmentReader>,
    /// Records that start below this are in the file.
    written_to: AtomicU64,
    /// Where the next record goes, or would.
    end: AtomicU64,
    /// Queued, in the order of their places.
    unwritten: Mutex<VecDeque<Arc<Item>>>,
    /// The stores that have something in it.
    holders: Mutex<BTreeMap<StoreId, Holding>>,
    is_damaged: AtomicBool,
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
        }
    }

    /// A segment that an earlier run left.
    pub(crate) fn found(number: u32, path: PathBuf, reader: SegmentReader, end: u64) -> Self {
        let segment = Self::new(number, path);
        let _first = segment.reader.set(reader);
        segment.written_to.store(u64::MAX, Ordering::Release);
        segment.end.store(end, Ordering::Release);
        segment
    }

    /// The end of its last record, queued ones included. Bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(crate) fn has_records(&self) -> bool {
        self.end() > FILE_HEADER_BYTES
    }

    pub(crate) fn reader(&self) -> Option<&SegmentReader> {
        self.reader.get()
    }

    /// For reading everything that was appended, which must all be there.
    pub(crate) fn scan_options(&self) -> ScanOptions {
        let end = self.end();
        ScanOptions {
            durable_to: end,
            until: Some(end),
            ..ScanOptions::default()
        }
    }

    /// Its file was created.
    pub(crate) fn set_reader(&self, reader: SegmentReader) {
        let _first = self.reader.set(reader);
    }

    /// Takes an item whose place is the segment's end.
    pub(crate) fn queue(&self, item: Arc<Item>) {
        self.hold(item.store(), item.sequence());
        self.end.store(item.end(), Ordering::Release);
        self.unwritten.lock().push_back(item);
    }

    /// What is no record was appended.
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
        self.written_to.store(end, Ordering::Release);
    }

    /// Everything up to `end` is in the file.
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
        let mut holders = self.holders.lock();
        let holding = holders.entry(store).or_insert(Holding {
            first: sequence,
            last: sequence,
            is_needed: true,
        });
        holding.first = holding.first.min(sequence);
        holding.last = holding.last.max(sequence);
        holding.is_needed = true;
    }

    /// What stores have in it, needed or not.
    pub(crate) fn holders(&self) -> BTreeMap<StoreId, Holding> {
        self.holders.lock().clone()
    }

    pub(crate) fn set_holders(&self, holders: BTreeMap<StoreId, Holding>) {
        *self.holders.lock() = holders;
    }

    pub(crate) fn holding(&self, store: StoreId) -> Option<Holding> {
        self.holders.lock().get(&store).copied()
    }

    /// Decides anew which of the stores in it need it, by what was known of each; false when none
    /// does.
    pub(crate) fn judge_holders(&self, is_needed_by: impl Fn(StoreId, bool) -> bool) -> bool {
        let mut holders = self.holders.lock();
        for (store, holding) in holders.iter_mut() {
            holding.is_needed = is_needed_by(*store, holding.is_needed);
        }
        holders.values().any(|holding| holding.is_needed)
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn set_damaged(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    /// The queued item that starts a record at `offset`, and which of its records that is.
    fn queued_at(&self, offset: u64) -> Option<(Arc<Item>, usize)> {
        let unwritten = self.unwritten.lock();
        let behind = unwritten.partition_point(|item| item.offset() <= offset);
        let item = unwritten.get(behind.checked_sub(1)?)?;
        let index = item.places.iter().position(|it| it.offset == offset)?;
        Some((item.clone(), index))
    }

    /// Finds a record in memory or in the file.
    fn find<T>(
        &self,
        place: LogPlace,
        in_memory: impl FnOnce(&Item, usize) -> T,
        in_file: impl FnOnce(&SegmentReader, Location) -> std::result::Result<T, SegmentError>,
    ) -> Result<Lookup<T>> {
        let is_written = || place.offset < self.written_to.load(Ordering::Acquire);
        if !is_written() {
            if let Some((item, index)) = self.queued_at(place.offset) {
                return Ok(Lookup::Found(in_memory(&item, index)));
            }
            // It may have been written in between.
            if !is_written() {
                return Err(self.no_record(place));
            }
        }
        let reader = self.reader.get().ok_or_else(|| self.no_record(place))?;
        match in_file(reader, location_of(place)) {
            Ok(found) => Ok(Lookup::Found(found)),
            Err(error) if error.would_block() => Ok(Lookup::WouldBlock),
            Err(error) => Err(from_segment(&error)),
        }
    }

    fn no_record(&self, place: LogPlace) -> BackendError {
        let (path, offset) = (self.path.display(), place.offset);
        let detail = format!("no record at byte {offset} of {path}");
        BackendError::new(ErrorKind::Corrupt, detail)
    }

    fn no_prefix(&self, place: LogPlace) -> BackendError {
        let (path, offset) = (self.path.display(), place.offset);
        let detail = format!("the record at byte {offset} of {path} names no store");
        BackendError::new(ErrorKind::Corrupt, detail)
    }
}

impl SharedSegment for LogSegment {
    fn number(&self) -> u32 {
        self.number
    }

    fn read_front(&self, place: LogPlace, reading: Reading) -> Result<Lookup<LoggedFront>> {
        let found = self.find(
            place,
            |item, index| Some(item.logged_front(index)),
            |reader, at| {
                let stored = reader.read_front(at, disk_reading(reading))?;
                Ok(logged_front(self.number, &stored))
            },
        )?;
        match found {
            Lookup::Found(Some(front)) => Ok(Lookup::Found(front)),
            Lookup::Found(None) => Err(self.no_prefix(place)),
            Lookup::Absent => Ok(Lookup::Absent),
            Lookup::WouldBlock => Ok(Lookup::WouldBlock),
        }
    }

    fn read(&self, place: LogPlace, reading: Reading) -> Result<Lookup<LoggedRecord>> {
        let found = self.find(
            place,
            |item, index| Some(item.logged(index)),
            |reader, at| {
                let stored = reader.read(at, disk_reading(reading))?;
                Ok(logged(self.number, &stored))
            },
        )?;
        match found {
            Lookup::Found(Some(record)) => Ok(Lookup::Found(record)),
            Lookup::Found(None) => Err(self.no_prefix(place)),
            Lookup::Absent => Ok(Lookup::Absent),
            Lookup::WouldBlock => Ok(Lookup::WouldBlock),
        }
    }

    fn is_damaged(&self) -> bool {
        LogSegment::is_damaged(self)
    }
}

fn disk_reading(reading: Reading) -> kvorum_disk::Reading {
    match reading {
        Reading::CachedOnly => kvorum_disk::Reading::CachedOnly,
        Reading::MayBlock => kvorum_disk::Reading::MayBlock,
    }
}

fn location_of(place: LogPlace) -> Location {
    Location {
        offset: place.offset,
        front_end: place.front_end,
        len: place.len,
    }
}

/// A stored front as engines see it; `None` when it has no store's identity in front.
fn logged_front(segment: u32, stored: &StoredFront) -> Option<LoggedFront> {
    let (store, front) = LogRecord::split_front(&stored.front)?;
    Some(LoggedFront {
        store,
        sequence: Sequence(stored.sequence),
        kind: stored.kind,
        removal: stored.removal,
        place: place_of(segment, stored.location),
        front,
        raw_back_len: stored.raw_back_len,
    })
}

/// A stored record as engines see it.
pub(crate) fn logged(segment: u32, stored: &StoredRecord) -> Option<LoggedRecord> {
    Some(LoggedRecord {
        head: logged_front(segment, &stored.head)?,
        back: LogBack {
            bytes: stored.back.bytes().clone(),
            codec: stored.back.codec().bits(),
            raw_len: stored.back.raw_len(),
            checksum: stored.back.checksum(),
        },
    })
}

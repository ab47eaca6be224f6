//! The files of the value log: a batch gets its place when it is queued, and its bytes are written later.
//!
//! A place once issued is kept, because key directories point to it. So places are issued in files with
//! reserved space. If there is no space for the next file, a batch is refused before any part of it is
//! visible. If a write fails nevertheless, its group fails for its waiters. The group stays in memory,
//! readable, until it is written; the next append tries that first, and is refused if it fails.
//!
//! A write takes all batches that have places. So the bytes of a group are often written by the
//! commit before it, or by a thread that would otherwise wait for another group's sync. The copy
//! into the page cache then costs no time between two syncs.
//!
//! Two rules make recovery possible. A segment gets its first record after all records of the
//! segment before it were synced. And the newest segment after a crash is cut at its end before a
//! new segment gets its first record. So only the newest segment can be torn.

mod closing;
mod drop_note;
mod failure;
#[cfg(test)]
mod files_test;
mod room;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_backend::{BackendError, ErrorKind, Purpose, Result};
use kvorum_disk::{Disk, Reserve};
use kvorum_planted_defects::is_planted;
use kvorum_segment::{Location, RECORD_ALIGN_BYTES, Record, SegmentSync, SegmentWriter, file_name};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::dropped::Settled;
use crate::error::from_segment;
pub(crate) use crate::files::failure::{GroupFailure, Written};
use crate::files::failure::{failed_end, failed_sync, out_of_place};
use crate::files::room::{Cursor, Fit, Made, Room};
use crate::item::{Batch, Item};
use crate::log_segment::{LOG_SEGMENT_BYTES_MAX, LogSegment};
use crate::opening::{Opened, TornEnd};
use crate::promise::LogPromise;
use crate::settings::ValueLogSettings;

/// Records in one write: systems take some 1,000 parts, and a record has three.
const RECORDS_AT_ONCE: usize = 300;
/// The least bytes that are worth a write of their own.
const WRITE_AHEAD_BYTES_MIN: u64 = 64 << 10;
/// The most bytes that are written at once; longer writes, left to the driver, would take a
/// processor from the tasks for too long.
const AT_ONCE_BYTES_MAX: u64 = 256 << 10;

/// The files, and the segments that readers may use.
///
/// Locks are taken in one order: `dropped`, `state`, `spares`, `cursor`, and last `placed`,
/// `segments` or `rooms`, each alone. Neither of the first two is taken under the queue's lock.
pub(crate) struct Files {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) log_id: u64,
    pub(crate) settings: ValueLogSettings,
    /// The part of the free space that is kept in reserve.
    pub(crate) reserve: Arc<Reserve>,
    /// All segments, with the active one.
    segments: RwLock<BTreeMap<u32, Arc<LogSegment>>>,
    /// Batches that have places and were not taken by a write yet, in order.
    placed: Mutex<Placed>,
    state: Mutex<State>,
    /// Places for the next batches.
    pub(crate) room: Room,
    /// The end of the last issued place, and the end of the durable part of the log.
    appended: AtomicU64,
    synced: AtomicU64,
    /// The highest number of a file: older files may be removed, this one preserves the count.
    newest_file: AtomicU64,
    /// Segments that were removed or will be.
    dropped: Mutex<Settled>,
    /// The highest number that is noted on the disk.
    noted_to: AtomicU64,
    is_stalled: AtomicBool,
}

/// The result of a request for a place.
pub(crate) enum Placing {
    /// The batch is in this segment.
    Placed(Arc<Item>, Arc<LogSegment>),
    /// No file has the space for it: another writer was faster since room was made.
    NoRoom(Batch),
}

/// Batches that wait to be written; the next write takes all of them.
#[derive(Default)]
struct Placed {
    items: VecDeque<Arc<Item>>,
    /// Their length in their segments, in bytes.
    bytes: u64,
}

#[derive(Default)]
struct State {
    /// The torn end of an earlier run, which is cut first.
    torn: Option<TornEnd>,
    active: Option<Active>,
    /// Batches that a write has taken and not put in a file yet, in order.
    unwritten: VecDeque<Arc<Item>>,
    /// Closed, synced, not sealed yet.
    retired: VecDeque<Active>,
    /// The end of the active segment at the last upkeep: an idle segment gets a mark.
    seen_end: u64,
}

/// A segment that is being written.
struct Active {
    writer: SegmentWriter,
    segment: Arc<LogSegment>,
    /// Behind its last mark.
    marked_end: u64,
}

/// A position in the whole log: ascending.
fn position(segment: u32, offset: u64) -> u64 {
    (u64::from(segment) << 32) + offset / RECORD_ALIGN_BYTES
}

/// The position at which a group ends.
fn end_of(group: &[Arc<Item>]) -> u64 {
    let last = group.last();
    last.map_or(0, |item| position(item.segment, item.end()))
}

impl Files {
    /// Batches in memory that no write has taken yet, in bytes.
    pub(crate) fn placed_bytes(&self) -> u64 {
        self.placed.lock().bytes
    }

    /// Files that continue those of an earlier run; the next segment has the number behind theirs.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        settings: ValueLogSettings,
        opened: Opened,
    ) -> Self {
        let (found, newest_file) = (opened.segments, opened.newest_file);
        let number = newest_file.saturating_add(1);
        let next = Arc::new(LogSegment::new(
            number,
            directory.join(file_name(u64::from(number))),
        ));
        let has_directory = !found.is_empty();
        let settings = ValueLogSettings {
            segment_bytes: settings.segment_bytes.min(LOG_SEGMENT_BYTES_MAX),
            ..settings
        };
        let mut segments = found;
        segments.insert(number, next.clone());
        let reserve = Arc::new(Reserve::new(disk.clone(), &directory));
        let log_id = opened.identity.log_id;
        let room = Room {
            disk: disk.clone(),
            directory: directory.clone(),
            log_id,
            segment_bytes: settings.segment_bytes,
            reserve: reserve.clone(),
            cursor: Mutex::new(Cursor::at(next)),
            spares: Mutex::default(),
            ready_to: AtomicU64::new(u64::from(newest_file)),
            rooms: Mutex::default(),
            has_directory: AtomicBool::new(has_directory),
            is_full: AtomicBool::new(false),
        };
        Self {
            room,
            reserve,
            disk,
            directory,
            log_id,
            settings,
            segments: RwLock::new(segments),
            placed: Mutex::default(),
            state: Mutex::new(State {
                torn: opened.torn,
                ..State::default()
            }),
            appended: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            newest_file: AtomicU64::new(u64::from(newest_file)),
            noted_to: AtomicU64::new(match opened.dropped.is_written {
                true => u64::from(opened.dropped.known.newest),
                false => 0,
            }),
            dropped: Mutex::new(opened.dropped),
            is_stalled: AtomicBool::new(false),
        }
    }

    /// Gives a batch its place, in a file whose space is reserved. Called in the queue's order.
    pub(crate) fn place(&self, batch: Batch, purpose: Purpose) -> Result<Placing> {
        let mut cursor = self.room.cursor.lock();
        match self.room.fit(&cursor, batch.stored_len(), purpose) {
            Fit::Here => {}
            Fit::Next => self.advance(&mut cursor)?,
            Fit::Lacking(_) => return Ok(Placing::NoRoom(batch)),
        }
        let segment = &cursor.segment;
        let item = Arc::new(batch.placed(segment.number, segment.end()));
        segment.queue(item.clone());
        self.placed.lock().push(item.clone());
        self.appended
            .store(position(item.segment, item.end()), Ordering::Release);
        Ok(Placing::Placed(item, segment.clone()))
    }

    fn next_segment(&self, last: &LogSegment) -> Result<Arc<LogSegment>> {
        let number = last.number.checked_add(1).ok_or_else(|| {
            BackendError::new(ErrorKind::Failed, "the value log has run out of numbers")
        })?;
        let path = self.directory.join(file_name(u64::from(number)));
        let next = Arc::new(LogSegment::new(number, path));
        self.segments.write().insert(number, next.clone());
        Ok(next)
    }

    /// Moves to the next segment, even before its file exists.
    fn advance(&self, cursor: &mut Cursor) -> Result<()> {
        let next = self.next_segment(&cursor.segment)?;
        self.room.advance(cursor, next);
        Ok(())
    }

    /// Makes a file for a batch of this length if there is none. Must be called before a place is
    /// requested.
    ///
    /// # Errors
    /// There is no space for it.
    pub(crate) fn make_room(&self, len: u64, purpose: Purpose) -> Written {
        loop {
            let short = match self.room.make_file(len, purpose)? {
                Made::Fits(number) => return self.note_before_use(number),
                Made::Short(number) => number,
            };
            let headroom = self.reserve.measure();
            let mut state = self.state.lock();
            let active = state.active.as_mut().map(|active| &mut active.writer);
            self.room.widen(short, len, purpose, &headroom, active)?;
        }
    }

    /// The segment that the next batch goes to.
    pub(crate) fn newest(&self) -> Arc<LogSegment> {
        self.room.newest()
    }

    pub(crate) fn segment(&self, number: u32) -> Option<Arc<LogSegment>> {
        self.segments.read().get(&number).cloned()
    }

    /// All segments, oldest first.
    pub(crate) fn segments(&self) -> Vec<Arc<LogSegment>> {
        self.segments.read().values().cloned().collect()
    }

    /// Closed segments whose files may be removed, oldest first.
    pub(crate) fn closed(&self) -> Vec<Arc<LogSegment>> {
        let newest_file = self.newest_file.load(Ordering::Acquire);
        let cursor = u64::from(self.newest().number);
        let state = self.state.lock();
        let active = state.active.as_ref().map(|it| it.segment.number);
        drop(state);
        let is_closed = |segment: &&Arc<LogSegment>| {
            let number = u64::from(segment.number);
            number < cursor.min(newest_file) && Some(segment.number) != active
        };
        let segments = self.segments.read();
        segments.values().filter(is_closed).cloned().collect()
    }

    /// True when the directory exists, with a segment or a spare file.
    pub(crate) fn has_files(&self) -> bool {
        self.newest_file.load(Ordering::Acquire) > 0
    }

    /// True when earlier queued batches could not be written.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::Acquire)
    }

    /// True when batches that could not be written may now find room. Queries the file system then.
    pub(crate) fn wants_retry(&self) -> bool {
        self.is_stalled() && self.reserve.measure().available >= self.unwritten_bytes()
    }

    fn unwritten_bytes(&self) -> u64 {
        let state = self.state.lock();
        let items = state.unwritten.iter();
        items.map(|item| item.end() - item.offset()).sum()
    }

    /// Tries again to write the batches that could not be written.
    pub(crate) fn retry(&self) -> Written {
        let mut state = self.state.lock();
        self.write_queued(&mut state)
    }

    /// True when everything up to an issued place is durable, including files of earlier runs.
    pub(crate) fn is_synced_to(&self, appended: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= appended && self.state.lock().torn.is_none()
    }

    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Writes the queued batches and makes the present segment durable.
    pub(crate) fn sync_written(&self) -> Written {
        let active = {
            let mut state = self.state.lock();
            self.write_queued(&mut state)?;
            state.active.as_ref().map(Active::to_sync)
        };
        self.sync_active(active)
    }

    fn sync_active(&self, active: Option<(SegmentSync, u64)>) -> Written {
        let Some((sync, end)) = active else {
            return Ok(());
        };
        sync.sync().map_err(|error| failed_sync(&error))?;
        self.synced.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    fn write_queued(&self, state: &mut State) -> Written {
        self.take_placed(state);
        let written = self.write_in_order(state);
        self.is_stalled.store(written.is_err(), Ordering::Release);
        written
    }

    fn take_placed(&self, state: &mut State) {
        let mut placed = self.placed.lock();
        placed.bytes = 0;
        state.unwritten.append(&mut placed.items);
    }

    fn write_in_order(&self, state: &mut State) -> Written {
        self.end_torn(state)?;
        while let Some(first) = state.unwritten.front() {
            let number = first.segment;
            self.make_active(state, number)?;
            let State {
                active: Some(active),
                unwritten,
                ..
            } = state
            else {
                return Err(out_of_place());
            };
            let same = unwritten.iter().take_while(|item| item.segment == number);
            let count = same.take(RECORDS_AT_ONCE).count();
            active.append(unwritten, count)?;
            unwritten.drain(..count);
        }
        Ok(())
    }

    fn end_torn(&self, state: &mut State) -> Written {
        let Some(torn) = &state.torn else {
            return Ok(());
        };
        torn.end(&*self.disk).map_err(|error| failed_end(&error))?;
        state.torn = None;
        Ok(())
    }

    /// Makes the segment of this number the active one, after a sync of the one before it.
    fn make_active(&self, state: &mut State, number: u32) -> Written {
        match &state.active {
            Some(active) if active.segment.number == number => return Ok(()),
            Some(active) => {
                let (sync, end) = active.to_sync();
                sync.sync().map_err(|error| failed_sync(&error))?;
                self.synced.fetch_max(end, Ordering::AcqRel);
                let full = state.active.take();
                state.retired.extend(full);
            }
            None => {}
        }
        let segment = self.segment(number).ok_or_else(out_of_place)?;
        let writer = {
            let mut spares = self.room.spares.lock();
            let is_this = |spare: &SegmentWriter| spare.id().number == u64::from(number);
            let writer = match spares.pop_front().filter(is_this) {
                Some(ready) => ready,
                None => self.room.create_segment(number, 0, Purpose::Store)?,
            };
            self.newest_file
                .fetch_max(u64::from(number), Ordering::AcqRel);
            writer
        };
        segment.set_reader(writer.reader());
        let marked_end = writer.end();
        state.active = Some(Active {
            writer,
            segment,
            marked_end,
        });
        Ok(())
    }

    fn write_group(&self, group: &[Arc<Item>], promise: LogPromise) -> Written {
        let end = end_of(group);
        let mut state = self.state.lock();
        self.write_up_to(&mut state, end)?;
        if promise == LogPromise::Written || self.synced.load(Ordering::Acquire) >= end {
            return Ok(());
        }
        let active = state.active.as_ref().map(Active::to_sync);
        drop(state);
        self.sync_active(active)
    }

    /// Writes all queued batches. An error means that bytes before `end` could not be written. If
    /// only later bytes did not fit, their group gets the error.
    fn write_up_to(&self, state: &mut State, end: u64) -> Written {
        let Err(failure) = self.write_queued(state) else {
            return Ok(());
        };
        let unwritten = state.unwritten.front();
        let is_ours = unwritten.is_none_or(|item| position(item.segment, item.offset()) < end);
        match is_ours || matches!(failure, GroupFailure::ForGood(_)) {
            true => Err(failure),
            false => Ok(()),
        }
    }

    /// Space taken by the log's files, in bytes.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.bytes() + self.room.ahead_bytes()
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.read().values().map(|it| it.end()).sum()
    }
}

impl Files {
    /// Writes a group, and makes it durable if that was promised. Writes one group at a time.
    pub(crate) fn write(&self, group: &[Arc<Item>], promise: LogPromise) -> Written {
        match self.write_group(group, promise) {
            Err(GroupFailure::ForGood(_)) if is_planted!(FailedSyncForgotten) => Ok(()),
            written => written,
        }
    }

    /// Writes the queued batches while another thread's group is being synced, if that needs no
    /// wait. Its outcome counts only if it is final; otherwise the groups report theirs.
    pub(crate) fn write_ahead(&self) -> Written {
        if self.placed.lock().bytes < WRITE_AHEAD_BYTES_MIN {
            return Ok(());
        }
        match self.state.try_lock() {
            Some(mut state) => self.write_queued(&mut state),
            None => Ok(()),
        }
    }

    /// The files for one write without waits, unless another thread writes.
    pub(crate) fn at_once(&self) -> Option<AtOnce<'_>> {
        let state = self.state.try_lock()?;
        Some(AtOnce { files: self, state })
    }
}

/// The files, locked for one write without waits: no sync, no new segment, few bytes.
pub(crate) struct AtOnce<'a> {
    files: &'a Files,
    state: MutexGuard<'a, State>,
}

impl AtOnce<'_> {
    /// True when all batches with places can be written so. The caller holds the queue's lock until
    /// it has taken the oldest group, so that no batch gets a place meanwhile.
    pub(crate) fn suits(&mut self) -> bool {
        self.files.take_placed(&mut self.state);
        let State {
            torn: None,
            active: Some(active),
            unwritten,
            ..
        } = &*self.state
        else {
            return false;
        };
        let bytes: u64 = unwritten.iter().map(|it| it.end() - it.offset()).sum();
        let is_in_segment = |item: &Arc<Item>| item.segment == active.segment.number;
        bytes <= AT_ONCE_BYTES_MAX
            && unwritten.back().is_none_or(is_in_segment)
            && !self.files.is_stalled()
    }

    /// Writes the group with all batches that have places.
    pub(crate) fn write(mut self, group: &[Arc<Item>]) -> Written {
        self.files.write_up_to(&mut self.state, end_of(group))
    }
}

impl Placed {
    fn push(&mut self, item: Arc<Item>) {
        self.bytes += item.end() - item.offset();
        self.items.push_back(item);
    }
}

impl State {
    fn is_behind(&self, number: u32) -> bool {
        let active = self.active.as_ref();
        active.is_some_and(|active| active.segment.number < number)
    }
}

impl Active {
    fn has_records(&self) -> bool {
        self.writer.position().records > 0
    }

    fn to_sync(&self) -> (SegmentSync, u64) {
        let end = position(self.segment.number, self.writer.end());
        (self.writer.sync_handle(), end)
    }

    /// Appends the first `count` items, at their places.
    fn append(&mut self, unwritten: &VecDeque<Arc<Item>>, count: usize) -> Written {
        let items = unwritten.iter().take(count);
        let records: Vec<Record<'_>> = items.clone().flat_map(|item| item.records()).collect();
        let first = items.clone().next();
        if first.is_some_and(|item| item.offset() != self.writer.end()) {
            return Err(out_of_place());
        }
        let mut places = Vec::<Location>::with_capacity(records.len());
        self.writer
            .append(&records, &mut places)
            .map_err(|error| GroupFailure::ThisGroup(from_segment(&error)))?;
        self.segment.set_written(self.writer.end());
        Ok(())
    }
}

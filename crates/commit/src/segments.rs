//! The log's files: groups are written to the active segment, and closed ones go when every store in
//! them is durable beyond them.
//!
//! A segment is closed when the next group would make it too long; the next one is made ahead of need
//! by upkeep, so that no group waits for its creation. Stores are synced late: only when the log has
//! grown to a quarter of what it may be does upkeep begin. By that time the system has written most of
//! what the stores have to sync in its own time. Then one is synced after the other, each once while the
//! log grows by as much again: all at once they took half of the device and of the processors for
//! seconds. Files of segments that nothing needs are written over by later segments.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use kvorum_backend::{Backend, BackendError, ErrorKind, Result, Sequence, StepOutcome, StoreId};
use kvorum_disk::{Disk, Operation};
use kvorum_segment::{
    BatchPlace, EncodedBack, Location, Record, SegmentError, SegmentId, SegmentWriter,
    WriterOptions, file_name,
};
use parking_lot::Mutex;

use crate::CommitLogSettings;
use crate::error::{from_disk, from_segment};
use crate::log_record::{LogRecord, REUSED_SEGMENT_KIND, SEGMENT_KIND};
use crate::queue::GroupFailure;

/// Space is reserved in pieces of this size: large enough to be rare, and small enough to be had on a
/// disk that is nearly full. Bytes.
const RESERVED_BYTES: u64 = 16 << 20;
/// Upkeep begins when closed segments take this part of what the log may be, and syncs all stores once
/// while so much is written. Smaller files are used again sooner, while they are still in memory; larger
/// ones make fewer syncs of stores.
const TRIM_SHARE: u64 = 4;
/// How the names of files end that wait to be used again; recovery removes them.
pub(crate) const FREE_EXTENSION: &str = "free";
/// What one sync of a store is taken to cost; nobody can tell in advance. Bytes.
const SYNC_COST_BYTES: u64 = 1 << 20;

/// The stores whose syncs trim the log. Weak: a log keeps no store open.
pub(crate) type Stores = Mutex<BTreeMap<StoreId, Weak<dyn Backend>>>;

/// The segments of one run's log.
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    log_id: u64,
    settings: CommitLogSettings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    has_directory: bool,
    active: Option<Active>,
    /// Made ahead of need; higher in number than the active segment, and empty.
    spare: Option<SegmentWriter>,
    /// Oldest first.
    closed: VecDeque<Arc<Closed>>,
    /// Files of segments that nothing needs any more, to be written over.
    free: Vec<PathBuf>,
    last_number: u64,
    is_trimming: bool,
    /// Bytes of the groups since upkeep synced a store last.
    written_bytes: u64,
}

struct Active {
    writer: SegmentWriter,
    /// The highest sequence of each store in it.
    stores: BTreeMap<StoreId, Sequence>,
    /// It says that a store was erased.
    has_erasure: bool,
    /// Where it ended when upkeep looked last, and behind its last mark: what is idle gets a mark.
    seen_end: u64,
    marked_end: u64,
}

struct Closed {
    path: PathBuf,
    bytes: u64,
    stores: BTreeMap<StoreId, Sequence>,
    has_erasure: bool,
}

/// What becomes of closed segments.
enum Trim {
    /// There is none, or it is too early.
    NotDue,
    /// They are kept for stores that are not open any more and were not closed: the next recovery needs
    /// them.
    Blocked,
    /// They are kept for stores that are not durable beyond them: those of the oldest segment first.
    Behind(Vec<Arc<dyn Backend>>),
    /// Nobody needs this one. Older ones may be kept, for a store that has failed.
    Free(Arc<Closed>),
}

/// What a step of trimming did.
enum Trimmed {
    Nothing,
    /// A store is synced.
    Store,
    /// A segment is out of the log.
    Segment,
}

impl Segments {
    /// Segments in a directory of their own. On a full disk they are created later.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        log_id: u64,
        settings: CommitLogSettings,
    ) -> Result<Self> {
        let segments = Self {
            disk,
            directory,
            log_id,
            settings,
            state: Mutex::default(),
        };
        let made = segments.make_active(&mut segments.state.lock());
        match made.map_err(GroupFailure::into_error) {
            Err(error) if error.kind() != ErrorKind::Full => return Err(error),
            _ => {}
        }
        Ok(segments)
    }

    /// Bytes and number of the segments that hold records.
    pub(crate) fn size(&self) -> (u64, u64) {
        let state = self.state.lock();
        let active = state.active.as_ref().map(|active| active.writer.end());
        let segments = state.closed.len() as u64 + u64::from(active.is_some());
        (state.closed_bytes() + active.unwrap_or_default(), segments)
    }

    /// Writes a group and makes it durable.
    pub(crate) fn write(
        &self,
        group: &[LogRecord],
        stores: &Stores,
    ) -> std::result::Result<(), GroupFailure> {
        self.trim_if_too_long(stores);
        let records: Vec<Record<'_>> = group.iter().map(record_of).collect();
        let len = SegmentWriter::appended_len(&records);
        let sync = {
            let mut state = self.state.lock();
            let active = self.active_for(&mut state, len)?;
            let mut places = Vec::<Location>::with_capacity(records.len());
            let appended = active.writer.append(&records, &mut places);
            appended.map_err(|error| GroupFailure::ThisGroup(from_segment(&error)))?;
            let sync = active.writer.sync_handle();
            for record in group {
                let newest = active.stores.entry(record.store).or_default();
                *newest = record.sequence.max(*newest);
                active.has_erasure |= record.is_erasure();
            }
            state.written_bytes += len;
            sync
        };
        match sync.sync() {
            Ok(_) => Ok(()),
            Err(error) => Err(failed_sync(&error)),
        }
    }

    /// The segment to append `len` bytes to. What is closed here has been synced: groups follow one
    /// another.
    fn active_for<'s>(
        &self,
        state: &'s mut State,
        len: u64,
    ) -> std::result::Result<&'s mut Active, GroupFailure> {
        let is_full = state.active.as_ref().is_some_and(|active| {
            let has_records = active.writer.position().records > 0;
            has_records && active.writer.end() + len > self.settings.segment_bytes
        });
        if is_full {
            let full = match state.spare.take() {
                Some(spare) => state.active.replace(Active::new(spare)),
                None => {
                    let full = state.active.take();
                    if let Err(error) = self.make_active(state) {
                        state.active = full;
                        return Err(error);
                    }
                    full
                }
            };
            let closed = full.map(|mut full| {
                // A seal ends the segment where a file that is used again holds older bytes. Without
                // it they would be reported as damage after a crash, and no more.
                let _sealed_or_reported_later = full.writer.seal();
                Arc::new(full.close(&self.directory))
            });
            state.closed.extend(closed);
        }
        if state.active.is_none() {
            self.make_active(state)?;
        }
        state.active.as_mut().ok_or_else(|| {
            let detail = "no segment to append to";
            GroupFailure::ThisGroup(BackendError::new(ErrorKind::Misuse, detail))
        })
    }

    fn make_active(&self, state: &mut State) -> std::result::Result<(), GroupFailure> {
        if !state.has_directory {
            kvorum_disk::create_directory_durably(&*self.disk, &self.directory)
                .map_err(|error| failed_creation(&error.into()))?;
            state.has_directory = true;
        }
        state.last_number += 1;
        let free = state.free.pop();
        let writer = self
            .create_segment(state.last_number, free)
            .map_err(|error| failed_creation(&error))?;
        state.active = Some(Active::new(writer));
        Ok(())
    }

    /// Makes a segment, of a free file if there is one.
    fn create_segment(
        &self,
        number: u64,
        free: Option<PathBuf>,
    ) -> std::result::Result<SegmentWriter, SegmentError> {
        let path = self.directory.join(file_name(number));
        let id = SegmentId {
            log_id: self.log_id,
            number,
            kind: if free.is_some() {
                REUSED_SEGMENT_KIND
            } else {
                SEGMENT_KIND
            },
        };
        let options = WriterOptions {
            preallocate_bytes: self.settings.segment_bytes.min(RESERVED_BYTES),
        };
        let disk = &*self.disk;
        let Some(free) = free else {
            return SegmentWriter::create(disk, &path, id, options);
        };
        let reused = SegmentWriter::reuse(disk, &free, &path, id, options);
        if reused.is_err() {
            // Nobody knows any more what the device has of it, under either name. If it cannot be removed,
            // the next recovery does it.
            let _gone_or_later = self.remove(&free);
            let _gone_or_later = self.remove(&path);
        }
        reused
    }

    /// A log that outgrows its bound slows its writers: each group syncs a store first, and with
    /// twice the bound each group drops a segment.
    fn trim_if_too_long(&self, stores: &Stores) {
        let bytes_max = self.settings.bytes_max;
        let (bytes, before) = self.size();
        if bytes <= bytes_max {
            return;
        }
        // A store that cannot be synced keeps its segments; upkeep reports it.
        while let Ok(Trimmed::Store | Trimmed::Segment) = self.trim_step(stores) {
            if bytes <= bytes_max.saturating_mul(2) || self.size().1 < before {
                return;
            }
        }
    }

    /// True when the log nears what it may be: stores are synced without waiting for more to be written.
    pub(crate) fn is_pressing(&self) -> bool {
        self.state.lock().closed_bytes() > self.pressing_bytes()
    }

    fn pressing_bytes(&self) -> u64 {
        self.settings.bytes_max / TRIM_SHARE * (TRIM_SHARE - 1)
    }

    /// True when [`Segments::upkeep_step`] has something to do.
    pub(crate) fn is_upkeep_due(&self, stores: &Stores) -> bool {
        let wants_spare_or_mark = {
            let mut state = self.state.lock();
            state.wants_spare() || state.wants_mark()
        };
        wants_spare_or_mark || matches!(self.next_trim(stores), Trim::Behind(_) | Trim::Free(_))
    }

    /// One step of upkeep; it costs something when a store was synced. A disk that has no room for a spare
    /// segment is one more reason to trim.
    pub(crate) fn upkeep_step(&self, stores: &Stores) -> Result<StepOutcome> {
        let spare = self.make_spare();
        if let Ok(true) = spare {
            return Ok(StepOutcome {
                cost_bytes: 0,
                is_done: false,
            });
        }
        self.mark_if_idle()?;
        let cost_bytes = match self.trim_step(stores)? {
            Trimmed::Nothing => return spare.map(|_| StepOutcome::nothing_left()),
            Trimmed::Store => SYNC_COST_BYTES,
            Trimmed::Segment => 0,
        };
        Ok(StepOutcome {
            cost_bytes,
            is_done: false,
        })
    }

    /// Makes the spare segment; false if there is one or nothing was written yet.
    fn make_spare(&self) -> Result<bool> {
        let (number, free) = {
            let mut state = self.state.lock();
            if !state.wants_spare() {
                return Ok(false);
            }
            state.last_number += 1;
            (state.last_number, state.free.pop())
        };
        let spare = self
            .create_segment(number, free)
            .map_err(|error| from_segment(&error))?;
        let mut state = self.state.lock();
        if state.spare.is_none() && number == state.last_number {
            state.spare = Some(spare);
            return Ok(true);
        }
        // A group did not wait: its segment has a higher number, and this one would come too late.
        drop(state);
        drop(spare);
        self.remove(&self.directory.join(file_name(number)))?;
        Ok(true)
    }

    /// Leaves proof of what was synced last when no later record carries it.
    fn mark_if_idle(&self) -> Result<()> {
        let mut state = self.state.lock();
        let Some(active) = state.active.as_mut().filter(|active| active.is_unmarked()) else {
            return Ok(());
        };
        match active.writer.mark() {
            Ok(()) => {}
            Err(error) => {
                let error = from_segment(&error);
                // Without the mark, damage to the last group may look like a torn tail; no more.
                if error.kind() != ErrorKind::Full {
                    return Err(error);
                }
            }
        }
        active.marked_end = active.writer.end();
        Ok(())
    }

    /// Syncs one store that keeps a segment, or drops a segment.
    fn trim_step(&self, stores: &Stores) -> Result<Trimmed> {
        match self.next_trim(stores) {
            Trim::NotDue | Trim::Blocked => Ok(Trimmed::Nothing),
            Trim::Behind(engines) => {
                self.state.lock().written_bytes = 0;
                sync_first_that_can(&engines)
            }
            Trim::Free(segment) => {
                let mut state = self.state.lock();
                let is_it = |closed: &Arc<Closed>| Arc::ptr_eq(closed, &segment);
                let Some(at) = state.closed.iter().position(is_it) else {
                    return Ok(Trimmed::Segment);
                };
                state.closed.remove(at);
                drop(state);
                self.set_free(&segment.path)?;
                Ok(Trimmed::Segment)
            }
        }
    }

    /// Engines are asked without our lock.
    fn next_trim(&self, stores: &Stores) -> Trim {
        let trim_bytes = self.settings.bytes_max / TRIM_SHARE;
        let (closed, written_bytes, is_pressing) = {
            let mut state = self.state.lock();
            let closed_bytes = state.closed_bytes();
            let is_long = closed_bytes > trim_bytes;
            state.is_trimming = !state.closed.is_empty() && (state.is_trimming || is_long);
            if !state.is_trimming {
                return Trim::NotDue;
            }
            let is_pressing = closed_bytes > self.pressing_bytes();
            (state.closed.clone(), state.written_bytes, is_pressing)
        };
        let mut behind = Vec::new();
        let mut is_first = true;
        for segment in closed {
            // One that tells of an erasure goes after those before it, as in `remove_oldest`.
            let may_go = is_first || !segment.has_erasure;
            if keep(stores, &segment.stores, &mut behind) {
                is_first = false;
            } else if may_go {
                return Trim::Free(segment);
            }
        }
        if behind.is_empty() {
            return Trim::Blocked;
        }
        if !is_pressing && written_bytes < trim_bytes / behind.len() as u64 {
            return Trim::NotDue;
        }
        Trim::Behind(behind)
    }

    /// Removes a segment that is older than all others. Those before one that tells of an erasure must
    /// not come back without it, or a recovery would keep them for a store that it takes to be
    /// elsewhere.
    fn remove_oldest(&self, path: &Path, has_erasure: bool) -> Result<()> {
        if has_erasure {
            self.disk
                .sync_directory(&self.directory)
                .map_err(|error| from_disk(&error))?;
        }
        self.remove(path)
    }

    /// Keeps the file of a segment that nothing needs any more, under a name that recovery passes
    /// over. The name is durable before the file is written over: it must not come back under its
    /// old one with a header that does not fit.
    ///
    /// More than upkeep sets free in one go is of no use: what a long log took is given back.
    fn set_free(&self, path: &Path) -> Result<()> {
        let bytes_kept = self.settings.bytes_max / TRIM_SHARE;
        let segments_kept = bytes_kept / self.settings.segment_bytes.max(1) + 1;
        if self.state.lock().free.len() as u64 >= segments_kept {
            self.remove(path)?;
            // The one after it may tell of an erasure, and must not go before it.
            return self
                .disk
                .sync_directory(&self.directory)
                .map_err(|error| from_disk(&error));
        }
        let free = path.with_extension(FREE_EXTENSION);
        self.disk
            .rename(path, &free)
            .and_then(|()| self.disk.sync_directory(&self.directory))
            .map_err(|error| from_disk(&error))?;
        self.state.lock().free.push(free);
        Ok(())
    }

    /// Removing is not made durable: a segment that comes back holds nothing that its stores lack.
    fn remove(&self, path: &Path) -> Result<()> {
        match self.disk.remove_file(path) {
            Err(error) if error.kind() == kvorum_disk::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error| from_disk(&error)),
        }
    }

    /// Removes everything, if no store needs it.
    pub(crate) fn remove_all(&self, stores: &Stores) -> Result<()> {
        let state = self.state.lock();
        let active = state.active.iter().map(|active| &active.stores);
        let mut held = state.closed.iter().map(|it| &it.stores).chain(active);
        if held.any(|held| keepers(stores, held).next().is_some()) {
            let detail = "a commit log was to be removed while stores need it";
            return Err(BackendError::new(ErrorKind::Misuse, detail));
        }
        if !state.has_directory {
            return Ok(());
        }
        for closed in &state.closed {
            self.remove_oldest(&closed.path, closed.has_erasure)?;
        }
        if let Some(active) = &state.active {
            let path = self.directory.join(file_name(active.writer.id().number));
            self.remove_oldest(&path, active.has_erasure)?;
        }
        let above = self.directory.parent().unwrap_or(Path::new("."));
        self.disk
            .remove_directory(&self.directory)
            .and_then(|()| self.disk.sync_directory(above))
            .map_err(|error| from_disk(&error))
    }
}

/// The stores that are not durable up to what is held of them; absent for one that is not open any more.
/// A store that the log was told to forget needs nothing.
fn keepers(
    stores: &Stores,
    held: &BTreeMap<StoreId, Sequence>,
) -> impl Iterator<Item = Option<Arc<dyn Backend>>> {
    held.iter().filter_map(|(store, newest)| {
        let registered = stores.lock().get(store)?.upgrade();
        match registered {
            Some(engine) if engine.durable() >= *newest => None,
            kept_by => Some(kept_by),
        }
    })
}

/// True when a store needs what is held. Those of them that are open are added, each once.
fn keep(
    stores: &Stores,
    held: &BTreeMap<StoreId, Sequence>,
    behind: &mut Vec<Arc<dyn Backend>>,
) -> bool {
    let mut is_kept = false;
    for keeper in keepers(stores, held) {
        is_kept = true;
        let Some(engine) = keeper else {
            continue;
        };
        if !behind.iter().any(|known| Arc::ptr_eq(known, &engine)) {
            behind.push(engine);
        }
    }
    is_kept
}

/// Syncs a store. One that fails keeps its segments, and does not have others keep theirs.
fn sync_first_that_can(engines: &[Arc<dyn Backend>]) -> Result<Trimmed> {
    let mut failed = None;
    for engine in engines {
        match engine.sync() {
            Ok(_) => return Ok(Trimmed::Store),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(Trimmed::Nothing), Err)
}

impl State {
    fn closed_bytes(&self) -> u64 {
        self.closed.iter().map(|segment| segment.bytes).sum()
    }

    fn wants_spare(&self) -> bool {
        let is_used = |active: &Active| active.writer.position().records > 0;
        self.spare.is_none() && self.active.as_ref().is_some_and(is_used)
    }

    /// Looks twice: a mark is for a log that nothing was written to in between.
    fn wants_mark(&mut self) -> bool {
        let Some(active) = &mut self.active else {
            return false;
        };
        let is_idle = active.seen_end == active.writer.end();
        active.seen_end = active.writer.end();
        is_idle && active.is_unmarked()
    }
}

impl Active {
    fn new(writer: SegmentWriter) -> Self {
        let end = writer.end();
        Self {
            writer,
            stores: BTreeMap::new(),
            has_erasure: false,
            seen_end: end,
            marked_end: end,
        }
    }

    fn is_unmarked(&self) -> bool {
        self.seen_end == self.writer.end() && self.marked_end != self.writer.end()
    }

    fn close(self, directory: &Path) -> Closed {
        Closed {
            path: directory.join(file_name(self.writer.id().number)),
            bytes: self.writer.end(),
            stores: self.stores,
            has_erasure: self.has_erasure,
        }
    }
}

fn failed_sync(error: &SegmentError) -> GroupFailure {
    // Whatever its kind (a full disk may show as late as this), it is final.
    let detail = from_segment(error).to_string();
    GroupFailure::ForGood(BackendError::new(ErrorKind::Failed, detail))
}

/// A new file whose sync fails holds nothing, and yet the device has failed to keep a promise.
fn failed_creation(error: &SegmentError) -> GroupFailure {
    match error {
        SegmentError::Disk(disk)
            if matches!(disk.operation(), Operation::Sync | Operation::SyncDirectory) =>
        {
            failed_sync(error)
        }
        error => GroupFailure::ThisGroup(from_segment(error)),
    }
}

fn record_of(record: &LogRecord) -> Record<'_> {
    Record {
        sequence: record.sequence.0,
        kind: record.kind,
        removal: false,
        batch: BatchPlace::Alone,
        front: &record.front,
        back: EncodedBack::plain(&record.back),
    }
}

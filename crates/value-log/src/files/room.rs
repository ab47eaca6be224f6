//! Room for appends: files are created with their space before their places are issued.
//!
//! Clients' writes take space only here, so this module keeps the last part of the free space
//! ([`kvorum_disk::Reserve`]) for the copies of collections and merges. It queries the file system
//! once per file. Files are shorter if little space is free. Without free space puts are refused,
//! but removals may take the last part of each file, which is left to them until the next file
//! exists, and then a part of the reserve.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_backend::{BackendError, ErrorKind, Purpose};
use kvorum_disk::{Disk, Headroom, PUT_FILE_BYTES_MIN, Reserve};
use kvorum_segment::{FILE_HEADER_BYTES, SegmentId, SegmentWriter, file_name};
use parking_lot::Mutex;

use crate::files::failure::{GroupFailure, Written, failed_creation};
use crate::log_segment::{LogSegment, SEGMENT_KIND};

/// The most bytes of a file for removals only; it also takes at most a part of the reserve.
/// Collections need the rest of the reserve.
const REMOVALS_BYTES_MAX: u64 = 1 << 20;
const REMOVALS_FILE_PART: u64 = 8;
/// The part of a file that is left to removals while there is no next file.
const REMOVALS_PART: u64 = 16;

/// The place of the next batch, and the files made ahead of need.
pub(crate) struct Room {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) directory: PathBuf,
    pub(super) log_id: u64,
    pub(super) segment_bytes: u64,
    /// The part of the free space that is kept in reserve.
    pub(super) reserve: Arc<Reserve>,
    /// The place of the next batch. Locked under the queue's lock.
    pub(super) cursor: Mutex<Cursor>,
    /// Files made ahead of need, oldest first. The lock is held while one is created.
    pub(super) spares: Mutex<VecDeque<SegmentWriter>>,
    /// The highest number for which there is a file with its space, or one of an earlier run.
    pub(super) ready_to: AtomicU64,
    /// The room in files that were created ahead of need.
    pub(super) rooms: Mutex<BTreeMap<u64, FileRoom>>,
    pub(super) has_directory: AtomicBool,
    /// There was no space or no file handle for a spare: the next attempt waits until a file is
    /// needed.
    pub(super) is_full: AtomicBool,
}

/// The room of a file for batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileRoom {
    /// The end of its reserved space. Bytes.
    end: u64,
    /// It was made from the reserve.
    is_for_removals: bool,
}

/// The place of the next batch.
pub(super) struct Cursor {
    pub(super) segment: Arc<LogSegment>,
    /// The room of its file; `None` before there is one.
    room: Option<FileRoom>,
}

/// The result of a request for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// A batch of the length fits into the file of this number.
    Fits(u64),
    /// The file of this number exists, and has to be extended ([`Room::widen`]).
    Short(u64),
}

/// The place that has room for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// In the active segment.
    Here,
    /// In the next one.
    Next,
    /// In neither: the file of this number is missing or too short.
    Lacking(u64),
}

impl FileRoom {
    fn takes(&self, end: u64, purpose: Purpose, has_next: bool) -> bool {
        let margin = match (purpose, has_next) {
            (Purpose::Store, false) => self.end / REMOVALS_PART,
            _ => 0,
        };
        self.is_for(purpose) && end <= self.end - margin
    }

    /// Bytes that puts can append to a file whose records end at `end`.
    fn left_to_puts(&self, end: u64, has_next: bool) -> u64 {
        let margin = if has_next {
            0
        } else {
            self.end / REMOVALS_PART
        };
        match self.is_for(Purpose::Store) {
            true => (self.end - margin).saturating_sub(end),
            false => 0,
        }
    }

    fn is_for(&self, purpose: Purpose) -> bool {
        purpose == Purpose::Free || !self.is_for_removals
    }
}

impl Cursor {
    /// The start of a segment that has no file yet.
    pub(super) fn at(segment: Arc<LogSegment>) -> Self {
        Self {
            segment,
            room: None,
        }
    }
}

impl Room {
    /// Creates a segment's file with all its space, for a batch of at least `len` bytes. The lock
    /// on the spares is held.
    pub(super) fn create_segment(
        &self,
        number: u32,
        len: u64,
        purpose: Purpose,
    ) -> Written<SegmentWriter> {
        if !self.has_directory.load(Ordering::Acquire) {
            kvorum_disk::create_directory_durably(&*self.disk, &self.directory)
                .map_err(|error| failed_creation(&error.into()))?;
            self.has_directory.store(true, Ordering::Release);
        }
        let headroom = self.reserve.measure();
        let least = FILE_HEADER_BYTES + len;
        let mut end = self.file_bytes(&headroom, least, purpose);
        let free = room_for(&headroom, purpose);
        while end > free {
            end = shorter(end, least).ok_or_else(|| refused(&headroom, purpose))?;
        }
        let writer = loop {
            match self.create_file(number, end) {
                Err(GroupFailure::ThisGroup(error)) if error.kind() == ErrorKind::Full => {
                    end = shorter(end, least).ok_or(GroupFailure::ThisGroup(error))?;
                }
                created => break created?,
            }
        };
        let room = FileRoom {
            end,
            is_for_removals: purpose == Purpose::Free && headroom.for_puts() < end,
        };
        self.set_room(u64::from(number), room);
        self.ready_to.fetch_max(u64::from(number), Ordering::AcqRel);
        self.is_full.store(false, Ordering::Release);
        Ok(writer)
    }

    /// Length of the next file, if there is room for it.
    fn file_bytes(&self, headroom: &Headroom, least: u64, purpose: Purpose) -> u64 {
        let wanted = headroom.file_bytes(self.segment_bytes);
        let is_held_back = purpose == Purpose::Free && headroom.for_puts() < wanted;
        let most = match is_held_back {
            true => wanted
                .min(REMOVALS_BYTES_MAX)
                .min(headroom.reserve / REMOVALS_FILE_PART),
            false => wanted,
        };
        most.max(least)
    }

    fn create_file(&self, number: u32, end: u64) -> Written<SegmentWriter> {
        let path = self.directory.join(file_name(u64::from(number)));
        let id = SegmentId {
            log_id: self.log_id,
            number: u64::from(number),
            kind: SEGMENT_KIND,
        };
        // A failed creation has left a file of that name.
        let is_left = self.disk.info(&path).is_ok_and(|found| found.is_some());
        if is_left {
            let _created_or_refused_next = self.disk.remove_file(&path);
        }
        let created = SegmentWriter::create(&*self.disk, &path, id);
        let mut writer = created.map_err(|error| failed_creation(&error))?;
        if let Err(error) = writer.reserve_to(end) {
            // The next file has the same number.
            let _gone_or_not = self.disk.remove_file(&path);
            return Err(failed_creation(&error));
        }
        Ok(writer)
    }

    /// The place that has room for a batch of this length.
    pub(super) fn fit(&self, cursor: &Cursor, len: u64, purpose: Purpose) -> Fit {
        let number = u64::from(cursor.segment.number);
        let end = cursor.segment.end() + len;
        let takes_first = |room: &FileRoom, end| room.takes(end, purpose, true);
        if !cursor.segment.has_records() {
            return match &cursor.room {
                Some(room) if takes_first(room, end) => Fit::Here,
                _ => Fit::Lacking(number),
            };
        }
        let has_next = self.ready_to.load(Ordering::Acquire) > number;
        let room = cursor.room.as_ref();
        if room.is_some_and(|room| room.takes(end, purpose, has_next)) {
            return Fit::Here;
        }
        let next = self.rooms.lock().get(&(number + 1)).copied();
        match next {
            Some(room) if takes_first(&room, FILE_HEADER_BYTES + len) => Fit::Next,
            _ => Fit::Lacking(number + 1),
        }
    }

    /// The segment that the next batch goes to.
    pub(super) fn newest(&self) -> Arc<LogSegment> {
        self.cursor.lock().segment.clone()
    }

    /// Moves to this segment, even before its file exists.
    pub(super) fn advance(&self, cursor: &mut Cursor, segment: Arc<LogSegment>) {
        let mut rooms = self.rooms.lock();
        let room = rooms.remove(&u64::from(segment.number));
        *cursor = Cursor { segment, room };
    }

    fn set_room(&self, number: u64, room: FileRoom) {
        let mut cursor = self.cursor.lock();
        if u64::from(cursor.segment.number) == number {
            cursor.room = Some(room);
        } else {
            self.rooms.lock().insert(number, room);
        }
    }

    fn room_of(&self, number: u64) -> Option<FileRoom> {
        let cursor = self.cursor.lock();
        match u64::from(cursor.segment.number) == number {
            true => cursor.room,
            false => self.rooms.lock().get(&number).copied(),
        }
    }

    /// Makes a file for a batch of this length if there is none.
    pub(super) fn make_file(&self, len: u64, purpose: Purpose) -> Written<Made> {
        let is_there = |number: u64| number <= self.ready_to.load(Ordering::Acquire);
        loop {
            let cursor = self.cursor.lock();
            let fit = self.fit(&cursor, len, purpose);
            let current = u64::from(cursor.segment.number);
            drop(cursor);
            let number = match fit {
                Fit::Here => return Ok(Made::Fits(current)),
                Fit::Next => return Ok(Made::Fits(current + 1)),
                Fit::Lacking(number) => number,
            };
            if is_there(number) {
                return Ok(Made::Short(number));
            }
            let mut spares = self.spares.lock();
            if !is_there(number) {
                let spare = self.create_segment(self.next_number()?, len, purpose)?;
                spares.push_back(spare);
            }
        }
    }

    /// Extends the reserved space of this file, which has no batch yet, for a batch of this length.
    /// The file belongs to `active`, or is a spare.
    pub(super) fn widen(
        &self,
        number: u64,
        len: u64,
        purpose: Purpose,
        headroom: &Headroom,
        active: Option<&mut SegmentWriter>,
    ) -> Written {
        let end = FILE_HEADER_BYTES + len;
        let mut spares = self.spares.lock();
        let Some(known) = self.room_of(number) else {
            // Another thread has already passed it.
            return Ok(());
        };
        // A file made for removals only returns its bytes to the reserve before it takes puts.
        let returned = match known.is_for(purpose) {
            true => 0,
            false => known.end,
        };
        let wanted = returned + end.saturating_sub(known.end);
        if wanted > room_for(headroom, purpose) {
            return Err(refused(headroom, purpose));
        }
        let mut writers = active.into_iter().chain(spares.iter_mut());
        if let Some(writer) = writers.find(|it| it.id().number == number) {
            writer
                .reserve_to(end)
                .map_err(|error| failed_creation(&error))?;
        }
        let room = FileRoom {
            end: end.max(known.end),
            is_for_removals: known.is_for_removals && purpose == Purpose::Free,
        };
        self.set_room(number, room);
        Ok(())
    }

    fn next_number(&self) -> Written<u32> {
        let next = self.ready_to.load(Ordering::Acquire) + 1;
        u32::try_from(next).map_err(|_| {
            let detail = "the value log has run out of numbers";
            GroupFailure::ThisGroup(BackendError::new(ErrorKind::Failed, detail))
        })
    }

    /// True when the next segment has no file yet, and may soon need one.
    pub(crate) fn wants_spare(&self) -> bool {
        let cursor = self.newest();
        let ready_to = self.ready_to.load(Ordering::Acquire);
        let is_full = self.is_full.load(Ordering::Acquire);
        cursor.has_records() && ready_to <= u64::from(cursor.number) && !is_full
    }

    /// Makes the next segment's file ahead of need; false if there is one, or no space.
    pub(crate) fn make_spare(&self) -> Written<bool> {
        let mut spares = self.spares.lock();
        // Another thread may have made it.
        if !self.wants_spare() {
            return Ok(false);
        }
        match self.create_segment(self.next_number()?, 0, Purpose::Store) {
            Ok(spare) => spares.push_back(spare),
            // The append that needs the file reports the error, and other upkeep may free space.
            Err(GroupFailure::ThisGroup(error)) if passes(&error) => {
                self.is_full.store(true, Ordering::Release);
                return Ok(false);
            }
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }

    /// Bytes that puts can append to existing files and to one that could be made now. Queries the
    /// file system.
    pub(crate) fn room_for_puts(&self) -> u64 {
        let headroom = self.reserve.measure();
        self.room_made() + self.room_to_make(&headroom)
    }

    /// Bytes that puts can append to existing files.
    fn room_made(&self) -> u64 {
        let cursor = self.cursor.lock();
        let rooms = self.rooms.lock();
        let current = cursor.room.map(|room| (room, cursor.segment.end()));
        let ahead = rooms.values().map(|room| (*room, FILE_HEADER_BYTES));
        let mut files = current.into_iter().chain(ahead).peekable();
        let mut bytes = 0;
        while let Some((room, end)) = files.next() {
            bytes += room.left_to_puts(end, files.peek().is_some());
        }
        bytes
    }

    /// The length of a file for puts that could be made now, in bytes; 0 without space.
    fn room_to_make(&self, headroom: &Headroom) -> u64 {
        let least = FILE_HEADER_BYTES;
        let mut end = self.file_bytes(headroom, least, Purpose::Store);
        while end > headroom.for_puts() {
            match shorter(end, least) {
                Some(half) => end = half,
                None => return 0,
            }
        }
        end
    }

    /// Reserved bytes of files that have no batch yet.
    pub(super) fn ahead_bytes(&self) -> u64 {
        let cursor = self.cursor.lock();
        let end = cursor.room.map_or(0, |room| room.end);
        let rooms = self.rooms.lock();
        let made = rooms.values().map(|room| room.end);
        made.sum::<u64>() + end.saturating_sub(cursor.segment.end())
    }

    /// The present approximate length of a segment, in bytes.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.reserve.seen().file_bytes(self.segment_bytes)
    }
}

/// The free space that a batch may take.
fn room_for(headroom: &Headroom, purpose: Purpose) -> u64 {
    match purpose {
        Purpose::Store => headroom.for_puts(),
        Purpose::Free => headroom.for_removals(),
    }
}

/// Half the length, unless that would be too short.
fn shorter(end: u64, least: u64) -> Option<u64> {
    let half = (end / 2).max(least);
    (half < end && half >= PUT_FILE_BYTES_MIN).then_some(half)
}

fn refused(headroom: &Headroom, purpose: Purpose) -> GroupFailure {
    let (what, held_back) = match purpose {
        Purpose::Store => ("a put", headroom.reserve),
        Purpose::Free => ("a removal", headroom.reserve / 2),
    };
    let available = headroom.available;
    let detail = format!(
        "no space for {what}: {available} bytes are free, and {held_back} of them are held back for \
         merges and collections"
    );
    GroupFailure::ThisGroup(BackendError::new(ErrorKind::Full, detail))
}

/// True for failures that end when space or handles become free.
fn passes(error: &BackendError) -> bool {
    matches!(error.kind(), ErrorKind::Full | ErrorKind::Exhausted)
}

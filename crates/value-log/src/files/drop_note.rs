//! Notes of dropped segments, durable before the segments' files are removed, also on a full disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{ErrorKind, Result};
use kvorum_disk::temporary_name;

use crate::dropped::{Dropped, Numbers, Settled};
use crate::error::from_disk;
use crate::files::Files;
use crate::files::failure::{GroupFailure, Written};
use crate::log_segment::LogSegment;

impl Files {
    /// Notes that segments are dropped, so that no opening counts them as lost.
    pub(super) fn note_dropped(&self, unneeded: &[Arc<LogSegment>]) -> Result<()> {
        let mut settled = self.dropped.lock();
        let numbers: Numbers = unneeded.iter().map(|it| it.number).collect();
        let dropped = settled.known.dropped.and(&numbers);
        if settled.is_written && dropped == settled.known.dropped {
            return Ok(());
        }
        settled.is_written = false;
        let next = Dropped {
            newest: self.newest_noted(&settled),
            dropped,
            ..settled.known.clone()
        };
        match next.write(&*self.disk, &self.directory) {
            Ok(_) => self.note_is_written(&mut settled, next.newest),
            Err(error) if error.kind() == ErrorKind::Full => self.remove_note()?,
            Err(error) => return Err(error),
        }
        settled.known = next;
        Ok(())
    }

    fn note_is_written(&self, settled: &mut Settled, newest: u32) {
        settled.is_written = true;
        self.noted_to.store(u64::from(newest), Ordering::Release);
    }

    /// Notes a file before it has records, if upkeep has not done so: if it disappears later, it is
    /// missing.
    pub(super) fn note_before_use(&self, number: u64) -> Written {
        let is_noted = self.noted_to.load(Ordering::Acquire) >= number;
        if !is_noted && !self.is_full() {
            self.note_created().map_err(GroupFailure::ThisGroup)?;
        }
        Ok(())
    }

    /// Removes the note: that takes no space, and dropping segments frees some. The note is written
    /// again as soon as there is room; after a crash before that, the log cannot detect missing
    /// segments.
    fn remove_note(&self) -> Result<()> {
        self.noted_to.store(0, Ordering::Release);
        let path = Dropped::path(&self.directory);
        let _not_there_or_in_nobodys_way = self.disk.remove_file(&temporary_name(&path));
        match self.disk.remove_file(&path) {
            Err(error) if error.kind() != kvorum_disk::ErrorKind::NotFound => {
                return Err(from_disk(&error));
            }
            _ => {}
        }
        let synced = self.disk.sync_directory(&self.directory);
        synced.map_err(|error| from_disk(&error))
    }

    fn newest_noted(&self, settled: &Settled) -> u32 {
        settled.known.newest.max(self.newest_created())
    }

    /// The highest number with a file, even one without records: a file is noted before it has
    /// records, so that its disappearance is detected.
    fn newest_created(&self) -> u32 {
        let newest_file = self.newest_file.load(Ordering::Acquire);
        let ready_to = self.room.ready_to.load(Ordering::Acquire);
        u32::try_from(newest_file.max(ready_to)).unwrap_or(u32::MAX)
    }

    fn is_noted(&self, settled: &Settled) -> bool {
        settled.is_written && settled.known.newest >= self.newest_created()
    }

    /// True when the note is not on the disk and may fit.
    pub(crate) fn wants_note(&self) -> bool {
        self.has_files() && !self.is_full() && !self.is_noted(&self.dropped.lock())
    }

    /// Writes the note if it is not on the disk; false when it is, or when there is no space.
    pub(crate) fn write_note(&self) -> Result<bool> {
        match self.has_files() {
            true => self.note_created(),
            false => Ok(false),
        }
    }

    fn note_created(&self) -> Result<bool> {
        let mut settled = self.dropped.lock();
        if self.is_noted(&settled) {
            return Ok(false);
        }
        settled.known.newest = self.newest_noted(&settled);
        match settled.known.write(&*self.disk, &self.directory) {
            Ok(_) => {
                let newest = settled.known.newest;
                self.note_is_written(&mut settled, newest);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Full => {
                self.note_full();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// True when there was no space for a deferrable write, and none was freed since.
    pub(crate) fn is_full(&self) -> bool {
        self.room.is_full.load(Ordering::Acquire)
    }

    pub(crate) fn note_full(&self) {
        self.room.is_full.store(true, Ordering::Release);
    }

    /// True when a segment that should exist is missing or replaced.
    pub(crate) fn is_lost(&self, number: u32) -> bool {
        let settled = self.dropped.lock();
        settled.is_certain && !settled.known.dropped.contains(number)
    }

    /// Segments that were dropped.
    pub(crate) fn let_go(&self) -> Numbers {
        self.dropped.lock().known.dropped.clone()
    }

    /// Missing segments that no earlier opening has reported.
    pub(crate) fn newly_missing(&self) -> Vec<u32> {
        let settled = self.dropped.lock();
        let ranges = settled.news.ranges();
        ranges.flat_map(|(first, last)| first..=last).collect()
    }

    /// Writes the note of a copy of this log that has only these segments, whose names were read
    /// before this call. Returns its length in bytes.
    pub(crate) fn write_note_of_copy(
        &self,
        directory: &Path,
        segments: &[Arc<LogSegment>],
        is_copied: impl Fn(u32) -> bool,
    ) -> Result<u64> {
        let numbers = segments.iter().map(|it| it.number);
        let (copied, left): (Vec<u32>, Vec<u32>) = numbers.partition(|number| is_copied(*number));
        let settled = self.dropped.lock();
        let copy = Dropped {
            newest: copied.last().copied().unwrap_or(0),
            dropped: settled.known.dropped.and(&left.into_iter().collect()),
            ..settled.known.clone()
        };
        copy.write(&*self.disk, directory)
    }
}

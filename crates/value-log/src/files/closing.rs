//! The end of a segment: closing it, marking it while the log is idle, sealing it, and removing it.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{ErrorKind, Result};
use kvorum_segment::SegmentReader;

use crate::contents::{Contents, contents_path};
use crate::error::{from_disk, from_segment};
use crate::files::failure::Written;
use crate::files::{Active, Files};
use crate::log_segment::LogSegment;

impl Files {
    /// Closes the active segment, and creates the next one.
    pub(crate) fn roll(&self) -> Result<Arc<LogSegment>> {
        let mut cursor = self.room.cursor.lock();
        if cursor.segment.has_records() {
            self.advance(&mut cursor)?;
        }
        Ok(cursor.segment.clone())
    }

    /// Begins a segment that [`Files::roll`] made, when nothing is queued for an older one.
    pub(crate) fn begin(&self, number: u32) -> Written {
        let mut state = self.state.lock();
        self.take_placed(&mut state);
        let holds_up = state.unwritten.iter().any(|item| item.segment < number);
        if state.is_behind(number) && !holds_up {
            self.make_active(&mut state, number)?;
        }
        Ok(())
    }

    /// True when a segment older than this one is still being written.
    pub(crate) fn is_behind(&self, number: u32) -> bool {
        self.state.lock().is_behind(number)
    }

    /// True when nothing was appended since the last call, and no mark proves that all is durable.
    pub(crate) fn wants_mark(&self) -> bool {
        let mut state = self.state.lock();
        let Some(end) = state.active.as_ref().map(|active| active.writer.end()) else {
            return false;
        };
        let is_idle = std::mem::replace(&mut state.seen_end, end) == end;
        let is_unmarked = |active: &Active| active.marked_end != end && active.has_records();
        is_idle && state.active.as_ref().is_some_and(is_unmarked)
    }

    /// Writes a mark that proves the last sync if no later record does, so that damage to synced records is
    /// not mistaken for a torn tail. Meanwhile batches wait for their places, since the mark takes one.
    pub(crate) fn mark_if_idle(&self) -> Result<()> {
        let mut state = self.state.lock();
        let cursor = self.room.cursor.lock();
        let seen_end = state.seen_end;
        let Some(active) = &mut state.active else {
            return Ok(());
        };
        let end = active.writer.end();
        let newest = &cursor.segment;
        let is_idle = active.segment.number == newest.number && newest.end() == end;
        if !is_idle || seen_end != end || active.marked_end == end || !active.has_records() {
            return Ok(());
        }
        let marked = active.writer.mark().map_err(|error| from_segment(&error));
        active.marked_end = active.writer.end();
        active.segment.set_end(active.marked_end);
        match marked {
            // The mark is only a proof: nothing else depends on it.
            Err(error) if error.kind() != ErrorKind::Full => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn wants_seal(&self) -> bool {
        !self.state.lock().retired.is_empty()
    }

    /// Seals a closed segment and writes the list of its contents; false when there is none to
    /// seal.
    pub(crate) fn seal_one(&self) -> Result<bool> {
        let Some(mut retired) = self.state.lock().retired.pop_front() else {
            return Ok(false);
        };
        match retired.writer.seal() {
            Ok(_) => {}
            Err(error) => {
                let error = from_segment(&error);
                if error.kind() == ErrorKind::Full {
                    self.state.lock().retired.push_front(retired);
                }
                // A segment without a seal is complete; the next opening scans it.
                return Err(error);
            }
        }
        self.write_contents(&retired.segment)?;
        Ok(true)
    }

    /// Rewrites the list of contents beside a segment if it is wrong; returns the list's length
    /// then. The segment is closed, and was read from end to end.
    pub(crate) fn mend_contents(&self, segment: &LogSegment) -> Result<Option<u64>> {
        let number = segment.number;
        let is_retired = |it: &Active| it.segment.number == number;
        // Sealing writes it for the first time.
        let is_to_come = self.state.lock().retired.iter().any(is_retired);
        // The lost contents of a damaged segment are unknown, so every opening has to read the segment.
        if is_to_come || segment.is_damaged() || !segment.has_records() {
            return Ok(None);
        }
        let len = file_len(segment)?;
        let written = Contents::read(&*self.disk, &segment.path, self.log_id, number, len);
        if written.is_some_and(|it| it.data_end == segment.end()) {
            return Ok(None);
        }
        self.write_contents(segment).map(Some)
    }

    fn write_contents(&self, segment: &LogSegment) -> Result<u64> {
        let contents = Contents {
            log_id: self.log_id,
            number: segment.number,
            file_len: file_len(segment)?,
            data_end: segment.end(),
            holders: segment.holders(),
        };
        contents.write(&*self.disk, &segment.path)
    }

    /// Removes segments that no store needs. They are noted durably before, since a removal in a
    /// later segment may be dropped once it hides nothing. Damaged segments are moved to `lost`.
    pub(crate) fn drop_segments(&self, unneeded: &[Arc<LogSegment>], lost: &Path) -> Result<()> {
        if unneeded.is_empty() {
            return Ok(());
        }
        self.note_dropped(unneeded)?;
        let is_unneeded = |number| unneeded.iter().any(|it| it.number == number);
        let mut state = self.state.lock();
        state.retired.retain(|it| !is_unneeded(it.segment.number));
        drop(state);
        for segment in unneeded {
            self.remove_files(segment, lost)?;
        }
        self.disk
            .sync_directory(&self.directory)
            .map_err(|error| from_disk(&error))?;
        let mut segments = self.segments.write();
        for segment in unneeded {
            segments.remove(&segment.number);
        }
        drop(segments);
        // The removed segments have made space for a note that did not fit before.
        self.write_note().map(drop)
    }

    fn remove_files(&self, segment: &LogSegment, lost: &Path) -> Result<()> {
        let gone = |removed: kvorum_disk::Result<()>| match removed {
            Err(error) if error.kind() != kvorum_disk::ErrorKind::NotFound => {
                Err(from_disk(&error))
            }
            _ => Ok(()),
        };
        if segment.is_damaged() {
            let name = segment.path.file_name().unwrap_or_default();
            let moved = kvorum_disk::create_directory_durably(&*self.disk, lost)
                .and_then(|()| self.disk.rename(&segment.path, &lost.join(name)))
                .and_then(|()| self.disk.sync_directory(lost));
            gone(moved)?;
        } else {
            gone(self.disk.remove_file(&segment.path))?;
        }
        gone(self.disk.remove_file(&contents_path(&segment.path)))
    }
}

/// The length of its file.
fn file_len(segment: &LogSegment) -> Result<u64> {
    let len = segment.reader().map_or(Ok(0), SegmentReader::file_len);
    len.map_err(|error| from_segment(&error))
}

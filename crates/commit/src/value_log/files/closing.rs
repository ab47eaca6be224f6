//! The end of a segment: closing it, marking it while it is idle, sealing it, and letting it go.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{ErrorKind, Result};
use kvorum_segment::SegmentReader;

use crate::error::{from_disk, from_segment};
use crate::queue::GroupFailure;
use crate::value_log::contents::{Contents, contents_path};
use crate::value_log::files::{Active, Files};
use crate::value_log::log_segment::LogSegment;

impl Files {
    /// Closes the segment that is appended to, and creates the next one.
    pub(crate) fn roll(&self) -> Result<Arc<LogSegment>> {
        let mut cursor = self.cursor.lock();
        if cursor.has_records() {
            *cursor = self.next_segment(&cursor)?;
        }
        Ok(cursor.clone())
    }

    /// Begins a segment that [`Files::roll`] made, when nothing is queued for an older one.
    pub(crate) fn begin(&self, number: u32) -> std::result::Result<(), GroupFailure> {
        let mut state = self.state.lock();
        let is_behind = state
            .active
            .as_ref()
            .is_some_and(|active| active.segment.number < number);
        if is_behind && state.unwritten.is_empty() {
            self.make_active(&mut state, number)?;
        }
        Ok(())
    }

    /// True when nothing was appended since this was asked last, and no mark says that all of it is
    /// durable.
    pub(crate) fn wants_mark(&self) -> bool {
        let mut state = self.state.lock();
        let Some(end) = state.active.as_ref().map(|active| active.writer.end()) else {
            return false;
        };
        let is_idle = std::mem::replace(&mut state.seen_end, end) == end;
        let is_unmarked = |active: &Active| active.marked_end != end && active.has_records();
        is_idle && state.active.as_ref().is_some_and(is_unmarked)
    }

    /// Leaves proof of what was synced last when no later record carries it, so that damage to it
    /// does not pass for a torn tail. Batches wait for their places meanwhile: it takes one.
    pub(crate) fn mark_if_idle(&self) -> Result<()> {
        let cursor = self.cursor.lock();
        let mut state = self.state.lock();
        let seen_end = state.seen_end;
        let Some(active) = &mut state.active else {
            return Ok(());
        };
        let end = active.writer.end();
        let is_idle = active.segment.number == cursor.number && cursor.end() == end;
        if !is_idle || seen_end != end || active.marked_end == end || !active.has_records() {
            return Ok(());
        }
        let marked = active.writer.mark().map_err(|error| from_segment(&error));
        active.marked_end = active.writer.end();
        active.segment.set_end(active.marked_end);
        match marked {
            // It proves something, and nothing depends on it.
            Err(error) if error.kind() != ErrorKind::Full => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn wants_seal(&self) -> bool {
        !self.state.lock().retired.is_empty()
    }

    /// Seals a closed segment and writes down what it contains; false when there is none.
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
                // Without a seal it is scanned at the next opening, and whole all the same.
                return Err(error);
            }
        }
        let contents = Contents {
            log_id: self.log_id,
            number: retired.segment.number,
            file_len: retired
                .segment
                .reader()
                .map_or(Ok(0), SegmentReader::file_len)
                .map_err(|error| from_segment(&error))?,
            data_end: retired.segment.end(),
            holders: retired.segment.holders(),
        };
        contents.write(&*self.disk, &retired.segment.path)?;
        Ok(true)
    }

    /// Removes segments that nobody needs, for certain before anyone can know that they are gone: a
    /// removal in a later segment may go once nothing is left that it hides. `lost` is where damaged
    /// ones go.
    pub(crate) fn drop_segments(&self, unneeded: &[Arc<LogSegment>], lost: &Path) -> Result<()> {
        if unneeded.is_empty() {
            return Ok(());
        }
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
        Ok(())
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

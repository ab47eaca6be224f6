//! Room for what is appended: files are created with their space before places in them are handed out.

use std::sync::atomic::Ordering;

use kvorum_backend::{BackendError, ErrorKind};
use kvorum_segment::{FILE_HEADER_BYTES, SegmentId, SegmentWriter, WriterOptions, file_name};

use crate::queue::GroupFailure;
use crate::value_log::files::{Files, SEGMENT_KIND, failed_creation};
use crate::value_log::log_segment::LogSegment;

impl Files {
    /// Creates a segment's file with all its space. The lock on the spares is held.
    pub(super) fn create_segment(
        &self,
        number: u32,
    ) -> std::result::Result<SegmentWriter, GroupFailure> {
        if !self.has_directory.load(Ordering::Acquire) {
            kvorum_disk::create_directory_durably(&*self.disk, &self.directory)
                .map_err(|error| failed_creation(&error.into()))?;
            self.has_directory.store(true, Ordering::Release);
        }
        let path = self.directory.join(file_name(u64::from(number)));
        let id = SegmentId {
            log_id: self.log_id,
            number: u64::from(number),
            kind: SEGMENT_KIND,
        };
        // What has the name is left of a creation that failed.
        let is_left = self.disk.info(&path).is_ok_and(|found| found.is_some());
        if is_left {
            let _created_or_refused_next = self.disk.remove_file(&path);
        }
        let created = SegmentWriter::create(&*self.disk, &path, id, WriterOptions::default());
        let mut writer = created.map_err(|error| failed_creation(&error))?;
        if let Err(error) = writer.reserve_to(self.settings.segment_bytes) {
            // Its number is the next one's.
            let _gone_or_not = self.disk.remove_file(&path);
            return Err(failed_creation(&error));
        }
        self.ready_to.fetch_max(u64::from(number), Ordering::AcqRel);
        self.is_full.store(false, Ordering::Release);
        Ok(writer)
    }

    /// The number of the segment that a batch of this length goes to.
    pub(super) fn number_for(&self, cursor: &LogSegment, len: u64) -> u64 {
        let fits = !cursor.has_records() || cursor.end() + len <= self.settings.segment_bytes;
        u64::from(cursor.number) + u64::from(!fits)
    }

    /// True when there is a file of this number with space for a batch that goes there.
    pub(super) fn is_ready_for(&self, number: u64, len: u64) -> bool {
        let is_there = number <= self.ready_to.load(Ordering::Acquire);
        let end = FILE_HEADER_BYTES + len;
        let is_wide = || self.wide.lock().get(&number).is_some_and(|to| *to >= end);
        is_there && (end <= self.settings.segment_bytes || is_wide())
    }

    /// The number of a batch that has no room.
    fn lacking(&self, len: u64) -> Option<u64> {
        let number = self.number_for(&self.newest(), len);
        (!self.is_ready_for(number, len)).then_some(number)
    }

    /// Makes a file for a batch of this length if there is none. To be asked before a place is.
    ///
    /// # Errors
    /// There is no space for it.
    pub(crate) fn make_room(&self, len: u64) -> std::result::Result<(), GroupFailure> {
        let is_there = |number: u64| number <= self.ready_to.load(Ordering::Acquire);
        while let Some(number) = self.lacking(len) {
            if is_there(number) {
                self.widen(number, FILE_HEADER_BYTES + len)?;
                continue;
            }
            let mut spares = self.spares.lock();
            if !is_there(number) {
                let spare = self.create_segment(self.next_number()?)?;
                spares.push_back(spare);
            }
        }
        Ok(())
    }

    /// Reserves more than others have in the file of this number, which may be written already.
    fn widen(&self, number: u64, end: u64) -> std::result::Result<(), GroupFailure> {
        let mut state = self.state.lock();
        let mut spares = self.spares.lock();
        let active = state.active.as_mut().map(|active| &mut active.writer);
        let mut writers = active.into_iter().chain(spares.iter_mut());
        if let Some(writer) = writers.find(|it| it.id().number == number) {
            writer
                .reserve_to(end)
                .map_err(|error| failed_creation(&error))?;
        }
        let mut wide = self.wide.lock();
        wide.retain(|known, _| *known >= number);
        let known = wide.entry(number).or_default();
        *known = end.max(*known);
        Ok(())
    }

    fn next_number(&self) -> std::result::Result<u32, GroupFailure> {
        let next = self.ready_to.load(Ordering::Acquire) + 1;
        u32::try_from(next).map_err(|_| {
            let detail = "the value log has run out of numbers";
            GroupFailure::ThisGroup(BackendError::new(ErrorKind::Failed, detail))
        })
    }

    /// True when the segment that comes next has no file yet, and may soon need one.
    pub(crate) fn wants_spare(&self) -> bool {
        let cursor = self.newest();
        let ready_to = self.ready_to.load(Ordering::Acquire);
        let is_full = self.is_full.load(Ordering::Acquire);
        cursor.has_records() && ready_to <= u64::from(cursor.number) && !is_full
    }

    /// Makes the next segment's file ahead of need; false if there is one, or no space.
    pub(crate) fn make_spare(&self) -> std::result::Result<bool, GroupFailure> {
        let mut spares = self.spares.lock();
        // Somebody may have been faster.
        if !self.wants_spare() {
            return Ok(false);
        }
        match self.create_segment(self.next_number()?) {
            Ok(spare) => spares.push_back(spare),
            // Whoever needs it is told, and other upkeep may make room.
            Err(GroupFailure::ThisGroup(error)) if passes(&error) => {
                self.is_full.store(true, Ordering::Release);
                return Ok(false);
            }
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }
}

/// True for what ends when somebody makes room.
fn passes(error: &BackendError) -> bool {
    matches!(error.kind(), ErrorKind::Full | ErrorKind::Exhausted)
}

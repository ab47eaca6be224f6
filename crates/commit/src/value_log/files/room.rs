//! Room for what is appended: files are created with their space before places in them are handed out.

use std::sync::atomic::Ordering;

use kvorum_backend::{BackendError, ErrorKind};
use kvorum_segment::{SegmentId, SegmentWriter, WriterOptions, file_name};

use crate::queue::GroupFailure;
use crate::value_log::files::{Files, SEGMENT_KIND, failed_creation};

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

    /// True when a batch of this length gets its place in a file whose space is reserved.
    fn has_room(&self, len: u64) -> bool {
        let cursor = self.newest();
        let ready_to = self.ready_to.load(Ordering::Acquire);
        let number = u64::from(cursor.number);
        let fits = !cursor.has_records() || cursor.end() + len <= self.settings.segment_bytes;
        number < ready_to || (number == ready_to && fits)
    }

    /// Makes a file for a batch of this length if there is none. To be asked before a place is.
    ///
    /// # Errors
    /// There is no space for it.
    pub(crate) fn make_room(&self, len: u64) -> std::result::Result<(), GroupFailure> {
        while !self.has_room(len) {
            let mut spares = self.spares.lock();
            if !self.has_room(len) {
                let spare = self.create_segment(self.next_number()?)?;
                spares.push_back(spare);
            }
        }
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
            // Whoever needs it is told.
            Err(GroupFailure::ThisGroup(error)) if error.kind() == ErrorKind::Full => {
                self.is_full.store(true, Ordering::Release);
                return Ok(false);
            }
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }
}

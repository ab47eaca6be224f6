//! Scrubbing: closed segments are read again periodically, so that corruption is reported before a
//! client's read meets it.
//!
//! The list of contents beside a segment is read too. If the list is corrupt nothing is lost, since the
//! segment has the same contents, but every start would have to read the segment. So the list is rewritten.

use std::time::Duration;

use kvorum_backend::{Result, ScrubFile, StepBudget, StepOutcome, Task, Timestamp};
use kvorum_segment::Scan;

use crate::contents::contents_path;
use crate::error::from_segment;
use crate::log::ValueLog;
use crate::log_segment::LogSegment;

impl ValueLog {
    /// The next read of a scrub that reads each closed segment once in a period.
    pub fn scrub_due(&self, period: Option<Duration>, now: Timestamp) -> Option<Task> {
        let files = self.keeper.files();
        let closed: Vec<ScrubFile> = files.closed().iter().map(|it| file_of(it)).collect();
        let mut scrub = self.scrub.lock();
        scrub.due(&*files.disk, &files.directory, &closed, period, now)
    }

    /// Reads a part of the segment that is due.
    pub fn scrub_step(
        &self,
        budget: StepBudget,
        period: Option<Duration>,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let Some(task) = self.scrub_due(period, now) else {
            return Ok(StepOutcome::nothing_left());
        };
        let files = self.keeper.files();
        let number = u32::try_from(task.subject).ok();
        let found = number.and_then(|number| files.segment(number));
        let Some((segment, reader)) = found.as_ref().and_then(|it| Some((it, it.reader()?))) else {
            return Ok(StepOutcome::nothing_left());
        };
        let open = || {
            let scan = reader.scan(segment.scan_options());
            scan.map(Box::new).map_err(|error| from_segment(&error))
        };
        let read = |scan: &mut Box<Scan>| {
            let checked = scan.check(budget.bytes, |damage| {
                self.keeper.note_damage(segment, &damage);
            });
            checked.map_err(|error| from_segment(&error))
        };
        let mut scrub = self.scrub.lock();
        let (disk, directory) = (&*files.disk, &files.directory);
        let (mut cost_bytes, is_read) =
            scrub.step(disk, directory, file_of(segment), open, read)?;
        drop(scrub);
        if is_read && let Some(bytes) = files.mend_contents(segment)? {
            cost_bytes += bytes;
            self.note_contents(segment);
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done: is_read || self.scrub_due(period, now).is_none(),
        })
    }

    fn note_contents(&self, segment: &LogSegment) {
        let what = format!(
            "{}: missing or damaged; nothing is lost, and it was written anew",
            contents_path(&segment.path).display()
        );
        self.keeper.report(what);
    }
}

fn file_of(segment: &LogSegment) -> ScrubFile {
    ScrubFile {
        number: u64::from(segment.number),
        bytes: segment.end(),
    }
}

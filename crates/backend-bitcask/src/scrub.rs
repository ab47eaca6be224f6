//! Scrubbing: what does not change is read again now and then, and rot is reported before a reader or
//! an opening meets it.
//!
//! Sealed segments with their hints, log hints, and the checkpoint. A hint or a checkpoint that rotted cost
//! nothing but time at the next opening: it is told, and made again from what it was made of.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{
    LostRange, Result, ScrubFile, Scrubbing, StepBudget, StepOutcome, Task, Timestamp,
};
use kvorum_segment::{Damage, Scan, ScanOptions, file_name};
use kvorum_storage_errors::IntoBackend;

use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, CheckpointError, Reread};
use crate::hint::hint_path;
use crate::hint_table::{HintError, HintScan, HintTable};
use crate::home::Counters;
use crate::log_hint::LogHint;
use crate::segment::Segment;
use crate::store::Store;

/// Scrubbing counts files from 1, and begins with the checkpoint: segments stand behind it.
const CHECKPOINT_NUMBER: u64 = 1;
/// The subject of a task that reads the checkpoint; no segment has this number.
const CHECKPOINT_SUBJECT: u64 = 0;
/// Log hints stand behind all segments: the subjects of tasks that read them.
const LOG_HINTS_FROM: u64 = 1 << 32;

/// What is being read again.
pub(crate) enum ScrubJob {
    Segment(Arc<Segment>, Box<Scan>),
    /// The segment was read; its hint follows.
    Hint(Hint, Box<HintScan>),
    Checkpoint(Box<Reread>),
    /// One whose header or tables are wrong.
    DamagedCheckpoint(&'static str),
    /// There is nothing, or it was damaged.
    Nothing,
}

/// A hint that is being read again.
pub(crate) enum Hint {
    Own(Arc<Segment>, Arc<HintTable>),
    Log(Arc<LogHint>),
}

impl Hint {
    fn table(&self) -> &HintTable {
        match self {
            Self::Own(_, hint) => hint,
            Self::Log(hint) => &hint.table,
        }
    }
}

impl Store {
    pub(crate) fn scrub_due(
        &self,
        scrub: &mut Scrubbing<ScrubJob>,
        now: Timestamp,
    ) -> Option<Task> {
        let period = self.settings.scrub_period?;
        let files = self.scrubbed_files();
        let (disk, directory): (_, &Path) = (&*self.home.disk, &self.home.directory);
        let due = scrub.due(disk, directory, &files, Some(period), now)?;
        Some(Task {
            subject: due.subject - CHECKPOINT_NUMBER,
            ..due
        })
    }

    fn scrubbed_files(&self) -> Vec<ScrubFile> {
        let mut files = Vec::new();
        if self.log.covered() > 0 {
            files.push(self.checkpoint_file());
        }
        let catalog = self.contents.catalog.read();
        let sealed = catalog.segments.iter().filter(|(_, it)| it.is_sealed);
        files.extend(sealed.map(|(number, entry)| ScrubFile {
            number: u64::from(*number) + CHECKPOINT_NUMBER,
            bytes: entry.stats.data_end + hint_bytes(&entry.segment),
        }));
        files.extend(catalog.log_hints.iter().map(|hint| log_hint_file(hint)));
        files
    }

    /// About how long the checkpoint is.
    fn checkpoint_file(&self) -> ScrubFile {
        ScrubFile {
            number: CHECKPOINT_NUMBER,
            bytes: self.contents.keydir.len() * size_of::<crate::slot::Packed>() as u64,
        }
    }

    /// Reads a part of a file, for as long as that is due.
    pub(crate) fn scrub_step(
        &self,
        scrub: &mut Scrubbing<ScrubJob>,
        is_checkpoint_wrong: &mut bool,
        subject: u64,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let is_due = |scrub: &mut Scrubbing<ScrubJob>| {
            let due = self.scrub_due(scrub, now);
            due.is_some_and(|task| task.subject == subject)
        };
        if !is_due(scrub) {
            return Ok(StepOutcome::nothing_left());
        }
        let found = {
            let catalog = self.contents.catalog.read();
            let number = u32::try_from(subject).ok();
            let entry = number.and_then(|number| catalog.segments.get(&number));
            entry.map(|entry| (entry.segment.clone(), entry.stats.data_end))
        };
        let log_hint = {
            let catalog = self.contents.catalog.read();
            let mut hints = catalog.log_hints.iter();
            let number = subject.checked_sub(LOG_HINTS_FROM);
            hints
                .find(|it| Some(u64::from(it.number)) == number)
                .cloned()
        };
        let file = match (&found, &log_hint) {
            (Some((segment, bytes)), _) => ScrubFile {
                number: subject + CHECKPOINT_NUMBER,
                bytes: bytes + hint_bytes(segment),
            },
            (None, Some(hint)) => log_hint_file(hint),
            (None, None) if subject == CHECKPOINT_SUBJECT => self.checkpoint_file(),
            (None, None) => return Ok(StepOutcome::nothing_left()),
        };
        let open = || match (found, log_hint) {
            (Some((segment, _)), _) => {
                let scan = segment.reader.scan(ScanOptions::durable_to(u64::MAX));
                let scan = scan.into_backend()?;
                Ok(ScrubJob::Segment(segment, Box::new(scan)))
            }
            (None, Some(hint)) => Ok(self.open_hint_again(Hint::Log(hint))?.1),
            (None, None) => self.open_checkpoint_again(),
        };
        let read = |job: &mut ScrubJob| self.read_again(job, budget, is_checkpoint_wrong);
        let (disk, directory) = (&*self.home.disk, &self.home.directory);
        let (cost_bytes, is_read) = scrub.step(disk, directory, file, open, read)?;
        Ok(StepOutcome {
            cost_bytes,
            is_done: is_read || !is_due(scrub),
        })
    }

    fn open_checkpoint_again(&self) -> Result<ScrubJob> {
        match Checkpoint::open(&*self.home.disk, &self.home.directory, self.home.identity()) {
            Ok(checkpoint) => Ok(ScrubJob::Checkpoint(Box::new(checkpoint.reread()))),
            Err(CheckpointError::Disk(error)) => Err((&error).into()),
            // No earlier than a checkpoint is due there is one; a newer one this version did not write.
            Err(CheckpointError::Missing | CheckpointError::Newer(_)) => Ok(ScrubJob::Nothing),
            Err(CheckpointError::Unusable(why)) => Ok(ScrubJob::DamagedCheckpoint(why)),
        }
    }

    /// Reads on; returns the bytes that were read, and whether that was the end.
    fn read_again(
        &self,
        job: &mut ScrubJob,
        budget: StepBudget,
        is_checkpoint_wrong: &mut bool,
    ) -> Result<(u64, bool)> {
        match job {
            ScrubJob::Segment(segment, scan) => {
                let note = |damage| self.note_rot(segment.number, damage);
                let (read_bytes, is_read) = scan.check(budget.bytes, note).into_backend()?;
                if !is_read {
                    return Ok((read_bytes, false));
                }
                let segment = segment.clone();
                let hint = segment.hint.read().clone();
                let (of_hint, next) = match hint {
                    Some(hint) => self.open_hint_again(Hint::Own(segment, hint))?,
                    None => (0, ScrubJob::Nothing),
                };
                *job = next;
                Ok((read_bytes + of_hint, matches!(job, ScrubJob::Nothing)))
            }
            ScrubJob::Hint(hint, scan) => self.read_hint_again(hint, scan, budget),
            ScrubJob::Checkpoint(reread) => match reread.step(budget.bytes) {
                Ok(read) => Ok(read),
                Err(CheckpointError::Disk(error)) => Err((&error).into()),
                Err(CheckpointError::Unusable(why)) => {
                    *is_checkpoint_wrong = true;
                    Ok(self.note_checkpoint(why))
                }
                Err(CheckpointError::Missing | CheckpointError::Newer(_)) => Ok((1, true)),
            },
            ScrubJob::DamagedCheckpoint(why) => {
                *is_checkpoint_wrong = true;
                Ok(self.note_checkpoint(why))
            }
            ScrubJob::Nothing => Ok((1, true)),
        }
    }

    fn note_checkpoint(&self, why: &str) -> (u64, bool) {
        let len = self.checkpoint_file().bytes;
        let what = format!("a copy of the key directory ({why})");
        self.home
            .note_mended(CHECKPOINT_NAME.to_owned(), len, &what);
        (len.max(1), true)
    }

    /// Reads what does not stand in blocks of entries; returns how many bytes that was, and what follows.
    fn open_hint_again(&self, hint: Hint) -> Result<(u64, ScrubJob)> {
        let checked = hint.table().check_frame();
        let Some(bytes) = self.unless_rotten(&hint, checked)? else {
            return Ok((1, ScrubJob::Nothing));
        };
        let scan = Box::new(hint.table().scan());
        Ok((bytes, ScrubJob::Hint(hint, scan)))
    }

    fn read_hint_again(
        &self,
        hint: &Hint,
        scan: &mut HintScan,
        budget: StepBudget,
    ) -> Result<(u64, bool)> {
        let begin = scan.bytes_read();
        loop {
            let next = scan.next();
            let entry = self.unless_rotten(hint, next)?;
            let read_bytes = (scan.bytes_read() - begin).max(1);
            if entry.flatten().is_none() {
                return Ok((read_bytes, true));
            }
            if read_bytes >= budget.bytes {
                return Ok((read_bytes, false));
            }
        }
    }

    /// `None` for what is damaged: it is told and written again.
    fn unless_rotten<T>(
        &self,
        hint: &Hint,
        read: std::result::Result<T, HintError>,
    ) -> Result<Option<T>> {
        match read {
            Ok(read) => return Ok(Some(read)),
            Err(HintError::Disk(error)) => return Err((&error).into()),
            Err(why) => match hint {
                Hint::Own(segment, hint) => self.drop_hint(segment, hint, &why.to_string()),
                Hint::Log(hint) => self.drop_log_hint(hint, &why.to_string()),
            },
        }
        Ok(None)
    }

    /// Has the hint written again.
    fn drop_hint(&self, segment: &Segment, hint: &HintTable, why: &str) {
        let path = hint_path(Path::new(""), segment.number);
        let name = path.to_string_lossy().into_owned();
        let what = format!("a copy of a segment's keys ({why})");
        self.home.note_mended(name, hint.len(), &what);
        *segment.hint.write() = None;
    }

    fn note_rot(&self, number: u32, damage: Damage) {
        Counters::add(&self.home.counters.corrupt_reads, 1);
        self.contents.mark_damaged(number);
        let file = file_name(u64::from(number));
        let range = LostRange::new(file, damage.offset, damage.len, damage.found);
        self.home.note_lost(range);
    }
}

fn log_hint_file(hint: &LogHint) -> ScrubFile {
    ScrubFile {
        number: LOG_HINTS_FROM + u64::from(hint.number) + CHECKPOINT_NUMBER,
        bytes: hint.table.len(),
    }
}

fn hint_bytes(segment: &Segment) -> u64 {
    segment.hint.read().as_ref().map_or(0, |hint| hint.len())
}

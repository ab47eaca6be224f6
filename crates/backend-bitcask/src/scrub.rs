//! Scrubbing: unchanging files are read again from time to time, so that corruption is reported
//! before a client's read or an opening finds it.
//!
//! These are sealed segments with their hints, log hints, and the checkpoint. A corrupt hint or
//! checkpoint costs only time at the next opening: it is reported, and rewritten from its source.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{
    LostRange, Result, ScrubFile, Scrubbing, StepBudget, StepOutcome, Task, Timestamp,
};
use kvorum_segment::{Damage, Scan, ScanOptions, file_name};
use kvorum_storage_errors::IntoBackend;

use crate::checkpoint::{CHECKPOINT_NAME, Checkpoint, CheckpointError, Reread};
use crate::hint::hint_path;
use crate::hint_table::{HintError, HintScan, HintTable};
use crate::home::Counters;
use crate::log_hint::{LogHint, log_hint_path};
use crate::segment::Segment;
use crate::segment_files::SegmentFiles;
use crate::segments::SegmentEntry;

/// Scrubbing numbers files from 1, and begins with the checkpoint; segments follow.
const CHECKPOINT_NUMBER: u64 = 1;
/// The subject of a task that reads the checkpoint; no segment has this number.
const CHECKPOINT_SUBJECT: u64 = 0;
/// The first subject of tasks that read log hints, behind all segments.
const LOG_HINTS_FROM: u64 = 1 << 32;

/// The file being read.
enum ScrubJob {
    Segment(Arc<Segment>, Box<Scan>),
    /// The segment was read; its hint follows.
    Hint(Hint, Box<HintScan>),
    Checkpoint(Box<Reread>),
    /// A checkpoint with a wrong header or wrong tables.
    DamagedCheckpoint(&'static str),
    /// There is no file, or it was damaged.
    Nothing,
}

/// The file of a task.
enum Found {
    Segment(Arc<Segment>),
    LogHint(Arc<LogHint>),
    Checkpoint,
}

/// A hint being read again.
enum Hint {
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

/// Scrubbing of a store.
#[derive(Default)]
pub(crate) struct Scrub {
    scrubbing: Scrubbing<ScrubJob>,
}

impl Scrub {
    pub(crate) fn due(&mut self, files: &SegmentFiles, now: Timestamp) -> Option<Task> {
        let home = &files.home;
        let period = home.settings.scrub_period?;
        let listed = Self::scrubbed(files);
        let (disk, directory): (_, &Path) = (&*home.disk, &home.directory);
        let due = self
            .scrubbing
            .due(disk, directory, &listed, Some(period), now)?;
        Some(Task {
            subject: due.subject - CHECKPOINT_NUMBER,
            ..due
        })
    }

    /// Reads a part of a file, while the task is due.
    pub(crate) fn step(
        &mut self,
        files: &SegmentFiles,
        is_checkpoint_wrong: &mut bool,
        subject: u64,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        if !self.is_due(files, subject, now) {
            return Ok(StepOutcome::nothing_left());
        }
        let Some((file, found)) = Self::find(files, subject) else {
            return Ok(StepOutcome::nothing_left());
        };
        let open = || Self::open(files, found);
        let read = |job: &mut ScrubJob| Self::read_on(files, job, budget, is_checkpoint_wrong);
        let (disk, directory) = (&*files.home.disk, &files.home.directory);
        let (cost_bytes, is_read) = self.scrubbing.step(disk, directory, file, open, read)?;
        Ok(StepOutcome {
            cost_bytes,
            is_done: is_read || !self.is_due(files, subject, now),
        })
    }

    fn is_due(&mut self, files: &SegmentFiles, subject: u64, now: Timestamp) -> bool {
        self.due(files, now)
            .is_some_and(|task| task.subject == subject)
    }

    pub(crate) fn abandon(&mut self) {
        self.scrubbing.abandon();
    }

    /// Drops the times of all reads, as in an erasure.
    pub(crate) fn forget(&mut self, files: &SegmentFiles) {
        let home = &files.home;
        self.scrubbing.forget(&*home.disk, &home.directory);
    }

    fn scrubbed(files: &SegmentFiles) -> Vec<ScrubFile> {
        let mut listed = Vec::new();
        if files.log.covered() > 0 {
            listed.push(Self::checkpoint_file(files));
        }
        let catalog = files.contents.catalog.read();
        let sealed = catalog.segments.values().filter(|it| it.is_sealed);
        listed.extend(sealed.map(segment_file));
        listed.extend(catalog.log_hints.iter().map(|hint| log_hint_file(hint)));
        listed
    }

    /// The checkpoint as a file, with its approximate length.
    fn checkpoint_file(files: &SegmentFiles) -> ScrubFile {
        ScrubFile {
            number: CHECKPOINT_NUMBER,
            bytes: files.contents.keydir.len() * size_of::<crate::slot::Packed>() as u64,
        }
    }

    /// The file of a subject, and its state.
    fn find(files: &SegmentFiles, subject: u64) -> Option<(ScrubFile, Found)> {
        if subject == CHECKPOINT_SUBJECT {
            return Some((Self::checkpoint_file(files), Found::Checkpoint));
        }
        let catalog = files.contents.catalog.read();
        if let Some(number) = subject.checked_sub(LOG_HINTS_FROM) {
            let mut hints = catalog.log_hints.iter();
            let hint = hints.find(|it| u64::from(it.number) == number)?;
            return Some((log_hint_file(hint), Found::LogHint(hint.clone())));
        }
        let entry = catalog.segments.get(&u32::try_from(subject).ok()?)?;
        let found = Found::Segment(entry.segment.clone());
        Some((segment_file(entry), found))
    }

    fn open(files: &SegmentFiles, found: Found) -> Result<ScrubJob> {
        match found {
            Found::Segment(segment) => {
                let scan = segment.reader.scan(ScanOptions::durable_to(u64::MAX));
                let scan = scan.into_backend()?;
                Ok(ScrubJob::Segment(segment, Box::new(scan)))
            }
            Found::LogHint(hint) => Ok(Self::open_hint(files, Hint::Log(hint))?.1),
            Found::Checkpoint => Self::open_checkpoint(files),
        }
    }

    fn open_checkpoint(files: &SegmentFiles) -> Result<ScrubJob> {
        match Checkpoint::open(
            &*files.home.disk,
            &files.home.directory,
            files.home.identity(),
        ) {
            Ok(checkpoint) => Ok(ScrubJob::Checkpoint(Box::new(checkpoint.reread()))),
            Err(CheckpointError::Disk(error)) => Err((&error).into()),
            // A missing checkpoint is written when it is due; a newer version's is left alone.
            Err(CheckpointError::Missing | CheckpointError::Newer(_)) => Ok(ScrubJob::Nothing),
            Err(CheckpointError::Unusable(why)) => Ok(ScrubJob::DamagedCheckpoint(why)),
        }
    }

    /// Continues; returns the bytes read, and true at the end.
    fn read_on(
        files: &SegmentFiles,
        job: &mut ScrubJob,
        budget: StepBudget,
        is_checkpoint_wrong: &mut bool,
    ) -> Result<(u64, bool)> {
        match job {
            ScrubJob::Segment(segment, scan) => {
                let note = |damage| Self::note_damage(files, segment.number, damage);
                let (read_bytes, is_read) = scan.check(budget.bytes, note).into_backend()?;
                if !is_read {
                    return Ok((read_bytes, false));
                }
                let segment = segment.clone();
                let hint = segment.hint.read().clone();
                let (of_hint, next) = match hint {
                    Some(hint) => Self::open_hint(files, Hint::Own(segment, hint))?,
                    None => (0, ScrubJob::Nothing),
                };
                *job = next;
                Ok((read_bytes + of_hint, matches!(job, ScrubJob::Nothing)))
            }
            ScrubJob::Hint(hint, scan) => Self::read_hint(files, hint, scan, budget),
            ScrubJob::Checkpoint(reread) => match reread.step(budget.bytes) {
                Ok(read) => Ok(read),
                Err(CheckpointError::Disk(error)) => Err((&error).into()),
                Err(CheckpointError::Unusable(why)) => {
                    *is_checkpoint_wrong = true;
                    Ok(Self::note_checkpoint(files, why))
                }
                Err(CheckpointError::Missing | CheckpointError::Newer(_)) => Ok((1, true)),
            },
            ScrubJob::DamagedCheckpoint(why) => {
                *is_checkpoint_wrong = true;
                Ok(Self::note_checkpoint(files, why))
            }
            ScrubJob::Nothing => Ok((1, true)),
        }
    }

    fn note_checkpoint(files: &SegmentFiles, why: &str) -> (u64, bool) {
        let len = Self::checkpoint_file(files).bytes;
        let what = format!("a copy of the key directory ({why})");
        files
            .home
            .note_mended(CHECKPOINT_NAME.to_owned(), len, &what);
        (len.max(1), true)
    }

    /// Reads all but the blocks of entries; returns the bytes, and the rest of the job.
    fn open_hint(files: &SegmentFiles, hint: Hint) -> Result<(u64, ScrubJob)> {
        let checked = hint.table().check_frame();
        let Some(bytes) = Self::unless_damaged(files, &hint, checked)? else {
            return Ok((1, ScrubJob::Nothing));
        };
        let scan = Box::new(hint.table().scan());
        Ok((bytes, ScrubJob::Hint(hint, scan)))
    }

    fn read_hint(
        files: &SegmentFiles,
        hint: &Hint,
        scan: &mut HintScan,
        budget: StepBudget,
    ) -> Result<(u64, bool)> {
        let begin = scan.bytes_read();
        loop {
            let next = scan.next();
            let entry = Self::unless_damaged(files, hint, next)?;
            let read_bytes = (scan.bytes_read() - begin).max(1);
            if entry.flatten().is_none() {
                return Ok((read_bytes, true));
            }
            if read_bytes >= budget.bytes {
                return Ok((read_bytes, false));
            }
        }
    }

    /// `None` for a damaged hint, which is reported and will be rewritten.
    fn unless_damaged<T>(
        files: &SegmentFiles,
        hint: &Hint,
        read: std::result::Result<T, HintError>,
    ) -> Result<Option<T>> {
        match read {
            Ok(read) => return Ok(Some(read)),
            Err(HintError::Disk(error)) => return Err((&error).into()),
            Err(why) => match hint {
                Hint::Own(segment, hint) => Self::drop_hint(files, segment, hint, &why.to_string()),
                Hint::Log(hint) => Self::drop_log_hint(files, hint, &why.to_string()),
            },
        }
        Ok(None)
    }

    /// Drops a hint, so that it is written again.
    fn drop_hint(files: &SegmentFiles, segment: &Segment, hint: &HintTable, why: &str) {
        let path = hint_path(Path::new(""), segment.number);
        let name = path.to_string_lossy().into_owned();
        let what = format!("a copy of a segment's keys ({why})");
        files.home.note_mended(name, hint.len(), &what);
        *segment.hint.write() = None;
    }

    /// Marks a log hint as wrong, so that it is written again.
    fn drop_log_hint(files: &SegmentFiles, hint: &LogHint, why: &str) {
        if hint.is_wrong() {
            return;
        }
        hint.set_wrong();
        let path = log_hint_path(Path::new(""), hint.number);
        let name = path.to_string_lossy().into_owned();
        let what = format!("a copy of keys in the value log ({why})");
        files.home.note_mended(name, hint.table.len(), &what);
    }

    fn note_damage(files: &SegmentFiles, number: u32, damage: Damage) {
        Counters::add(&files.home.counters.corrupt_reads, 1);
        files.contents.mark_damaged(number);
        let file = file_name(u64::from(number));
        let range = LostRange::new(file, damage.offset, damage.len, damage.found);
        files.home.note_lost(range);
    }
}

fn log_hint_file(hint: &LogHint) -> ScrubFile {
    ScrubFile {
        number: LOG_HINTS_FROM + u64::from(hint.number) + CHECKPOINT_NUMBER,
        bytes: hint.table.len(),
    }
}

fn segment_file(entry: &SegmentEntry) -> ScrubFile {
    let hint = entry.segment.hint.read();
    ScrubFile {
        number: u64::from(entry.segment.number) + CHECKPOINT_NUMBER,
        bytes: entry.stats.data_end + hint.as_ref().map_or(0, |hint| hint.len()),
    }
}

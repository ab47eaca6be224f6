//! Writing checkpoints in steps, between puts and merges, and the rules for when a checkpoint is
//! due.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{Result, StepBudget, StepOutcome, Task, TaskKind};
use kvorum_storage_errors::IntoBackend;

use crate::checkpoint::{CheckpointWriter, Covered, PLACE_BYTES, SEGMENT_BYTES};
use crate::contents::Contents;
use crate::copies::Copies;
use crate::keydir::SHARDS;
use crate::segment_files::SegmentFiles;
use crate::segment_stats::SegmentStats;
use crate::segments::{Catalog, PlaceHold};
use crate::shared::CoveredLog;
use crate::slot::Packed;

/// A checkpoint waits for this many records, or for a quarter of the number of keys if that is
/// more. Replaying this many takes some tens of milliseconds.
const CHECKPOINT_RECORDS_MIN: u64 = 32 << 10;
/// A checkpoint waits until this many times its size was put, unless there are many records.
const CHECKPOINT_SHARE: u64 = 16;

/// Checkpoints: the one in progress, and the reasons for the next.
#[derive(Default)]
pub(crate) struct Checkpoints {
    job: Option<CheckpointJob>,
    /// The last checkpoint was found damaged, and has to be written again.
    pub(crate) is_last_wrong: bool,
}

/// A checkpoint in progress.
struct CheckpointJob {
    writer: CheckpointWriter,
    covered: Vec<u32>,
    /// The last batch before it.
    sequence: u64,
    next_shard: usize,
    _places: Arc<PlaceHold>,
}

impl Checkpoints {
    pub(crate) fn abandon(&mut self) {
        self.job = None;
    }

    /// A checkpoint is due when replaying the records since the last one would take long, and
    /// writing it would cost little in comparison.
    pub(crate) fn due(&self, files: &SegmentFiles, catalog: &Catalog) -> Option<Task> {
        let keys = files.contents.keydir.len();
        let cost_bytes = checkpoint_bytes(&files.contents, catalog);
        let bytes_max = files.home.settings.checkpoint_after_bytes;
        let bytes_max = bytes_max.max(cost_bytes * CHECKPOINT_SHARE);
        let records_max = CHECKPOINT_RECORDS_MIN.max(keys / 4);
        let is_due = self.job.is_some()
            || self.is_last_wrong
            || files.home.counters.unchecked_bytes.load(Ordering::Relaxed) >= bytes_max
            || files
                .home
                .counters
                .unchecked_records
                .load(Ordering::Relaxed)
                >= records_max
            || Self::is_far_behind_log(files, catalog);
        is_due.then_some(Task::normal(TaskKind::Checkpoint, 0, cost_bytes))
    }

    /// True when an old segment of the log has uncovered batches of this store, which an opening
    /// after a crash would read.
    fn is_far_behind_log(files: &SegmentFiles, catalog: &Catalog) -> bool {
        let Some(log) = &files.log.log else {
            return false;
        };
        let covered = files.log.covered();
        let behind_max = log.segments_behind_max(files.home.settings.log_segments_behind_max);
        let far = log.newest_segment().saturating_sub(behind_max);
        let mut old = catalog.shared.range(..far);
        old.any(|(_, entry)| entry.stats.sequence_max > covered)
    }

    /// Continues a checkpoint that covers a batch, or begins one; a checkpoint in progress that
    /// does not cover the batch is abandoned.
    pub(crate) fn cover(
        &mut self,
        files: &SegmentFiles,
        last: u64,
        copies: &mut Copies,
        budget: StepBudget,
    ) -> Result<StepOutcome> {
        self.job.take_if(|job| job.sequence < last);
        self.step(files, copies, budget, false)
    }

    /// Writes a part of a checkpoint; `is_clean` for the last checkpoint of a store that is being
    /// closed.
    pub(crate) fn step(
        &mut self,
        files: &SegmentFiles,
        copies: &mut Copies,
        budget: StepBudget,
        is_clean: bool,
    ) -> Result<StepOutcome> {
        let mut job = match self.job.take() {
            Some(job) => job,
            None => Self::begin(files, is_clean)?,
        };
        let mut cost_bytes = 0;
        while job.next_shard < SHARDS {
            if cost_bytes > 0 && cost_bytes >= budget.bytes {
                self.job = Some(job);
                return Ok(StepOutcome::partial(cost_bytes));
            }
            let slots = files.contents.keydir.shard(job.next_shard);
            let written = job.writer.write(job.next_shard, &slots);
            cost_bytes += written.into_backend()?;
            job.next_shard += 1;
        }
        // Slots may point to records appended after the beginning.
        files.sync_all()?;
        copies.mark();
        let (places, is_in_log) = {
            let catalog = files.contents.catalog.read();
            (catalog.places.clone(), !catalog.shared.is_empty())
        };
        Self::note_log(files, is_in_log, job.sequence)?;
        let finished = job.writer.finish(&*files.home.disk, &places);
        cost_bytes += finished.into_backend()?;
        self.is_last_wrong = false;
        files.home.count_written(cost_bytes);
        files.log.cover(job.sequence);
        files.log.usage_changed();
        let unremoved = files.unremoved();
        let is_needed = |number: &u32| job.covered.contains(number) || unremoved.contains(number);
        if !files.home.noted(|meta| meta.retired.iter().all(is_needed)) {
            files
                .home
                .change_meta(|meta| meta.retired.retain(is_needed))?;
        }
        Ok(StepOutcome::done(cost_bytes))
    }

    fn begin(files: &SegmentFiles, is_clean: bool) -> Result<CheckpointJob> {
        let log_id = files.home.identity();
        let (covered, places) = {
            let writer = files.writer.lock();
            let mut catalog = files.contents.catalog.write();
            files
                .home
                .counters
                .unchecked_bytes
                .store(0, Ordering::Relaxed);
            files
                .home
                .counters
                .unchecked_records
                .store(0, Ordering::Relaxed);
            let places = catalog.hold_places();
            let segments = catalog.segments.iter();
            let covered = Covered {
                log_id,
                sequence: writer.last_sequence,
                next_segment: writer.next_segment,
                is_clean,
                segments: segments.map(|(number, it)| (*number, it.stats)).collect(),
                log: Self::covered_log(files, &catalog),
            };
            // No longer needed: the replay of the log, which needed them, is over.
            files.log.hidden.lock().clear();
            (covered, places)
        };
        let numbers = covered.segments.keys().copied().collect();
        let sequence = covered.sequence;
        let writer = CheckpointWriter::create(&*files.home.disk, &files.home.directory, covered);
        Ok(CheckpointJob {
            writer: writer.into_backend()?,
            covered: numbers,
            sequence,
            next_shard: 0,
            _places: places,
        })
    }

    /// Notes the log with the store's entries, which is durable by now, and at the first checkpoint
    /// the last sequence: if a second checkpoint is lost too, sequences continue above it.
    fn note_log(files: &SegmentFiles, is_in_log: bool, sequence: u64) -> Result<()> {
        let Some(log) = &files.log.log else {
            return Ok(());
        };
        let log_id = log.log_id();
        let is_known = files.home.noted(|meta| meta.value_log == log_id);
        let is_first = files.log.covered() == 0;
        let is_due = if is_known { is_first } else { is_in_log };
        if !is_due {
            return Ok(());
        }
        files.home.change_meta(|meta| {
            meta.value_log = log_id;
            meta.sequence = meta.sequence.max(sequence);
        })
    }

    /// The store's part of the log; empty without one.
    fn covered_log(files: &SegmentFiles, catalog: &Catalog) -> CoveredLog {
        let Some(log) = &files.log.log else {
            return CoveredLog::default();
        };
        let shared = catalog.shared.iter();
        let removals = shared.clone().flat_map(|(number, entry)| {
            let records = entry.records.lock();
            let removals = records.iter().filter(|it| it.is_removal());
            removals.map(|it| (*number, it)).collect::<Vec<_>>()
        });
        CoveredLog {
            log_id: log.log_id(),
            removals: removals.collect(),
            segments: shared.map(|(number, it)| (*number, it.stats)).collect(),
            starts: catalog.log_starts.clone(),
        }
    }
}

/// The approximate size of a checkpoint.
pub(crate) fn checkpoint_bytes(contents: &Contents, catalog: &Catalog) -> u64 {
    let removals: u64 = catalog.shared.values().map(|it| it.stats.removals).sum();
    let shared = catalog.shared.values().map(|it| &it.stats);
    let stats = catalog.segments.values().map(|it| &it.stats).chain(shared);
    let row_bytes = |it: &SegmentStats| match it.expiries.is_empty() {
        true => SEGMENT_BYTES,
        false => 2 * SEGMENT_BYTES,
    };
    let segments: usize = stats.map(|it| row_bytes(it) + 2 * PLACE_BYTES).sum();
    contents.keydir.len() * size_of::<Packed>() as u64
        + removals * PLACE_BYTES as u64
        + segments as u64
}

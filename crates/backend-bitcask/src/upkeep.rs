//! Upkeep: the backlog and its steps. Callers decide the order and the pace.

use kvorum_backend::{
    Result, StepBudget, StepOutcome, SyncStrategy, Task, TaskKind, Timestamp, Unsynced,
};
use kvorum_segment::FILE_HEADER_BYTES;

use crate::checkpoints::Checkpoints;
use crate::copies::Copies;
use crate::hints::Hints;
use crate::log_hints::{LOG_HINT_SUBJECT, LogHints};
use crate::log_use::{self, EXPIRES_IN_LOG};
use crate::merge_plan::MergePlan;
use crate::merges::Merges;
use crate::scrub::Scrub;
use crate::segment_files::{SegmentFiles, WriteSide};
use crate::segments::Catalog;

/// The least number of segments for a store's live bytes.
const FILES_MIN: u64 = 4;
/// The least bytes of a segment, if the disk has room; the limit of small segments if that is more.
const FILE_BYTES_AIM_MIN: u64 = 1 << 20;

/// The jobs of a store, each with its work in progress.
#[derive(Default)]
pub(crate) struct Upkeep {
    pub(crate) copies: Copies,
    merge_plan: MergePlan,
    merges: Merges,
    hints: Hints,
    log_hints: LogHints,
    scrub: Scrub,
    pub(crate) checkpoints: Checkpoints,
    unsynced: Unsynced,
}

impl Upkeep {
    pub(crate) fn due(&mut self, files: &SegmentFiles, now: Timestamp) -> Vec<Task> {
        files.home.expiry.note_time(now);
        let mut tasks = Vec::new();
        tasks.extend(self.sync_due(files, now));
        tasks.extend(Self::next_segment_due(files));
        let catalog = files.contents.catalog.read();
        Self::aim_at_file_bytes(files, &catalog);
        log_use::report_expired(files, &catalog);
        tasks.extend(self.merge_due(files, &catalog, now));
        tasks.extend(Hints::due(files, &catalog, self.copies.number()));
        tasks.extend(self.log_hints.due(files, &catalog));
        tasks.extend(self.checkpoints.due(files, &catalog));
        drop(catalog);
        tasks.extend(self.scrub.due(files, now));
        let unremoved = files.unremoved().into_iter();
        tasks.extend(unremoved.map(|it| Task::normal(TaskKind::Reclaim, u64::from(it), 0)));
        tasks.sort_by_key(|task| std::cmp::Reverse(task.urgency));
        tasks
    }

    pub(crate) fn step(
        &mut self,
        files: &SegmentFiles,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        files.home.expiry.note_time(now);
        // Steps of other stores may have taken much of the free space since the last measurement.
        files.home.intake.measure();
        if task.kind == TaskKind::Scrub {
            let is_checkpoint_wrong = &mut self.checkpoints.is_last_wrong;
            let subject = task.subject;
            return self
                .scrub
                .step(files, is_checkpoint_wrong, subject, budget, now);
        }
        let Ok(subject) = u32::try_from(task.subject) else {
            return Ok(StepOutcome::nothing_left());
        };
        match task.kind {
            TaskKind::Sync => {
                files.sync_all()?;
                self.unsynced = Unsynced::default();
            }
            TaskKind::Hint if subject == LOG_HINT_SUBJECT => {
                return self.log_hints.step(files, budget);
            }
            TaskKind::Hint => return self.hints.step(files, subject, budget),
            TaskKind::Checkpoint => {
                return self
                    .checkpoints
                    .step(files, &mut self.copies, budget, false);
            }
            TaskKind::Expire if subject == EXPIRES_IN_LOG => log_use::expire(files, now),
            TaskKind::Merge => return self.merge(files, subject, false, budget, now),
            TaskKind::Expire => return self.merge(files, subject, true, budget, now),
            TaskKind::Reclaim => files.remove_again(subject)?,
            TaskKind::Flush if files.is_next_wanted() => {
                files.prepare_next()?;
                return Ok(StepOutcome::done(FILE_HEADER_BYTES));
            }
            TaskKind::Flush
            | TaskKind::Collect
            | TaskKind::Scrub
            | TaskKind::Compact
            | TaskKind::Rebuild
            | TaskKind::Reindex
            | TaskKind::Move => {}
        }
        Ok(StepOutcome::nothing_left())
    }

    fn merge_due(
        &mut self,
        files: &SegmentFiles,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Option<Task> {
        let expired = self.merge_plan.expired(files, catalog, now);
        let expired = expired.or_else(|| log_use::expiry_due(files, catalog, now));
        let (under_way, output) = (self.merges.under_way(), self.copies.number());
        expired.or_else(|| self.merge_plan.due(files, catalog, under_way, output, now))
    }

    fn merge(
        &mut self,
        files: &SegmentFiles,
        number: u32,
        is_expiry: bool,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let copies = &mut self.copies;
        let step = self
            .merges
            .step(files, copies, number, is_expiry, budget, now);
        let step = step.inspect_err(|error| self.merge_plan.failed(number, error))?;
        if step.is_done {
            self.merge_plan.done(number);
            self.hints.let_go(number);
        }
        Ok(step)
    }

    /// Sets the length of new segments. The active segment cannot be merged, so it is limited to a
    /// part of the store's live bytes. On a small disk a segment's copy has to fit into the
    /// reserve.
    fn aim_at_file_bytes(files: &SegmentFiles, catalog: &Catalog) {
        let live = catalog.segments.values().map(|it| it.stats.live_bytes);
        let part = live.sum::<u64>() / FILES_MIN;
        let small = files.home.settings.merge.small_file_threshold_bytes;
        let headroom = files.home.intake.headroom();
        let least = headroom.store_file_bytes(small.max(FILE_BYTES_AIM_MIN));
        let aim = headroom.file_bytes(part.max(least));
        files.aim_at(aim);
    }

    /// The task of creating the next segment before puts need it, since creation waits for the
    /// device.
    fn next_segment_due(files: &SegmentFiles) -> Option<Task> {
        // The subject is always the same, so that a failure, as on a full disk, delays the next
        // attempt.
        files
            .is_next_wanted()
            .then_some(Task::normal(TaskKind::Flush, 0, FILE_HEADER_BYTES))
    }

    fn sync_due(&mut self, files: &SegmentFiles, now: Timestamp) -> Option<Task> {
        let (unsynced_bytes, is_log_unsynced) = {
            let writer = files.writer.lock();
            (
                writer.unsynced_bytes(),
                Self::is_log_unsynced(files, &writer),
            )
        };
        let bytes = (unsynced_bytes > 0 || is_log_unsynced).then_some(unsynced_bytes);
        self.unsynced.due(files.home.settings.sync, bytes, now)
    }

    /// True when the value log may have unsynced batches for which no caller waits.
    fn is_log_unsynced(files: &SegmentFiles, writer: &WriteSide) -> bool {
        let durable = files.durable();
        files.log.log.is_some()
            && files.home.settings.sync != SyncStrategy::Grouped
            && writer.last_sequence > durable
    }

    /// Abandons jobs in progress, as before erasing or closing.
    pub(crate) fn abandon(&mut self) {
        self.merges.abandon();
        self.merge_plan.abandon();
        self.hints.abandon();
        self.log_hints.abandon();
        self.scrub.abandon();
        self.checkpoints.abandon();
    }

    /// Drops all jobs and notes, as in an erasure.
    pub(crate) fn forget(&mut self, files: &SegmentFiles) {
        self.abandon();
        self.copies.forget();
        self.scrub.forget(files);
    }

    /// Seals full segments, and the segment for copies.
    pub(crate) fn seal_all(&mut self, files: &SegmentFiles) -> Result<()> {
        files.seal_retiring(u32::MAX)?;
        self.copies.end(files)
    }

    /// Seals everything and writes a last checkpoint.
    pub(crate) fn finish(&mut self, files: &SegmentFiles) -> Result<()> {
        self.seal_all(files)?;
        let budget = StepBudget { bytes: u64::MAX };
        let last = self.checkpoints.step(files, &mut self.copies, budget, true);
        last.map(drop)
    }

    /// Due maintenance, in bytes read and written.
    pub(crate) fn backlog_bytes(&self, files: &SegmentFiles, catalog: &Catalog) -> u64 {
        let hints = Hints::due(files, catalog, self.copies.number());
        let hints: u64 = hints.iter().map(|task| task.cost_bytes).sum();
        hints + self.merge_plan.backlog_bytes(catalog)
    }
}

//! Upkeep: what is owed, and its steps. The order and the pace are somebody else's.

use std::sync::Arc;

use kvorum_backend::{
    Result, StepBudget, StepOutcome, SyncStrategy, Task, TaskKind, Timestamp, Unsynced,
};
use kvorum_segment::FILE_HEADER_BYTES;

use crate::BitcaskSettings;
use crate::checkpoints::Checkpoints;
use crate::contents::Contents;
use crate::copies::Copies;
use crate::expiry::Expiry;
use crate::hints::Hints;
use crate::home::Home;
use crate::log_hints::{LOG_HINT_SUBJECT, LogHints};
use crate::log_share::LogShare;
use crate::log_use::{EXPIRES_IN_LOG, LogUse};
use crate::merge_plan::MergePlan;
use crate::merges::Merges;
use crate::scrub::Scrub;
use crate::segment_files::{SegmentFiles, WriteSide};
use crate::segments::Catalog;
use crate::store::Store;

/// A store has its live bytes in so many segments at least,
const FILES_MIN: u64 = 4;
/// of at least this size, or what counts as small if that is more, where the disk has room for it. Bytes.
const FILE_BYTES_AIM_MIN: u64 = 1 << 20;

/// The jobs of a store, each with what is in progress.
pub(crate) struct Upkeep {
    home: Arc<Home>,
    contents: Arc<Contents>,
    log: Arc<LogShare>,
    files: Arc<SegmentFiles>,
    expiry: Arc<Expiry>,
    settings: Arc<BitcaskSettings>,
    log_use: Arc<LogUse>,
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
    pub(crate) fn of(store: &Store, log_use: Arc<LogUse>) -> Self {
        let home = || store.home.clone();
        let contents = || store.contents.clone();
        let log = || store.log.clone();
        let files = || store.files.clone();
        let expiry = || store.expiry.clone();
        let settings = || store.settings.clone();
        Self {
            copies: Copies::new(home(), contents(), files()),
            merge_plan: MergePlan::new(home(), log(), files(), expiry(), settings()),
            merges: Merges::new(home(), contents(), log(), files(), expiry()),
            hints: Hints::new(home(), contents(), files()),
            log_hints: LogHints::new(home(), contents(), log(), files(), settings()),
            scrub: Scrub::new(home(), contents(), log(), settings().scrub_period),
            checkpoints: Checkpoints::new(home(), contents(), log(), files(), settings()),
            unsynced: Unsynced::default(),
            home: home(),
            contents: contents(),
            log: log(),
            files: files(),
            expiry: expiry(),
            settings: settings(),
            log_use,
        }
    }

    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<Task> {
        self.expiry.note_time(now);
        let mut tasks = Vec::new();
        tasks.extend(self.sync_due(now));
        tasks.extend(self.next_segment_due());
        let contents = self.contents.clone();
        let catalog = contents.catalog.read();
        self.aim_at_file_bytes(&catalog);
        self.log_use.tell_expired(&catalog);
        tasks.extend(self.merge_due(&catalog, now));
        tasks.extend(self.hints.due(&catalog, self.copies.number()));
        tasks.extend(self.log_hints.due(&catalog));
        tasks.extend(self.checkpoints.due(&catalog));
        drop(catalog);
        tasks.extend(self.scrub.due(now));
        let unremoved = self.files.unremoved().into_iter();
        tasks.extend(unremoved.map(|it| Task::normal(TaskKind::Reclaim, u64::from(it), 0)));
        tasks.sort_by_key(|task| std::cmp::Reverse(task.urgency));
        tasks
    }

    pub(crate) fn step(
        &mut self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        self.expiry.note_time(now);
        // Steps of other stores may have taken much of what was free at the last look.
        self.home.intake.measure();
        if task.kind == TaskKind::Scrub {
            let is_checkpoint_wrong = &mut self.checkpoints.is_last_wrong;
            let subject = task.subject;
            return self.scrub.step(is_checkpoint_wrong, subject, budget, now);
        }
        let Ok(subject) = u32::try_from(task.subject) else {
            return Ok(StepOutcome::nothing_left());
        };
        match task.kind {
            TaskKind::Sync => {
                self.files.sync_all()?;
                self.unsynced = Unsynced::default();
            }
            TaskKind::Hint if subject == LOG_HINT_SUBJECT => return self.log_hints.step(budget),
            TaskKind::Hint => return self.hints.step(subject, budget),
            TaskKind::Checkpoint => {
                return self.checkpoints.step(&mut self.copies, budget, false);
            }
            TaskKind::Expire if subject == EXPIRES_IN_LOG => self.log_use.expire(now),
            TaskKind::Merge => return self.merge(subject, false, budget, now),
            TaskKind::Expire => return self.merge(subject, true, budget, now),
            TaskKind::Reclaim => self.files.remove_again(subject)?,
            TaskKind::Flush if self.files.is_next_wanted() => {
                self.files.prepare_next()?;
                return Ok(StepOutcome::done(FILE_HEADER_BYTES));
            }
            TaskKind::Flush
            | TaskKind::Scrub
            | TaskKind::Compact
            | TaskKind::Rebuild
            | TaskKind::Reindex
            | TaskKind::Move => {}
        }
        Ok(StepOutcome::nothing_left())
    }

    fn merge_due(&mut self, catalog: &Catalog, now: Timestamp) -> Option<Task> {
        let expired = self.merge_plan.expired(catalog, now);
        let expired = expired.or_else(|| self.log_use.expiry_due(catalog, now));
        let (under_way, output) = (self.merges.under_way(), self.copies.number());
        expired.or_else(|| self.merge_plan.due(catalog, under_way, output, now))
    }

    fn merge(
        &mut self,
        number: u32,
        is_expiry: bool,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let copies = &mut self.copies;
        let step = self.merges.step(copies, number, is_expiry, budget, now);
        let step = step.inspect_err(|error| self.merge_plan.failed(number, error))?;
        if step.is_done {
            self.merge_plan.done(number);
            self.hints.let_go(number);
        }
        Ok(step)
    }

    /// Sets the length of new segments. The segment being written cannot be merged, so it is limited to a
    /// part of the store's live bytes. On a small disk its copy has to fit into the reserve.
    fn aim_at_file_bytes(&self, catalog: &Catalog) {
        let live = catalog.segments.values().map(|it| it.stats.live_bytes);
        let part = live.sum::<u64>() / FILES_MIN;
        let small = self.settings.merge.small_file_threshold_bytes;
        let headroom = self.home.intake.headroom();
        let least = headroom.store_file_bytes(small.max(FILE_BYTES_AIM_MIN));
        let aim = headroom.file_bytes(part.max(least));
        self.files.aim_at(aim);
    }

    /// The next segment is created before puts need it, for that waits for the device.
    fn next_segment_due(&self) -> Option<Task> {
        // Always of one subject, so that it is left alone for a while when it fails, as on a full disk.
        self.files
            .is_next_wanted()
            .then_some(Task::normal(TaskKind::Flush, 0, FILE_HEADER_BYTES))
    }

    fn sync_due(&mut self, now: Timestamp) -> Option<Task> {
        let (unsynced_bytes, is_log_unsynced) = {
            let writer = self.files.writer.lock();
            (writer.unsynced_bytes(), self.is_log_unsynced(&writer))
        };
        let bytes = (unsynced_bytes > 0 || is_log_unsynced).then_some(unsynced_bytes);
        self.unsynced.due(self.settings.sync, bytes, now)
    }

    /// True when batches in the value log may wait for a sync that nobody asked for.
    fn is_log_unsynced(&self, writer: &WriteSide) -> bool {
        let durable = self.files.durable();
        self.log.log.is_some()
            && self.settings.sync != SyncStrategy::Grouped
            && writer.last_sequence > durable
    }

    /// Gives up what is under way, as before erasing or closing.
    pub(crate) fn abandon(&mut self) {
        self.merges.abandon();
        self.merge_plan.abandon();
        self.hints.abandon();
        self.log_hints.abandon();
        self.scrub.abandon();
        self.checkpoints.abandon();
    }

    /// Forgets everything, as in an erasure.
    pub(crate) fn forget(&mut self) {
        self.abandon();
        self.copies.forget();
        self.scrub.forget();
    }

    /// Seals full segments, and the one that copies go to.
    pub(crate) fn seal_all(&mut self) -> Result<()> {
        self.files.seal_retiring(u32::MAX)?;
        self.copies.end()
    }

    /// Seals everything and writes a last checkpoint.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.seal_all()?;
        let budget = StepBudget { bytes: u64::MAX };
        let last = self.checkpoints.step(&mut self.copies, budget, true);
        last.map(drop)
    }

    /// Maintenance that is due, in bytes read and written.
    pub(crate) fn owed_bytes(&self, catalog: &Catalog) -> u64 {
        let hints = self.hints.due(catalog, self.copies.number());
        let hints: u64 = hints.iter().map(|task| task.cost_bytes).sum();
        hints + self.merge_plan.owed_bytes(catalog)
    }
}

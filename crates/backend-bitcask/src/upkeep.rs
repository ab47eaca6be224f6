//! Upkeep: what is owed, and its steps. The order and the pace are somebody else's.

use std::sync::atomic::Ordering;

use kvorum_backend::{
    BackendError, Result, Scrubbing, StepBudget, StepOutcome, SyncStrategy, Task, TaskKind,
    Timestamp, Unreadable, Unsynced, Urgency,
};
use kvorum_segment::{FILE_HEADER_BYTES, Scan, ScanOptions, Scanned};
use kvorum_storage_errors::IntoBackend;

use crate::checkpoint_steps::Checkpointing;
use crate::hint::{HintedSegment, hint_path};
use crate::hint_table::{HintError, HintTableWriter};
use crate::home::Counters;
use crate::key_table::{KeyEntry, KeyTable, KeyTableBuilder};
use crate::log_hint_steps::{LOG_HINT_SUBJECT, LogHintJob};
use crate::merge::{Merging, is_understood};
use crate::scrub::ScrubJob;
use crate::segment::segment_number;
use crate::segment_files::WriteSide;
use crate::segment_stats::SegmentStats;
use crate::segments::{Catalog, SegmentEntry};
use crate::settings::{MergePolicy, MergeSettings};
use crate::store::Store;
use crate::victim::{Candidate, WholeStore, choose_round, urgency};

/// A store has its live bytes in so many segments at least,
const FILES_MIN: u64 = 4;
/// of at least this size, or what counts as small if that is more, where the disk has room for it. Bytes.
const FILE_BYTES_AIM_MIN: u64 = 1 << 20;
/// Limit of garbage in the store while puts are refused for want of space, whatever is allowed otherwise:
/// copying much for little is better than refusing. Percent.
const EXHAUSTED_DEAD_PERCENT: u8 = 5;
/// The same where removals are soon refused too.
const DEAD_PERCENT_FOR_REMOVALS: u8 = 1;

/// The subject of expiry in the value log: no segment has this number.
const EXPIRES_IN_LOG: u32 = 0;

/// Work in progress.
#[derive(Default)]
pub(crate) struct Upkeep {
    pub(crate) merging: Merging,
    /// Segments whose merges failed.
    unreadable: Unreadable,
    hint: Option<HintJob>,
    pub(crate) log_hint: Option<LogHintJob>,
    pub(crate) scrub: Scrubbing<ScrubJob>,
    pub(crate) checkpointing: Checkpointing,
    unsynced: Unsynced,
}

impl Upkeep {
    /// A segment that cannot be read is left as it is: what can be read of it is served, and the others
    /// have their turn.
    fn merge_failed(&mut self, number: u32, error: &BackendError) {
        if self.unreadable.failed(number.into(), error) {
            self.merging.round.retain(|waiting| *waiting != number);
        }
    }

    fn is_mergeable(&self, number: u32) -> bool {
        !self.unreadable.contains(number.into())
    }

    /// Gives up what is under way, as before erasing or closing.
    pub(crate) fn abandon(&mut self) {
        self.merging.job = None;
        self.hint = None;
        self.log_hint = None;
        self.scrub.abandon();
        self.checkpointing.job = None;
        self.merging.round.clear();
    }
}

struct HintJob {
    number: u32,
    bound: HintedSegment,
    phase: HintPhase,
}

enum HintPhase {
    Reading(Box<Scan>, KeyTableBuilder),
    /// So many entries of the table were written.
    Writing(KeyTable, usize, Box<HintTableWriter>),
}

impl Store {
    pub(crate) fn due(&self, upkeep: &mut Upkeep, now: Timestamp) -> Vec<Task> {
        self.expiry.note_time(now);
        let mut tasks = Vec::new();
        tasks.extend(self.sync_due(upkeep, now));
        tasks.extend(self.next_segment_due());
        let catalog = self.contents.catalog.read();
        self.aim_at_file_bytes(&catalog);
        self.tell_expired_in_log(&catalog);
        tasks.extend(self.merge_due(upkeep, &catalog, now));
        tasks.extend(hints_due(upkeep, &catalog, self.home.has_room_for_hints()));
        tasks.extend(self.log_hint_due(upkeep.log_hint.as_ref(), &catalog));
        tasks.extend(self.checkpoint_due(&upkeep.checkpointing, &catalog));
        drop(catalog);
        tasks.extend(self.scrub_due(&mut upkeep.scrub, now));
        let unremoved = self.files.unremoved().into_iter();
        tasks.extend(unremoved.map(|it| Task::normal(TaskKind::Reclaim, u64::from(it), 0)));
        tasks.sort_by_key(|task| std::cmp::Reverse(task.urgency));
        tasks
    }

    pub(crate) fn step(
        &self,
        upkeep: &mut Upkeep,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        self.expiry.note_time(now);
        // Steps of other stores may have taken much of what was free at the last look.
        self.home.intake.measure();
        if task.kind == TaskKind::Scrub {
            let is_checkpoint_wrong = &mut upkeep.checkpointing.is_last_wrong;
            let (scrub, subject) = (&mut upkeep.scrub, task.subject);
            return self.scrub_step(scrub, is_checkpoint_wrong, subject, budget, now);
        }
        let Ok(subject) = u32::try_from(task.subject) else {
            return Ok(StepOutcome::nothing_left());
        };
        match task.kind {
            TaskKind::Sync => {
                self.files.sync_all()?;
                upkeep.unsynced = Unsynced::default();
                Ok(StepOutcome::nothing_left())
            }
            TaskKind::Hint if subject == LOG_HINT_SUBJECT => {
                self.log_hint_step(&mut upkeep.log_hint, budget)
            }
            TaskKind::Hint => self.hint_step(upkeep, subject, budget),
            TaskKind::Checkpoint => {
                let checkpointing = &mut upkeep.checkpointing;
                self.checkpoint_step(checkpointing, &mut upkeep.merging, budget, false)
            }
            TaskKind::Expire if subject == EXPIRES_IN_LOG => {
                self.expire_in_log(now);
                Ok(StepOutcome::nothing_left())
            }
            TaskKind::Merge | TaskKind::Expire => {
                let is_expiry = task.kind == TaskKind::Expire;
                let step = self.merge_step(&mut upkeep.merging, subject, is_expiry, budget, now);
                let step = step.inspect_err(|error| upkeep.merge_failed(subject, error))?;
                if step.is_done {
                    // The file system has the space of the file back only when nobody reads it.
                    upkeep.hint.take_if(|job| job.number == subject);
                }
                Ok(step)
            }
            TaskKind::Reclaim => {
                self.files.remove_again(subject)?;
                Ok(StepOutcome::nothing_left())
            }
            TaskKind::Flush if self.files.is_next_wanted() => {
                self.files.prepare_next()?;
                Ok(StepOutcome::done(FILE_HEADER_BYTES))
            }
            TaskKind::Flush => Ok(StepOutcome::nothing_left()),
            TaskKind::Scrub
            | TaskKind::Compact
            | TaskKind::Rebuild
            | TaskKind::Reindex
            | TaskKind::Move => Ok(StepOutcome::nothing_left()),
        }
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

    /// The settings of merges at present. While puts are refused for want of space, merges wait neither for
    /// the night nor for more garbage.
    fn merge_settings(&self) -> MergeSettings {
        let mut settings = self.settings.merge.clone();
        let headroom = self.home.intake.headroom();
        if headroom.is_exhausted() && settings.policy != MergePolicy::Never {
            settings.policy = MergePolicy::Always;
            let trigger = &mut settings.store_dead_trigger_percent;
            if *trigger <= 100 {
                let most = match headroom.is_short_for_removals() {
                    true => DEAD_PERCENT_FOR_REMOVALS,
                    false => EXHAUSTED_DEAD_PERCENT,
                };
                *trigger = most.min(*trigger);
            }
        }
        settings
    }

    /// The next segment is created before puts need it, for that waits for the device.
    fn next_segment_due(&self) -> Option<Task> {
        // Always of one subject, so that it is left alone for a while when it fails, as on a full disk.
        self.files
            .is_next_wanted()
            .then_some(Task::normal(TaskKind::Flush, 0, FILE_HEADER_BYTES))
    }

    fn sync_due(&self, upkeep: &mut Upkeep, now: Timestamp) -> Option<Task> {
        let (unsynced_bytes, is_log_unsynced) = {
            let writer = self.files.writer.lock();
            (writer.unsynced_bytes(), self.is_log_unsynced(&writer))
        };
        let bytes = (unsynced_bytes > 0 || is_log_unsynced).then_some(unsynced_bytes);
        upkeep.unsynced.due(self.settings.sync, bytes, now)
    }

    /// True when batches in the value log may wait for a sync that nobody asked for.
    fn is_log_unsynced(&self, writer: &WriteSide) -> bool {
        let durable = self.files.durable();
        self.log.log.is_some()
            && self.settings.sync != SyncStrategy::Grouped
            && writer.last_sequence > durable
    }

    /// The merge under way, or what is to be merged or dropped next.
    fn merge_due(&self, upkeep: &mut Upkeep, catalog: &Catalog, now: Timestamp) -> Option<Task> {
        let expired = catalog.segments.iter().find(|(number, entry)| {
            upkeep.is_mergeable(**number)
                && entry.is_sealed
                && entry.stats.records > 0
                && self.expiry.is_all_collectable(&entry.stats, now)
        });
        if let Some((_, entry)) = expired {
            return Some(merge_task(entry, TaskKind::Expire, 0, Urgency::Normal));
        }
        if self.expired_in_log(catalog, now).is_some() {
            return Some(Task::normal(TaskKind::Expire, u64::from(EXPIRES_IN_LOG), 0));
        }
        let settings = self.merge_settings();
        if !settings.policy.allows(now) {
            return None;
        }
        if let Some(job) = &upkeep.merging.job
            && let Some(entry) = catalog.segments.get(&job.victim.number)
        {
            let urgency = self.merge_urgency(entry, catalog, &settings);
            return Some(merge_task(entry, TaskKind::Merge, job.position(), urgency));
        }
        let room_bytes = self.room_for_copies();
        let oldest = self.log.oldest();
        upkeep.merging.round.retain(|number| {
            let entry = catalog.segments.get(number);
            let known = entry.map(|it| self.candidate(catalog, *number, &it.stats, oldest));
            known.is_some_and(|it| it.copied_bytes() <= room_bytes)
        });
        if upkeep.merging.round.is_empty() {
            let mut candidates = self.candidates(catalog);
            candidates.retain(|it| upkeep.is_mergeable(it.number));
            candidates.retain(|it| it.copied_bytes() <= room_bytes);
            let whole = self.whole_store(catalog);
            let output = self.output_candidate(upkeep, catalog);
            let output = output.filter(|it| it.copied_bytes() <= room_bytes);
            upkeep.merging.round = choose_round(&candidates, output, whole, &settings).into();
        }
        let number = upkeep.merging.round.front()?;
        let entry = catalog.segments.get(number)?;
        let urgency = self.merge_urgency(entry, catalog, &settings);
        Some(merge_task(entry, TaskKind::Merge, 0, urgency))
    }

    /// What the copy of a segment may take. Files of earlier versions may be longer than what is held back:
    /// those of which the copy does not fit are left alone, and others make room.
    fn room_for_copies(&self) -> u64 {
        let headroom = self.home.intake.headroom();
        match headroom.is_scarce() {
            true => headroom.available,
            false => u64::MAX,
        }
    }

    /// The bound on what is dead holds at any load; the rest of merging can wait for what pays.
    fn merge_urgency(
        &self,
        entry: &SegmentEntry,
        catalog: &Catalog,
        settings: &MergeSettings,
    ) -> Urgency {
        if self.home.intake.headroom().is_scarce() {
            return Urgency::Pressing;
        }
        let stats = &entry.stats;
        let dead_bytes = stats.dead_bytes() + self.expiry.expired_in(stats).freed_bytes();
        let is_mostly_dead = dead_bytes * 2 > stats.data_bytes();
        let by_itself = if is_mostly_dead {
            Urgency::Normal
        } else {
            Urgency::Idle
        };
        let bound = urgency(self.whole_store(catalog), settings);
        bound.map_or(by_itself, |urgency| urgency.max(by_itself))
    }

    fn candidates(&self, catalog: &Catalog) -> Vec<Candidate> {
        let sealed = catalog.segments.iter().filter(|(_, entry)| entry.is_sealed);
        let oldest = self.log.oldest();
        sealed
            .map(|(number, entry)| self.candidate(catalog, *number, &entry.stats, oldest))
            .collect()
    }

    /// The segment that copies go to, as a candidate for an early end.
    fn output_candidate(&self, upkeep: &Upkeep, catalog: &Catalog) -> Option<Candidate> {
        let number = upkeep.merging.output.as_ref().map(segment_number)?;
        let stats = &catalog.segments.get(&number)?.stats;
        Some(self.candidate(catalog, number, stats, self.log.oldest()))
    }

    /// Removals count as dead where a merge could drop them all, and what has expired where it does not
    /// become a removal.
    fn candidate(
        &self,
        catalog: &Catalog,
        number: u32,
        stats: &SegmentStats,
        oldest: Option<u32>,
    ) -> Candidate {
        let expired = self.expiry.expired_in(stats);
        let has_removals = stats.removals + expired.records > 0;
        let are_removals_dead =
            has_removals && catalog.is_removal_droppable(stats.sequence_max, number, oldest);
        let (bytes, records) = match are_removals_dead {
            true => (
                expired.bytes + stats.removal_bytes,
                expired.records + stats.removals,
            ),
            false => (expired.freed_bytes(), 0),
        };
        Candidate {
            number,
            bytes: stats.data_bytes(),
            dead_bytes: stats.dead_bytes() + bytes,
            records: stats.records,
            dead_records: stats.dead_entries() + records,
        }
    }

    pub(crate) fn whole_store(&self, catalog: &Catalog) -> WholeStore {
        let stats = || catalog.segments.values().map(|entry| &entry.stats);
        let dead_bytes =
            |it: &SegmentStats| it.dead_bytes() + self.expiry.expired_in(it).freed_bytes();
        WholeStore {
            bytes: stats().map(SegmentStats::data_bytes).sum(),
            dead_bytes: stats().map(dead_bytes).sum(),
            file_bytes_aim: self.files.bytes_max(),
        }
    }

    /// Seals a full segment, or writes a part of the hint of a sealed one.
    fn hint_step(
        &self,
        upkeep: &mut Upkeep,
        number: u32,
        budget: StepBudget,
    ) -> Result<StepOutcome> {
        self.files.seal_retiring(number)?;
        let under_way = upkeep.hint.take().filter(|job| job.number == number);
        let job = match under_way {
            Some(job) => Some(job),
            None => self.begin_hint(number)?,
        };
        let Some(mut job) = job else {
            return Ok(StepOutcome::nothing_left());
        };
        let mut cost_bytes = 0;
        if let HintPhase::Reading(scan, builder) = &mut job.phase {
            match read_keys(scan, builder, budget, &mut cost_bytes)? {
                KeysRead::Some => {}
                KeysRead::Damaged => {
                    // The hint would hide what the damage hid; the segment is read itself.
                    self.contents.mark_damaged(number);
                    return Ok(StepOutcome::done(cost_bytes));
                }
                KeysRead::All => {
                    let path = hint_path(&self.home.directory, number);
                    let writer = job
                        .bound
                        .create_hint(&*self.home.disk, &path)
                        .into_backend()?;
                    let table = std::mem::take(builder).finish();
                    job.phase = HintPhase::Writing(table, 0, Box::new(writer));
                }
            }
        }
        if let HintPhase::Writing(table, position, writer) = &mut job.phase {
            let (read, begin) = (cost_bytes, writer.len());
            while cost_bytes == 0 || cost_bytes < budget.bytes {
                let Some(entry) = table.get(*position) else {
                    return self.finish_hint(job, cost_bytes);
                };
                writer.push(&entry).into_backend()?;
                *position += 1;
                cost_bytes = read + writer.len() - begin;
            }
        }
        upkeep.hint = Some(job);
        Ok(StepOutcome::partial(cost_bytes))
    }

    fn begin_hint(&self, number: u32) -> Result<Option<HintJob>> {
        let catalog = self.contents.catalog.read();
        let Some(entry) = catalog.segments.get(&number) else {
            return Ok(None);
        };
        if !wants_hint(entry) || !self.home.has_room_for_hints() {
            return Ok(None);
        }
        let options = ScanOptions::durable_to(u64::MAX);
        let segment = entry.segment.clone();
        let bound = HintedSegment::of(&segment.reader.id(), entry.stats.seal());
        // A scan begins with a read, and puts wait for the catalog.
        drop(catalog);
        let scan = segment.reader.scan(options).into_backend()?;
        Ok(Some(HintJob {
            number,
            bound,
            phase: HintPhase::Reading(Box::new(scan), KeyTableBuilder::default()),
        }))
    }

    fn finish_hint(&self, job: HintJob, cost_bytes: u64) -> Result<StepOutcome> {
        let HintPhase::Writing(_, _, writer) = job.phase else {
            return Ok(StepOutcome::nothing_left());
        };
        let begin = writer.len();
        let len = writer.finish(&*self.home.disk, &job.bound.note());
        let len = len.into_backend()?;
        self.home.count_written(len);
        let path = hint_path(&self.home.directory, job.number);
        let hint = match job.bound.open_hint(&*self.home.disk, &path) {
            Ok(hint) => Some(std::sync::Arc::new(hint)),
            Err(HintError::Disk(error)) => return Err((&error).into()),
            Err(_) => None,
        };
        if let Some(entry) = self.contents.catalog.read().segments.get(&job.number) {
            *entry.segment.hint.write() = hint;
        }
        Ok(StepOutcome::done(cost_bytes + len.saturating_sub(begin)))
    }
}

enum KeysRead {
    /// The budget is used up.
    Some,
    /// There are no more.
    All,
    /// Some cannot be read.
    Damaged,
}

fn read_keys(
    scan: &mut Scan,
    builder: &mut KeyTableBuilder,
    budget: StepBudget,
    cost_bytes: &mut u64,
) -> Result<KeysRead> {
    scan.set_read_ahead(budget.bytes / 2);
    loop {
        if *cost_bytes > 0 && *cost_bytes >= budget.bytes {
            return Ok(KeysRead::Some);
        }
        match scan.next() {
            None => return Ok(KeysRead::All),
            Some(scanned) => match scanned.into_backend()? {
                Scanned::Damage(_) => return Ok(KeysRead::Damaged),
                Scanned::Record(record) => {
                    *cost_bytes += record.head.location.len;
                    if !is_understood(&record.head) {
                        return Ok(KeysRead::Damaged);
                    }
                    if let Some(entry) = KeyEntry::of(&record.head) {
                        builder.push(&entry);
                    }
                }
            },
        }
    }
}

fn hints_due(upkeep: &Upkeep, catalog: &Catalog, has_room: bool) -> Vec<Task> {
    let output = upkeep.merging.output.as_ref().map(segment_number);
    let newest = catalog.segments.iter().rev();
    let active = newest
        .filter(|(_, entry)| !entry.segment.is_merged)
        .map(|(number, _)| *number)
        .next();
    let wanting = catalog.segments.iter().filter(|(number, entry)| {
        let is_written_to =
            Some(**number) == output || (!entry.is_sealed && Some(**number) == active);
        !is_written_to && (!entry.is_sealed || has_room && wants_hint(entry))
    });
    let task = |(number, entry): (&u32, &SegmentEntry)| {
        Task::normal(TaskKind::Hint, u64::from(*number), entry.stats.data_bytes())
    };
    wanting.map(task).collect()
}

fn wants_hint(entry: &SegmentEntry) -> bool {
    entry.is_sealed
        && entry.segment.hint.read().is_none()
        && !entry.segment.is_damaged.load(Ordering::Relaxed)
}

fn merge_task(entry: &SegmentEntry, kind: TaskKind, done_bytes: u64, urgency: Urgency) -> Task {
    let stats = &entry.stats;
    Task {
        kind,
        subject: u64::from(entry.segment.number),
        urgency,
        cost_bytes: stats.data_end.saturating_sub(done_bytes) + stats.live_bytes,
    }
}

/// Maintenance that is due, in bytes read and written.
pub(crate) fn owed_bytes(upkeep: &Upkeep, catalog: &Catalog, has_room_for_hints: bool) -> u64 {
    let hints: u64 = hints_due(upkeep, catalog, has_room_for_hints)
        .iter()
        .map(|task| task.cost_bytes)
        .sum();
    let round = upkeep.merging.round.iter();
    let merged = round.filter_map(|number| catalog.segments.get(number));
    hints
        + merged
            .map(|entry| entry.stats.data_end + entry.stats.live_bytes)
            .sum::<u64>()
}

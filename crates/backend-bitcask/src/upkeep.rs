//! Upkeep: what is owed, and its steps. The order and the pace are somebody else's.

use std::collections::VecDeque;

use kvorum_backend::{Result, StepBudget, StepOutcome, Task, TaskKind, Timestamp, Urgency};
use kvorum_segment::{FILE_HEADER_BYTES, Scan, ScanOptions, Scanned, SegmentWriter};

use crate::checkpoint_steps::CheckpointJob;
use crate::error::IntoBackend;
use crate::hint::{HintError, HintFile, HintWriter, HintedSegment, hint_path};
use crate::key_table::{KeyEntry, KeyTable, KeyTableBuilder};
use crate::merge::MergeJob;
use crate::segments::{Catalog, SegmentEntry, SegmentStats};
use crate::settings::SyncStrategy;
use crate::store::{Counters, Store, WriteSide};
use crate::victim::{Candidate, WholeStore, choose_round};
use crate::write::segment_number;

/// Without a strategy that says otherwise, what was put is synced after this long, so that a commit
/// log can be trimmed.
const UNSYNCED_MICROS_MAX: u64 = 30_000_000;

/// The subject of expiry in the node's log: no segment has this number.
const EXPIRES_IN_LOG: u32 = 0;

/// Work in progress.
#[derive(Default)]
pub(crate) struct Upkeep {
    pub(crate) merge: Option<MergeJob>,
    /// Where merges copy to.
    pub(crate) output: Option<SegmentWriter>,
    /// Segments still to be merged in this round, best first.
    pub(crate) round: VecDeque<u32>,
    /// Segments that are retired and whose files could not be removed.
    pub(crate) unremoved: Vec<u32>,
    hint: Option<HintJob>,
    pub(crate) checkpoint: Option<CheckpointJob>,
    /// When something not yet synced was first seen.
    unsynced_since: Option<Timestamp>,
}

struct HintJob {
    number: u32,
    bound: HintedSegment,
    phase: HintPhase,
}

enum HintPhase {
    Reading(Box<Scan>, KeyTableBuilder),
    Writing(KeyTable, Box<HintWriter>),
}

impl Store {
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Task> {
        let mut upkeep = self.upkeep.lock();
        let mut tasks = Vec::new();
        tasks.extend(self.sync_due(&mut upkeep, now));
        tasks.extend(self.next_segment_due());
        let catalog = self.catalog.read();
        tasks.extend(self.merge_due(&mut upkeep, &catalog, now));
        tasks.extend(hints_due(&upkeep, &catalog));
        tasks.extend(self.checkpoint_due(&upkeep, &catalog));
        tasks.extend(upkeep.unremoved.iter().map(|number| Task {
            kind: TaskKind::Reclaim,
            subject: u64::from(*number),
            urgency: Urgency::Normal,
            cost_bytes: 0,
        }));
        tasks.sort_by_key(|task| std::cmp::Reverse(task.urgency));
        tasks
    }

    pub(crate) fn step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        self.check_writable()?;
        let mut upkeep = self.upkeep.lock();
        let Ok(subject) = u32::try_from(task.subject) else {
            return Ok(StepOutcome::nothing_left());
        };
        match task.kind {
            TaskKind::Sync => {
                self.sync_all()?;
                upkeep.unsynced_since = None;
                Ok(StepOutcome::nothing_left())
            }
            TaskKind::Hint => self.hint_step(&mut upkeep, subject, budget),
            TaskKind::Checkpoint => self.checkpoint_step(&mut upkeep, budget, false),
            TaskKind::Merge => self.merge_step(&mut upkeep, subject, false, budget, now),
            TaskKind::Expire if subject == EXPIRES_IN_LOG => {
                self.expire_in_log(now);
                Ok(StepOutcome::nothing_left())
            }
            TaskKind::Expire => self.merge_step(&mut upkeep, subject, true, budget, now),
            TaskKind::Reclaim => {
                self.unlink(subject).into_backend()?;
                upkeep.unremoved.retain(|number| *number != subject);
                Ok(StepOutcome::nothing_left())
            }
            TaskKind::Flush => self.prepare_next_segment(),
            TaskKind::Compact | TaskKind::Scrub => Ok(StepOutcome::nothing_left()),
        }
    }

    /// The next segment is created before puts need it, for that waits for the device.
    fn next_segment_due(&self) -> Option<Task> {
        let writer = self.writer.lock();
        self.is_next_wanted(&writer).then_some(Task {
            kind: TaskKind::Flush,
            subject: u64::from(writer.next_segment),
            urgency: Urgency::Normal,
            cost_bytes: FILE_HEADER_BYTES,
        })
    }

    fn prepare_next_segment(&self) -> Result<StepOutcome> {
        let number = {
            let mut writer = self.writer.lock();
            if !self.is_next_wanted(&writer) {
                return Ok(StepOutcome::nothing_left());
            }
            writer.next_segment += 1;
            writer.next_segment - 1
        };
        let created = self.create_file(number, false)?;
        self.writer.lock().prepared = Some(created);
        Ok(StepOutcome {
            cost_bytes: FILE_HEADER_BYTES,
            is_done: true,
        })
    }

    fn sync_due(&self, upkeep: &mut Upkeep, now: Timestamp) -> Option<Task> {
        let (unsynced_bytes, is_log_unsynced): (u64, bool) = {
            let writer = self.writer.lock();
            let handles = writer.unsynced.iter();
            let behind = handles.map(|(_, it)| it.written_to().saturating_sub(it.synced_to()));
            (behind.sum(), self.is_log_unsynced(&writer))
        };
        if unsynced_bytes == 0 && !is_log_unsynced {
            upkeep.unsynced_since = None;
            return None;
        }
        let since = *upkeep.unsynced_since.get_or_insert(now);
        let (wait_micros, urgency) = match self.settings.sync {
            SyncStrategy::Interval(interval) => {
                let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
                (micros, Urgency::Normal)
            }
            SyncStrategy::None | SyncStrategy::Grouped => (UNSYNCED_MICROS_MAX, Urgency::Idle),
        };
        (since.0.saturating_add(wait_micros) <= now.0).then_some(Task {
            kind: TaskKind::Sync,
            subject: 0,
            urgency,
            cost_bytes: unsynced_bytes,
        })
    }

    /// True when batches in the node's log may wait for a sync that nobody asked for.
    fn is_log_unsynced(&self, writer: &WriteSide) -> bool {
        let durable = self.durable.load(std::sync::atomic::Ordering::Acquire);
        self.log.is_some()
            && self.settings.sync != SyncStrategy::Grouped
            && writer.last_sequence > durable
    }

    /// The merge under way, or what is to be merged or dropped next.
    fn merge_due(&self, upkeep: &mut Upkeep, catalog: &Catalog, now: Timestamp) -> Option<Task> {
        let expired = catalog.segments.values().find(|entry| {
            entry.is_sealed && entry.stats.records > 0 && self.is_all_collectable(&entry.stats, now)
        });
        if let Some(entry) = expired {
            return Some(merge_task(entry, TaskKind::Expire, 0));
        }
        if self.expired_in_log(catalog, now).is_some() {
            return Some(Task {
                kind: TaskKind::Expire,
                subject: u64::from(EXPIRES_IN_LOG),
                urgency: Urgency::Normal,
                cost_bytes: 0,
            });
        }
        if !self.settings.merge.policy.allows(now.0) {
            return None;
        }
        if let Some(job) = &upkeep.merge
            && let Some(entry) = catalog.segments.get(&job.victim.number)
        {
            return Some(merge_task(entry, TaskKind::Merge, job.position()));
        }
        upkeep
            .round
            .retain(|number| catalog.segments.contains_key(number));
        if upkeep.round.is_empty() {
            let candidates = self.candidates(catalog);
            let whole = whole_store(catalog);
            upkeep.round = choose_round(&candidates, whole, &self.settings.merge).into();
        }
        let number = upkeep.round.front()?;
        let entry = catalog.segments.get(number)?;
        Some(merge_task(entry, TaskKind::Merge, 0))
    }

    /// Removals count as dead where a merge could drop them all.
    fn candidates(&self, catalog: &Catalog) -> Vec<Candidate> {
        let sealed = catalog.segments.iter().filter(|(_, entry)| entry.is_sealed);
        let oldest = self.oldest_in_log();
        let candidate = |(number, entry): (&u32, &SegmentEntry)| {
            let stats = &entry.stats;
            let are_removals_dead = stats.removals > 0
                && catalog.is_removal_droppable(stats.sequence_max, *number, oldest);
            let (removals, removal_bytes) = if are_removals_dead {
                (stats.removals, stats.removal_bytes)
            } else {
                (0, 0)
            };
            Candidate {
                number: *number,
                bytes: stats.data_bytes(),
                dead_bytes: stats.dead_bytes() + removal_bytes,
                records: stats.records,
                dead_records: stats.dead_entries() + removals,
            }
        };
        sealed.map(candidate).collect()
    }

    /// True when every entry of a segment has expired and may be taken off the disk.
    pub(crate) fn is_all_collectable(&self, stats: &SegmentStats, now: Timestamp) -> bool {
        let by_age = self.settings.expiry.map_or(u64::MAX, |age| {
            let micros = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
            stats.modified_by.saturating_add(micros)
        });
        let expired_by = stats.expires_by.min(by_age);
        let has_entries = stats.records > stats.removals;
        has_entries && expired_by.saturating_add(self.grace_micros()) <= now.0
    }

    /// Seals a full segment, or writes a part of the hint of a sealed one.
    fn hint_step(
        &self,
        upkeep: &mut Upkeep,
        number: u32,
        budget: StepBudget,
    ) -> Result<StepOutcome> {
        self.seal_retiring(number)?;
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
                    self.mark_damaged(number);
                    return Ok(StepOutcome {
                        cost_bytes,
                        is_done: true,
                    });
                }
                KeysRead::All => {
                    let path = hint_path(&self.directory, number);
                    let writer =
                        HintWriter::create(&*self.disk, &path, job.bound).into_backend()?;
                    let table = std::mem::take(builder).finish();
                    job.phase = HintPhase::Writing(table, Box::new(writer));
                }
            }
        }
        if let HintPhase::Writing(table, writer) = &mut job.phase {
            loop {
                if cost_bytes > 0 && cost_bytes >= budget.bytes {
                    break;
                }
                let rest = budget.bytes.saturating_sub(cost_bytes);
                match writer.write_block(table, rest).into_backend()? {
                    0 => return self.finish_hint(job, cost_bytes),
                    written => cost_bytes += written,
                }
            }
        }
        upkeep.hint = Some(job);
        Ok(StepOutcome {
            cost_bytes,
            is_done: false,
        })
    }

    /// Seals full segments up to `number`, oldest first, so that a seal vouches for all before it.
    pub(crate) fn seal_retiring(&self, number: u32) -> Result<()> {
        loop {
            let oldest = {
                let mut writer = self.writer.lock();
                writer.retiring.sort_by_key(segment_number);
                match writer.retiring.first() {
                    Some(oldest) if segment_number(oldest) <= number => {
                        Some(writer.retiring.remove(0))
                    }
                    _ => None,
                }
            };
            match oldest {
                Some(oldest) => self.seal(oldest)?,
                None => return Ok(()),
            }
        }
    }

    fn begin_hint(&self, number: u32) -> Result<Option<HintJob>> {
        let catalog = self.catalog.read();
        let Some(entry) = catalog.segments.get(&number) else {
            return Ok(None);
        };
        if !wants_hint(entry) {
            return Ok(None);
        }
        let options = ScanOptions {
            durable_to: u64::MAX,
            ..ScanOptions::default()
        };
        let reader = &entry.segment.reader;
        let scan = reader.scan(options).into_backend()?;
        Ok(Some(HintJob {
            number,
            bound: entry.stats.hinted(&reader.id()),
            phase: HintPhase::Reading(Box::new(scan), KeyTableBuilder::default()),
        }))
    }

    fn finish_hint(&self, job: HintJob, cost_bytes: u64) -> Result<StepOutcome> {
        let HintPhase::Writing(_, writer) = job.phase else {
            return Ok(StepOutcome::nothing_left());
        };
        let written = writer.finish(&*self.disk).into_backend()?;
        let cost_bytes = cost_bytes + written;
        Counters::add(&self.counters.written_bytes, cost_bytes);
        let path = hint_path(&self.directory, job.number);
        let hint = match HintFile::open(&*self.disk, &path, &job.bound, false) {
            Ok(hint) => Some(std::sync::Arc::new(hint)),
            Err(HintError::Disk(error)) => return Err((&error).into()),
            Err(HintError::Unusable(_) | HintError::Newer) => None,
        };
        if let Some(entry) = self.catalog.read().segments.get(&job.number) {
            *entry.segment.hint.write() = hint;
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done: true,
        })
    }

    fn mark_damaged(&self, number: u32) {
        if let Some(entry) = self.catalog.read().segments.get(&number) {
            let order = std::sync::atomic::Ordering::Relaxed;
            entry.segment.is_damaged.store(true, order);
        }
    }

    /// Gives up what is under way, as before erasing or closing.
    pub(crate) fn abandon(upkeep: &mut Upkeep) {
        upkeep.merge = None;
        upkeep.hint = None;
        upkeep.checkpoint = None;
        upkeep.round.clear();
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
                    if let Some(entry) = KeyEntry::of(&record.head) {
                        builder.push(&entry);
                    }
                }
            },
        }
    }
}

fn hints_due(upkeep: &Upkeep, catalog: &Catalog) -> Vec<Task> {
    let output = upkeep.output.as_ref().map(segment_number);
    let newest = catalog.segments.iter().rev();
    let active = newest
        .filter(|(_, entry)| !entry.segment.is_merged)
        .map(|(number, _)| *number)
        .next();
    let wanting = catalog.segments.iter().filter(|(number, entry)| {
        let is_written_to =
            Some(**number) == output || (!entry.is_sealed && Some(**number) == active);
        !is_written_to && (!entry.is_sealed || wants_hint(entry))
    });
    let task = |(number, entry): (&u32, &SegmentEntry)| Task {
        kind: TaskKind::Hint,
        subject: u64::from(*number),
        urgency: Urgency::Normal,
        cost_bytes: entry.stats.data_bytes(),
    };
    wanting.map(task).collect()
}

fn wants_hint(entry: &SegmentEntry) -> bool {
    let order = std::sync::atomic::Ordering::Relaxed;
    entry.is_sealed && entry.segment.hint.read().is_none() && !entry.segment.is_damaged.load(order)
}

fn merge_task(entry: &SegmentEntry, kind: TaskKind, done_bytes: u64) -> Task {
    let stats = &entry.stats;
    let is_mostly_dead = stats.dead_bytes() * 2 > stats.data_bytes();
    Task {
        kind,
        subject: u64::from(entry.segment.number),
        urgency: if is_mostly_dead || kind == TaskKind::Expire {
            Urgency::Normal
        } else {
            Urgency::Idle
        },
        cost_bytes: stats.data_end.saturating_sub(done_bytes) + stats.live_bytes,
    }
}

pub(crate) fn whole_store(catalog: &Catalog) -> WholeStore {
    let stats = || catalog.segments.values().map(|entry| &entry.stats);
    WholeStore {
        bytes: stats().map(SegmentStats::data_bytes).sum(),
        dead_bytes: stats().map(SegmentStats::dead_bytes).sum(),
    }
}

/// Maintenance that is due, in bytes read and written.
pub(crate) fn owed_bytes(upkeep: &Upkeep, catalog: &Catalog) -> u64 {
    let hints: u64 = hints_due(upkeep, catalog)
        .iter()
        .map(|task| task.cost_bytes)
        .sum();
    let round = upkeep.round.iter();
    let merged = round.filter_map(|number| catalog.segments.get(number));
    hints
        + merged
            .map(|entry| entry.stats.data_end + entry.stats.live_bytes)
            .sum::<u64>()
}

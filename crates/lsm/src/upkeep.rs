//! Upkeep: due tasks, and steps of them.
//!
//! A task is a name; the jobs in progress are kept here and continue where they stopped. Each kind
//! has one job at a time, except for merges. A failed job is abandoned, its files are removed, and
//! it is due again; only a failed sync stops the store. Jobs use the store, and none uses this
//! module.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{
    Result, Scrubbing, StepBudget, StepOutcome, Task, TaskKind, Timestamp, Unsynced, Urgency,
};
use kvorum_value_log::LoggedRecord;
use parking_lot::Mutex;

use crate::collect::Collecting;
use crate::doubling::SMALL_FLUSH_PART;
use crate::flush::{Flushing, flush_task, wants_flush};
use crate::journal_collect::JournalCollecting;
use crate::merging::{self, Merging, Payer, SharedPut};
use crate::rebuilding::Rebuilding;
use crate::relocation::Relocating;
use crate::scrub::{self, ScrubJob};
use crate::segment_release::SegmentRelease;
use crate::store::Store;
use crate::version::{Version, layers_of};

/// A put pays for merging at most this many bytes at once.
const PAID_BYTES_MAX: u64 = 256 << 10;
/// The multiple of its own bytes that a put pays for at full pressure.
const PAID_FACTOR_MAX: u64 = 24;
/// The multiple while a flush is late: more than the put adds, so that the flush catches up.
const FLUSHED_FACTOR: u64 = 6;
/// If each put pays its share, puts are charged together once they have this many bytes.
const SHARE_BYTES_MIN: u64 = 1 << 10;
/// With more full memtables than this in memory, puts pay for flushing.
const LATE_MEMTABLES: u64 = 2;

/// A store and the jobs on it.
pub(crate) struct Upkeep {
    store: Arc<Store>,
    pub(crate) jobs: Mutex<Jobs>,
    /// Bytes of puts that have not paid their share yet.
    unpaid_bytes: AtomicU64,
}

/// Jobs in progress.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) flush: Flushing,
    merge: Merging,
    collect: Collecting,
    journal: JournalCollecting,
    rebuilding: Rebuilding,
    unsynced: Unsynced,
    pub(crate) scrub: Scrubbing<ScrubJob>,
    relocation: Relocating,
    settling: SegmentRelease,
}

impl Upkeep {
    pub(crate) fn of(store: Arc<Store>) -> Self {
        Self {
            store,
            jobs: Mutex::default(),
            unpaid_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn due(&self, now: Timestamp) -> Vec<Task> {
        let store = &*self.store;
        store.pins.release_expired(now);
        // During a step of another thread, jobs in progress are unknown: the next jobs are
        // returned.
        let mut jobs = self.jobs.try_lock();
        let mut due = Vec::new();
        if let Some(jobs) = &mut jobs {
            due.extend(jobs.sync_due(store, now));
            due.extend(scrub::due(store, &mut jobs.scrub, now));
        }
        let jobs = jobs.as_deref();
        let version = store.version.load();
        let is_flushing = jobs.is_some_and(|it| it.flush.is_going_on());
        if is_flushing || wants_flush(store, &version) {
            due.push(flush_task(&version));
        }
        let backlog = merging::backlog(store, &version);
        let is_scarce = store.intake.headroom().is_scarce();
        let urgency = match backlog.pressure_permille {
            0 if !is_scarce => Urgency::Normal,
            _ => Urgency::Pressing,
        };
        let merging = jobs.map(|it| &it.merge);
        due.extend(merging::due(store, merging, &version, now, urgency));
        let urgency = match is_scarce {
            true => Urgency::Pressing,
            false => Urgency::Idle,
        };
        due.extend(jobs.and_then(|it| it.collect.due(store, &version, urgency)));
        due.extend(jobs.and_then(|it| it.journal.due(store, &version, now, urgency)));
        due.extend(jobs.and_then(|it| it.rebuilding.due(store, &version)));
        if store.read_side.lost.has_unwritten() || store.read_side.doubts.has_unwritten() {
            due.push(Task {
                kind: TaskKind::Reclaim,
                subject: 0,
                urgency: Urgency::Normal,
                cost_bytes: 0,
            });
        }
        due.sort_by_key(|task| std::cmp::Reverse(task.urgency));
        due
    }

    pub(crate) fn step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let store = &*self.store;
        store.pins.release_expired(now);
        let mut jobs = self.jobs.lock();
        store.intake.check_writable()?;
        // Steps of other stores may have taken much of the free space since the last measurement.
        store.intake.measure();
        match (task.kind, task.subject) {
            (TaskKind::Flush, 0) => {
                let flushed = jobs.flush.step(store, budget.bytes, now, false)?;
                self.charge_small_flush(&flushed);
                Ok(flushed)
            }
            (TaskKind::Compact | TaskKind::Expire, subject) => {
                let merge = &mut jobs.merge;
                merge.step(store, subject, budget.bytes, now, Payer::Upkeep)
            }
            (TaskKind::Rebuild, 0) => {
                let Jobs {
                    flush, rebuilding, ..
                } = &mut *jobs;
                rebuilding.step(store, flush, budget.bytes)
            }
            (TaskKind::Collect, file) if jobs.journal.is_for(&store.version.load(), file) => {
                jobs.journal.step(store, file, budget.bytes, now)
            }
            (TaskKind::Collect, file) => jobs.collect.step(store, file, budget.bytes),
            (TaskKind::Sync, 0) => {
                drop(jobs);
                store.sync_all().map(|_| StepOutcome::nothing_left())
            }
            (TaskKind::Scrub, number) => {
                scrub::step(store, &mut jobs.scrub, number, budget.bytes, now)
            }
            (TaskKind::Reclaim, 0) => {
                write_what_is_lost(store)?;
                Ok(StepOutcome::nothing_left())
            }
            _ => Ok(StepOutcome::nothing_left()),
        }
    }

    /// Makes a put pay for a part of the store's backlog. `put_bytes` are all bytes of the put,
    /// `tabled_bytes` the bytes that go to tables.
    pub(crate) fn pay(&self, put_bytes: u64, tabled_bytes: impl Fn() -> u64, now: Timestamp) {
        match self.store.settings.compaction.share_per_byte() {
            Some(per_byte) => self.pay_share(tabled_bytes(), per_byte, now),
            None => self.pay_for_what_is_behind(put_bytes, now),
        }
    }

    /// Makes a put pay its share of merging, unless upkeep has done the work already.
    fn pay_share(&self, tabled_bytes: u64, per_byte: u64, now: Timestamp) {
        let before = self.unpaid_bytes.fetch_add(tabled_bytes, Ordering::Relaxed);
        if before.saturating_add(tabled_bytes) < SHARE_BYTES_MIN {
            return;
        }
        // Another thread merges: the next put pays for this put too.
        let Some(mut jobs) = self.jobs.try_lock() else {
            return;
        };
        let store = &*self.store;
        let put = SharedPut {
            unpaid_bytes: self.unpaid_bytes.swap(0, Ordering::Relaxed),
            own_bytes: tabled_bytes,
            per_byte,
        };
        let mut left = PAID_BYTES_MAX;
        if is_flushing_late(store, &store.version.load()) {
            let budget = (FLUSHED_FACTOR * put.unpaid_bytes).min(left);
            if let Ok(flushed) = jobs.flush.step(store, budget, now, false) {
                self.charge_small_flush(&flushed);
                left = left.saturating_sub(flushed.cost_bytes);
            }
        }
        if store.intake.check_not_failed().is_err() {
            return;
        }
        jobs.merge.pay_share(store, &put, left, now);
        if store.replaced.are_many() {
            store.replaced.release_unread();
        }
    }

    /// Charges the next puts for the bytes by which a flush is below its counted size, if each put
    /// pays its share.
    fn charge_small_flush(&self, flushed: &StepOutcome) {
        let settings = &self.store.settings;
        if !flushed.is_done || settings.compaction.share_per_byte().is_none() {
            return;
        }
        let counted = settings.policy.base_bytes / SMALL_FLUSH_PART;
        let version = self.store.version.load();
        let newest = version.levels[0].first().map_or(counted, |it| it.file_len);
        let missing = counted.saturating_sub(newest);
        self.unpaid_bytes.fetch_add(missing, Ordering::Relaxed);
    }

    /// Makes a put of this many bytes pay for a part of the store's backlog: nothing while upkeep
    /// keeps up, and more the further upkeep falls behind.
    fn pay_for_what_is_behind(&self, put_bytes: u64, now: Timestamp) {
        let store = &*self.store;
        let version = store.version.load();
        let zero = version.levels[0].len();
        let settings = &store.settings.policy;
        let is_flushing_late = is_flushing_late(store, &version);
        if zero <= settings.slow_from_tables && !is_flushing_late {
            return;
        }
        let zero = layers_of(&version.levels[0]).count();
        let backlog = merging::backlog(store, &version);
        let least = if is_flushing_late { FLUSHED_FACTOR } else { 1 };
        let factor = least + PAID_FACTOR_MAX * backlog.pressure_permille / 1000;
        let budget = (factor * put_bytes).min(PAID_BYTES_MAX);
        let Some(mut jobs) = self.jobs.try_lock() else {
            // Another thread is at work.
            return;
        };
        // A failed step is due again, and the next upkeep reports the failure.
        let mut left = budget;
        if is_flushing_late && let Ok(paid) = jobs.flush.step(store, budget, now, false) {
            left = left.saturating_sub(paid.cost_bytes);
        }
        if store.intake.check_not_failed().is_err() {
            return;
        }
        if left > 0 && zero > settings.slow_from_tables {
            jobs.merge.pay(store, &version, left, now);
        }
        if store.replaced.are_many() {
            store.replaced.release_unread();
        }
    }

    /// Moves everything to tables, and returns the last sequence in them.
    pub(crate) fn flush_all(&self) -> Result<u64> {
        let wanted = self.store.visible_sequence();
        let flushed = self.jobs.lock().flush.up_to(&self.store, wanted);
        // A recovery replays one log after the other without upkeep.
        self.store.replaced.release_unread();
        flushed
    }

    /// Copies the live records of a segment out of the value log. Returns the bytes copied.
    pub(crate) fn relocate(&self, records: &[LoggedRecord]) -> Result<u64> {
        let jobs = &mut *self.jobs.lock();
        self.store.intake.check_writable()?;
        jobs.relocation
            .relocate(&self.store, &mut jobs.flush, records)
    }

    /// Does a part of the work before the log may drop a segment.
    pub(crate) fn settle(&self, segment: u32, budget: StepBudget) -> Result<StepOutcome> {
        let jobs = &mut *self.jobs.lock();
        self.store.intake.check_writable()?;
        let (flush, relocation) = (&mut jobs.flush, &mut jobs.relocation);
        let settling = &mut jobs.settling;
        settling.settle(&self.store, flush, relocation, segment, budget)
    }
}

/// True when memtables have so many bytes that puts pay for flushing.
fn is_flushing_late(store: &Store, version: &Version) -> bool {
    let in_memory: u64 = version.memtables().map(|it| it.bytes()).sum();
    in_memory > LATE_MEMTABLES * store.settings.memtable_bytes
        || store.shared.memory.is_exceeded_by(in_memory)
}

impl Jobs {
    /// A sync of the store's own log, or of the value log if puts stay there.
    fn sync_due(&mut self, store: &Store, now: Timestamp) -> Option<Task> {
        let unsynced_bytes: u64 = {
            let writer = store.writer.lock();
            let handles = writer.unsynced.iter();
            let behind = handles.map(|(_, it)| it.written_to().saturating_sub(it.synced_to()));
            // The unsynced bytes of the value log are unknown; a needless sync costs nothing.
            let is_behind = writer.last_sequence > store.durable.load(Ordering::Acquire);
            behind.sum::<u64>() + u64::from(store.log.is_some() && is_behind)
        };
        let bytes = (unsynced_bytes > 0).then_some(unsynced_bytes);
        self.unsynced.due(store.settings.sync, bytes, now)
    }

    /// Abandons all jobs; their files are removed.
    pub(crate) fn abandon(&mut self, store: &Store) {
        self.flush.abandon(store);
        self.merge.abandon(store);
        self.scrub.abandon();
        self.settling = SegmentRelease::default();
        self.relocation.abandon(store);
        self.collect.abandon(store);
        self.journal.abandon(store);
        self.rebuilding.abandon();
    }
}

/// Doubts first: a block that is listed as lost opens no doubt.
fn write_what_is_lost(store: &Store) -> Result<()> {
    if store.read_side.doubts.has_unwritten() {
        store.change_manifest(|_| {})?;
    }
    store.read_side.lost.write(&*store.disk);
    Ok(())
}

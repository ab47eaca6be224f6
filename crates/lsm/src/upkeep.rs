//! Upkeep: what is due, and doing a part of it.
//!
//! A task is a name; what was begun is kept here and goes on where it stopped. Each kind has one job
//! at a time. A job that fails is given up, its files are removed, and it is due again; only a failed
//! sync stops the store.

use std::sync::atomic::Ordering;

use kvorum_backend::{
    ErrorKind, Result, Scrubbing, StepBudget, StepOutcome, Task, TaskKind, Timestamp, Urgency,
};

use crate::collect::Collecting;
use crate::flush::{Flushing, flush_task, wants_flush};
use crate::merging::{self, Merging, Payer};
use crate::relocation::Relocating;
use crate::scrub::{self, ScrubJob};
use crate::settings::SyncStrategy;
use crate::settling::Settling;
use crate::store::Store;
use crate::version::layers_of;

/// A put pays for merging at most so many bytes at once.
const PAID_BYTES_MAX: u64 = 256 << 10;
/// How many times its own bytes a put pays for at full pressure.
const PAID_FACTOR_MAX: u64 = 24;
/// The same while a flush is late: as much as it takes in, and a good deal more.
const FLUSHED_FACTOR: u64 = 6;
/// Full memtables in memory from which on puts pay for flushing them.
const LATE_MEMTABLES: u64 = 2;
/// Without a strategy that says otherwise, what the log got is synced after this long.
const UNSYNCED_MICROS_MAX: u64 = 30_000_000;

/// Jobs that were begun.
#[derive(Default)]
pub(crate) struct Upkeep {
    pub(crate) flush: Flushing,
    pub(crate) merge: Merging,
    pub(crate) collect: Collecting,
    /// When the log was first seen to hold what is not synced.
    unsynced_since: Option<Timestamp>,
    pub(crate) scrub: Scrubbing<ScrubJob>,
    pub(crate) relocation: Relocating,
    pub(crate) settling: Settling,
}

impl Store {
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Task> {
        self.pins.release_expired(now);
        // While somebody is at a step, what was begun is not known: then it is told what would be.
        let mut upkeep = self.upkeep.try_lock();
        let mut due = Vec::new();
        if let Some(upkeep) = &mut upkeep {
            due.extend(self.sync_due(upkeep, now));
            due.extend(scrub::due(self, &mut upkeep.scrub, now));
        }
        let upkeep = upkeep.as_deref();
        let version = self.version.load();
        let is_flushing = upkeep.is_some_and(|it| it.flush.is_going_on());
        if is_flushing || wants_flush(self, &version) {
            due.push(flush_task(&version));
        }
        let debt = merging::debt(self, &version);
        let is_scarce = self.headroom().is_scarce();
        let urgency = match debt.pressure_permille {
            0 if !is_scarce => Urgency::Normal,
            _ => Urgency::Pressing,
        };
        let merging = upkeep.map(|it| &it.merge);
        due.extend(merging::due(self, merging, &version, now, urgency));
        let urgency = match is_scarce {
            true => Urgency::Pressing,
            false => Urgency::Idle,
        };
        due.extend(upkeep.and_then(|it| it.collect.due(self, &version, urgency)));
        if self.read_side.lost.has_unwritten() || self.read_side.doubts.has_unwritten() {
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
        self.pins.release_expired(now);
        let mut upkeep = self.upkeep.lock();
        self.check_writable()?;
        self.measure_headroom();
        match (task.kind, task.subject) {
            (TaskKind::Flush, 0) => upkeep.flush.step(self, budget.bytes, now, false),
            (TaskKind::Compact | TaskKind::Expire, subject) => {
                let merge = &mut upkeep.merge;
                merge.step(self, subject, budget.bytes, now, Payer::Upkeep)
            }
            (TaskKind::Merge, file) => upkeep.collect.step(self, file, budget.bytes),
            (TaskKind::Sync, 0) => {
                drop(upkeep);
                self.sync_all().map(|_| StepOutcome::nothing_left())
            }
            (TaskKind::Scrub, number) => {
                scrub::step(self, &mut upkeep.scrub, number, budget.bytes, now)
            }
            (TaskKind::Reclaim, 0) => {
                self.write_what_is_lost()?;
                Ok(StepOutcome::nothing_left())
            }
            _ => Ok(StepOutcome::nothing_left()),
        }
    }

    /// A sync of the store's own log, or of the node's where what is put stays.
    fn sync_due(&self, upkeep: &mut Upkeep, now: Timestamp) -> Option<Task> {
        let unsynced_bytes: u64 = {
            let writer = self.writer.lock();
            let handles = writer.unsynced.iter();
            let behind = handles.map(|(_, it)| it.written_to().saturating_sub(it.synced_to()));
            // Of the node's log it is not known how much; a sync of what is synced costs nothing.
            let is_behind = writer.last_sequence > self.durable.load(Ordering::Acquire);
            behind.sum::<u64>() + u64::from(self.log.is_some() && is_behind)
        };
        if unsynced_bytes == 0 {
            upkeep.unsynced_since = None;
            return None;
        }
        // No later than now: the clock may have been put back.
        let since = upkeep.unsynced_since.map_or(now, |since| since.min(now));
        upkeep.unsynced_since = Some(since);
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

    /// A put of so many bytes pays for a part of what the store owes: nothing as long as upkeep keeps
    /// up, and more the further it falls behind.
    pub(crate) fn pay(&self, put_bytes: u64, now: Timestamp) {
        let version = self.version.load();
        let zero = version.levels[0].len();
        let settings = &self.settings.policy;
        let in_memory: u64 = version.memtables().map(|it| it.bytes()).sum();
        let is_flushing_late = in_memory > LATE_MEMTABLES * self.settings.memtable_bytes
            || self.shared.memory.is_exceeded_by(in_memory);
        if zero <= settings.slow_from_tables && !is_flushing_late {
            return;
        }
        let zero = layers_of(&version.levels[0]).count();
        let debt = merging::debt(self, &version);
        let least = if is_flushing_late { FLUSHED_FACTOR } else { 1 };
        let factor = least + PAID_FACTOR_MAX * debt.pressure_permille / 1000;
        let budget = (factor * put_bytes).min(PAID_BYTES_MAX);
        let Some(mut upkeep) = self.upkeep.try_lock() else {
            // Somebody else is at it.
            return;
        };
        // What fails here is due again, and told to whoever asks for it.
        let mut left = budget;
        if is_flushing_late && let Ok(paid) = upkeep.flush.step(self, budget, now, false) {
            left = left.saturating_sub(paid.cost_bytes);
        }
        if self.check_not_failed().is_err() {
            return;
        }
        if left > 0 && zero > settings.slow_from_tables {
            upkeep.merge.pay(self, &version, left, now);
        }
        if self.replaced.are_many() {
            self.replaced.release_unread();
        }
    }

    /// Gives up what was begun; its files go with it.
    pub(crate) fn abandon(&self, upkeep: &mut Upkeep) {
        upkeep.flush.abandon(self);
        upkeep.merge.abandon(self);
        upkeep.scrub.abandon();
        upkeep.settling = Settling::default();
        upkeep.relocation.abandon(self);
        upkeep.collect.abandon(self);
    }

    /// Doubts first: a block that is known to be lost is no news, and opens none.
    fn write_what_is_lost(&self) -> Result<()> {
        if self.read_side.doubts.has_unwritten() {
            self.change_manifest(|_| {})?;
        }
        self.read_side.lost.write(&*self.disk);
        Ok(())
    }

    /// Moves everything to tables and returns up to which sequence that is done.
    pub(crate) fn flush_all(&self) -> Result<u64> {
        let wanted = self.visible_sequence();
        let flushed = self.upkeep.lock().flush.up_to(self, wanted);
        // A recovery replays one log after the other, and nobody asks meanwhile what is due.
        self.replaced.release_unread();
        flushed
    }

    /// Moves to tables what a log of the store's own had, for a store that has gone over to the node's: what
    /// the node's log gets is behind it, and must not be kept without it. Where there is no room that comes
    /// later, and its log is synced.
    pub(crate) fn flush_what_own_log_had(&self) -> Result<()> {
        match self.flush_all() {
            Err(error) if error.kind() == ErrorKind::Full => self.sync_own_log(),
            flushed => flushed.map(drop),
        }
    }
}

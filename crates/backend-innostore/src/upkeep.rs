//! Upkeep: due tasks, and steps of them.

use std::sync::atomic::Ordering;

use kvorum_backend::{
    ErrorKind, Result, Scrubbing, StepBudget, StepOutcome, Task, TaskKind, Timestamp, Unsynced,
    Urgency,
};

use crate::leaving::Leaving;
use crate::rewriting::Rewriting;
use crate::room;
use crate::scrub::{self, ScrubJob};
use crate::store::Store;
use crate::version::Version;

/// With this multiple of the limit in memory, puts pay for moving it.
const LATE_FACTOR: u64 = 2;
/// The bytes that a put then pays for. A small put may cause the rewrite of a leaf with many times
/// its bytes.
const PAID_BYTES: u64 = 256 << 10;

/// Jobs in progress, and the time since which memory waits to be moved.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) rewriting: Rewriting,
    leaving: Leaving,
    pub(crate) scrub: Scrubbing<ScrubJob>,
    unsynced: Unsynced,
    dirty_since: Option<Timestamp>,
}

impl Jobs {
    pub(crate) fn due(&mut self, store: &Store, now: Timestamp) -> Vec<Task> {
        let version = store.version.load();
        let mut due = Vec::new();
        due.extend(self.sync_due(store, now));
        let is_old = self.is_old(store, &version, now);
        let is_wanted = is_old || wants_flush(store, &version);
        if self.rewriting.is_flushing() || (is_wanted && self.check_room(store).is_ok()) {
            due.push(flush_task(store, &version));
        }
        let urgency = match store.intake.headroom().is_scarce() {
            true => Urgency::Pressing,
            false => Urgency::Idle,
        };
        due.extend(self.leaving.due(store, urgency));
        due.extend(scrub::due(store, &mut self.scrub, now));
        if store.losses.has_unwritten() || store.losses.doubts.has_unwritten() {
            due.push(Task::normal(TaskKind::Reclaim, 0, 0));
        }
        due.sort_by_key(|task| std::cmp::Reverse(task.urgency));
        due
    }

    pub(crate) fn step(
        &mut self,
        store: &Store,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let outcome = self.part_of(store, task, budget, now);
        if let Err(error) = &outcome
            && error.kind() == ErrorKind::Unread
        {
            store.version.load().tree.count_unread(error, now);
        }
        outcome
    }

    fn part_of(
        &mut self,
        store: &Store,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        match (task.kind, task.subject) {
            (TaskKind::Flush, 0) => match self.check_room(store) {
                Ok(()) => self.rewriting.step(store, budget.bytes, now),
                Err(_) => Ok(StepOutcome::nothing_left()),
            },
            (TaskKind::Collect, file) => {
                let rewriting = &mut self.rewriting;
                self.leaving.step(store, rewriting, file, budget.bytes, now)
            }
            (TaskKind::Scrub, _) => {
                let (scrubbing, rewriting) = (&mut self.scrub, &mut self.rewriting);
                scrub::step(store, scrubbing, rewriting, budget.bytes, now)
            }
            (TaskKind::Reclaim, 0) => {
                if store.losses.doubts.has_unwritten() {
                    store.change_manifest(|_| {})?;
                }
                store.losses.write(&*store.disk);
                Ok(StepOutcome::nothing_left())
            }
            _ => Ok(StepOutcome::nothing_left()),
        }
    }

    fn sync_due(&mut self, store: &Store, now: Timestamp) -> Option<Task> {
        let last = store.writer.lock().last_sequence;
        let is_behind = last > store.durable.load(Ordering::Acquire);
        // The number of unsynced bytes is unknown; a needless sync costs nothing.
        let bytes = is_behind.then_some(1);
        self.unsynced.due(store.settings.sync, bytes, now)
    }

    /// True when memory has waited for the maximum age.
    fn is_old(&mut self, store: &Store, version: &Version, now: Timestamp) -> bool {
        if version.is_clean() {
            self.dirty_since = None;
            return false;
        }
        // Not later than now, since the clock may have been set back.
        let since = self.dirty_since.map_or(now, |since| since.min(now));
        self.dirty_since = Some(since);
        let age = u64::try_from(store.settings.dirty_age_max.as_micros()).unwrap_or(u64::MAX);
        since.0.saturating_add(age) <= now.0
    }

    /// Abandons the jobs; their files are removed.
    pub(crate) fn abandon(&mut self, store: &Store) {
        self.rewriting.abandon(store);
        self.leaving.abandon();
        self.scrub.abandon();
    }

    /// Makes a put pay for moving memory, if the move is late.
    pub(crate) fn pay(&mut self, store: &Store) {
        // A failed step is due again, and the next upkeep reports the failure.
        let _paid_or_failing_disk = self.flush(store, PAID_BYTES, Timestamp(0));
    }

    /// Moves memory, unless files have to be emptied first.
    ///
    /// # Errors
    /// Those of the disk, and [`ErrorKind::Full`] while there is no room.
    pub(crate) fn flush(
        &mut self,
        store: &Store,
        budget_bytes: u64,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        self.check_room(store)?;
        self.rewriting.step(store, budget_bytes, now)
    }

    /// Moves everything up to this batch.
    pub(crate) fn flush_up_to(&mut self, store: &Store, sequence: u64) -> Result<()> {
        while store.manifest.lock().sequence < sequence && !store.version.load().is_clean() {
            self.flush(store, u64::MAX, Timestamp(0))?;
        }
        Ok(())
    }

    fn check_room(&self, store: &Store) -> Result<()> {
        // Puts pass here: files are looked at only if space is scarce.
        if self.rewriting.is_going_on() || !store.intake.headroom().is_scarce() {
            return Ok(());
        }
        let live_bytes = self.leaving.live_bytes(store);
        room::check(store, live_bytes.map(|it| room::bytes_to_leave(store, it)))
    }
}

/// True when puts have to pay for moving memory.
pub(crate) fn is_late(store: &Store) -> bool {
    let bytes = store.version.load().dirty_bytes();
    bytes > store.settings.dirty_bytes_max.saturating_mul(LATE_FACTOR)
}

fn wants_flush(store: &Store, version: &Version) -> bool {
    let is_full = version.overlay.bytes() >= store.settings.dirty_bytes_max;
    let behind_max = store
        .log
        .segments_behind_max(store.settings.log_segments_behind_max);
    let oldest = version.overlay.oldest_segment();
    let is_behind =
        oldest.is_some_and(|it| store.log.newest_segment().saturating_sub(it) > behind_max);
    version.frozen.is_some() || is_full || is_behind
}

fn flush_task(store: &Store, version: &Version) -> Task {
    Task {
        urgency: match is_late(store) {
            true => Urgency::Pressing,
            false => Urgency::Normal,
        },
        ..Task::normal(TaskKind::Flush, 0, version.dirty_bytes())
    }
}

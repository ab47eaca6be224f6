//! Writing checkpoints in steps: when one is due, and how it goes on beside puts and merges.

use std::sync::Arc;

use kvorum_backend::{Result, StepBudget, StepOutcome, Task, TaskKind, Urgency};

use crate::checkpoint::{CheckpointWriter, Covered};
use crate::error::IntoBackend;
use crate::keydir::SHARDS;
use crate::segments::PlaceHold;
use crate::slot::Packed;
use crate::store::{Counters, Store};
use crate::upkeep::Upkeep;

/// A checkpoint waits for this many records, or a quarter of the keys if those are more: replaying
/// so many takes some tens of milliseconds.
const CHECKPOINT_RECORDS_MIN: u64 = 32 << 10;
/// A checkpoint waits until this many times its size was put, unless the records are many.
const CHECKPOINT_SHARE: u64 = 16;

/// A checkpoint in progress.
pub(crate) struct CheckpointJob {
    writer: CheckpointWriter,
    covered: Vec<u32>,
    next_shard: usize,
    _places: Arc<PlaceHold>,
}

impl Store {
    /// A checkpoint is due when replaying what came since the last one would take long, and when it
    /// is small against that.
    pub(crate) fn checkpoint_due(&self, upkeep: &Upkeep) -> Option<Task> {
        let order = std::sync::atomic::Ordering::Relaxed;
        let keys = self.keydir.len();
        let cost_bytes = keys * size_of::<Packed>() as u64;
        let bytes_max = self.settings.checkpoint_after_bytes;
        let bytes_max = bytes_max.max(cost_bytes * CHECKPOINT_SHARE);
        let records_max = CHECKPOINT_RECORDS_MIN.max(keys / 4);
        let is_due = upkeep.checkpoint.is_some()
            || self.counters.unchecked_bytes.load(order) >= bytes_max
            || self.counters.unchecked_records.load(order) >= records_max;
        is_due.then_some(Task {
            kind: TaskKind::Checkpoint,
            subject: 0,
            urgency: Urgency::Normal,
            cost_bytes,
        })
    }

    /// Writes a part of a checkpoint; `is_clean` for the last one of a store that is being closed.
    pub(crate) fn checkpoint_step(
        &self,
        upkeep: &mut Upkeep,
        budget: StepBudget,
        is_clean: bool,
    ) -> Result<StepOutcome> {
        let mut job = match upkeep.checkpoint.take() {
            Some(job) => job,
            None => self.begin_checkpoint(is_clean)?,
        };
        let mut cost_bytes = 0;
        while job.next_shard < SHARDS {
            if cost_bytes > 0 && cost_bytes >= budget.bytes {
                upkeep.checkpoint = Some(job);
                return Ok(StepOutcome {
                    cost_bytes,
                    is_done: false,
                });
            }
            let slots = self.keydir.shard(job.next_shard);
            let written = job.writer.write(job.next_shard, &slots);
            cost_bytes += written.into_backend()?;
            job.next_shard += 1;
        }
        // Slots may point to what came after the beginning.
        self.sync_all()?;
        let places = self.catalog.read().places.clone();
        let finished = job.writer.finish(&*self.disk, &places);
        cost_bytes += finished.into_backend()?;
        Counters::add(&self.counters.written_bytes, cost_bytes);
        let unremoved = &upkeep.unremoved;
        let is_needed = |number: &u32| job.covered.contains(number) || unremoved.contains(number);
        if !self.meta.lock().retired.iter().all(is_needed) {
            self.change_meta(|meta| meta.retired.retain(is_needed))?;
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done: true,
        })
    }

    fn begin_checkpoint(&self, is_clean: bool) -> Result<CheckpointJob> {
        let log_id = self.log_id();
        let (covered, places) = {
            let writer = self.writer.lock();
            let mut catalog = self.catalog.write();
            let order = std::sync::atomic::Ordering::Relaxed;
            self.counters.unchecked_bytes.store(0, order);
            self.counters.unchecked_records.store(0, order);
            let places = catalog.hold_places();
            let segments = catalog.segments.iter();
            let covered = Covered {
                log_id,
                sequence: writer.last_sequence,
                next_segment: writer.next_segment,
                is_clean,
                segments: segments.map(|(number, it)| (*number, it.stats)).collect(),
            };
            (covered, places)
        };
        let numbers = covered.segments.keys().copied().collect();
        let writer = CheckpointWriter::create(&*self.disk, &self.directory, covered);
        Ok(CheckpointJob {
            writer: writer.into_backend()?,
            covered: numbers,
            next_shard: 0,
            _places: places,
        })
    }
}

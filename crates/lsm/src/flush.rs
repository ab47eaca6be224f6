//! Flushing: memtables become a table on level 0, and their logs go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{BackendError, Result, StepOutcome, Task, TaskKind, Timestamp, Urgency};

use crate::compaction::Job;
use crate::install::{are_unlisted, blob_record, record};
use crate::log::log_path;
use crate::memtable::Memtable;
use crate::merge::{MergeWalk, Source};
use crate::store::Store;
use crate::upkeep::Upkeep;
use crate::version::Version;

/// A flush that is going on.
pub(crate) struct Flush {
    /// Newest first.
    memtables: Vec<Arc<Memtable>>,
    /// Every batch up to this one is in them or in tables.
    sequence: u64,
    pub(crate) job: Job,
}

impl Store {
    /// Moves everything to tables and returns up to which sequence that is done.
    pub(crate) fn flush_all(&self) -> Result<u64> {
        let flushed = self.flush_everything();
        // A recovery replays one log after the other, and nobody asks meanwhile what is due.
        self.replaced.release_unread();
        flushed
    }

    fn flush_everything(&self) -> Result<u64> {
        let wanted = self.visible_sequence();
        let mut upkeep = self.upkeep.lock();
        self.check_not_failed()?;
        loop {
            let reached = self.manifest.lock().sequence;
            if reached >= wanted {
                self.durable.fetch_max(reached, Ordering::AcqRel);
                return Ok(reached);
            }
            let outcome = self.flush_step(&mut upkeep, u64::MAX, Timestamp(0), true)?;
            let is_stuck = outcome.is_done && self.manifest.lock().sequence == reached;
            if is_stuck {
                // Batches without a write are in no table.
                self.change_manifest(|it| it.sequence = it.sequence.max(wanted))?;
                self.durable.fetch_max(wanted, Ordering::AcqRel);
                return Ok(wanted);
            }
        }
    }

    pub(crate) fn wants_flush(&self, version: &Version) -> bool {
        let bytes = version.memtable.bytes();
        !version.frozen.is_empty()
            || bytes >= self.settings.memtable_bytes
            || (bytes > 0 && self.shared.memory.wants_flush(bytes))
    }

    /// Leaves the memtable to a flush. The next log and the next memtable are made before anybody waits
    /// for them.
    fn freeze(&self) -> Result<()> {
        // Before looking for a log: one that a put makes meanwhile, and goes on with, has a later number.
        let number = self.take_number();
        let next_log = match self.settings.has_log && self.writer.lock().log.is_some() {
            true => Some(self.create_log()?),
            false => None,
        };
        let first_log = next_log.as_ref().map_or(number, |log| log.id().number);
        // Only upkeep, whose lock the caller holds, puts another in its place.
        let fresh = Arc::new(Memtable::behind(&self.version.load().memtable, first_log));
        self.shared.memory.add(fresh.held_bytes());
        let mut writer = self.writer.lock();
        if let Some(log) = next_log {
            writer.unsynced.push((first_log, log.sync_handle()));
            writer.log = Some(log);
        }
        let mut version = Version::clone(&self.version.load());
        let full = std::mem::replace(&mut version.memtable, fresh);
        full.seal(writer.last_sequence);
        version.frozen.insert(0, full);
        self.replace_version(version);
        Ok(())
    }

    pub(crate) fn flush_step(
        &self,
        upkeep: &mut Upkeep,
        budget_bytes: u64,
        now: Timestamp,
        is_wanted: bool,
    ) -> Result<StepOutcome> {
        if upkeep.flush.is_none() {
            let version = self.version.load_full();
            let has_any = version.memtables().any(|it| !it.is_empty());
            let is_due = self.wants_flush(&version) || is_wanted;
            if !has_any || !is_due {
                return Ok(StepOutcome::nothing_left());
            }
            upkeep.flush = Some(self.start_flush()?);
        }
        let Some(flush) = &mut upkeep.flush else {
            return Ok(StepOutcome::nothing_left());
        };
        let outcome = flush.job.step(self, budget_bytes, now);
        let (cost_bytes, is_done) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Err(self.give_up_flush(upkeep, error)),
        };
        if is_done && let Some(flush) = upkeep.flush.take() {
            self.install_flush(flush)?;
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    fn give_up_flush(&self, upkeep: &mut Upkeep, error: BackendError) -> BackendError {
        if let Some(flush) = upkeep.flush.take() {
            self.remove_files(flush.job.output_paths(self));
        }
        error
    }

    fn start_flush(&self) -> Result<Flush> {
        let is_frozen = !self.version.load().frozen.is_empty();
        if !is_frozen {
            self.freeze()?;
        }
        let version = self.version.load_full();
        let newest = version.frozen.first();
        let sequence = newest.map_or(0, |it| it.sealed_at());
        let memtables = version.frozen.clone();
        let from = std::ops::Bound::Unbounded;
        let sources = memtables.iter();
        let sources = sources.map(|it| Source::memtable(it, u64::MAX, from.clone()));
        let walk = MergeWalk::new(sources.collect());
        Ok(Flush {
            memtables,
            sequence,
            job: Job::new(walk, version, 0, Vec::new(), true),
        })
    }

    /// The tables of a flush take the place of its memtables.
    fn install_flush(&self, mut flush: Flush) -> Result<()> {
        let written = std::mem::take(&mut flush.job.written);
        let blob = flush.job.written_blob.take();
        let mut was_listing = false;
        let outcome = self.publish(&written).and_then(|tables| {
            let blob = match &blob {
                Some(blob) => {
                    Some(self.open_blob(&blob.table, blob.table.id.number, blob.block_bytes)?)
                }
                None => None,
            };
            let first_log = self.version.load().first_log_behind(&flush.memtables);
            was_listing = true;
            self.change_manifest(|manifest| {
                manifest.sequence = manifest.sequence.max(flush.sequence);
                manifest.first_log = first_log;
                let records = tables.iter().map(|it| record(it, 0));
                manifest.tables.splice(0..0, records);
                manifest.blobs.extend(blob.as_ref().map(blob_record));
            })?;
            Ok((tables, blob, first_log))
        });
        let (tables, blob, first_log) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                if are_unlisted(was_listing, &error) {
                    flush.job.written = written;
                    flush.job.written_blob = blob;
                    self.remove_files(flush.job.output_paths(self));
                }
                return Err(error);
            }
        };
        let is_flushed =
            |it: &Arc<Memtable>| flush.memtables.iter().any(|old| Arc::ptr_eq(it, old));
        self.change_version(|version| {
            version.frozen.retain(|it| !is_flushed(it));
            Arc::make_mut(&mut version.levels[0]).splice(0..0, tables);
            if let Some(blob) = blob {
                let mut blobs = (*version.blobs).clone();
                blobs.insert(blob.file, Arc::new(blob));
                version.blobs = Arc::new(blobs);
            }
            version.flushes += 1;
        });
        let freed: u64 = flush.memtables.iter().map(|it| it.held_bytes()).sum();
        self.shared.memory.subtract(freed);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.durable.fetch_max(flush.sequence, Ordering::AcqRel);
        self.drop_logs(first_log);
        Ok(())
    }

    fn drop_logs(&self, first_log: u64) {
        let mut writer = self.writer.lock();
        let (old, kept) = writer
            .unsynced
            .drain(..)
            .partition(|(number, _)| *number < first_log);
        writer.unsynced = kept;
        drop(writer);
        let old: Vec<(u64, kvorum_segment::SegmentSync)> = old;
        let paths = old
            .iter()
            .map(|(number, _)| log_path(&self.directory, *number));
        self.remove_files(paths);
    }
}

impl Version {
    /// The first log that is needed when these memtables are in tables.
    fn first_log_behind(&self, flushed: &[Arc<Memtable>]) -> u64 {
        let is_left = |it: &&Arc<Memtable>| !flushed.iter().any(|old| Arc::ptr_eq(it, old));
        let left = self.memtables().filter(is_left);
        left.map(|it| it.first_log).min().unwrap_or(0)
    }
}

pub(crate) fn flush_task(version: &Version) -> Task {
    let bytes: u64 = version.memtables().map(|it| it.bytes()).sum();
    let urgency = match version.frozen.len() {
        0 | 1 => Urgency::Normal,
        _ => Urgency::Pressing,
    };
    Task {
        kind: TaskKind::Flush,
        subject: 0,
        urgency,
        cost_bytes: bytes,
    }
}

//! Flushing: memtables become a table on level 0, and their logs go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{
    BackendError, ErrorKind, Result, StepOutcome, Task, TaskKind, Timestamp, Urgency,
};

use crate::compaction::{Job, Reached};
use crate::install::{are_unlisted, blob_record, record};
use crate::log::log_path;
use crate::memtable::Memtable;
use crate::merge::{MergeWalk, Source};
use crate::policy::worth_part;
use crate::store::Store;
use crate::upkeep::Upkeep;
use crate::version::Version;

/// Limit of a store's own log, as a part of the free space. There are many stores.
const UNFLUSHED_PART: u64 = 64;
/// A smaller memtable is not worth a table. Bytes.
const UNFLUSHED_BYTES_MIN: u64 = 64 << 10;

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

    /// Moves to tables what a log of the store's own had, for a store that has gone over to the node's: what
    /// the node's log gets is behind it, and must not be kept without it. Where there is no room that comes
    /// later, and its log is synced.
    pub(crate) fn flush_what_own_log_had(&self) -> Result<()> {
        match self.flush_all() {
            Err(error) if error.kind() == ErrorKind::Full => self.sync_own_log(),
            flushed => flushed.map(drop),
        }
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
                self.cover_without_tables(wanted)?;
                return Ok(wanted);
            }
        }
    }

    /// Takes note that everything up to this batch is in tables, where no memtable has anything of it.
    pub(crate) fn cover_without_tables(&self, sequence: u64) -> Result<()> {
        self.sync_shared_log()?;
        self.change_manifest(|it| it.sequence = it.sequence.max(sequence))?;
        self.durable.fetch_max(sequence, Ordering::AcqRel);
        self.note_covered(sequence);
        Ok(())
    }

    /// The node's log need not keep batches up to this one for the next opening.
    fn note_covered(&self, sequence: u64) {
        if let Some(log) = &self.log {
            self.writer.lock().uncovered.cover(sequence);
            log.usage_changed();
        }
    }

    /// True when an old segment of the node's log would have to be read after a crash for this store.
    /// Memtables fill slowly where bodies stay in the log.
    fn is_far_behind_log(&self) -> bool {
        let Some(log) = &self.log else {
            return false;
        };
        let behind_max = log.segments_behind_max(self.settings.log_segments_behind_max);
        let far = log.newest_segment().saturating_sub(behind_max);
        let oldest = self.writer.lock().uncovered.oldest();
        oldest.is_some_and(|oldest| oldest < far)
    }

    /// Largest size of a memtable at present. A store with a log of its own writes all of it a second time
    /// in a flush, before the log goes, and a small disk has to have room for that.
    fn memtable_bytes_max(&self) -> u64 {
        let set = self.settings.memtable_bytes;
        match self.log {
            Some(_) => set,
            None => set.min((self.headroom().available / UNFLUSHED_PART).max(UNFLUSHED_BYTES_MIN)),
        }
    }

    /// True when what is in memory may free a part of what tables have.
    fn is_worth_flushing(&self, version: &Version) -> bool {
        let in_memory = version.memtables().map(|it| it.len() as u64).sum::<u64>();
        let in_tables = version.tables().map(|it| it.properties.entries).sum();
        in_memory.saturating_mul(worth_part(&self.headroom())) >= in_tables
    }

    /// True when a flush is due. While puts are refused for want of space, the memtable is flushed early: it
    /// may delete entries that tables still have.
    pub(crate) fn wants_flush(&self, version: &Version) -> bool {
        let bytes = version.memtable.bytes();
        !version.frozen.is_empty()
            || bytes >= self.memtable_bytes_max()
            || (bytes > 0 && self.shared.memory.wants_flush(bytes))
            || (bytes > 0 && self.headroom().refuses_puts() && self.is_worth_flushing(version))
            || self.is_far_behind_log()
    }

    /// Leaves the memtable to a flush. The next log and the next memtable are made before anybody waits
    /// for them.
    fn freeze(&self) -> Result<()> {
        // Before looking for a log: one that a put makes meanwhile, and goes on with, has a later number.
        let number = self.take_number();
        let next_log = match self.writer.lock().log.is_some() {
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
        writer.uncovered.seal();
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
            let sequence = self.visible_sequence();
            let version = self.version.load_full();
            let has_any = version.memtables().any(|it| !it.is_empty());
            let is_due = self.wants_flush(&version) || is_wanted;
            if !has_any && is_due && self.is_far_behind_log() {
                // Batches without a write.
                self.cover_without_tables(sequence)?;
            }
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
            Ok((cost_bytes, reached)) => (cost_bytes, matches!(reached, Reached::End)),
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
            job: Job::new(walk, &version, 0, Vec::new(), true),
        })
    }

    /// The tables of a flush take the place of its memtables.
    fn install_flush(&self, mut flush: Flush) -> Result<()> {
        let written = std::mem::take(&mut flush.job.written);
        let blob = flush.job.written_blob.take();
        let mut was_listing = false;
        let synced = self.sync_shared_log();
        let outcome = synced
            .and_then(|()| self.publish(&written))
            .and_then(|tables| {
                let blob = match &blob {
                    Some(blob) => {
                        Some(self.open_blob(&blob.table, blob.table.id.number, blob.block_bytes)?)
                    }
                    None => None,
                };
                let first_log = self.version.load().first_log_behind(&flush.memtables);
                // Before, the log itself may not outlive a crash.
                let mut memtables = flush.memtables.iter();
                let speaks_of_log = memtables.any(|it| !it.segments().is_empty());
                was_listing = true;
                self.change_manifest(|manifest| {
                    manifest.sequence = manifest.sequence.max(flush.sequence);
                    manifest.first_log = first_log;
                    if speaks_of_log {
                        manifest.shared_log = self.shared_log_id();
                    }
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
            version.add_blob(blob);
            version.keep_named_segments(&flush.memtables);
            version.flushes += 1;
        });
        let freed: u64 = flush.memtables.iter().map(|it| it.held_bytes()).sum();
        self.shared.memory.subtract(freed);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.durable.fetch_max(flush.sequence, Ordering::AcqRel);
        // Once the tables name their segments: the log asks at any moment.
        self.note_covered(flush.sequence);
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

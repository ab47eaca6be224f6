//! Flushing: memtables become a table on level 0, and their logs are removed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{Result, StepOutcome, Task, TaskKind, Timestamp, Urgency};

use crate::compaction::{Job, Reached};
use crate::install::put_on_top;
use crate::journal_parts::JournalParts;
use crate::log::log_path;
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::merge::{MergeWalk, Source};
use crate::policy::worth_part;
use crate::store::Store;
use crate::version::Version;

/// The limit of a store's own log is the free space divided by this number. There are many stores.
const UNFLUSHED_PART: u64 = 64;
/// A memtable with fewer bytes is not worth a table.
const UNFLUSHED_BYTES_MIN: u64 = 64 << 10;

/// The flush in progress, if any.
#[derive(Default)]
pub(crate) struct Flushing {
    begun: Option<Flush>,
}

struct Flush {
    /// Newest first.
    memtables: Vec<Arc<Memtable>>,
    /// Every batch up to this one is in them or in tables.
    sequence: u64,
    job: Job,
}

impl Flushing {
    pub(crate) fn is_going_on(&self) -> bool {
        self.begun.is_some()
    }

    /// Moves everything up to this batch to tables. Returns the sequence that was reached.
    pub(crate) fn up_to(&mut self, store: &Store, wanted: u64) -> Result<u64> {
        store.intake.check_not_failed()?;
        loop {
            let reached = store.manifest.lock().sequence;
            if reached >= wanted {
                store.durable.fetch_max(reached, Ordering::AcqRel);
                return Ok(reached);
            }
            let outcome = self.step(store, u64::MAX, Timestamp(0), true)?;
            let is_stuck = outcome.is_done && store.manifest.lock().sequence == reached;
            if is_stuck {
                // Batches without a write are in no table.
                cover_without_tables(store, wanted)?;
                return Ok(wanted);
            }
        }
    }

    /// Flushes until no entry of a segment is in memory alone: copies go to a table, and so must be
    /// copies of entries in tables.
    pub(crate) fn out_of(&mut self, store: &Store, segment: u32) -> Result<()> {
        while let Some(last) = uncovered_in(store, segment) {
            self.towards(store, last, u64::MAX)?;
        }
        Ok(())
    }

    /// Does a step of the flushes that move everything up to this batch to tables.
    pub(crate) fn towards(&mut self, store: &Store, last: u64, budget_bytes: u64) -> Result<u64> {
        let visible = store.visible_sequence();
        let step = self.step(store, budget_bytes, Timestamp(0), true)?;
        if step.is_done && store.manifest.lock().sequence < last {
            // An older flush has ended, or the rest are batches without a write, with nothing to
            // flush.
            let version = store.version.load_full();
            if version.memtables().all(|it| it.is_empty()) {
                cover_without_tables(store, visible.max(last))?;
            }
        }
        Ok(step.cost_bytes)
    }

    pub(crate) fn step(
        &mut self,
        store: &Store,
        budget_bytes: u64,
        now: Timestamp,
        is_wanted: bool,
    ) -> Result<StepOutcome> {
        if self.begun.is_none() {
            let sequence = store.visible_sequence();
            let version = store.version.load_full();
            let has_any = version.memtables().any(|it| !it.is_empty());
            let is_due = wants_flush(store, &version) || is_wanted;
            if !has_any && is_due && is_far_behind_log(store) {
                // The backlog consists of batches without a write.
                cover_without_tables(store, sequence)?;
            }
            if !has_any || !is_due {
                return Ok(StepOutcome::nothing_left());
            }
            self.begun = Some(Flush::start(store)?);
        }
        let Some(flush) = &mut self.begun else {
            return Ok(StepOutcome::nothing_left());
        };
        let outcome = flush.job.step(store, budget_bytes, now);
        let (cost_bytes, is_done) = match outcome {
            Ok((cost_bytes, reached)) => (cost_bytes, matches!(reached, Reached::End)),
            Err(error) => {
                self.abandon(store);
                return Err(error);
            }
        };
        if is_done && let Some(flush) = self.begun.take() {
            flush.install(store)?;
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    /// Abandons the flush; its files are removed.
    pub(crate) fn abandon(&mut self, store: &Store) {
        if let Some(flush) = self.begun.take() {
            store.remove_files(flush.job.output_paths(store));
        }
    }
}

impl Flush {
    fn start(store: &Store) -> Result<Self> {
        let is_frozen = !store.version.load().frozen.is_empty();
        if !is_frozen {
            freeze(store)?;
        }
        let version = store.version.load_full();
        let newest = version.frozen.first();
        let sequence = newest.map_or(0, |it| it.sealed_at());
        let memtables = version.frozen.clone();
        let from = std::ops::Bound::Unbounded;
        let sources = memtables.iter();
        let sources = sources.map(|it| Source::memtable(it, u64::MAX, from.clone()));
        let walk = MergeWalk::new(sources.collect());
        Ok(Self {
            memtables,
            sequence,
            job: Job::new(walk, &version, 0, Vec::new(), true)
                .over_journal(JournalParts::of(store, &version)),
        })
    }

    /// The tables of a flush take the place of its memtables.
    fn install(self, store: &Store) -> Result<()> {
        store
            .sync_value_log()
            .inspect_err(|_| store.remove_files(self.job.output_paths(store)))?;
        let first_log = store.version.load().first_log_behind(&self.memtables);
        let list = |manifest: &mut Manifest| {
            manifest.sequence = manifest.sequence.max(self.sequence);
            manifest.first_log = first_log;
            // Sync first: the log itself may not outlive a crash.
            if self.memtables.iter().any(|it| !it.segments().is_empty()) {
                manifest.value_log = store.value_log_id();
            }
        };
        let is_flushed = |it: &Arc<Memtable>| self.memtables.iter().any(|old| Arc::ptr_eq(it, old));
        let show = |version: &mut Version| {
            version.frozen.retain(|it| !is_flushed(it));
            version.keep_named_segments(&self.memtables);
            version.flushes += 1;
        };
        let (written, blob) = (&self.job.written, self.job.written_blob.as_ref());
        put_on_top(store, written, blob, list, show)?;
        let freed: u64 = self.memtables.iter().map(|it| it.held_bytes()).sum();
        store.shared.memory.subtract(freed);
        store.counters.flushes.fetch_add(1, Ordering::Relaxed);
        store.durable.fetch_max(self.sequence, Ordering::AcqRel);
        // Tables name segments before memory releases them, since the log may query usage at any
        // moment.
        note_covered(store, self.sequence);
        drop_logs(store, first_log);
        Ok(())
    }
}

/// True when a flush is due. While puts are refused for want of space, the memtable is flushed
/// early: it may delete entries of tables.
pub(crate) fn wants_flush(store: &Store, version: &Version) -> bool {
    let bytes = version.memtable.bytes();
    !version.frozen.is_empty()
        || bytes >= memtable_bytes_max(store)
        || (bytes > 0 && store.shared.memory.wants_flush(bytes))
        || (bytes > 0
            && store.intake.headroom().refuses_puts()
            && is_worth_flushing(store, version))
        || is_far_behind_log(store)
}

/// The present limit of a memtable. A store with a log of its own writes the memtable a second time
/// in a flush before the log is removed, and a small disk needs room for both.
fn memtable_bytes_max(store: &Store) -> u64 {
    let set = store.settings.memtable_bytes;
    match store.log {
        Some(_) => set,
        None => {
            set.min((store.intake.headroom().available / UNFLUSHED_PART).max(UNFLUSHED_BYTES_MIN))
        }
    }
}

/// True when a flush may free enough of the tables.
fn is_worth_flushing(store: &Store, version: &Version) -> bool {
    let in_memory = version.memtables().map(|it| it.len() as u64).sum::<u64>();
    let in_tables = version.tables().map(|it| it.properties.entries).sum();
    in_memory.saturating_mul(worth_part(&store.intake.headroom())) >= in_tables
}

/// True when, for this store, an old segment of the value log would have to be read after a crash.
/// Memtables fill slowly where bodies stay in the log.
fn is_far_behind_log(store: &Store) -> bool {
    let Some(log) = &store.log else {
        return false;
    };
    let behind_max = log.segments_behind_max(store.settings.log_segments_behind_max);
    let far = log.newest_segment().saturating_sub(behind_max);
    let oldest = store.writer.lock().uncovered.oldest();
    oldest.is_some_and(|oldest| oldest < far)
}

/// The last batch in a segment, if a batch there is in no table.
pub(crate) fn uncovered_in(store: &Store, segment: u32) -> Option<u64> {
    let writer = store.writer.lock();
    writer.uncovered.last_in(segment)
}

/// Notes that tables cover everything up to this batch, if no memtable has a write of it.
fn cover_without_tables(store: &Store, sequence: u64) -> Result<()> {
    store.sync_value_log()?;
    store.change_manifest(|it| it.sequence = it.sequence.max(sequence))?;
    store.durable.fetch_max(sequence, Ordering::AcqRel);
    note_covered(store, sequence);
    Ok(())
}

/// Notes that the value log need not keep batches up to this one for the next opening.
fn note_covered(store: &Store, sequence: u64) {
    if let Some(log) = &store.log {
        store.writer.lock().uncovered.cover(sequence);
        log.usage_changed();
    }
}

/// Freezes the memtable for a flush. The next log and the next memtable are made first, so that no
/// writer waits for them.
fn freeze(store: &Store) -> Result<()> {
    // Taken before the log is looked at: a log that a put creates meanwhile has a later number.
    let number = store.take_number();
    let next_log = match store.writer.lock().log.is_some() {
        true => Some(store.create_log()?),
        false => None,
    };
    let first_log = next_log.as_ref().map_or(number, |log| log.id().number);
    // Only upkeep, under the caller's lock, replaces the memtable.
    let fresh = Arc::new(Memtable::behind(&store.version.load().memtable, first_log));
    store.shared.memory.add(fresh.held_bytes());
    let mut writer = store.writer.lock();
    if let Some(log) = next_log {
        writer.unsynced.push((first_log, log.sync_handle()));
        writer.log = Some(log);
    }
    let mut version = Version::clone(&store.version.load());
    let full = std::mem::replace(&mut version.memtable, fresh);
    full.seal(writer.last_sequence);
    writer.uncovered.seal();
    version.frozen.insert(0, full);
    store.replace_version(version);
    Ok(())
}

fn drop_logs(store: &Store, first_log: u64) {
    let mut writer = store.writer.lock();
    let (old, kept) = writer
        .unsynced
        .drain(..)
        .partition(|(number, _)| *number < first_log);
    writer.unsynced = kept;
    drop(writer);
    let old: Vec<(u64, kvorum_segment::SegmentSync)> = old;
    let paths = old
        .iter()
        .map(|(number, _)| log_path(&store.directory, *number));
    store.remove_files(paths);
}

impl Version {
    /// The first log that is still needed once these memtables are in tables.
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

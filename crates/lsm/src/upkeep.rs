//! Upkeep: what is due, and doing a part of it.
//!
//! A task is a name; what was begun is kept here and goes on where it stopped. Each kind has one job
//! at a time. A job that fails is given up, its files are removed, and it is due again; only a failed
//! sync stops the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{
    BackendError, ErrorKind, Result, StepBudget, StepOutcome, Task, TaskKind, Timestamp, Urgency,
};
use kvorum_sst::{KnownTable, ScanFilter, Table, WrittenTable};

use crate::blob::BlobFile;
use crate::collect::CollectJob;
use crate::compaction::Job;
use crate::error::IntoBackend;
use crate::log::log_path;
use crate::manifest::{BlobRecord, Manifest, TableRecord};
use crate::memtable::Memtable;
use crate::merge::{MergeWalk, Source};
use crate::policy::{self, Pick, Reason};
use crate::store::{Store, sync_directory, table_path};
use crate::version::{LevelTable, Version};

/// A put pays for merging at most so many bytes at once.
const PAID_BYTES_MAX: u64 = 256 << 10;
/// How many times its own bytes a put pays for at full pressure.
const PAID_FACTOR_MAX: u64 = 24;
/// Memtables waiting to be flushed from which on puts pay.
const FROZEN_MAX: usize = 2;

/// Jobs that were begun.
#[derive(Default)]
pub(crate) struct Upkeep {
    flush: Option<Flush>,
    merge: Option<(Pick, Job)>,
    collect: Option<CollectJob>,
    /// Blob files of which a collection could free next to nothing: what refers to their bodies
    /// cannot be read. Not tried again before the next opening.
    uncollectable: BTreeSet<u64>,
}

struct Flush {
    /// Newest first.
    memtables: Vec<Arc<Memtable>>,
    /// Every batch up to this one is in them or in tables.
    sequence: u64,
    job: Job,
}

impl Store {
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Task> {
        self.pins.release_expired(now);
        let Some(upkeep) = self.upkeep.try_lock() else {
            return Vec::new();
        };
        let version = self.version.load();
        let mut due = Vec::new();
        if upkeep.flush.is_some() || self.wants_flush(&version) {
            due.push(flush_task(&version));
        }
        let debt = policy::debt(&self.shape(&version), &self.settings.policy);
        let urgency = match debt.pressure_permille {
            0 => Urgency::Normal,
            _ => Urgency::Pressing,
        };
        let running = upkeep.merge.as_ref().map(|(pick, _)| pick);
        let next = self.picks(&version, now).into_iter().next();
        if let Some(pick) = running.or(next.as_ref()) {
            due.push(merge_task(pick, urgency));
        }
        let running = upkeep.collect.as_ref().map(CollectJob::file);
        if let Some(file) = running.or_else(|| self.blob_to_collect(&version, &upkeep)) {
            due.push(Task {
                kind: TaskKind::Merge,
                subject: file,
                urgency: Urgency::Idle,
                cost_bytes: version.blobs.get(&file).map_or(0, |it| 2 * it.block_bytes),
            });
        }
        if self.read_side.lost.has_unwritten() {
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
        match (task.kind, task.subject) {
            (TaskKind::Flush, 0) => self.flush_step(&mut upkeep, budget.bytes, now, false),
            (TaskKind::Compact | TaskKind::Expire, subject) => {
                self.merge_step(&mut upkeep, subject, budget.bytes, now)
            }
            (TaskKind::Merge, file) => self.collect_step(&mut upkeep, file, budget.bytes),
            (TaskKind::Reclaim, 0) => {
                self.read_side.lost.write(&*self.disk);
                Ok(StepOutcome::nothing_left())
            }
            _ => Ok(StepOutcome::nothing_left()),
        }
    }

    /// A put of so many bytes pays for a part of what the store owes: nothing as long as upkeep keeps
    /// up, and more the further it falls behind.
    pub(crate) fn pay(&self, put_bytes: u64, now: Timestamp) {
        let version = self.version.load();
        let zero = version.levels[0].len();
        let settings = &self.settings.policy;
        let is_flushing_late = version.frozen.len() > FROZEN_MAX
            || version.memtable.bytes() > 2 * self.settings.memtable_bytes;
        if zero <= settings.slow_from_tables && !is_flushing_late {
            return;
        }
        let debt = policy::debt(&self.shape(&version), settings);
        let factor = 1 + PAID_FACTOR_MAX * debt.pressure_permille / 1000;
        let budget = (factor * put_bytes).min(PAID_BYTES_MAX);
        let Some(mut upkeep) = self.upkeep.try_lock() else {
            // Somebody else is at it.
            return;
        };
        // What fails here is due again, and told to whoever asks for it.
        let _paid_or_due = if is_flushing_late {
            self.flush_step(&mut upkeep, budget, now, false)
        } else {
            let next = self.picks(&version, now).into_iter().next();
            let level = upkeep.merge.as_ref().map(|(pick, _)| pick.level);
            match level.or(next.map(|pick| pick.level)) {
                Some(level) => self.merge_step(&mut upkeep, level as u64, budget, now),
                None => Ok(StepOutcome::nothing_left()),
            }
        };
    }

    /// Moves everything to tables and returns up to which sequence that is done.
    pub(crate) fn flush_all(&self) -> Result<u64> {
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

    /// Gives up what was begun; its files go with it.
    pub(crate) fn abandon(&self, upkeep: &mut Upkeep) {
        let jobs = upkeep.flush.take().map(|flush| flush.job);
        for job in jobs
            .into_iter()
            .chain(upkeep.merge.take().map(|(_, job)| job))
        {
            self.remove_files(job.output_paths(self));
        }
        if let Some(collect) = upkeep.collect.take() {
            self.remove_files(collect.output_paths(self));
        }
    }

    fn check_not_failed(&self) -> Result<()> {
        match &*self.failure.lock() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn shape(&self, version: &Version) -> policy::Shape {
        version.shape(self.expiry.age_micros())
    }

    fn picks(&self, version: &Version, now: Timestamp) -> Vec<Pick> {
        policy::picks(&self.shape(version), &self.settings.policy, now.0)
    }

    fn wants_flush(&self, version: &Version) -> bool {
        let bytes = version.memtable.bytes();
        !version.frozen.is_empty()
            || bytes >= self.settings.memtable_bytes
            || (bytes > 0 && self.shared.memory.wants_flush(bytes))
    }

    /// Leaves the memtable to a flush. The next log is made before anybody waits for it.
    fn freeze(&self) -> Result<()> {
        let next_log = match self.settings.has_log && self.writer.lock().log.is_some() {
            true => Some(self.create_log()?),
            false => None,
        };
        let mut writer = self.writer.lock();
        let first_log = match &next_log {
            Some(log) => log.id().number,
            None => self.take_number(),
        };
        if let Some(log) = next_log {
            writer.unsynced.push((first_log, log.sync_handle()));
            writer.log = Some(log);
        }
        let mut version = Version::clone(&self.version.load());
        let fresh = Arc::new(Memtable::new(first_log));
        let full = std::mem::replace(&mut version.memtable, fresh);
        full.seal(writer.last_sequence);
        version.frozen.insert(0, full);
        self.version.store(Arc::new(version));
        Ok(())
    }

    fn flush_step(
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
        let outcome = self.publish(&written).and_then(|tables| {
            let blob = match &blob {
                Some(blob) => {
                    Some(self.open_blob(&blob.table, blob.table.id.number, blob.block_bytes)?)
                }
                None => None,
            };
            let first_log = self.version.load().first_log_behind(&flush.memtables);
            self.change_manifest(|manifest| {
                manifest.sequence = manifest.sequence.max(flush.sequence);
                manifest.first_log = first_log;
                let records = tables.iter().map(|it| record(it, 0));
                manifest.tables.splice(0..0, records);
                manifest
                    .blobs
                    .extend(blob.as_ref().map(|it| blob_record(it)));
            })?;
            Ok((tables, blob, first_log))
        });
        let (tables, blob, first_log) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                // Where nobody knows whether the manifest has them, they have to stay.
                if error.kind() == ErrorKind::Full || error.kind() == ErrorKind::Corrupt {
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
            version.levels[0].splice(0..0, tables);
            if let Some(blob) = blob {
                let mut blobs = (*version.blobs).clone();
                blobs.insert(blob.file, Arc::new(blob));
                version.blobs = Arc::new(blobs);
            }
            version.flushes += 1;
        });
        let freed: u64 = flush.memtables.iter().map(|it| it.bytes()).sum();
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

    /// Makes the names of new tables durable and opens them.
    fn publish(&self, written: &[WrittenTable]) -> Result<Vec<LevelTable>> {
        sync_directory(&*self.disk, &self.directory)
            .map_err(|error| self.fail_unless_full(error))?;
        written
            .iter()
            .map(|table| {
                let known = known(table);
                let path = table_path(&self.directory, table.id.number);
                let id = self.shared.cache.new_table();
                let sink = &self.read_side.tables;
                let opened = Table::open(&*self.disk, &path, known, id, sink).into_backend()?;
                Ok(LevelTable {
                    number: table.id.number,
                    file_len: table.file_len,
                    properties: Arc::new(table.properties.clone()),
                    table: Some(Arc::new(opened)),
                })
            })
            .collect()
    }

    fn open_blob(&self, written: &WrittenTable, file: u64, block_bytes: u64) -> Result<BlobFile> {
        let path = crate::blob::blob_path(&self.directory, written.id.number);
        let id = self.shared.cache.new_table();
        let sink = &self.read_side.blobs;
        let opened = Table::open(&*self.disk, &path, known(written), id, sink).into_backend()?;
        Ok(BlobFile {
            file,
            number: written.id.number,
            file_len: written.file_len,
            block_bytes,
            table: Some(Arc::new(opened)),
        })
    }

    fn merge_step(
        &self,
        upkeep: &mut Upkeep,
        level: u64,
        budget_bytes: u64,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        if upkeep.merge.is_none() {
            let version = self.version.load_full();
            let picks = self.picks(&version, now);
            let Some(pick) = picks.into_iter().find(|it| it.level as u64 == level) else {
                return Ok(StepOutcome::nothing_left());
            };
            if pick.is_move() {
                self.move_table(&version, &pick)?;
                return Ok(StepOutcome::nothing_left());
            }
            upkeep.merge = Some(start_merge(version, pick));
        }
        let Some((pick, job)) = &mut upkeep.merge else {
            return Ok(StepOutcome::nothing_left());
        };
        if pick.level as u64 != level {
            return Ok(StepOutcome::nothing_left());
        }
        let outcome = job.step(self, budget_bytes, now);
        if outcome.as_ref().is_err() {
            if let Some((_, job)) = upkeep.merge.take() {
                self.remove_files(job.output_paths(self));
            }
        }
        let (cost_bytes, is_done) = outcome?;
        if is_done && let Some((pick, job)) = upkeep.merge.take() {
            self.install_merge(&pick, job)?;
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    /// A table without anything below it goes down as it is.
    fn move_table(&self, version: &Version, pick: &Pick) -> Result<()> {
        let is_it = |number: u64| pick.inputs.contains(&number);
        let Some(table) = version.levels[pick.level]
            .iter()
            .find(|it| is_it(it.number))
        else {
            return Ok(());
        };
        let moved = vec![table.clone()];
        self.exchange(pick, &moved)?;
        self.counters.moves.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn install_merge(&self, pick: &Pick, mut job: Job) -> Result<()> {
        let written = std::mem::take(&mut job.written);
        let exchanged = self
            .publish(&written)
            .and_then(|tables| self.exchange(pick, &tables));
        if let Err(error) = exchanged {
            if error.kind() == ErrorKind::Full || error.kind() == ErrorKind::Corrupt {
                job.written = written;
                self.remove_files(job.output_paths(self));
            }
            return Err(error);
        }
        // What damaged blocks held is copied before they go.
        self.read_side.lost.write(&*self.disk);
        let paths = job.inputs.iter().map(|it| table_path(&self.directory, *it));
        self.remove_files(paths);
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// New tables take the place of a merge's inputs, in the manifest and for readers. Blob files
    /// that nothing refers to any more go at the same time.
    fn exchange(&self, pick: &Pick, tables: &[LevelTable]) -> Result<()> {
        let change = |version: &mut Version| {
            let gone = |it: &LevelTable| pick.inputs.contains(&it.number);
            version.levels[pick.level].retain(|it| !gone(it));
            let below = |it: &LevelTable| pick.below.contains(&it.number);
            version.levels[pick.output].retain(|it| !below(it));
            version.levels[pick.output].extend(tables.iter().cloned());
            version.levels[pick.output]
                .sort_by(|a, b| a.properties.smallest.cmp(&b.properties.smallest));
            let used = version.blob_use();
            let mut blobs = (*version.blobs).clone();
            blobs.retain(|file, _| used.contains_key(file));
            version.blobs = Arc::new(blobs);
        };
        let mut after = Version::clone(&self.version.load());
        let blobs_before: Vec<u64> = after.blobs.values().map(|it| it.number).collect();
        change(&mut after);
        self.change_manifest(|manifest| list_files(manifest, &after))?;
        self.change_version(change);
        let left: Vec<u64> = after.blobs.values().map(|it| it.number).collect();
        let unused = blobs_before.iter().filter(|it| !left.contains(it));
        self.remove_files(unused.map(|it| crate::blob::blob_path(&self.directory, *it)));
        Ok(())
    }

    /// The blob file with the largest share of garbage, where that is enough.
    fn blob_to_collect(&self, version: &Version, upkeep: &Upkeep) -> Option<u64> {
        let used = version.blob_use();
        let percent = u64::from(self.settings.blob_garbage_percent.clamp(1, 100));
        let garbage = |it: &Arc<BlobFile>| {
            let live = used.get(&it.file).copied().unwrap_or(0);
            it.block_bytes.saturating_sub(live)
        };
        version
            .blobs
            .values()
            .filter(|it| !upkeep.uncollectable.contains(&it.file))
            .filter(|it| it.table.is_some() && garbage(it) * 100 > it.block_bytes * percent)
            .max_by_key(|it| garbage(it))
            .map(|it| it.file)
    }

    fn collect_step(
        &self,
        upkeep: &mut Upkeep,
        file: u64,
        budget_bytes: u64,
    ) -> Result<StepOutcome> {
        if upkeep.collect.is_none() {
            let version = self.version.load_full();
            if self.blob_to_collect(&version, upkeep) != Some(file) {
                return Ok(StepOutcome::nothing_left());
            }
            let Some(blob) = version.blobs.get(&file) else {
                return Ok(StepOutcome::nothing_left());
            };
            upkeep.collect = CollectJob::start(blob);
        }
        let Some(job) = upkeep.collect.as_mut().filter(|it| it.file() == file) else {
            return Ok(StepOutcome::nothing_left());
        };
        let outcome = job.step(self, budget_bytes);
        if outcome.is_err() {
            if let Some(job) = upkeep.collect.take() {
                self.remove_files(job.output_paths(self));
            }
        }
        let (cost_bytes, is_done) = outcome?;
        if is_done && let Some(job) = upkeep.collect.take() {
            self.install_collected(upkeep, job)?;
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    /// The rewritten file takes the old one's place. Where no body is used any more there is none:
    /// entries that still name the file are hidden by newer ones, and nobody reads them.
    fn install_collected(&self, upkeep: &mut Upkeep, mut job: CollectJob) -> Result<()> {
        let file = job.file();
        let Some(old) = self.version.load().blobs.get(&file).cloned() else {
            self.remove_files(job.output_paths(self));
            return Ok(());
        };
        let blob = match job.written.take() {
            Some((written, block_bytes)) => {
                sync_directory(&*self.disk, &self.directory)
                    .map_err(|error| self.fail_unless_full(error))?;
                Some(self.open_blob(&written, file, block_bytes)?)
            }
            None => None,
        };
        let left = blob.as_ref().map_or(0, |it| it.block_bytes);
        if left > old.block_bytes / 10 * 9 {
            upkeep.uncollectable.insert(file);
        }
        let changed = blob.as_ref().map(blob_record);
        self.change_manifest(|manifest| {
            manifest.blobs.retain(|it| it.file != file);
            manifest.blobs.extend(changed);
        })?;
        self.change_version(|version| {
            let mut blobs = (*version.blobs).clone();
            blobs.remove(&file);
            blobs.extend(blob.map(|it| (file, Arc::new(it))));
            version.blobs = Arc::new(blobs);
        });
        self.read_side.lost.write(&*self.disk);
        self.remove_files([crate::blob::blob_path(&self.directory, old.number)]);
        Ok(())
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

fn start_merge(version: Arc<Version>, pick: Pick) -> (Pick, Job) {
    let from = std::ops::Bound::Unbounded;
    let of = |level: usize, numbers: &[u64]| -> Vec<LevelTable> {
        let tables = version.levels[level].iter();
        tables
            .filter(|it| numbers.contains(&it.number))
            .cloned()
            .collect()
    };
    let filter = ScanFilter::default;
    let inputs = of(pick.level, &pick.inputs);
    let mut sources: Vec<Source> = match pick.level {
        0 => inputs
            .chunks(1)
            .map(|it| Source::run(it, &from, filter()))
            .collect(),
        _ => vec![Source::run(&inputs, &from, filter())],
    };
    let below = of(pick.output, &pick.below);
    if pick.output != pick.level {
        sources.push(Source::run(&below, &from, filter()));
    }
    let numbers = pick.inputs.iter().chain(&pick.below).copied().collect();
    let walk = MergeWalk::new(sources);
    let job = Job::new(walk, version, pick.output, numbers, false);
    (pick, job)
}

/// Makes a manifest's lists those of a version.
pub(crate) fn list_files(manifest: &mut Manifest, version: &Version) {
    let levels = version.levels.iter().enumerate();
    manifest.tables = levels
        .flat_map(|(level, tables)| tables.iter().map(move |it| record(it, level)))
        .collect();
    manifest.blobs = version.blobs.values().map(|it| blob_record(it)).collect();
}

fn record(table: &LevelTable, level: usize) -> TableRecord {
    TableRecord {
        level: level as u64,
        number: table.number,
        file_len: table.file_len,
        properties: kvorum_sst::Properties::clone(&table.properties),
    }
}

fn blob_record(blob: &BlobFile) -> BlobRecord {
    BlobRecord {
        file: blob.file,
        number: blob.number,
        file_len: blob.file_len,
        block_bytes: blob.block_bytes,
    }
}

fn known(written: &WrittenTable) -> KnownTable {
    KnownTable {
        id: written.id,
        file_len: written.file_len,
        properties: written.properties.clone(),
    }
}

fn flush_task(version: &Version) -> Task {
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

fn merge_task(pick: &Pick, urgency: Urgency) -> Task {
    let (kind, urgency) = match pick.reason {
        Reason::Size if pick.level == 0 => (TaskKind::Compact, urgency),
        Reason::Size => (TaskKind::Compact, Urgency::Normal),
        Reason::Removals => (TaskKind::Compact, Urgency::Idle),
        Reason::Expired => (TaskKind::Expire, Urgency::Idle),
    };
    Task {
        kind,
        subject: pick.level as u64,
        urgency,
        cost_bytes: 2 * pick.bytes,
    }
}

//! The store below its upkeep: the parts that reads, writes and jobs share, and the order of its
//! locks. The store does not depend on jobs, which get it as an argument.
//!
//! Locks are taken in this order: upkeep, manifest, writer. A put holds the writer's lock during
//! one append. Upkeep holds its lock during a step, and the writer's lock while it exchanges the
//! version. Reads take no lock.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use kvorum_backend::{BackendError, ErrorKind, GroupSync, Intake, Replays, Result, Written};
use kvorum_disk::{Disk, DiskLock, Operation};
use kvorum_segment::{Compressor, SegmentSync, SegmentWriter};
use kvorum_sst::{SstError, Table, TableId};
use kvorum_storage_errors::{from_segment, from_sst};
use kvorum_tiers::SlowSide;
use kvorum_value_log::{Holds, ValueLog};
use parking_lot::Mutex;

use crate::DrawNumber;
use crate::expiry::Expiry;
use crate::keeping::Keeping;
use crate::log_backlog::LogBacklog;
use crate::manifest::{self, Manifest};
use crate::pins::Pins;
use crate::read_side::ReadSide;
use crate::replaced::Replaced;
use crate::version::Version;
use crate::{LsmSettings, Shared};

/// The shared parts of an open store, without upkeep's jobs.
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    /// The place of old tables.
    pub(crate) slow: Option<SlowSide>,
    pub(crate) directory: PathBuf,
    /// The value log, for a store that has no log of its own.
    pub(crate) log: Option<ValueLog>,
    /// Its reserve is the value log's; without a value log, the node sets it.
    pub(crate) intake: Intake,
    /// For bodies that stay in the value log.
    pub(crate) compressor: Compressor,
    /// For bodies that go to journal files and are not compressed yet.
    pub(crate) journal_compressor: Compressor,
    pub(crate) settings: LsmSettings,
    pub(crate) shared: Shared,
    pub(crate) draw: DrawNumber,
    pub(crate) expiry: Expiry,
    pub(crate) read_side: ReadSide,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) writer: Mutex<WriteSide>,
    /// Changed under the writer's lock only.
    pub(crate) version: ArcSwap<Version>,
    /// The number of changes of the version.
    pub(crate) version_changes: AtomicU64,
    pub(crate) replaced: Replaced<Version>,
    pub(crate) pins: Pins,
    pub(crate) group: Arc<GroupSync>,
    pub(crate) counters: Counters,
    pub(crate) counted: Mutex<Counted>,
    pub(crate) identity: AtomicU64,
    pub(crate) next_number: AtomicU64,
    /// The last batch that readers see.
    pub(crate) visible: AtomicU64,
    /// The sequence up to which every batch is known to be durable.
    pub(crate) durable: AtomicU64,
    pub(crate) has_extras: AtomicBool,
    /// Batches that the value log has given back, if the engine notes them.
    pub(crate) replays: OnceLock<Replays>,
    /// Segments of the value log that copies of the store in progress need.
    pub(crate) holds: Holds,
    /// Released when the store is dropped or closed.
    pub(crate) lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// The state under the writer's lock.
pub(crate) struct WriteSide {
    pub(crate) log: Option<SegmentWriter>,
    /// Log segments that may hold batches not yet durable, oldest first.
    pub(crate) unsynced: Vec<(u64, SegmentSync)>,
    pub(crate) last_sequence: u64,
    /// Batches in the value log that are in no table.
    pub(crate) uncovered: LogBacklog,
    /// Segments of the value log that this store has released. Only hidden entries of tables, which
    /// are never read, may still name them.
    pub(crate) settled: BTreeSet<u32>,
}

/// The number of keys that was counted at this state of the store.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) sequence: u64,
    pub(crate) flushes: u64,
    pub(crate) keys: u64,
}

/// Counts since opening.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) put_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) corrupt_reads: AtomicU64,
    pub(crate) torn_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) moves: AtomicU64,
}

impl Store {
    pub(crate) fn identity(&self) -> u64 {
        self.identity.load(Ordering::Acquire)
    }

    pub(crate) fn table_id(&self, number: u64) -> TableId {
        TableId {
            store: self.identity(),
            number,
        }
    }

    /// The disk on which new tables of a level are created.
    pub(crate) fn disk_of(&self, level: usize) -> &dyn Disk {
        self.disk_of_side(self.is_slow_level(level))
    }

    pub(crate) fn disk_of_side(&self, is_slow: bool) -> &dyn Disk {
        match &self.slow {
            Some(slow) if is_slow => &*slow.disk,
            _ => &*self.disk,
        }
    }

    /// True when tables of a level belong in the slow directory.
    pub(crate) fn is_slow_level(&self, level: usize) -> bool {
        self.slow.as_ref().is_some_and(|it| it.takes(level))
    }

    /// True when a table is in the slow directory.
    pub(crate) fn lies_slow(&self, table: &Table) -> bool {
        self.slow.as_ref().is_some_and(|it| it.has(table.path()))
    }

    /// The size at which a job begins another table. A flush writes one table, unless the disk is
    /// small: a merge needs room for all tables that it takes from level 0.
    pub(crate) fn table_bytes_max(&self, is_flush: bool) -> u64 {
        let set = match is_flush {
            true => u64::MAX,
            false => self.settings.policy.table_bytes_max,
        };
        self.intake.headroom().part_bytes(set)
    }

    pub(crate) fn take_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn visible_sequence(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// The present view: a version, and the sequence up to which it is read.
    pub(crate) fn view(&self) -> (Arc<Version>, u64) {
        loop {
            let version = self.version.load_full();
            let sequence = self.visible_sequence();
            // A newer memtable may have entries up to the sequence.
            if Arc::ptr_eq(&self.version.load().memtable, &version.memtable) {
                return (version, sequence);
            }
        }
    }

    pub(crate) fn show_up_to(&self, sequence: u64) {
        self.visible.store(sequence, Ordering::Release);
    }

    pub(crate) fn count_written(&self, bytes: u64) {
        self.counters
            .written_bytes
            .fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_corrupt_read(&self) {
        self.counters.corrupt_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`Intake::fail`], except for lack of space.
    pub(crate) fn fail_unless_full(&self, error: BackendError) -> BackendError {
        match error.kind() {
            ErrorKind::Full => error,
            _ => self.intake.fail(&error),
        }
    }

    /// A failed sync is final; other failures of writing a new file are not.
    pub(crate) fn fail_if_sync(&self, error: &SstError) -> BackendError {
        let failure = from_sst(error);
        match error {
            SstError::Disk(disk) if disk.operation() == Operation::Sync => {
                self.fail_unless_full(failure)
            }
            _ => failure,
        }
    }

    /// Makes everything put so far durable, and returns the last durable sequence.
    pub(crate) fn sync_all(&self) -> Result<u64> {
        self.intake.check_not_failed()?;
        let sequence = self.writer.lock().last_sequence;
        self.sync_own_log()?;
        self.sync_value_log()?;
        self.durable.fetch_max(sequence, Ordering::AcqRel);
        self.mark_if_idle(sequence);
        Ok(sequence)
    }

    /// Makes the store's own log durable, if there is one.
    pub(crate) fn sync_own_log(&self) -> Result<()> {
        let handles = self.writer.lock().unsynced.clone();
        for (_, handle) in &handles {
            handle
                .sync()
                .map_err(|error| self.intake.fail(&from_segment(&error)))?;
        }
        Ok(())
    }

    /// Makes the value log durable: tables name places there, so the log must be durable before
    /// them.
    pub(crate) fn sync_value_log(&self) -> Result<()> {
        self.log.as_ref().map_or(Ok(()), ValueLog::sync)
    }

    /// Kinds of entries that stay in the value log. Without a journal no body stays there if old
    /// tables go to a slow device: bodies follow them in blob files, and the log is on the fast
    /// device.
    pub(crate) fn keeping(&self) -> Keeping {
        match (self.settings.journaled, &self.slow) {
            (Some(is_journaled), _) => Keeping::Journal(is_journaled),
            (None, Some(_)) => Keeping::Nothing,
            (None, None) => Keeping::BodiesFrom(self.settings.blob_threshold_bytes.max(1)),
        }
    }

    /// The identity of the value log; 0 if there is none.
    pub(crate) fn value_log_id(&self) -> u64 {
        self.log.as_ref().map_or(0, ValueLog::log_id)
    }

    /// Writes a mark that proves the last sync, if no record was written since.
    fn mark_if_idle(&self, sequence: u64) {
        if let Some(mut writer) = self.writer.try_lock()
            && writer.last_sequence == sequence
            && let Some(log) = &mut writer.log
        {
            // Without the mark, damage to the last group may look like a torn tail.
            let _marked_or_full_disk = log.mark();
        }
    }

    /// Changes the manifest, on disk first. No change is made after a failure: the file may list
    /// files that the version lacks, and a later manifest, made from that version, would drop them.
    /// No change is made after the lock was released: the directory may be another process's.
    pub(crate) fn change_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let mut held = self.manifest.lock();
        self.intake.check_not_failed()?;
        if self.lock.lock().is_none() {
            return Err(self.intake.closed());
        }
        let mut changed = held.clone();
        change(&mut changed);
        changed.generation += 1;
        changed.next_number = self.next_number.load(Ordering::Relaxed);
        let doubts = &self.read_side.doubts;
        let is_listed = |number| changed.tables.iter().any(|it| it.number == number);
        let (record, change) = doubts.record(is_listed);
        changed.doubts = record;
        match manifest::write(&*self.disk, &self.directory, &changed) {
            Written::Both => {}
            // The change is made; the next change writes the second copy again.
            Written::First(error) if error.kind() == ErrorKind::Full => {}
            Written::First(error) => {
                *held = changed;
                return Err(self.intake.fail(&error));
            }
            Written::None(error) => return Err(error),
            Written::Unknown(error) => return Err(self.intake.fail(&error)),
        }
        *held = changed;
        doubts.is_written(change);
        Ok(())
    }

    /// Notes durably that entries have extra bytes, before the first of these is written.
    pub(crate) fn note_extras(&self) -> Result<()> {
        if self.has_extras.load(Ordering::Acquire) {
            return Ok(());
        }
        self.change_manifest(|manifest| manifest.has_extras = true)?;
        let manifest = self.manifest.lock();
        // A put detects an erasure made meanwhile, and calls this again.
        if manifest.has_extras {
            self.has_extras.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Exchanges the version.
    pub(crate) fn change_version(&self, change: impl FnOnce(&mut Version)) {
        let _no_put_and_no_other_change = self.writer.lock();
        let mut version = Version::clone(&self.version.load());
        change(&mut version);
        self.replace_version(version);
    }

    /// Exchanges the version; the caller holds the writer's lock.
    pub(crate) fn replace_version(&self, version: Version) {
        let replaced = self.version.swap(Arc::new(version));
        self.version_changes.fetch_add(1, Ordering::Relaxed);
        self.replaced.hold(replaced);
    }

    /// Removes files without references. A failure costs space until the next opening.
    pub(crate) fn remove_files(&self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            let _removed_or_left_over = self.disk.remove_file(&path);
        }
    }

    /// The same for files that were read: their damaged bytes are copied first.
    pub(crate) fn retire_files(&self, paths: impl IntoIterator<Item = PathBuf>) {
        self.read_side.lost.write(&*self.disk);
        for path in paths {
            self.read_side.lost.retire(&*self.disk, &path);
        }
    }
}

//! Stores over the value log: the engines whose entries may stay there, for tests that hold for
//! each of them, and a store for the suite that opens the log and does its upkeep too.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{
    Backend, BackendError, Backups, Batch, Capabilities, Durability, ErrorKind, IndexFolds,
    JournalFolds, Lease, Lookup, LostRange, ReadAt, Receipt, Result, Sequence, Snapshot, Status,
    StepBudget, StepOutcome, StoreBackup, StoreId, StoredEntry, StoredHead, Task, TaskKind,
    Timestamp, Urgency,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, MergeSettings, SyncStrategy};
use kvorum_backend_conformance::Opening;
use kvorum_backend_hanoidb::{Hanoidb, HanoidbSettings};
use kvorum_backend_innostore::{Innostore, InnostoreSettings};
use kvorum_backend_leveldb::{Compression, DrawNumber, Leveldb, LeveldbSettings, Shared};
use kvorum_backend_leveled::{JournalPolicy, LeveledSettings};
use kvorum_disk::Disk;
use kvorum_encoding::StorageKey;
use kvorum_lsm::policy::PolicySettings;
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};
use parking_lot::Mutex;

/// An engine with its settings.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    Bitcask(BitcaskSettings),
    Leveldb(LeveldbSettings),
    Leveled(LeveledSettings),
    Hanoidb(HanoidbSettings),
    Innostore(InnostoreSettings),
}

impl Engine {
    /// Opens a store over a log, or with its own files only.
    pub(crate) fn open(
        &self,
        disk: Arc<dyn Disk>,
        directory: &Path,
        draw: DrawNumber,
        log: impl Into<Option<ValueLog>>,
    ) -> Result<Opened> {
        let log = log.into();
        Ok(match self.clone() {
            Self::Bitcask(own) => Bitcask::open(disk, directory, own, draw, log)?.into(),
            Self::Leveldb(own) => {
                let shared = Shared::new(64 << 10, 1 << 20);
                Leveldb::open(disk, directory, &own, shared, draw, log)?.into()
            }
            Self::Hanoidb(own) => {
                let shared = Shared::new(64 << 10, 1 << 20);
                Hanoidb::open(disk, directory, &own, shared, draw, log)?.into()
            }
            Self::Leveled(own) => {
                let shared = Shared::new(64 << 10, 1 << 20);
                let refusal = || BackendError::new(ErrorKind::Misuse, "leveled without a journal");
                let journal = log.ok_or_else(refusal)?;
                kvorum_backend_leveled::open(disk, directory, &own, shared, draw, journal)?.into()
            }
            Self::Innostore(own) => {
                let shared = kvorum_backend_innostore::Shared::new(64 << 10);
                let refusal = || BackendError::new(ErrorKind::Misuse, "innostore without a log");
                let log = log.ok_or_else(refusal)?;
                Innostore::open(disk, directory, &own, shared, draw, log)?.into()
            }
        })
    }
}

/// An open store, and its handle for the log.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) tenant: Arc<dyn Tenant>,
}

impl Deref for Opened {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl From<Bitcask> for Opened {
    fn from(store: Bitcask) -> Self {
        let store = Arc::new(store);
        Self {
            store: store.clone(),
            tenant: store,
        }
    }
}

impl From<Leveldb> for Opened {
    fn from(store: Leveldb) -> Self {
        Self {
            tenant: store.tenant(),
            store: Arc::new(store),
        }
    }
}

impl From<Innostore> for Opened {
    fn from(store: Innostore) -> Self {
        Self {
            tenant: store.tenant(),
            store: Arc::new(store),
        }
    }
}

/// The same stores as the log's tenants.
pub(crate) fn tenants_of(stores: &[Opened]) -> Vec<Arc<dyn Tenant>> {
    stores.iter().map(|it| it.tenant.clone()).collect()
}

/// The log's directory, beside the stores.
pub(crate) const LOG: &str = "value_log";
/// The name of a lost range that stands for a store's batches lost by the log.
const INCOMPLETE: &str = "value_log: the store's batches";

/// A store and the log of its entries; upkeep of both is done together.
pub(crate) struct TenantBackend {
    engine: Opened,
    log: ValueLog,
    /// Damage that opening the log found.
    damage: Mutex<Vec<LostRange>>,
}

impl TenantBackend {
    /// Opens the log, and over it the engine from `open`.
    pub(crate) fn open<E: Into<Opened>>(
        opening: &Opening,
        open: impl FnOnce(ValueLog) -> Result<E>,
    ) -> Result<Box<dyn Backend>> {
        let (disk, draw) = (opening.disk(), opening.draw.clone());
        let log_settings = ValueLogSettings {
            segment_bytes: 4_000,
            garbage_percent_max: 20,
        };
        // A backup has it in its own directory.
        let own = opening.directory.join(LOG);
        let directory = match disk.info(&own).ok().flatten() {
            Some(_) => own,
            None => PathBuf::from(LOG),
        };
        let (log, found) = ValueLog::open(disk, &directory, draw(), log_settings)?;
        let engine: Opened = open(log.clone())?.into();
        let admitted = log.admit(&tenants_of(std::slice::from_ref(&engine)))?;
        let damage = found.damage.into_iter().chain(admitted.damage);
        let incomplete = admitted.lost.iter().map(|(_, to)| incomplete(*to));
        Ok(Box::new(Self {
            engine,
            log,
            damage: Mutex::new(damage.map(lost).chain(incomplete).collect()),
        }))
    }

    fn keep_log(&self) -> Result<()> {
        if self.log.is_upkeep_due() {
            self.log.upkeep_step(StepBudget { bytes: 4_000 })?;
        }
        let found = self.log.take_damage();
        self.damage.lock().extend(found.into_iter().map(lost));
        Ok(())
    }
}

fn lost(held: String) -> LostRange {
    LostRange {
        file: "value_log".to_owned(),
        offset: 0,
        len: 0,
        held,
    }
}

/// The range by which a node recognizes an incomplete store: it answers no reads until it is
/// repaired as a whole.
fn incomplete(lost_to: Sequence) -> LostRange {
    LostRange {
        file: INCOMPLETE.to_owned(),
        ..lost(format!("batches up to {}", lost_to.0))
    }
}

/// True when the log has lost batches of a store, not only values.
pub(crate) fn is_incomplete(status: &Status) -> bool {
    status.lost.iter().any(|it| it.file == INCOMPLETE)
}

impl Backend for TenantBackend {
    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn identity(&self) -> StoreId {
        self.engine.identity()
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        self.engine.put(batch, durability)
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        self.engine.get(key, at)
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        self.engine.head(key, at)
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        self.engine.snapshot(lease)
    }

    fn sync(&self) -> Result<Sequence> {
        self.engine.sync()
    }

    fn durable(&self) -> Sequence {
        self.engine.durable()
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        self.engine.is_empty(now)
    }

    fn status(&self) -> Status {
        let mut status = self.engine.status();
        status.lost.extend(self.damage.lock().iter().cloned());
        status
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        let mut tasks = self.engine.maintenance_due(now);
        // The log's upkeep as a task, for which the engine does nothing.
        if self.log.is_upkeep_due() {
            tasks.push(Task {
                kind: TaskKind::Scrub,
                subject: 0,
                urgency: Urgency::Normal,
                cost_bytes: 0,
            });
        }
        tasks
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        self.keep_log()?;
        self.engine.maintenance_step(task, budget, now)
    }

    fn erase(&self) -> Result<()> {
        self.engine.erase()
    }

    fn close(&self) -> Result<()> {
        self.engine.close()
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        self.engine.indexes()
    }

    fn journal_folds(&self) -> Option<&dyn JournalFolds> {
        self.engine.journal_folds()
    }

    fn backups(&self) -> Option<&dyn Backups> {
        Some(self)
    }
}

impl Backups for TenantBackend {
    fn backup(&self, directory: &Path) -> Result<StoreBackup> {
        let Some(backups) = self.engine.backups() else {
            return Ok(StoreBackup::default());
        };
        let made = backups.backup(directory)?;
        self.log.backup(&directory.join(LOG))?;
        Ok(made)
    }
}

/// Small files, and upkeep all the time.
pub(crate) fn bitcask_settings() -> BitcaskSettings {
    BitcaskSettings {
        sync: SyncStrategy::None,
        file_bytes_max: 4096,
        checkpoint_after_bytes: 8192,
        merge: MergeSettings {
            fragmentation_trigger_percent: 20,
            garbage_bytes_trigger: 512,
            store_garbage_trigger_percent: 20,
            fragmentation_threshold_percent: 10,
            garbage_bytes_threshold: 256,
            small_file_threshold_bytes: 1024,
            ..MergeSettings::default()
        },
        log_hint_records_min: 3,
        log_hints_merged: 2,
        ..BitcaskSettings::default()
    }
}

/// The same for a ledger, with journal files that are rewritten when a third of them is garbage.
pub(crate) fn leveled_settings() -> LeveledSettings {
    let leveldb = leveldb_settings();
    LeveledSettings {
        sync: leveldb.sync,
        ledger_buffer_bytes: 1_500,
        block_bytes: leveldb.block_bytes,
        journal_policy: JournalPolicy {
            run_files_max: 2,
            single_file_percent: 66,
            longest_run_percent: 80,
            ..JournalPolicy::default()
        },
        policy: leveldb.policy,
        ..LeveledSettings::default()
    }
}

/// The same with doubling levels.
pub(crate) fn hanoidb_settings() -> HanoidbSettings {
    let leveldb = leveldb_settings();
    HanoidbSettings {
        sync: leveldb.sync,
        unit_bytes: 1_000,
        write_buffer_bytes: leveldb.write_buffer_bytes,
        block_bytes: leveldb.block_bytes,
        compression: leveldb.compression,
        blob_threshold_bytes: leveldb.blob_threshold_bytes,
        table_bytes_max: leveldb.policy.table_bytes_max,
        ..HanoidbSettings::default()
    }
}

/// Pages of a few entries, and files of a few pages.
pub(crate) fn innostore_settings() -> InnostoreSettings {
    InnostoreSettings {
        sync: SyncStrategy::None,
        page_bytes: 300,
        body_apart_bytes: 200,
        dirty_bytes_max: 3_000,
        file_bytes_max: 10_000,
        garbage_percent: 40,
        small_files_max: 3,
        ..InnostoreSettings::default()
    }
}

/// So small that a few dozen writes fill memtables, tables and blob files.
pub(crate) fn leveldb_settings() -> LeveldbSettings {
    LeveldbSettings {
        sync: SyncStrategy::None,
        write_buffer_bytes: 3_000,
        block_bytes: 300,
        block_restart_interval: 2,
        blob_threshold_bytes: 600,
        compression: Compression::Lz4,
        policy: PolicySettings {
            levels: 4,
            level_zero_tables: 2,
            base_bytes: 6_000,
            multiplier: 3,
            table_bytes_max: 3_000,
            slow_from_tables: 3,
            slowest_at_tables: 6,
            ..PolicySettings::default()
        },
        ..LeveldbSettings::default()
    }
}

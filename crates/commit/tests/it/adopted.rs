//! Stores over the value log: the engines whose entries may stay there, for tests that hold for each of
//! them, and one for the suite, with which the log is opened and whose upkeep is done along with the log's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{
    Backend, Backups, Batch, Capabilities, Durability, IndexFolds, Lease, Lookup, LostRange,
    ReadAt, Receipt, Result, Sequence, SharedLog, Snapshot, Status, StepBudget, StepOutcome,
    StoreBackup, StoreId, StoredEntry, StoredHead, Task, TaskKind, Timestamp, Urgency,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_backend_conformance::Opening;
use kvorum_backend_leveldb::{DrawNumber, Leveldb, LeveldbSettings, Shared};
use kvorum_commit::{ValueLog, ValueLogSettings};
use kvorum_disk::Disk;
use kvorum_encoding::StorageKey;
use parking_lot::Mutex;

/// An engine with its settings.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    Bitcask(BitcaskSettings),
    Leveldb(LeveldbSettings),
}

impl Engine {
    /// Opens a store over a log, or without one as before there was any.
    pub(crate) fn open(
        &self,
        disk: Arc<dyn Disk>,
        directory: &Path,
        draw: DrawNumber,
        log: Option<Arc<dyn SharedLog>>,
    ) -> Result<Arc<dyn Backend>> {
        Ok(match self.clone() {
            Self::Bitcask(own) => Arc::new(match log {
                Some(log) => Bitcask::open_adopting(disk, directory, own, draw, log)?,
                None => Bitcask::open(disk, directory, own, draw)?,
            }),
            Self::Leveldb(own) => {
                let shared = Shared::new(64 << 10, 1 << 20);
                Arc::new(match log {
                    Some(log) => Leveldb::open_adopting(disk, directory, &own, shared, draw, log)?,
                    None => Leveldb::open(disk, directory, &own, shared, draw)?,
                })
            }
        })
    }
}

/// Where the log is, beside the stores.
pub(crate) const LOG: &str = "value_log";

/// A store and the log that its entries stay in, whose upkeep is done along with the store's.
pub(crate) struct Adopted {
    engine: Arc<dyn Backend>,
    log: ValueLog,
    /// What opening the log found damaged.
    damage: Mutex<Vec<LostRange>>,
}

impl Adopted {
    /// Opens the log, and over it the engine that `open` gives.
    pub(crate) fn open<E: Backend + 'static>(
        opening: &Opening,
        open: impl FnOnce(Arc<dyn SharedLog>) -> Result<E>,
    ) -> Result<Box<dyn Backend>> {
        let (disk, draw) = (opening.disk.clone(), opening.draw.clone());
        let log_settings = ValueLogSettings {
            segment_bytes: 4_000,
            dead_percent_max: 20,
        };
        // A backup has it in its own directory.
        let own = opening.directory.join(LOG);
        let directory = match disk.info(&own).ok().flatten() {
            Some(_) => own,
            None => PathBuf::from(LOG),
        };
        let (log, found) = ValueLog::open(disk, &directory, draw(), log_settings)?;
        let engine: Arc<dyn Backend> = Arc::new(open(Arc::new(log.clone()))?);
        let admitted = log.admit(std::slice::from_ref(&engine))?;
        let damage = found.damage.into_iter().chain(admitted.damage);
        Ok(Box::new(Self {
            engine,
            log,
            damage: Mutex::new(damage.map(lost).collect()),
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

impl Backend for Adopted {
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
        // A task that the engine knows nothing of and takes for done.
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

    fn backups(&self) -> Option<&dyn Backups> {
        Some(self)
    }
}

impl Backups for Adopted {
    fn backup(&self, directory: &Path) -> Result<StoreBackup> {
        let Some(backups) = self.engine.backups() else {
            return Ok(StoreBackup::default());
        };
        let made = backups.backup(directory)?;
        let held: Vec<_> = made.held.iter().cloned().collect();
        self.log.backup(&directory.join(LOG), &held)?;
        Ok(made)
    }
}

//! The suite over bitcask with its entries in the value log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{
    Backend, Backups, Batch, Capabilities, Durability, Lease, Lookup, LostRange, ReadAt, Receipt,
    Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreBackup, StoreId, StoredEntry,
    StoredHead, Task, TaskKind, Timestamp, Urgency,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, Compression, SyncStrategy};
use kvorum_backend_conformance::{EngineUnderTest, Opening, conformance_suite};
use kvorum_commit::{ValueLog, ValueLogSettings};
use kvorum_encoding::StorageKey;
use parking_lot::Mutex;

use crate::bitcask::settings;

/// Where the log is, beside the stores.
const LOG: &str = "value_log";

/// Bitcask with its entries in the value log, as the server runs it.
struct AdoptedBitcask;

/// A store and the log that its entries stay in, whose upkeep is done along with the store's.
struct Adopted {
    engine: Arc<dyn Backend>,
    log: ValueLog,
    /// What opening the log found damaged.
    damage: Mutex<Vec<LostRange>>,
}

impl Adopted {
    fn open(opening: &Opening, settings: BitcaskSettings) -> Result<Box<dyn Backend>> {
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
        let (log, found) = ValueLog::open(disk.clone(), &directory, draw(), log_settings)?;
        let shared = Arc::new(log.clone());
        let directory = &opening.directory;
        let engine = Bitcask::open_adopting(disk, directory, settings, draw, shared)?;
        let engine: Arc<dyn Backend> = Arc::new(engine);
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

impl EngineUnderTest for AdoptedBitcask {
    fn name(&self) -> &str {
        "bitcask with its entries in the value log"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: false,
            indexes: false,
            backups: true,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let settings = BitcaskSettings {
            sync: SyncStrategy::Grouped,
            log_segments_behind_max: opening.variation + 1,
            ..settings()
        };
        let settings = match opening.variation {
            0 => settings,
            // Nothing is covered before closing, and nothing compressed alike.
            1 => BitcaskSettings {
                checkpoint_after_bytes: 1 << 30,
                log_segments_behind_max: 1 << 30,
                compression: Compression::Lz4,
                sync: SyncStrategy::None,
                ..settings
            },
            // Different keys collide.
            _ => BitcaskSettings {
                sync: SyncStrategy::Interval(Duration::from_secs(1)),
                fingerprint: Some(|key| u64::from(key.last().copied().unwrap_or(0) % 3) << 47),
                ..settings
            },
        };
        Adopted::open(opening, settings)
    }

    fn directories(&self, opening: &Opening) -> Vec<PathBuf> {
        vec![opening.directory.clone(), PathBuf::from(LOG)]
    }

    fn variations(&self) -> u32 {
        3
    }

    fn default_tickets_are_durable(&self, variation: u32) -> bool {
        variation == 0
    }

    fn slowness(&self) -> usize {
        2
    }

    /// A write that finds no space in a file whose space was reserved, as the suite has it, comes when
    /// the put can be seen: it stays, and later ones are refused until it is written.
    fn works_on_a_full_disk(&self) -> bool {
        false
    }
}

conformance_suite!(AdoptedBitcask);

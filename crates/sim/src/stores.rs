//! The stores of a simulated node: bitcask behind a commit log on a disk that can fail, or memory.
//!
//! A simulation has no threads, so a task drives the log: it lets as much virtual time pass as a device
//! would take, and commits the group that has gathered meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use kvorum_backend::{Backend, Durability, StepBudget, Timestamp};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, SyncStrategy};
use kvorum_backend_memory::MemoryBackend;
use kvorum_commit::{CommitLog, CommitLogSettings, Committed, Recovery, recover};
use kvorum_disk::Disk;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Runtime;
use parking_lot::Mutex;

use crate::plan::Engine;

const LOG_DIRECTORY: &str = "/node/commit_log";
/// Small, so that a run of some thousand writes closes, syncs and drops many.
const LOG_SETTINGS: CommitLogSettings = CommitLogSettings {
    segment_bytes: 64 << 10,
    bytes_max: 512 << 10,
};
const DATA_FILE_BYTES_MAX: u64 = 128 << 10;
/// What a device takes for a sync at least, in microseconds.
const SYNC_MICROS_MIN: u64 = 200;
const UPKEEP_PERIOD: Duration = Duration::from_millis(700);
const UPKEEP_STEPS_MAX: usize = 8;
const STEP_BUDGET: StepBudget = StepBudget { bytes: 64 << 10 };

/// Opens and removes the stores of one run of a node.
pub(crate) struct SimulatedStores {
    runtime: Runtime,
    disk: Arc<dyn Disk>,
    engine: Engine,
    /// The longest that a sync takes on a sound disk.
    sync_max: Duration,
    /// What every sync takes on top, in microseconds.
    slowness: Arc<AtomicU64>,
    log: Option<CommitLog>,
    /// What the log of the run before had for the stores.
    pub(crate) recovery: Recovery,
    open: Mutex<BTreeMap<PathBuf, Arc<dyn Backend>>>,
}

/// Which store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Partition(Partition),
    Hints,
}

impl SimulatedStores {
    /// Opens those that the node has when it starts, and makes good what the log has of them.
    pub(crate) fn open_first(
        runtime: &Runtime,
        disk: Arc<dyn Disk>,
        (engine, sync_max): (Engine, Duration),
        slowness: Arc<AtomicU64>,
        (size, partitions): (RingSize, &[Partition]),
    ) -> anyhow::Result<Arc<Self>> {
        let mut stores = Self {
            runtime: runtime.clone(),
            disk,
            engine,
            sync_max,
            slowness,
            log: None,
            recovery: Recovery::default(),
            open: Mutex::default(),
        };
        let all = partitions
            .iter()
            .map(|partition| Which::Partition(*partition));
        let mut engines = Vec::new();
        for which in all.chain([Which::Hints]) {
            let path = directory(size, which);
            engines.push((path.clone(), stores.engine(&path)?));
        }
        if engine == Engine::Bitcask {
            let backends: Vec<Arc<dyn Backend>> = engines.iter().map(|it| it.1.clone()).collect();
            let log = Path::new(LOG_DIRECTORY);
            kvorum_disk::create_directory_durably(&*stores.disk, log)?;
            let recovered = recover(&*stores.disk, log, &backends);
            stores.recovery = recovered.context("recover the commit log")?;
            let id = runtime.random_u64();
            let log = CommitLog::create(stores.disk.clone(), log, id, LOG_SETTINGS)?;
            stores.drive(&log);
            stores.log = Some(log);
        }
        for (path, engine) in engines {
            let store = stores.behind_log(engine);
            stores.open.lock().insert(path, store);
        }
        let stores = Arc::new(stores);
        stores.keep_up();
        Ok(stores)
    }

    /// A store that is open.
    pub(crate) fn get(&self, size: RingSize, which: Which) -> Option<Arc<dyn Backend>> {
        self.open.lock().get(&directory(size, which)).cloned()
    }

    /// Opens the store of a partition that comes to the node; what is left of an earlier one goes.
    pub(crate) fn open(
        &self,
        size: RingSize,
        partition: Partition,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let path = directory(size, Which::Partition(partition));
        self.remove(size, partition)?;
        let store = self.behind_log(self.engine(&path)?);
        self.open.lock().insert(path, store.clone());
        Ok(store)
    }

    /// Removes the store of a partition that has gone elsewhere.
    pub(crate) fn remove(&self, size: RingSize, partition: Partition) -> anyhow::Result<()> {
        let path = directory(size, Which::Partition(partition));
        let open = self.open.lock().remove(&path);
        if let Some(store) = open {
            store.close()?;
        }
        if self.disk.info(&path)?.is_some() {
            self.disk.remove_directory(&path)?;
            self.disk.sync_directory(path.parent().unwrap_or(&path))?;
        }
        Ok(())
    }

    /// Closes all, as a node does that stops; nothing is left to replay.
    pub(crate) fn close(&self) -> anyhow::Result<()> {
        for store in self.open.lock().values() {
            store.close()?;
        }
        if let Some(log) = &self.log {
            log.stop();
            log.remove()?;
        }
        Ok(())
    }

    fn engine(&self, path: &Path) -> anyhow::Result<Arc<dyn Backend>> {
        let randomness = self.runtime.randomness();
        let draw = move || randomness.next_u64();
        if self.engine == Engine::Memory {
            let settings = kvorum_backend_memory::Settings::default();
            return Ok(Arc::new(MemoryBackend::new(settings, draw)));
        }
        let mut settings = BitcaskSettings {
            sync: SyncStrategy::None,
            file_bytes_max: DATA_FILE_BYTES_MAX,
            checkpoint_after_bytes: DATA_FILE_BYTES_MAX,
            ..BitcaskSettings::default()
        };
        settings.merge.dead_bytes_trigger = DATA_FILE_BYTES_MAX;
        settings.merge.dead_bytes_threshold = DATA_FILE_BYTES_MAX / 4;
        settings.merge.small_file_threshold_bytes = DATA_FILE_BYTES_MAX / 8;
        let store = Bitcask::open(self.disk.clone(), path, settings, Arc::new(draw))
            .with_context(|| format!("open {}", path.display()))?;
        Ok(Arc::new(store))
    }

    fn behind_log(&self, engine: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match &self.log {
            Some(log) => Arc::new(Committed::new(engine, log.clone(), Durability::Grouped)),
            None => engine,
        }
    }

    /// Commits groups for as long as the process lives.
    fn drive(&self, log: &CommitLog) {
        let (driver, runtime) = (log.task_driver(), self.runtime.clone());
        let more = u64::try_from(self.sync_max.as_micros()).unwrap_or(1).max(1);
        let slowness = self.slowness.clone();
        self.runtime.spawn("commit log", async move {
            while driver.queued().await {
                let drawn = SYNC_MICROS_MIN + runtime.random_u64() % more;
                let slow = slowness.load(Ordering::Relaxed);
                runtime.sleep(Duration::from_micros(drawn + slow)).await;
                driver.commit();
            }
        });
    }

    /// Merges, syncs and trims now and then. What fails is tried again: a run that ends well has
    /// everything.
    fn keep_up(self: &Arc<Self>) {
        let (runtime, stores) = (self.runtime.clone(), Arc::downgrade(self));
        let clock = runtime.clone();
        runtime.spawn("upkeep", async move {
            loop {
                clock.sleep(UPKEEP_PERIOD).await;
                let Some(stores) = stores.upgrade() else {
                    return;
                };
                stores.upkeep(Timestamp(clock.wall_time().micros()));
            }
        });
    }

    fn upkeep(&self, now: Timestamp) {
        let open: Vec<Arc<dyn Backend>> = self.open.lock().values().cloned().collect();
        for store in open {
            let due = store.maintenance_due(now);
            if let Some(task) = due.first() {
                let _failed_or_done = store.maintenance_step(task, STEP_BUDGET, now);
            }
        }
        let Some(log) = &self.log else { return };
        for _ in 0..UPKEEP_STEPS_MAX {
            if !log.is_upkeep_due() || log.upkeep_step().is_err() {
                return;
            }
        }
    }
}

fn directory(size: RingSize, which: Which) -> PathBuf {
    let name = match which {
        Which::Partition(partition) => partition.index_decimal(size),
        Which::Hints => "hints".to_owned(),
    };
    Path::new("/node/stores").join(name)
}

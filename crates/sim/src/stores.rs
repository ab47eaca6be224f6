//! The stores of a simulated node: bitcask or leveldb behind a commit log on a disk that can fail, or
//! memory.
//!
//! A simulation has no threads, so a task drives the log: it lets as much virtual time pass as a device
//! would take, and commits the group that has gathered meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context as _;
use kvorum_backend::{Backend, BackendError, Durability, StepBudget, StoreId, Timestamp};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, SyncStrategy};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared, SyncStrategy as LeveldbSync};
use kvorum_backend_memory::MemoryBackend;
use kvorum_commit::{
    CommitLog, CommitLogSettings, Committed, Recovered, Recovery, recover, recover_some,
};
use kvorum_disk::Disk;
use kvorum_member::{StoreError, Stores};
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
const TABLE_BYTES_MAX: u64 = 16 << 10;
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
    log: Mutex<Option<CommitLog>>,
    recovered: Mutex<Recovered>,
    /// What the log of the run before had for the stores.
    recovery: Mutex<Recovery>,
    open: Mutex<BTreeMap<PathBuf, Arc<dyn Backend>>>,
    /// Those of a member, which alone keeps them: one that it lets go of is closed, and can be opened
    /// again.
    of_member: Mutex<BTreeMap<PathBuf, Weak<dyn Backend>>>,
    /// Those that were read and serve nobody yet.
    read: Mutex<BTreeMap<StoreId, PathBuf>>,
}

/// Which store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Partition(Partition),
    Hints,
}

impl SimulatedStores {
    /// None yet: a member opens them by and by.
    pub(crate) fn new(
        runtime: &Runtime,
        disk: Arc<dyn Disk>,
        (engine, sync_max): (Engine, Duration),
        slowness: Arc<AtomicU64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            runtime: runtime.clone(),
            disk,
            engine,
            sync_max,
            slowness,
            log: Mutex::default(),
            recovered: Mutex::default(),
            recovery: Mutex::default(),
            open: Mutex::default(),
            of_member: Mutex::default(),
            read: Mutex::default(),
        })
    }

    /// Opens those that the node has when it starts, and makes good what the log has of them.
    pub(crate) fn open_first(
        self: &Arc<Self>,
        size: RingSize,
        partitions: &[Partition],
    ) -> anyhow::Result<()> {
        let all = partitions
            .iter()
            .map(|partition| Which::Partition(*partition));
        let mut engines = Vec::new();
        for which in all.chain([Which::Hints]) {
            let path = directory(size, which);
            engines.push((path.clone(), self.engine(&path)?));
        }
        if self.engine != Engine::Memory {
            let backends: Vec<Arc<dyn Backend>> = engines.iter().map(|it| it.1.clone()).collect();
            let log = Path::new(LOG_DIRECTORY);
            kvorum_disk::create_directory_durably(&*self.disk, log)?;
            let recovered = recover(&*self.disk, log, &backends);
            *self.recovery.lock() = recovered.context("recover the commit log")?;
            self.begin_log()?;
        }
        for (path, engine) in engines {
            let store = self.behind_log(engine);
            self.open.lock().insert(path, store);
        }
        self.keep_up();
        Ok(())
    }

    fn begin_log(&self) -> anyhow::Result<()> {
        let (id, directory) = (self.runtime.random_u64(), Path::new(LOG_DIRECTORY));
        let log = CommitLog::create(self.disk.clone(), directory, id, LOG_SETTINGS)?;
        self.recovered.lock().running = Some(id);
        self.drive(&log);
        *self.log.lock() = Some(log);
        Ok(())
    }

    /// What the log of the run before had for the stores.
    pub(crate) fn recovery(&self) -> Recovery {
        self.recovery.lock().clone()
    }

    /// A store that is open.
    pub(crate) fn get(&self, size: RingSize, which: Which) -> Option<Arc<dyn Backend>> {
        self.open.lock().get(&directory(size, which)).cloned()
    }

    /// Opens the store of a partition that comes to the node; what is left of an earlier one goes.
    pub(crate) fn open_told(
        &self,
        size: RingSize,
        partition: Partition,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let path = directory(size, Which::Partition(partition));
        self.remove_told(size, partition)?;
        let store = self.behind_log(self.engine(&path)?);
        self.open.lock().insert(path, store.clone());
        Ok(store)
    }

    /// Removes the store of a partition that has gone elsewhere.
    pub(crate) fn remove_told(&self, size: RingSize, partition: Partition) -> anyhow::Result<()> {
        let path = directory(size, Which::Partition(partition));
        let open = self.open.lock().remove(&path);
        if let Some(store) = open {
            store.close()?;
        }
        self.remove_directory(&path)
    }

    fn remove_directory(&self, path: &Path) -> anyhow::Result<()> {
        if self.disk.info(path)?.is_some() {
            self.disk.remove_directory(path)?;
            self.disk.sync_directory(path.parent().unwrap_or(path))?;
        }
        Ok(())
    }

    fn note(&self, path: PathBuf, store: &Arc<dyn Backend>) {
        self.of_member.lock().insert(path, Arc::downgrade(store));
    }

    fn all_open(&self) -> Vec<Arc<dyn Backend>> {
        let mut open: Vec<Arc<dyn Backend>> = self.open.lock().values().cloned().collect();
        open.extend(self.of_member.lock().values().filter_map(Weak::upgrade));
        open
    }

    /// Closes all, as a node does that stops; nothing is left to replay.
    pub(crate) fn close(&self) -> anyhow::Result<()> {
        for store in self.all_open() {
            store.close()?;
        }
        if let Some(log) = &*self.log.lock() {
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
        if self.engine == Engine::Leveldb {
            let (disk, draw) = (self.disk.clone(), Arc::new(draw));
            let store = Leveldb::open(disk, path, &leveldb_settings(), self.shared(), draw)
                .with_context(|| format!("open {}", path.display()))?;
            return Ok(Arc::new(store));
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

    /// A block cache and a budget for each store, so that the order in which stores are dropped has no
    /// part in what happens.
    fn shared(&self) -> Shared {
        Shared::new(1 << 20, 1 << 20)
    }

    fn behind_log(&self, engine: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match &*self.log.lock() {
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
        for store in self.all_open() {
            let due = store.maintenance_due(now);
            if let Some(task) = due.first() {
                let _failed_or_done = store.maintenance_step(task, STEP_BUDGET, now);
            }
        }
        let Some(log) = self.log.lock().clone() else {
            return;
        };
        for _ in 0..UPKEEP_STEPS_MAX {
            if !log.is_upkeep_due() || log.upkeep_step().is_err() {
                return;
            }
        }
    }
}

/// For a member: in its order, with a commit log that is read for some stores after the other.
pub(crate) struct MemberStores(pub(crate) Arc<SimulatedStores>);

impl MemberStores {
    fn open_anew(&self, path: PathBuf) -> anyhow::Result<Arc<dyn Backend>> {
        let store = self.0.behind_log(self.0.engine(&path)?);
        self.0.note(path, &store);
        Ok(store)
    }

    fn begin(&self, path: PathBuf) -> anyhow::Result<Arc<dyn Backend>> {
        let stores = &self.0;
        if stores.engine == Engine::Memory {
            stores.keep_up();
            return self.open_anew(path);
        }
        let hints = stores.engine(&path)?;
        let directory = Path::new(LOG_DIRECTORY);
        kvorum_disk::create_directory_durably(&*stores.disk, directory)?;
        let mut failed = self.recover(std::slice::from_ref(&hints))?;
        if let Some((_, error)) = failed.pop() {
            return Err(error).context("bring the hints up to date");
        }
        stores.begin_log()?;
        stores.keep_up();
        let hints = stores.behind_log(hints);
        stores.note(path, &hints);
        Ok(hints)
    }

    fn recover(&self, some: &[Arc<dyn Backend>]) -> anyhow::Result<Vec<(StoreId, BackendError)>> {
        let stores = &self.0;
        let directory = Path::new(LOG_DIRECTORY);
        let recovered = &mut stores.recovered.lock();
        let found = recover_some(&*stores.disk, directory, some, recovered)?;
        let failed = found.failed.clone();
        *stores.recovery.lock() = found;
        Ok(failed)
    }

    fn remove(&self, path: &Path, open: Option<Arc<dyn Backend>>) -> anyhow::Result<()> {
        self.0.of_member.lock().remove(path);
        if let Some(store) = open {
            store.erase()?;
            store.close()?;
            if let Some(log) = &*self.0.log.lock() {
                log.forget(store.identity());
            }
        }
        self.0.remove_directory(path)
    }
}

impl Stores for MemberStores {
    fn begin(&self) -> Result<Arc<dyn Backend>, StoreError> {
        Ok(MemberStores::begin(self, hint_directory())?)
    }

    fn read(&self, size: RingSize, partition: Partition) -> Result<Arc<dyn Backend>, StoreError> {
        let path = directory(size, Which::Partition(partition));
        let store = self.0.engine(&path)?;
        self.0.read.lock().insert(store.identity(), path);
        Ok(store)
    }

    fn admit(&self, some: &[Arc<dyn Backend>]) -> Vec<Result<Arc<dyn Backend>, StoreError>> {
        let failed = match self.0.engine {
            Engine::Memory => Ok(Vec::new()),
            _ => self.recover(some),
        };
        let admitted = |store: &Arc<dyn Backend>| {
            let failed = failed.as_ref().map_err(|error| format!("{error:#}"))?;
            if let Some((_, error)) = failed.iter().find(|it| it.0 == store.identity()) {
                return Err(StoreError::from(error.clone()));
            }
            let admitted = self.0.behind_log(store.clone());
            if let Some(path) = self.0.read.lock().remove(&store.identity()) {
                self.0.note(path, &admitted);
            }
            Ok(admitted)
        };
        some.iter().map(admitted).collect()
    }

    fn openings_at_once(&self) -> usize {
        2
    }

    fn open(&self, size: RingSize, partition: Partition) -> Result<Arc<dyn Backend>, StoreError> {
        Ok(self.open_anew(directory(size, Which::Partition(partition)))?)
    }

    fn remove(
        &self,
        size: RingSize,
        partition: Partition,
        open: Option<Arc<dyn Backend>>,
    ) -> Result<(), StoreError> {
        let path = directory(size, Which::Partition(partition));
        Ok(MemberStores::remove(self, &path, open)?)
    }
}

/// Small, so that a run flushes and compacts. The commit log stands in front.
fn leveldb_settings() -> LeveldbSettings {
    let mut settings = LeveldbSettings {
        has_log: false,
        sync: LeveldbSync::None,
        write_buffer_bytes: TABLE_BYTES_MAX,
        block_bytes: 512,
        ..LeveldbSettings::default()
    };
    settings.policy.table_bytes_max = TABLE_BYTES_MAX;
    settings.policy.base_bytes = 4 * TABLE_BYTES_MAX;
    settings
}

fn directory(size: RingSize, which: Which) -> PathBuf {
    let name = match which {
        Which::Partition(partition) => partition.index_decimal(size),
        Which::Hints => return hint_directory(),
    };
    Path::new("/node/stores").join(name)
}

fn hint_directory() -> PathBuf {
    PathBuf::from("/node/stores/hints")
}

//! The stores of a simulated node, on a disk that can fail: bitcask, leveldb, leveled, hanoidb or innostore with
//! their entries in the value log, two of them side by side, or memory.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kvorum_backend::{
    Backend, BackendError, Belonging, FoundStore, Sequence, StepBudget, StoreId, TaskKind,
    Timestamp,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, SyncStrategy};
use kvorum_backend_hanoidb::{Hanoidb, HanoidbSettings};
use kvorum_backend_innostore::{Innostore, InnostoreSettings};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_backend_leveled::{JournalPolicy, LeveledSettings};
use kvorum_backend_memory::MemoryBackend;
use kvorum_backend_multi::{Child, KnownChild, MultiBackend, known_children};
use kvorum_disk::Disk;
use kvorum_member::{Found, StoreError, Stores};
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Runtime;
use kvorum_value_log::{Admission, Tenant, ValueLog};
use parking_lot::Mutex;

use crate::node_log;
use crate::plan::Engine;
use crate::routes::DrawnRoutes;

/// Size of the stores' own files, which have only entries that the value log collected.
const COLLECTED_FILE_BYTES_MAX: u64 = 8 << 10;
const TABLE_BYTES_MAX: u64 = 16 << 10;
/// Least time of a device's sync, in microseconds.
const SYNC_MICROS_MIN: u64 = 200;
const UPKEEP_PERIOD: Duration = Duration::from_millis(700);
const STEP_BUDGET: StepBudget = StepBudget { bytes: 64 << 10 };

/// Opens and removes the stores of one run of a node.
pub(crate) struct SimulatedStores {
    runtime: Runtime,
    disk: Arc<dyn Disk>,
    engine: Engine,
    /// The longest that a sync takes on a sound disk.
    sync_max: Duration,
    /// Additional time of every sync, in microseconds.
    slowness: Arc<AtomicU64>,
    counted: Arc<Mutex<Upkeep>>,
    /// From the beginning on, where the engine has one.
    log: Mutex<Option<ValueLog>>,
    /// Open stores as tenants of the log.
    tenants: Mutex<BTreeMap<StoreId, Weak<dyn Tenant>>>,
    /// Logged writes of the run before for the stores that were opened last.
    recovery: Mutex<Admission>,
    /// The tenants of a store of several, by its identity.
    parts: Mutex<BTreeMap<StoreId, Vec<StoreId>>>,
    /// Batches that the log has lost, and that have not been reported to a member.
    losses: Mutex<Vec<(StoreId, Sequence)>>,
    /// Losses of tenants that have been reported.
    reported_losses: Mutex<Vec<(StoreId, Sequence)>>,
    /// Damage found in logs, in words.
    damage: Mutex<Vec<String>>,
    open: Mutex<BTreeMap<PathBuf, Arc<dyn Backend>>>,
    /// Those of a member, which alone keeps them: a store that it releases is closed, and can be opened
    /// again.
    of_member: Mutex<BTreeMap<PathBuf, Weak<dyn Backend>>>,
    /// Stores that were read and do not serve yet.
    read: Mutex<BTreeMap<StoreId, PathBuf>>,
}

/// Upkeep of the stores and the logs of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Merges and collections of files that stores have ended.
    pub merges: u64,
    /// Segments of value logs that were collected.
    pub collections: u64,
    /// Tombstones that rounds have removed, by the nodes that run in the end.
    pub tombstones_reaped: u64,
}

impl AddAssign for Upkeep {
    fn add_assign(&mut self, other: Self) {
        self.merges += other.merges;
        self.collections += other.collections;
        self.tombstones_reaped += other.tombstones_reaped;
    }
}

/// The store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Partition(Partition),
    Hints,
}

impl SimulatedStores {
    /// No stores yet: a member opens them one by one.
    pub(crate) fn new(
        runtime: &Runtime,
        disk: Arc<dyn Disk>,
        (engine, sync_max): (Engine, Duration),
        slowness: Arc<AtomicU64>,
        counted: Arc<Mutex<Upkeep>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            runtime: runtime.clone(),
            disk,
            engine,
            sync_max,
            slowness,
            counted,
            log: Mutex::default(),
            tenants: Mutex::default(),
            recovery: Mutex::default(),
            parts: Mutex::default(),
            losses: Mutex::default(),
            reported_losses: Mutex::default(),
            damage: Mutex::default(),
            open: Mutex::default(),
            of_member: Mutex::default(),
            read: Mutex::default(),
        })
    }

    /// Opens the stores that the node has when it starts, and restores their logged writes.
    pub(crate) fn open_first(
        self: &Arc<Self>,
        size: RingSize,
        partitions: &[Partition],
    ) -> anyhow::Result<()> {
        let all = partitions
            .iter()
            .map(|partition| Which::Partition(*partition));
        self.open_value_log()?;
        let mut engines = Vec::new();
        for which in all.chain([Which::Hints]) {
            let path = directory(size, which);
            engines.push((path.clone(), self.engine(&path)?));
        }
        let backends: Vec<Arc<dyn Backend>> = engines.iter().map(|it| it.1.clone()).collect();
        if let Some((_, error)) = self.recover(&backends)?.pop() {
            return Err(error).context("bring a store up to date");
        }
        self.begin_log();
        self.all_admitted();
        self.open.lock().extend(engines);
        self.keep_up();
        Ok(())
    }

    /// Before all stores, which are opened with it.
    fn open_value_log(&self) -> anyhow::Result<()> {
        if self.engine == Engine::Memory {
            return Ok(());
        }
        let (log, damage) = node_log::open(self.disk.clone(), self.runtime.random_u64())?;
        self.damage.lock().extend(damage);
        *self.log.lock() = Some(log);
        Ok(())
    }

    /// Gives stores the logged writes of earlier runs; returns those that failed.
    fn recover(&self, some: &[Arc<dyn Backend>]) -> anyhow::Result<Vec<(StoreId, BackendError)>> {
        let Some(log) = self.log.lock().clone() else {
            return Ok(Vec::new());
        };
        let known = self.tenants.lock();
        let parts = some.iter().flat_map(|it| self.parts_of(it.identity()));
        let tenants = parts.filter_map(|it| known.get(&it)?.upgrade());
        let tenants: Vec<Arc<dyn Tenant>> = tenants.collect();
        drop(known);
        let found = log.admit_some(&tenants).context("replay the value log")?;
        self.damage.lock().extend(found.damage.clone());
        self.losses.lock().extend(found.lost.clone());
        let failed = found.failed.iter().cloned();
        let failed = failed
            .map(|(tenant, error)| (self.whole_of(tenant), error))
            .collect();
        *self.recovery.lock() = found;
        Ok(failed)
    }

    /// The tenants of a store: itself, unless it is one of several.
    fn parts_of(&self, store: StoreId) -> Vec<StoreId> {
        let parts = self.parts.lock();
        parts.get(&store).cloned().unwrap_or_else(|| vec![store])
    }

    /// The store that a tenant of the log is a part of.
    fn whole_of(&self, tenant: StoreId) -> StoreId {
        let parts = self.parts.lock();
        let whole = parts.iter().find(|(_, parts)| parts.contains(&tenant));
        whole.map_or(tenant, |(whole, _)| *whole)
    }

    /// Begins to commit once the first stores have their logged writes of earlier runs.
    fn begin_log(&self) {
        if let Some(log) = &*self.log.lock() {
            self.drive(log);
        }
    }

    fn all_admitted(&self) {
        if let Some(log) = &*self.log.lock() {
            log.settle_erasures();
        }
    }

    /// Logged writes of the run before for the stores.
    pub(crate) fn recovery(&self) -> Admission {
        self.recovery.lock().clone()
    }

    /// Losses that logs and stores report.
    pub(crate) fn losses(&self) -> Vec<String> {
        let mut losses = self.damage.lock().clone();
        for store in self.all_open() {
            let lost = store.status().lost.into_iter();
            losses.extend(lost.map(|range| format!("{} of {}", range.held, range.file)));
        }
        losses
    }

    /// A store that is open.
    pub(crate) fn get(&self, size: RingSize, which: Which) -> Option<Arc<dyn Backend>> {
        self.open.lock().get(&directory(size, which)).cloned()
    }

    /// Opens the store of a partition that comes to the node; files of an earlier one are removed.
    pub(crate) fn open_for_follower(
        &self,
        size: RingSize,
        partition: Partition,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let path = directory(size, Which::Partition(partition));
        self.remove_for_follower(size, partition)?;
        let store = self.open_anew(&path)?;
        self.open.lock().insert(path, store.clone());
        Ok(store)
    }

    /// Removes the store of a partition that has gone elsewhere.
    pub(crate) fn remove_for_follower(
        &self,
        size: RingSize,
        partition: Partition,
    ) -> anyhow::Result<()> {
        let path = directory(size, Which::Partition(partition));
        let open = self.open.lock().remove(&path);
        self.remove(&path, open)
    }

    /// Opens a store of which no log has anything yet.
    fn open_anew(&self, path: &Path) -> anyhow::Result<Arc<dyn Backend>> {
        let store = self.engine(path)?;
        if let Some((_, error)) = self.recover(std::slice::from_ref(&store))?.pop() {
            return Err(error).context("bring a new store up to date");
        }
        Ok(store)
    }

    /// Removes a store, or its remains. The value log keeps a store's entries until it is known to be
    /// erased: a closed store is opened for that.
    fn remove(&self, path: &Path, open: Option<Arc<dyn Backend>>) -> anyhow::Result<()> {
        let is_left = || self.disk.info(path).map(|found| found.is_some());
        let there = match open {
            Some(store) => Some(store),
            None if self.engine != Engine::Memory && is_left()? => Some(self.engine(path)?),
            None => None,
        };
        if let Some(store) = there {
            store.erase()?;
            store.close()?;
        }
        self.remove_directory(path)
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
        }
        Ok(())
    }

    fn engine(&self, path: &Path) -> anyhow::Result<Arc<dyn Backend>> {
        match self.engine {
            Engine::Memory => {
                let randomness = self.runtime.randomness();
                let settings = kvorum_backend_memory::Settings::default();
                let draw = move || randomness.next_u64();
                Ok(Arc::new(MemoryBackend::new(settings, draw)))
            }
            Engine::Multi => self.several(path),
            engine => self.one(engine, path, Belonging::by_directory(path)),
        }
    }

    /// A store that is made of a store of each of [`CHILDREN`].
    fn several(&self, path: &Path) -> anyhow::Result<Arc<dyn Backend>> {
        let belonging = Belonging::by_directory(path);
        let context = || format!("open {}", path.display());
        let known = known_children(&*self.disk, path, &belonging).with_context(context)?;
        let children = CHILDREN.map(|(name, engine)| self.child(path, name, engine, &known));
        let children = children.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let parts = children.iter().map(|it| it.store.identity()).collect();
        let randomness = self.runtime.randomness();
        let draw = Arc::new(move || randomness.next_u64());
        let (disk, routes) = (self.disk.clone(), Arc::new(DrawnRoutes::new(&self.runtime)));
        let moves = Some(Box::new(kvorum_vnode::index_entries) as Box<_>);
        let opened = MultiBackend::open(disk, path, &belonging, children, routes, draw, moves);
        let store = opened.with_context(context)?;
        self.parts.lock().insert(store.identity(), parts);
        Ok(Arc::new(store))
    }

    fn child(
        &self,
        path: &Path,
        name: &str,
        engine: Engine,
        known: &[KnownChild],
    ) -> anyhow::Result<Child> {
        let place = path.join(name);
        let known = known.iter().find(|it| it.name == name);
        let belonging = Belonging {
            label: format!("{}/{name}", Belonging::by_directory(path).label),
            identity: known.map(|it| it.identity),
        };
        let erased = match find_one(&*self.disk, engine, &place, &belonging)? {
            FoundStore::Store { erased, .. } => erased,
            FoundStore::Nothing | FoundStore::Unusable(_) => StoreId(0),
        };
        Ok(Child {
            name: name.to_owned(),
            store: self.one(engine, &place, belonging)?,
            erased,
        })
    }

    /// A store of one engine, which keeps files.
    fn one(
        &self,
        engine: Engine,
        path: &Path,
        belonging: Belonging,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let randomness = self.runtime.randomness();
        let draw = Arc::new(move || randomness.next_u64());
        let Some(log) = self.log.lock().clone() else {
            bail!("no value log is open");
        };
        let disk = self.disk.clone();
        let context = || format!("open {}", path.display());
        let (store, tenant): (Arc<dyn Backend>, Arc<dyn Tenant>) = match engine {
            Engine::Leveldb => {
                let own = LeveldbSettings {
                    belonging,
                    ..leveldb_settings()
                };
                let shared = self.shared();
                let opened = Leveldb::open(disk, path, &own, shared, draw, Some(log));
                let store = opened.with_context(context)?;
                let tenant = store.tenant();
                (Arc::new(store), tenant)
            }
            Engine::Hanoidb => {
                let own = HanoidbSettings {
                    belonging,
                    ..hanoidb_settings()
                };
                let shared = self.shared();
                let opened = Hanoidb::open(disk, path, &own, shared, draw, Some(log));
                let store = opened.with_context(context)?;
                let tenant = store.tenant();
                (Arc::new(store), tenant)
            }
            Engine::Innostore => {
                let own = InnostoreSettings {
                    belonging,
                    ..innostore_settings()
                };
                let shared = kvorum_backend_innostore::Shared::new(1 << 20);
                let opened = Innostore::open(disk, path, &own, shared, draw, log);
                let store = opened.with_context(context)?;
                let tenant = store.tenant();
                (Arc::new(store), tenant)
            }
            Engine::Leveled => {
                let own = LeveledSettings {
                    belonging,
                    ..leveled_settings()
                };
                let shared = self.shared();
                let opened = kvorum_backend_leveled::open(disk, path, &own, shared, draw, log);
                let store = opened.with_context(context)?;
                let tenant = store.tenant();
                (Arc::new(store), tenant)
            }
            _ => {
                let own = BitcaskSettings {
                    belonging,
                    ..bitcask_settings()
                };
                let opened = Bitcask::open(disk, path, own, draw, Some(log));
                let store = Arc::new(opened.with_context(context)?);
                (store.clone(), store)
            }
        };
        let identity = store.identity();
        self.tenants
            .lock()
            .insert(identity, Arc::downgrade(&tenant));
        Ok(store)
    }

    /// A block cache and a budget for each store, so that the order in which stores are dropped has no
    /// effect.
    fn shared(&self) -> Shared {
        Shared::new(1 << 20, 1 << 20)
    }

    /// Commits groups for as long as the process lives.
    fn drive(&self, log: &ValueLog) {
        let (driver, runtime) = (log.task_driver(), self.runtime.clone());
        let more = u64::try_from(self.sync_max.as_micros()).unwrap_or(1).max(1);
        let slowness = self.slowness.clone();
        self.runtime.spawn("log", async move {
            while driver.queued().await {
                let drawn = SYNC_MICROS_MIN + runtime.random_u64() % more;
                let slow = slowness.load(Ordering::Relaxed);
                runtime.sleep(Duration::from_micros(drawn + slow)).await;
                driver.commit();
            }
        });
    }

    /// Merges, syncs and trims at intervals. Failed steps are tried again: a run that ends well has
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
                // A failed step is tried again.
                let stepped = store.maintenance_step(task, STEP_BUDGET, now);
                let is_done = stepped.is_ok_and(|step| step.is_done);
                let is_merge = matches!(task.kind, TaskKind::Merge | TaskKind::Collect);
                self.counted.lock().merges += u64::from(is_done && is_merge);
            }
        }
        let log = self.log.lock().clone();
        if let Some(log) = log {
            self.counted.lock().collections += node_log::upkeep(&log, STEP_BUDGET);
            self.damage.lock().extend(log.take_damage());
        }
    }
}

/// For a member: in its order, with a log that is read for some stores after the other.
pub(crate) struct MemberStores(pub(crate) Arc<SimulatedStores>);

impl MemberStores {
    fn open_anew(&self, path: PathBuf) -> anyhow::Result<Arc<dyn Backend>> {
        let store = self.0.open_anew(&path)?;
        self.0.note(path, &store);
        Ok(store)
    }

    fn begin(&self, path: PathBuf) -> anyhow::Result<Arc<dyn Backend>> {
        let stores = &self.0;
        stores.open_value_log()?;
        let hints = stores.engine(&path)?;
        let mut failed = stores.recover(std::slice::from_ref(&hints))?;
        if let Some((_, error)) = failed.pop() {
            return Err(error).context("bring the hints up to date");
        }
        stores.begin_log();
        stores.keep_up();
        stores.note(path, &hints);
        Ok(hints)
    }

    fn remove(&self, path: &Path, open: Option<Arc<dyn Backend>>) -> anyhow::Result<()> {
        self.0.of_member.lock().remove(path);
        self.0.remove(path, open)
    }
}

impl Stores for MemberStores {
    fn begin(&self) -> Result<Arc<dyn Backend>, StoreError> {
        Ok(MemberStores::begin(self, hint_directory())?)
    }

    fn find(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Found, StoreError> {
        let directory = directory(size, Which::Partition(partition));
        let belonging = Belonging {
            identity: known,
            ..Belonging::by_directory(&directory)
        };
        let disk = &*self.0.disk;
        let found = match self.0.engine {
            Engine::Memory => return Ok(Found::NotKept),
            Engine::Multi => find_several(disk, &directory, &belonging)?,
            engine => find_one(disk, engine, &directory, &belonging)?,
        };
        Ok(match found {
            FoundStore::Nothing => Found::Nothing { directory },
            FoundStore::Store {
                identity, erased, ..
            } => Found::Store {
                directory,
                identity,
                erased,
            },
            FoundStore::Unusable(why) => Found::Unusable { directory, why },
        })
    }

    fn set_aside(&self, size: RingSize, partition: Partition) -> Result<Vec<PathBuf>, StoreError> {
        let path = directory(size, Which::Partition(partition));
        let disk = &self.0.disk;
        self.0.of_member.lock().remove(&path);
        if disk.info(&path)?.is_none() {
            return Ok(Vec::new());
        }
        let lost = path.parent().unwrap_or(Path::new("")).join("lost");
        kvorum_disk::create_directory_durably(&**disk, &lost)?;
        let drawn = self.0.runtime.random_u64();
        let to = lost.join(format!("{}.{drawn}", partition.index_decimal(size)));
        disk.rename(&path, &to)?;
        disk.sync_directory(&lost)?;
        disk.sync_directory(path.parent().unwrap_or(&path))?;
        Ok(vec![to])
    }

    fn read(
        &self,
        size: RingSize,
        partition: Partition,
        _known: Option<StoreId>,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        let path = directory(size, Which::Partition(partition));
        let store = self.0.engine(&path)?;
        self.0.read.lock().insert(store.identity(), path);
        Ok(store)
    }

    fn admit(&self, some: &[Arc<dyn Backend>]) -> Vec<Result<Arc<dyn Backend>, StoreError>> {
        let failed = self.0.recover(some);
        let admitted = |store: &Arc<dyn Backend>| {
            let failed = failed.as_ref().map_err(|error| format!("{error:#}"))?;
            if let Some((_, error)) = failed.iter().find(|it| it.0 == store.identity()) {
                return Err(StoreError::from(error.clone()));
            }
            if let Some(path) = self.0.read.lock().remove(&store.identity()) {
                self.0.note(path, store);
            }
            Ok(store.clone())
        };
        some.iter().map(admitted).collect()
    }

    fn orders_batches(&self) -> bool {
        self.0.engine != Engine::Multi
    }

    fn take_losses(&self) -> Vec<(StoreId, Sequence)> {
        let losses = std::mem::take(&mut *self.0.losses.lock());
        self.0.reported_losses.lock().extend(losses.iter().copied());
        let of_wholes = losses.into_iter();
        of_wholes
            .map(|(tenant, lost_to)| (self.0.whole_of(tenant), lost_to))
            .collect()
    }

    fn note_loss(&self, store: StoreId, lost_to: Sequence) -> Result<(), StoreError> {
        let Some(log) = self.0.log.lock().clone() else {
            return Ok(());
        };
        let reported = self.0.reported_losses.lock().clone();
        let is_it =
            |loss: &&(StoreId, Sequence)| loss.1 == lost_to && self.0.whole_of(loss.0) == store;
        for (tenant, lost_to) in reported.iter().filter(is_it) {
            log.note_loss(*tenant, *lost_to)?;
        }
        Ok(())
    }

    fn all_admitted(&self) {
        self.0.all_admitted();
    }

    fn openings_at_once(&self) -> usize {
        2
    }

    fn open(
        &self,
        size: RingSize,
        partition: Partition,
        _known: Option<StoreId>,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        Ok(self.open_anew(directory(size, Which::Partition(partition)))?)
    }

    fn remove(
        &self,
        size: RingSize,
        partition: Partition,
        _known: Option<StoreId>,
        open: Option<Arc<dyn Backend>>,
    ) -> Result<(), StoreError> {
        let path = directory(size, Which::Partition(partition));
        Ok(MemberStores::remove(self, &path, open)?)
    }
}

/// The parts of a store of several.
const CHILDREN: [(&str, Engine); 2] = [("bc", Engine::Bitcask), ("ldb", Engine::Leveldb)];

fn find_one(
    disk: &dyn Disk,
    engine: Engine,
    directory: &Path,
    belonging: &Belonging,
) -> Result<FoundStore, BackendError> {
    match engine {
        Engine::Leveldb => kvorum_backend_leveldb::find_store(disk, directory, belonging),
        Engine::Leveled => kvorum_backend_leveled::find_store(disk, directory, belonging),
        Engine::Hanoidb => kvorum_backend_hanoidb::find_store(disk, directory, belonging),
        Engine::Innostore => kvorum_backend_innostore::find_store(disk, directory, belonging),
        _ => kvorum_backend_bitcask::check::find_store(disk, directory, belonging),
    }
}

fn find_several(
    disk: &dyn Disk,
    directory: &Path,
    belonging: &Belonging,
) -> Result<FoundStore, BackendError> {
    kvorum_backend_multi::find_store(disk, directory, belonging, &|child, place| {
        let engine = CHILDREN.iter().find(|(name, _)| *name == child.name);
        let its = Belonging {
            label: String::new(),
            identity: Some(child.identity),
        };
        engine.map_or(Ok(FoundStore::Nothing), |(_, engine)| {
            find_one(disk, *engine, place, &its)
        })
    })
}

/// Like the server's by default, with small files: collected entries are merged again, and checkpoints
/// follow the log.
fn bitcask_settings() -> BitcaskSettings {
    BitcaskSettings {
        sync: SyncStrategy::Grouped,
        log_segments_behind_max: 4,
        ..settings_of_files(COLLECTED_FILE_BYTES_MAX)
    }
}

fn settings_of_files(bytes_max: u64) -> BitcaskSettings {
    let mut settings = BitcaskSettings {
        file_bytes_max: bytes_max,
        checkpoint_after_bytes: bytes_max,
        ..BitcaskSettings::default()
    };
    settings.merge.garbage_bytes_trigger = bytes_max;
    settings.merge.garbage_bytes_threshold = bytes_max / 4;
    settings.merge.small_file_threshold_bytes = bytes_max / 8;
    settings
}

/// As the server has it by default, small, so that a run flushes and compacts. Large bodies stay in the value
/// log, and the others go to tables.
fn leveldb_settings() -> LeveldbSettings {
    let mut settings = LeveldbSettings {
        sync: SyncStrategy::Grouped,
        log_segments_behind_max: 4,
        write_buffer_bytes: TABLE_BYTES_MAX,
        block_bytes: 512,
        ..LeveldbSettings::default()
    };
    settings.policy.table_bytes_max = TABLE_BYTES_MAX;
    settings.policy.base_bytes = 4 * TABLE_BYTES_MAX;
    settings
}

/// The same on doubling levels.
fn hanoidb_settings() -> HanoidbSettings {
    let leveldb = leveldb_settings();
    HanoidbSettings {
        sync: leveldb.sync,
        log_segments_behind_max: leveldb.log_segments_behind_max,
        unit_bytes: TABLE_BYTES_MAX,
        write_buffer_bytes: TABLE_BYTES_MAX,
        block_bytes: leveldb.block_bytes,
        table_bytes_max: TABLE_BYTES_MAX,
        ..HanoidbSettings::default()
    }
}

/// A few pages to a file.
fn innostore_settings() -> InnostoreSettings {
    let leveldb = leveldb_settings();
    InnostoreSettings {
        sync: leveldb.sync,
        log_segments_behind_max: leveldb.log_segments_behind_max,
        page_bytes: leveldb.block_bytes,
        body_apart_bytes: leveldb.block_bytes / 4,
        dirty_bytes_max: TABLE_BYTES_MAX,
        file_bytes_max: 4 * TABLE_BYTES_MAX,
        ..InnostoreSettings::default()
    }
}

/// The same of a ledger, whose journal files are rewritten when a third of them is garbage.
fn leveled_settings() -> LeveledSettings {
    let leveldb = leveldb_settings();
    LeveledSettings {
        sync: leveldb.sync,
        log_segments_behind_max: leveldb.log_segments_behind_max,
        ledger_buffer_bytes: TABLE_BYTES_MAX,
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

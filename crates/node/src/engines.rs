//! The stores of a node, opened: the only place that names all engines.

mod bitcask;
mod hanoidb;
mod innostore;
mod leveldb;
mod leveled;
mod multi;
mod object_kinds;
#[cfg(test)]
#[path = "engines/running_test.rs"]
mod running;
mod shared_settings;
mod tree_memory;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use anyhow::{Context, bail};
use kvorum_backend::{Backend, Belonging, FoundStore, HINTS_LABEL, StoreId};
use kvorum_backend_bitcask::{Bitcask, MergePolicy, ReadCache};
use kvorum_backend_hanoidb::Hanoidb;
use kvorum_backend_innostore::{Innostore, PageCache};
use kvorum_backend_leveldb::repair::RepairOptions;
use kvorum_backend_leveldb::{DrawNumber, Leveldb, Shared, Tiers, remove_store};
use kvorum_backend_leveled::open as open_leveled;
use kvorum_backend_multi::{Child, FixedRoutes, MultiBackend, RouteTable, Routes, known_children};
use kvorum_cluster::AgreedState;
use kvorum_disk::{Disk, EntryKind, Reserve, create_directory_durably};
use kvorum_maintenance::machine;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Randomness;
use kvorum_settings::{DurabilityMode, Settings, StorageBackend};
use kvorum_value_log::{Tenant, ValueLog};
use parking_lot::Mutex;

use crate::engine_names::{WITH_FILES, find_of, name_of, repair_options_of};
use crate::store_roots::StoreRoots;

use self::innostore::Pool;
use self::multi::AgreedRoutes;
use self::tree_memory::Memory;

/// Losses of one store that the log names.
const LOSSES_SHOWN_MAX: usize = 10;

/// The place for directories that are set aside because they hold another store than they should.
pub(crate) const LOST_NAME: &str = "lost";

/// Opens the stores of a node, one for each partition.
pub(crate) struct Engines {
    disk: Arc<dyn Disk>,
    settings: Settings,
    /// The directories of the stores of partitions, if the engine has any files.
    roots: Option<StoreRoots>,
    randomness: Arc<dyn Randomness>,
    /// The shared parts of an engine's stores over merge trees, and their sizes.
    trees: Option<(Memory, Shared)>,
    /// The shared parts of innostore's stores, and their sizes.
    pages: Option<(Pool, kvorum_backend_innostore::Shared)>,
    /// The read cache of all stores of bitcask.
    read_cache: Option<Arc<ReadCache>>,
    /// The free space that is held back from puts to the stores' own files, if there is no value log to
    /// do that.
    reserve: Option<Arc<Reserve>>,
    /// Open stores as tenants of the value log.
    tenants: Mutex<BTreeMap<StoreId, Weak<dyn Tenant>>>,
    /// The engines of the stores that make up a store, by their names; none but for `multi`.
    backends: Vec<(String, Engines)>,
    /// The backend of each bucket.
    routes: Arc<AgreedRoutes>,
    /// The stores that make up each store that was opened, by its identity.
    parts: Mutex<BTreeMap<StoreId, Vec<StoreId>>>,
}

impl Engines {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        settings: Settings,
        randomness: Arc<dyn Randomness>,
    ) -> Self {
        let allowance = match settings.node.storage_backend {
            StorageBackend::Leveldb => Some(leveldb::allowance(&settings.leveldb)),
            StorageBackend::Leveled => Some(leveled::allowance(&settings.leveled)),
            StorageBackend::Hanoidb => Some(hanoidb::allowance(&settings.hanoidb)),
            StorageBackend::Bitcask
            | StorageBackend::Innostore
            | StorageBackend::Memory
            | StorageBackend::Multi => None,
        };
        let trees = allowance.map(|allowance| {
            // A node that joins a cluster of another ring size gets a notice that it is to be started
            // again.
            let partitions = settings.node.ring_size;
            let memory = Memory::of(allowance, machine::memory_bytes(), partitions);
            (memory, memory.shared())
        });
        let is_of_pages = settings.node.storage_backend == StorageBackend::Innostore;
        let pages = is_of_pages.then(|| {
            let (machine, partitions) = (machine::memory_bytes(), settings.node.ring_size);
            let pool = Pool::of(&settings.innostore, machine, partitions);
            (pool, kvorum_backend_innostore::Shared::new(pool.cache))
        });
        let read_cache = bitcask::read_cache(&settings, machine::memory_bytes());
        let backends = backends_of(&disk, &settings, &randomness);
        Self {
            backends,
            routes: Arc::new(AgreedRoutes::new(&settings.multi)),
            parts: Mutex::default(),
            trees,
            pages,
            disk,
            roots: StoreRoots::of(&settings),
            settings,
            randomness,
            read_cache,
            reserve: None,
            tenants: Mutex::default(),
        }
    }

    /// Makes stores without the value log leave a reserve of free space alone. Returns the reserve.
    pub(crate) fn hold_back(&mut self) -> Option<Arc<Reserve>> {
        let root = self.roots().next()?.to_owned();
        let reserve = Arc::new(Reserve::new(self.disk.clone(), &root));
        self.roots().for_each(|root| reserve.watch(root));
        self.reserve = Some(reserve.clone());
        for (_, backend) in &mut self.backends {
            backend.reserve = Some(reserve.clone());
        }
        Some(reserve)
    }

    /// True if each store is made of several.
    pub(crate) fn are_several(&self) -> bool {
        !self.backends.is_empty()
    }

    /// The tenants among these stores that have entries in the value log.
    pub(crate) fn tenants_of(&self, stores: &[Arc<dyn Backend>]) -> Vec<Arc<dyn Tenant>> {
        let known = stores.iter().flat_map(|it| self.parts_of(it.identity()));
        known.filter_map(|it| self.tenant(it)).collect()
    }

    fn tenant(&self, store: StoreId) -> Option<Arc<dyn Tenant>> {
        let own = self.tenants.lock().get(&store).and_then(Weak::upgrade);
        let of_backends = || self.backends.iter().find_map(|(_, it)| it.tenant(store));
        own.or_else(of_backends)
    }

    /// The tenants that a store is made of: itself, but for `multi`.
    fn parts_of(&self, store: StoreId) -> Vec<StoreId> {
        let parts = self.parts.lock();
        parts.get(&store).cloned().unwrap_or_else(|| vec![store])
    }

    /// The store that a tenant of the value log is a part of.
    pub(crate) fn whole_of(&self, tenant: StoreId) -> StoreId {
        let parts = self.parts.lock();
        let whole = parts.iter().find(|(_, parts)| parts.contains(&tenant));
        whole.map_or(tenant, |(whole, _)| *whole)
    }

    /// Uses this state from now on, if the stores depend on the agreed state.
    pub(crate) fn follow(&self, state: Arc<dyn AgreedState>) {
        self.routes.follow(state);
    }

    /// Notes a tenant of the log. The first of two copies of a store counts: the second is not going to
    /// stay open.
    fn note_tenant(&self, tenant: &Arc<dyn Tenant>) {
        let mut tenants = self.tenants.lock();
        tenants.retain(|_, it| it.strong_count() > 0);
        let identity = tenant.store_id();
        tenants
            .entry(identity)
            .or_insert_with(|| Arc::downgrade(tenant));
    }

    /// The read cache, if there is one.
    pub(crate) fn read_cache(&self) -> Option<&Arc<ReadCache>> {
        let of_backends = || self.backends.iter().find_map(|(_, it)| it.read_cache());
        self.read_cache.as_ref().or_else(of_backends)
    }

    /// The directories of the stores of partitions; none for an engine that has no files.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().flat_map(StoreRoots::all)
    }

    /// The engine's name, as in `storage_backend`.
    pub(crate) fn name(&self) -> &'static str {
        name_of(self.settings.node.storage_backend)
    }

    /// The options for repairing damaged stores without opening them.
    pub(crate) fn repair_options(&self) -> RepairOptions {
        repair_options_of(self.settings.node.storage_backend)(false, false)
    }

    /// True when entries are put to the node's value log, and stay there. Stores with entries in a log of an
    /// earlier run continue with it, whatever the present durability is.
    pub(crate) fn use_value_log(&self, is_there_one: bool) -> bool {
        match self.settings.node.storage_backend {
            StorageBackend::Bitcask | StorageBackend::Leveldb | StorageBackend::Hanoidb => {
                is_there_one || self.settings.backend_durability().mode == DurabilityMode::Grouped
            }
            // It is their journal, or their redo log.
            StorageBackend::Leveled | StorageBackend::Innostore => true,
            StorageBackend::Memory => false,
            StorageBackend::Multi => {
                let mut backends = self.backends.iter();
                backends.any(|(_, it)| it.use_value_log(is_there_one))
            }
        }
    }

    /// Times at which stores may merge, and their entries in the value log may be collected.
    pub(crate) fn merge_policy(&self) -> MergePolicy {
        match self.settings.node.storage_backend {
            StorageBackend::Bitcask => bitcask::merge_policy(&self.settings),
            // Nothing keeps its stores from merging either.
            StorageBackend::Leveldb
            | StorageBackend::Leveled
            | StorageBackend::Hanoidb
            | StorageBackend::Innostore
            | StorageBackend::Memory => MergePolicy::Always,
            // Segments that one backend's stores keep from being collected are in the same log.
            StorageBackend::Multi => {
                let policies = self.backends.iter().map(|(_, it)| it.merge_policy());
                let mut restricted = policies.filter(|it| *it != MergePolicy::Always);
                restricted.next().unwrap_or(MergePolicy::Always)
            }
        }
    }

    /// Opens the store of a partition, creating it if it is new. Blocks. `known` is the identity in the
    /// node's record; `log` is the value log, for engines that use it.
    pub(crate) fn open(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let directory = self.partition_directory(size, partition);
        let roots = self.roots.as_ref();
        let tiers = roots.and_then(|it| it.tiers(&partition.index_decimal(size)));
        let belonging = belonging(size, partition, known);
        self.open_in(directory.as_deref(), tiers, belonging, size, log)
    }

    /// A partition's store as it is on the disk; `None` for an engine that has no files. Blocks.
    pub(crate) fn find(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> anyhow::Result<Option<(PathBuf, FoundStore)>> {
        let Some(directory) = self.partition_directory(size, partition) else {
            return Ok(None);
        };
        let (disk, belonging) = (&*self.disk, belonging(size, partition, known));
        let Some(find) = find_of(self.settings.node.storage_backend) else {
            return Ok(None);
        };
        let found = find(disk, &directory, &belonging)
            .with_context(|| format!("look into {}", directory.display()))?;
        Ok(Some((directory, found)))
    }

    /// Moves the files of a partition's store, which is not open, to `lost` beside the directories of all
    /// stores. Returns their new places. Blocks.
    pub(crate) fn set_aside(
        &self,
        size: RingSize,
        partition: Partition,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let name = partition.index_decimal(size);
        let mut moved = Vec::new();
        for root in self.roots.iter().flat_map(StoreRoots::all) {
            let from = root.join(&name);
            if self.disk.info(&from)?.is_none() {
                continue;
            }
            let lost = root.join(LOST_NAME);
            create_directory_durably(&*self.disk, &lost)?;
            let to = free_name(&*self.disk, &lost, &format!("{name}."))?;
            self.disk.rename(&from, &to)?;
            self.disk.sync_directory(&lost)?;
            self.disk.sync_directory(root)?;
            moved.push(to);
        }
        Ok(moved)
    }

    /// The identity of a partition's store, as far as its files have it.
    pub(crate) fn identity_left(&self, size: RingSize, partition: Partition) -> Option<StoreId> {
        self.identity_in(&self.partition_directory(size, partition)?)
    }

    /// The directory of the record of the node's stores.
    pub(crate) fn ring_directory(&self) -> &Path {
        &self.settings.node.ring_state_dir
    }

    /// The identities of all stores in the directories of all engines, without those that were set aside.
    /// Blocks.
    ///
    /// # Errors
    /// Some directory does not name its store.
    pub(crate) fn identities_there(&self) -> anyhow::Result<BTreeSet<StoreId>> {
        let mut there = BTreeSet::new();
        for engine in WITH_FILES {
            let Some(find) = find_of(engine) else {
                continue;
            };
            let mut settings = self.settings.clone();
            settings.node.storage_backend = engine;
            let hints = settings.node.data_dir.join("hints").join(name_of(engine));
            let mut directories = vec![hints];
            if let Some(roots) = StoreRoots::of(&settings)
                && self.disk.info(&roots.own)?.is_some()
            {
                let entries = self.disk.list(&roots.own)?.into_iter();
                let of_stores = entries.filter(|it| it.name != LOST_NAME);
                directories.extend(of_stores.map(|it| roots.own.join(it.name)));
            }
            for directory in directories {
                let is_there = self.disk.info(&directory)?;
                if is_there.is_none_or(|it| it.kind != EntryKind::Directory) {
                    continue;
                }
                if engine == StorageBackend::Multi {
                    there.extend(multi::identities_of_children(&*self.disk, &directory)?);
                }
                match find(&*self.disk, &directory, &Belonging::default())? {
                    FoundStore::Nothing => {}
                    FoundStore::Store {
                        identity, erased, ..
                    } => there.extend([identity, erased]),
                    FoundStore::Unusable(why) => bail!("{why}"),
                }
            }
        }
        Ok(there)
    }

    /// The directory of the store of hints; `None` for an engine that has no files.
    pub(crate) fn hints_directory(&self) -> Option<PathBuf> {
        self.roots.as_ref()?;
        Some(self.settings.node.data_dir.join("hints").join(self.name()))
    }

    /// Opens the store of the hints. Blocks.
    pub(crate) fn open_hints(&self, log: Option<&ValueLog>) -> anyhow::Result<Arc<dyn Backend>> {
        let directory = self.hints_directory();
        let belonging = Belonging {
            label: HINTS_LABEL.to_owned(),
            identity: None,
        };
        self.open_in(
            directory.as_deref(),
            None,
            belonging,
            RingSize::SMALLEST,
            log,
        )
    }

    /// The files of the store of hints, or of the one of this label, if any; `None` for an engine that
    /// has no files. Blocks.
    pub(crate) fn find_hints(&self, label: &str) -> anyhow::Result<Option<FoundStore>> {
        let engine = self.settings.node.storage_backend;
        let (Some(directory), Some(find)) = (self.hints_directory(), find_of(engine)) else {
            return Ok(None);
        };
        let belonging = Belonging {
            label: label.to_owned(),
            identity: None,
        };
        let found = find(&*self.disk, &directory, &belonging);
        let context = || format!("look into {}", directory.display());
        found.with_context(context).map(Some)
    }

    /// The identity of the store of hints by its files; `None` if they have none.
    pub(crate) fn hints_identity_left(&self) -> Option<StoreId> {
        self.identity_in(&self.hints_directory()?)
    }

    fn identity_in(&self, directory: &Path) -> Option<StoreId> {
        let disk = &*self.disk;
        let identity = match self.settings.node.storage_backend {
            StorageBackend::Leveldb | StorageBackend::Leveled | StorageBackend::Hanoidb => {
                kvorum_backend_leveldb::identity_of(disk, directory).ok()
            }
            StorageBackend::Bitcask => {
                kvorum_backend_bitcask::check::identity_of(disk, directory).ok()
            }
            StorageBackend::Innostore => {
                kvorum_backend_innostore::check::identity_of(disk, directory).ok()
            }
            // Its parts are tenants of the value log, and not the whole store.
            StorageBackend::Memory | StorageBackend::Multi => None,
        };
        identity.flatten().map(StoreId)
    }

    /// Removes the files of a partition's store, which is not open. Blocks.
    pub(crate) fn remove(&self, size: RingSize, partition: Partition) -> anyhow::Result<()> {
        let Some(directory) = self.partition_directory(size, partition) else {
            return Ok(());
        };
        if self.disk.info(&directory)?.is_some() {
            let action = || format!("remove {}", directory.display());
            match self.settings.node.storage_backend {
                StorageBackend::Leveldb | StorageBackend::Leveled | StorageBackend::Hanoidb => {
                    remove_store(&*self.disk, &directory).with_context(action)?;
                }
                _ => self
                    .disk
                    .remove_directory(&directory)
                    .with_context(action)?,
            }
        }
        Ok(())
    }

    /// The directory of a partition's store, if the engine has files.
    fn partition_directory(&self, size: RingSize, partition: Partition) -> Option<PathBuf> {
        let roots = self.roots.as_ref()?;
        Some(roots.own.join(partition.index_decimal(size)))
    }

    fn open_in(
        &self,
        directory: Option<&Path>,
        tiers: Option<Tiers>,
        belonging: Belonging,
        size: RingSize,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let (store, directory) = match (self.settings.node.storage_backend, directory) {
            (StorageBackend::Memory, _) | (_, None) => {
                return Ok(Arc::new(self.open_memory(size)));
            }
            (StorageBackend::Bitcask, Some(directory)) => {
                (self.open_bitcask(directory, belonging, log)?, directory)
            }
            (StorageBackend::Leveldb, Some(directory)) => (
                self.open_leveldb(directory, tiers, belonging, log)?,
                directory,
            ),
            (StorageBackend::Leveled, Some(directory)) => {
                (self.open_leveled(directory, belonging, log)?, directory)
            }
            (StorageBackend::Hanoidb, Some(directory)) => {
                (self.open_hanoidb(directory, belonging, log)?, directory)
            }
            (StorageBackend::Innostore, Some(directory)) => {
                (self.open_innostore(directory, belonging, log)?, directory)
            }
            // Each of its stores reports its own losses.
            (StorageBackend::Multi, Some(directory)) => {
                return self.open_several(directory, &belonging, size, log);
            }
        };
        log_losses(directory, &*store);
        Ok(store)
    }

    /// Opens a store that is made of one store of each backend. The store of the hints has all in the
    /// default one: its keys are not keys of buckets.
    fn open_several(
        &self,
        directory: &Path,
        belonging: &Belonging,
        size: RingSize,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let action = || format!("open {}", directory.display());
        let known = known_children(&*self.disk, directory, belonging).with_context(action)?;
        let mut children = Vec::new();
        for (name, engines) in &self.backends {
            let known = known.iter().find(|it| it.name == *name);
            let its = Belonging {
                // One that was a store by itself has another label; the identity in the card decides.
                label: match known {
                    Some(_) => String::new(),
                    None => format!("{}/{name}", belonging.label),
                },
                identity: known.map(|it| it.identity),
            };
            children.push(engines.open_part(name, &directory.join(name), its, size, log)?);
        }
        let parts = children.iter().map(|it| it.store.identity()).collect();
        let is_of_hints = belonging.label == HINTS_LABEL;
        let routes: Arc<dyn Routes> = match is_of_hints {
            true => Arc::new(FixedRoutes::new(RouteTable::to(
                self.settings.multi.default_number(),
            ))),
            false => self.routes.clone(),
        };
        let (disk, draw) = (self.disk.clone(), self.draw());
        let moves = (!is_of_hints).then(|| Box::new(kvorum_vnode::index_entries) as Box<_>);
        let opened = MultiBackend::open(disk, directory, belonging, children, routes, draw, moves);
        let store = opened.with_context(action)?;
        self.parts.lock().insert(store.identity(), parts);
        Ok(Arc::new(store))
    }

    /// Opens one of the stores that make up a store.
    fn open_part(
        &self,
        name: &str,
        directory: &Path,
        belonging: Belonging,
        size: RingSize,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Child> {
        let erased = match find_of(self.settings.node.storage_backend) {
            Some(find) => multi::erased_of(find(&*self.disk, directory, &belonging))?,
            None => StoreId(0),
        };
        let store = self.open_in(Some(directory), None, belonging, size, log)?;
        Ok(Child {
            name: name.to_owned(),
            store,
            erased,
        })
    }

    fn open_memory(&self, size: RingSize) -> kvorum_backend_memory::MemoryBackend {
        let mut settings = kvorum_backend_memory::Settings::default();
        let memory = &self.settings.memory;
        let share = memory.bytes_max.map(|bytes| bytes / u64::from(size.get()));
        settings.ttl = memory.ttl;
        settings.memory_bytes_max = match (memory.per_vnode_bytes_max, share) {
            (Some(own), Some(share)) => Some(own.min(share)),
            (own, share) => own.or(share),
        };
        let randomness = self.randomness.clone();
        kvorum_backend_memory::MemoryBackend::new(settings, move || randomness.next_u64())
    }

    /// The block cache and the memtables of the stores of an engine over merge trees.
    pub(crate) fn trees_shared(&self) -> Option<&Shared> {
        let of_backends = || self.backends.iter().find_map(|(_, it)| it.trees_shared());
        let own = self.trees.as_ref().map(|(_, shared)| shared);
        own.or_else(of_backends)
    }

    /// The pages that the stores of innostore have read.
    pub(crate) fn page_cache(&self) -> Option<&Arc<PageCache>> {
        let of_backends = || self.backends.iter().find_map(|(_, it)| it.page_cache());
        let own = self.pages.as_ref().map(|(_, shared)| &shared.cache);
        own.or_else(of_backends)
    }

    fn open_leveldb(
        &self,
        directory: &Path,
        tiers: Option<Tiers>,
        belonging: Belonging,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let (memory, shared) = self.trees.as_ref().context("size the block cache")?;
        let mut settings = leveldb::settings_of(&self.settings, memory, self.randomness.next_u64());
        settings.tiers = tiers;
        settings.belonging = belonging;
        let (disk, shared, draw) = (self.disk.clone(), shared.clone(), self.draw());
        let opened = Leveldb::open(disk, directory, &settings, shared, draw, log.cloned());
        let store = opened.with_context(|| format!("open {}", directory.display()))?;
        if log.is_some() {
            self.note_tenant(&store.tenant());
        }
        Ok(Arc::new(match &self.reserve {
            Some(reserve) => store.with_reserve(reserve.clone()),
            None => store,
        }))
    }

    fn open_leveled(
        &self,
        directory: &Path,
        belonging: Belonging,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let (memory, shared) = self.trees.as_ref().context("size the block cache")?;
        let log = log.context("open the value log, which is the journal")?;
        let mut settings = leveled::settings_of(&self.settings, memory, self.randomness.next_u64());
        settings.belonging = belonging;
        let (disk, shared, draw) = (self.disk.clone(), shared.clone(), self.draw());
        let opened = open_leveled(disk, directory, &settings, shared, draw, log.clone());
        let store = opened.with_context(|| format!("open {}", directory.display()))?;
        self.note_tenant(&store.tenant());
        Ok(Arc::new(store))
    }

    fn open_hanoidb(
        &self,
        directory: &Path,
        belonging: Belonging,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let (memory, shared) = self.trees.as_ref().context("size the block cache")?;
        hanoidb::refuse_original(&*self.disk, directory)?;
        let mut settings = hanoidb::settings_of(&self.settings, memory, self.randomness.next_u64());
        settings.belonging = belonging;
        let (disk, shared, draw) = (self.disk.clone(), shared.clone(), self.draw());
        let opened = Hanoidb::open(disk, directory, &settings, shared, draw, log.cloned());
        let store = opened.with_context(|| format!("open {}", directory.display()))?;
        if log.is_some() {
            self.note_tenant(&store.tenant());
        }
        Ok(Arc::new(match &self.reserve {
            Some(reserve) => store.with_reserve(reserve.clone()),
            None => store,
        }))
    }

    fn open_innostore(
        &self,
        directory: &Path,
        belonging: Belonging,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let (pool, shared) = self.pages.as_ref().context("size the cache of pages")?;
        let log = log.context("open the value log, which is the redo log")?;
        self.roots()
            .try_for_each(|root| innostore::refuse_original(&*self.disk, root))?;
        let mut settings = innostore::settings_of(&self.settings, pool, self.randomness.next_u64());
        settings.belonging = belonging;
        let (disk, shared, draw) = (self.disk.clone(), shared.clone(), self.draw());
        let opened = Innostore::open(disk, directory, &settings, shared, draw, log.clone());
        let store = opened.with_context(|| format!("open {}", directory.display()))?;
        self.note_tenant(&store.tenant());
        Ok(Arc::new(store))
    }

    /// Numbers for identities.
    fn draw(&self) -> DrawNumber {
        let randomness = self.randomness.clone();
        Arc::new(move || randomness.next_u64())
    }

    fn open_bitcask(
        &self,
        directory: &Path,
        belonging: Belonging,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let draw = self.draw();
        let mut settings = bitcask::settings_of(&self.settings, self.randomness.next_u64());
        settings.belonging = belonging;
        let disk = self.disk.clone();
        let opened = Bitcask::open(disk, directory, settings, draw, log.cloned());
        let store = opened.with_context(|| format!("open {}", directory.display()))?;
        let store = match &self.reserve {
            Some(reserve) => store.with_reserve(reserve.clone()),
            None => store,
        };
        let store = Arc::new(match &self.read_cache {
            Some(cache) => store.with_cache(cache.clone()),
            None => store,
        });
        if log.is_some() {
            let tenant: Arc<dyn Tenant> = store.clone();
            self.note_tenant(&tenant);
        }
        Ok(store)
    }
}

/// The engines of several backends. Backends over merge trees share one memory, those of innostore one cache
/// of pages, and those of bitcask one read cache. The settings of the first of each kind count.
fn backends_of(
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    randomness: &Arc<dyn Randomness>,
) -> Vec<(String, Engines)> {
    if settings.node.storage_backend != StorageBackend::Multi {
        return Vec::new();
    }
    let mut backends: Vec<(String, Engines)> = Vec::new();
    for backend in &settings.multi.backends {
        let (disk, randomness) = (disk.clone(), randomness.clone());
        let mut engines = Engines::new(disk, backend.settings.clone(), randomness);
        let first =
            |is_it: fn(&Engines) -> bool| backends.iter().map(|it| &it.1).find(|it| is_it(it));
        if engines.trees.is_some()
            && let Some(first) = first(|it| it.trees.is_some())
        {
            engines.trees.clone_from(&first.trees);
        }
        if engines.pages.is_some()
            && let Some(first) = first(|it| it.pages.is_some())
        {
            engines.pages.clone_from(&first.pages);
        }
        if engines.read_cache.is_some()
            && let Some(first) = first(|it| it.read_cache.is_some())
        {
            engines.read_cache.clone_from(&first.read_cache);
        }
        backends.push((backend.name.clone(), engines));
    }
    backends
}

/// The store of a partition: its label is the name of its directory.
fn belonging(size: RingSize, partition: Partition, known: Option<StoreId>) -> Belonging {
    Belonging {
        label: partition.index_decimal(size),
        identity: known,
    }
}

/// Logs the losses of a store, the latest last. It serves the rest.
fn log_losses(directory: &Path, store: &dyn Backend) {
    let lost = store.status().lost;
    for range in lost
        .iter()
        .skip(lost.len().saturating_sub(LOSSES_SHOWN_MAX))
    {
        tracing::error!(
            event = "store_degraded",
            directory = %directory.display(),
            lost_ranges = lost.len(),
            file = %range.file,
            offset = range.offset,
            len = range.len,
            held = %range.held,
        );
    }
}

/// The first path in a directory, of this beginning and a number, that nothing has.
pub(crate) fn free_name(disk: &dyn Disk, directory: &Path, start: &str) -> anyhow::Result<PathBuf> {
    let mut number = 1;
    loop {
        let path = directory.join(format!("{start}{number}"));
        if disk.info(&path)?.is_none() {
            return Ok(path);
        }
        number += 1;
    }
}

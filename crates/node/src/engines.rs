//! The stores of a node, opened: the only place that knows all engines.

mod bitcask;
mod hanoidb;
mod leveldb;
mod leveled;
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
use kvorum_backend_leveldb::repair::RepairOptions;
use kvorum_backend_leveldb::{DrawNumber, Leveldb, Shared, Tiers, remove_store};
use kvorum_backend_leveled::open as open_leveled;
use kvorum_disk::{Disk, EntryKind, Reserve, create_directory_durably};
use kvorum_maintenance::machine;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Randomness;
use kvorum_settings::{DurabilityMode, Settings, StorageBackend};
use kvorum_value_log::{Tenant, ValueLog};
use parking_lot::Mutex;

use crate::engine_names::{WITH_FILES, find_of, name_of, repair_options_of};
use crate::store_roots::StoreRoots;

use self::tree_memory::Memory;

/// Losses of one store that the log names.
const LOSSES_TOLD_MAX: usize = 10;

/// The place for directories that are set aside because they hold another store than they should.
pub(crate) const LOST_NAME: &str = "lost";

/// Opens the stores of a node, one for each partition.
pub(crate) struct Engines {
    disk: Arc<dyn Disk>,
    settings: Settings,
    /// The directories of the stores of partitions, if the engine has any files.
    roots: Option<StoreRoots>,
    randomness: Arc<dyn Randomness>,
    /// What the stores of an engine over merge trees share, and how it was sized.
    trees: Option<(Memory, Shared)>,
    /// What the stores of bitcask have read, for all of them.
    read_cache: Option<Arc<ReadCache>>,
    /// The free space that puts to the stores' own files leave alone, if there is no value log to do that.
    reserve: Option<Arc<Reserve>>,
    /// Open stores as the value log knows them.
    tenants: Mutex<BTreeMap<StoreId, Weak<dyn Tenant>>>,
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
            StorageBackend::Bitcask | StorageBackend::Memory => None,
        };
        let trees = allowance.map(|allowance| {
            // A node that joins a cluster of another ring size is told so and is to be started again.
            let partitions = settings.node.ring_size;
            let memory = Memory::of(allowance, machine::memory_bytes(), partitions);
            (memory, memory.shared())
        });
        let read_cache = bitcask::read_cache(&settings, machine::memory_bytes());
        Self {
            trees,
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
        Some(reserve)
    }

    /// Those of these stores that have entries in the value log, as that knows them.
    pub(crate) fn tenants_of(&self, stores: &[Arc<dyn Backend>]) -> Vec<Arc<dyn Tenant>> {
        let tenants = self.tenants.lock();
        let known = stores
            .iter()
            .filter_map(|it| tenants.get(&it.identity())?.upgrade());
        known.collect()
    }

    /// Of two copies of a store the first counts: the second is not going to stay open.
    fn note_tenant(&self, tenant: &Arc<dyn Tenant>) {
        let mut tenants = self.tenants.lock();
        tenants.retain(|_, it| it.strong_count() > 0);
        let identity = tenant.store_id();
        tenants
            .entry(identity)
            .or_insert_with(|| Arc::downgrade(tenant));
    }

    /// The cache of what was read, where there is one.
    pub(crate) fn read_cache(&self) -> Option<&Arc<ReadCache>> {
        self.read_cache.as_ref()
    }

    /// The directories of the stores of partitions; none for an engine that has no files.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().flat_map(StoreRoots::all)
    }

    /// The engine's name, as in `storage_backend`.
    pub(crate) fn name(&self) -> &'static str {
        name_of(self.settings.node.storage_backend)
    }

    /// How damaged stores are repaired without being opened.
    pub(crate) fn repair_options(&self) -> RepairOptions {
        repair_options_of(self.settings.node.storage_backend)(false, false)
    }

    /// True when entries are put to the node's value log, and stay there. Stores that have some in one
    /// of an earlier run go on with it, whatever their durability is now.
    pub(crate) fn use_value_log(&self, is_there_one: bool) -> bool {
        match self.settings.node.storage_backend {
            StorageBackend::Bitcask | StorageBackend::Leveldb | StorageBackend::Hanoidb => {
                is_there_one || self.settings.backend_durability().mode == DurabilityMode::Grouped
            }
            // It is their journal.
            StorageBackend::Leveled => true,
            StorageBackend::Memory => false,
        }
    }

    /// When stores may merge, and what they have in the value log may be collected.
    pub(crate) fn merge_policy(&self) -> MergePolicy {
        match self.settings.node.storage_backend {
            StorageBackend::Bitcask => bitcask::merge_policy(&self.settings),
            // Nothing keeps its stores from merging either.
            StorageBackend::Leveldb
            | StorageBackend::Leveled
            | StorageBackend::Hanoidb
            | StorageBackend::Memory => MergePolicy::Always,
        }
    }

    /// Opens the store of a partition, creating it if it is new. Blocks. `known` is the identity that the
    /// node knows it by; `log` is the value log, for engines that use it.
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

    /// Which store a partition's files are, as far as they tell.
    pub(crate) fn identity_left(&self, size: RingSize, partition: Partition) -> Option<StoreId> {
        self.identity_in(&self.partition_directory(size, partition)?)
    }

    /// Where the record of the node's stores is.
    pub(crate) fn ring_directory(&self) -> &Path {
        &self.settings.node.ring_state_dir
    }

    /// The identities of all stores that lie where some engine has its stores, without those that were set
    /// aside. Blocks.
    ///
    /// # Errors
    /// Some directory does not say which store it holds.
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

    /// Opens the store of what is kept for other nodes. Blocks.
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

    /// What is on the disk of the store of hints, or of the one of this label, if any; `None` for an engine
    /// that has no files. Blocks.
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
            StorageBackend::Memory => None,
        };
        identity.flatten().map(StoreId)
    }

    /// Removes the files of a partition's store, which is not open. Blocks.
    pub(crate) fn remove(&self, size: RingSize, partition: Partition) -> anyhow::Result<()> {
        let Some(directory) = self.partition_directory(size, partition) else {
            return Ok(());
        };
        if self.disk.info(&directory)?.is_some() {
            let told = || format!("remove {}", directory.display());
            match self.settings.node.storage_backend {
                StorageBackend::Leveldb | StorageBackend::Leveled | StorageBackend::Hanoidb => {
                    remove_store(&*self.disk, &directory).with_context(told)?;
                }
                _ => self.disk.remove_directory(&directory).with_context(told)?,
            }
        }
        Ok(())
    }

    /// Where the files of a partition's store are, if the engine has any.
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
        };
        tell_losses(directory, &*store);
        Ok(store)
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
        self.trees.as_ref().map(|(_, shared)| shared)
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

/// The store of a partition: its label is the name of its directory.
fn belonging(size: RingSize, partition: Partition, known: Option<StoreId>) -> Belonging {
    Belonging {
        label: partition.index_decimal(size),
        identity: known,
    }
}

/// Says what a store has lost, the latest last. It serves the rest.
fn tell_losses(directory: &Path, store: &dyn Backend) {
    let lost = store.status().lost;
    for range in lost.iter().skip(lost.len().saturating_sub(LOSSES_TOLD_MAX)) {
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

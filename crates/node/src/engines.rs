//! The engines by name: the only place that knows them all.

mod leveldb;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use kvorum_backend::{Backend, Durability};
use kvorum_backend_bitcask::{
    Bitcask, BitcaskSettings, MergePolicy, MergeSettings, ReadCache, SyncStrategy,
};
use kvorum_backend_leveldb::{Leveldb, Shared};
use kvorum_commit::ValueLog;
use kvorum_disk::Disk;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Randomness;
use kvorum_settings::{self as settings, Compression, DurabilityMode, Settings, StorageBackend};

use crate::maintenance::machine;

use self::leveldb::Memory;

/// Zstandard's level for values: the fastest, which is still much denser than LZ4.
const ZSTD_LEVEL: i32 = 1;

/// The part of all memory that `bitcask.read_cache = auto` takes: one in so many bytes.
const READ_CACHE_SHARE: u64 = 32;

/// The engines that are built in, as `storage_backend` names them.
pub(crate) const BUILT_IN: [&str; 3] = ["bitcask", "leveldb", "memory"];

/// Opens the stores of a node, one for each partition.
pub(crate) struct Engines {
    disk: Arc<dyn Disk>,
    settings: Settings,
    randomness: Arc<dyn Randomness>,
    /// What the stores of the leveldb engine share, and how it was sized.
    leveldb: Option<(Memory, Shared)>,
    /// What the stores of bitcask have read, for all of them.
    read_cache: Option<Arc<ReadCache>>,
}

impl Engines {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        settings: Settings,
        randomness: Arc<dyn Randomness>,
    ) -> Self {
        let leveldb = (settings.node.storage_backend == StorageBackend::Leveldb).then(|| {
            // A node that joins a cluster of another ring size is told so and is to be started again.
            let partitions = settings.node.ring_size;
            let memory = Memory::of(&settings.leveldb, machine::memory_bytes(), partitions);
            (memory, memory.shared())
        });
        let read_cache = read_cache(&settings);
        Self {
            leveldb,
            disk,
            settings,
            randomness,
            read_cache,
        }
    }

    /// The cache of what was read, where there is one.
    pub(crate) fn read_cache(&self) -> Option<&Arc<ReadCache>> {
        self.read_cache.as_ref()
    }

    /// The engine's name, as in `storage_backend`.
    pub(crate) fn name(&self) -> &'static str {
        match self.settings.node.storage_backend {
            StorageBackend::Bitcask => "bitcask",
            StorageBackend::Leveldb => "leveldb",
            StorageBackend::Memory => "memory",
        }
    }

    /// True when acknowledged writes go through the node's commit log.
    pub(crate) fn use_commit_log(&self) -> bool {
        match self.settings.node.storage_backend {
            StorageBackend::Leveldb => {
                self.settings.backend_durability().mode == DurabilityMode::Grouped
            }
            StorageBackend::Bitcask | StorageBackend::Memory => false,
        }
    }

    /// True when entries are put to the node's value log, and stay there. Stores that have some in one
    /// of an earlier run go on with it, whatever their durability is now.
    pub(crate) fn use_value_log(&self, is_there_one: bool) -> bool {
        match self.settings.node.storage_backend {
            StorageBackend::Bitcask => {
                is_there_one || self.settings.backend_durability().mode == DurabilityMode::Grouped
            }
            StorageBackend::Leveldb | StorageBackend::Memory => false,
        }
    }

    /// What a put without a durability of its own waits for.
    pub(crate) fn default_durability(&self) -> Durability {
        if self.use_commit_log() {
            Durability::Grouped
        } else {
            Durability::Buffered
        }
    }

    /// Opens the store of a partition, creating it if it is new. Blocks. `log` is the value log, for
    /// engines that use it.
    pub(crate) fn open(
        &self,
        size: RingSize,
        partition: Partition,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let directory = self.partition_directory(size, partition);
        self.open_in(directory.as_deref(), size, log)
    }

    /// True when there is something of a partition's store on the disk. Blocks.
    pub(crate) fn has_files(&self, size: RingSize, partition: Partition) -> anyhow::Result<bool> {
        match self.partition_directory(size, partition) {
            Some(directory) => Ok(self.disk.info(&directory)?.is_some()),
            None => Ok(false),
        }
    }

    /// Opens the store of what is kept for other nodes. Blocks.
    pub(crate) fn open_hints(&self, log: Option<&ValueLog>) -> anyhow::Result<Arc<dyn Backend>> {
        let directory = self.settings.node.data_dir.join("hints").join(self.name());
        self.open_in(Some(&directory), RingSize::SMALLEST, log)
    }

    /// Removes the files of a partition's store, which is not open. Blocks.
    pub(crate) fn remove(&self, size: RingSize, partition: Partition) -> anyhow::Result<()> {
        let Some(directory) = self.partition_directory(size, partition) else {
            return Ok(());
        };
        if self.disk.info(&directory)?.is_some() {
            let removed = self.disk.remove_directory(&directory);
            removed.with_context(|| format!("remove {}", directory.display()))?;
        }
        Ok(())
    }

    /// Where the files of a partition's store are, if the engine has any.
    fn partition_directory(&self, size: RingSize, partition: Partition) -> Option<PathBuf> {
        let data_root = match self.settings.node.storage_backend {
            StorageBackend::Memory => return None,
            StorageBackend::Bitcask => &self.settings.bitcask.data_root,
            StorageBackend::Leveldb => &self.settings.leveldb.data_root,
        };
        Some(data_root.join(partition.index_decimal(size)))
    }

    fn open_in(
        &self,
        directory: Option<&Path>,
        size: RingSize,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        match (self.settings.node.storage_backend, directory) {
            (StorageBackend::Memory, _) | (_, None) => Ok(Arc::new(self.open_memory(size))),
            (StorageBackend::Bitcask, Some(directory)) => self.open_bitcask(directory, log),
            (StorageBackend::Leveldb, Some(directory)) => self.open_leveldb(directory),
        }
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

    /// The block cache and the memtables of the leveldb engine's stores.
    pub(crate) fn leveldb_shared(&self) -> Option<&Shared> {
        self.leveldb.as_ref().map(|(_, shared)| shared)
    }

    fn open_leveldb(&self, directory: &Path) -> anyhow::Result<Arc<dyn Backend>> {
        let (memory, shared) = self.leveldb.as_ref().context("size the block cache")?;
        let settings = leveldb::settings_of(&self.settings, memory, self.randomness.next_u64());
        let randomness = self.randomness.clone();
        let draw = Arc::new(move || randomness.next_u64());
        let store = Leveldb::open(
            self.disk.clone(),
            directory,
            &settings,
            shared.clone(),
            draw,
        )
        .with_context(|| format!("open {}", directory.display()))?;
        Ok(Arc::new(store))
    }

    fn open_bitcask(
        &self,
        directory: &Path,
        log: Option<&ValueLog>,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let randomness = self.randomness.clone();
        let draw = Arc::new(move || randomness.next_u64());
        let (disk, settings) = (self.disk.clone(), self.bitcask_settings());
        let opened = match log {
            Some(log) => {
                let log = Arc::new(log.clone());
                Bitcask::open_adopting(disk, directory, settings, draw, log)
            }
            None => Bitcask::open(disk, directory, settings, draw),
        };
        let store = opened.with_context(|| format!("open {}", directory.display()))?;
        Ok(Arc::new(match &self.read_cache {
            Some(cache) => store.with_cache(cache.clone()),
            None => store,
        }))
    }

    fn bitcask_settings(&self) -> BitcaskSettings {
        let mut settings = BitcaskSettings::default();
        let bitcask = &self.settings.bitcask;
        let durability = self.settings.bitcask_durability();
        settings.sync = match durability.mode {
            DurabilityMode::Grouped => SyncStrategy::Grouped,
            DurabilityMode::None => SyncStrategy::None,
            DurabilityMode::Interval => SyncStrategy::Interval(durability.interval),
        };
        let log = &self.settings.commit_log;
        let segments = log.bytes_max / log.segment_bytes.max(1);
        settings.log_segments_behind_max = u32::try_from(segments).unwrap_or(u32::MAX).max(1);
        settings.expiry = bitcask.expiry;
        settings.expiry_grace = bitcask.expiry_grace;
        settings.file_bytes_max = bitcask.file_bytes_max;
        settings.compression = match bitcask.compression {
            Compression::None => kvorum_backend_bitcask::Compression::None,
            Compression::Lz4 => kvorum_backend_bitcask::Compression::Lz4,
            Compression::Zstd => kvorum_backend_bitcask::Compression::Zstd(ZSTD_LEVEL),
        };
        settings.merge = MergeSettings {
            policy: match bitcask.merge_policy {
                settings::MergePolicy::Always => MergePolicy::Always,
                settings::MergePolicy::Never => MergePolicy::Never,
                settings::MergePolicy::Window => MergePolicy::Window {
                    first_hour: bitcask.merge_window_start_hour,
                    last_hour: bitcask.merge_window_end_hour,
                },
            },
            fragmentation_trigger_percent: bitcask.merge_trigger_fragmentation_percent,
            dead_bytes_trigger: bitcask.merge_trigger_dead_bytes,
            fragmentation_threshold_percent: bitcask.merge_threshold_fragmentation_percent,
            dead_bytes_threshold: bitcask.merge_threshold_dead_bytes,
            small_file_threshold_bytes: bitcask.merge_threshold_small_file_bytes.unwrap_or(0),
            ..MergeSettings::default()
        };
        settings
    }
}

fn read_cache(settings: &Settings) -> Option<Arc<ReadCache>> {
    if settings.node.storage_backend != StorageBackend::Bitcask {
        return None;
    }
    let share = || machine::memory_bytes().unwrap_or(0) / READ_CACHE_SHARE;
    let bytes_max = settings.bitcask.read_cache_bytes.unwrap_or_else(share);
    (bytes_max > 0).then(|| Arc::new(ReadCache::new(bytes_max)))
}

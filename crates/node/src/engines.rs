//! The engines by name: the only place that knows them all.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use kvorum_backend::{Backend, Durability, Timestamp};
use kvorum_disk::Disk;
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Randomness;
use kvorum_settings::{DurabilityMode, Settings, StorageBackend};

/// Opens the stores of a node, one for each partition.
pub(crate) struct Engines {
    disk: Arc<dyn Disk>,
    settings: Settings,
    ring_size: RingSize,
    randomness: Arc<dyn Randomness>,
}

impl Engines {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        settings: Settings,
        ring_size: RingSize,
        randomness: Arc<dyn Randomness>,
    ) -> Self {
        Self {
            disk,
            settings,
            ring_size,
            randomness,
        }
    }

    /// The engine's name, as in `storage_backend`.
    pub(crate) fn name(&self) -> &'static str {
        match self.settings.node.storage_backend {
            StorageBackend::Bitcask => "bitcask",
            StorageBackend::Memory => "memory",
        }
    }

    /// True when acknowledged writes go through the node's commit log.
    pub(crate) fn use_commit_log(&self) -> bool {
        match self.settings.node.storage_backend {
            StorageBackend::Bitcask => {
                self.settings.bitcask_durability().mode == DurabilityMode::Grouped
            }
            StorageBackend::Memory => false,
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

    /// Opens the store of a partition, creating it if it is new. Blocks.
    pub(crate) fn open(
        &self,
        partition: Partition,
        now: Timestamp,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        match self.settings.node.storage_backend {
            StorageBackend::Memory => Ok(Arc::new(self.open_memory())),
            StorageBackend::Bitcask => self.open_bitcask(partition, now),
        }
    }

    fn open_memory(&self) -> kvorum_backend_memory::MemoryBackend {
        let mut settings = kvorum_backend_memory::Settings::default();
        let memory = &self.settings.memory;
        let share = memory
            .bytes_max
            .map(|bytes| bytes / u64::from(self.ring_size.get()));
        settings.ttl = memory.ttl;
        settings.memory_bytes_max = match (memory.per_vnode_bytes_max, share) {
            (Some(own), Some(share)) => Some(own.min(share)),
            (own, share) => own.or(share),
        };
        let randomness = self.randomness.clone();
        kvorum_backend_memory::MemoryBackend::new(settings, move || randomness.next_u64())
    }

    fn open_bitcask(
        &self,
        partition: Partition,
        now: Timestamp,
    ) -> anyhow::Result<Arc<dyn Backend>> {
        let directory = self.partition_directory(partition);
        let _ = (now, &self.disk);
        Err(anyhow::anyhow!("bitcask")).with_context(|| format!("open {}", directory.display()))
    }

    fn partition_directory(&self, partition: Partition) -> PathBuf {
        self.settings
            .bitcask
            .data_root
            .join(partition.index_decimal(self.ring_size))
    }
}

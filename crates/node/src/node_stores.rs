//! The stores of a running node: engines behind the node's log.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use kvorum_backend::Backend;
use kvorum_backend_bitcask::ReadCache;
use kvorum_backend_leveldb::Shared;
use kvorum_commit::{CommitLogSettings, ValueLog};
use kvorum_disk::Disk;
use kvorum_member::{FirstStores, StoreError, Stores};
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Runtime;
use kvorum_settings::Settings;
use parking_lot::Mutex;

use crate::data_directory::DataDirectory;
use crate::engines::Engines;
use crate::node_log::{self, NodeLog};

/// Opens and removes stores for the member that this node is.
pub(crate) struct NodeStores {
    disk: Arc<dyn Disk>,
    runtime: Runtime,
    engines: Engines,
    log_directory: PathBuf,
    log_settings: CommitLogSettings,
    /// The value log, for engines that keep their entries in it.
    value_log: Option<ValueLog>,
    /// From the first opening on, where the engine's writes go through one.
    log: Mutex<Option<NodeLog>>,
}

impl NodeStores {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        runtime: Runtime,
        settings: &Settings,
        data: &DataDirectory,
    ) -> anyhow::Result<Self> {
        let engines = Engines::new(disk.clone(), settings.clone(), runtime.randomness());
        let value_log = if engines.use_value_log(data.has_value_log(&*disk)?) {
            data.note_value_log(&*disk)?;
            let log = node_log::open_value_log(&disk, &data.value_log(), settings, &runtime)?;
            Some(log)
        } else {
            None
        };
        Ok(Self {
            disk,
            runtime,
            engines,
            log_directory: data.commit_log(),
            log_settings: CommitLogSettings {
                segment_bytes: settings.commit_log.segment_bytes,
                bytes_max: settings.commit_log.bytes_max,
            },
            value_log,
            log: Mutex::new(None),
        })
    }

    /// The log, once the stores are open and if there is to be one.
    pub(crate) fn log(&self) -> Option<NodeLog> {
        self.log.lock().clone()
    }

    /// The engine's name, as in `storage_backend`.
    pub(crate) fn engine_name(&self) -> &'static str {
        self.engines.name()
    }

    /// What the stores of the leveldb engine share.
    pub(crate) fn leveldb_shared(&self) -> Option<Shared> {
        self.engines.leveldb_shared().cloned()
    }

    /// What the stores of bitcask have read, where it is kept.
    pub(crate) fn read_cache(&self) -> Option<Arc<ReadCache>> {
        self.engines.read_cache().cloned()
    }

    fn open_stores(&self, size: RingSize, partitions: &[Partition]) -> anyhow::Result<FirstStores> {
        let hints = self
            .engines
            .open_hints(self.value_log.as_ref())
            .context("open the hints' store")?;
        let stores = self.open_engines(size, partitions)?;
        let all = stores.iter().map(|(_, store)| store).chain([&hints]);
        self.recover(&all.cloned().collect::<Vec<_>>())?;
        let behind_log = |(partition, store)| (partition, self.behind_log(store));
        Ok(FirstStores {
            partitions: stores.into_iter().map(behind_log).collect(),
            hints: self.behind_log(hints),
        })
    }

    /// Opens the stores of partitions, several at a time.
    fn open_engines(
        &self,
        size: RingSize,
        partitions: &[Partition],
    ) -> anyhow::Result<Vec<(Partition, Arc<dyn Backend>)>> {
        let workers = std::thread::available_parallelism().map_or(2, |count| 4 * count.get());
        let per_worker = partitions.len().div_ceil(workers).max(1);
        std::thread::scope(|scope| {
            let handles: Vec<_> = partitions
                .chunks(per_worker)
                .map(|chunk| {
                    scope.spawn(move || {
                        let open = |partition: &Partition| {
                            let log = self.value_log.as_ref();
                            let opened = self.engines.open(size, *partition, log);
                            let store = opened.with_context(|| {
                                format!("open the store of partition {}", partition.number())
                            })?;
                            Ok((*partition, store))
                        };
                        chunk.iter().map(open).collect::<anyhow::Result<Vec<_>>>()
                    })
                })
                .collect();
            let mut stores = Vec::with_capacity(partitions.len());
            for handle in handles {
                match handle.join() {
                    Ok(opened) => stores.extend(opened?),
                    Err(_) => {
                        anyhow::bail!("a thread that opens stores panicked; report this bug")
                    }
                }
            }
            Ok(stores)
        })
    }

    /// Gives stores what earlier runs logged, and starts this run's log if there is to be one. What is
    /// found in a commit log is put to stores anew: those that leave their entries in the value log put
    /// it there.
    fn recover(&self, stores: &[Arc<dyn Backend>]) -> anyhow::Result<()> {
        if let Some(log) = &self.value_log {
            node_log::admit(log, stores)?;
        }
        let directory = &self.log_directory;
        let found = kvorum_commit::recover(&*self.disk, directory, stores)
            .context("replay the commit log")?;
        if found.batches_read > 0 {
            tracing::info!(
                event = "commit_log_replayed",
                batches_read = found.batches_read,
                batches_replayed = found.batches_replayed,
                torn_bytes = found.torn_bytes,
            );
        }
        if found.batches_of_unknown_stores > 0 {
            let batches = found.batches_of_unknown_stores;
            tracing::warn!(event = "commit_log_unknown_stores", batches);
        }
        for damage in &found.damage {
            tracing::error!(event = "commit_log_damaged", damage = %damage);
        }
        let log = match &self.value_log {
            Some(log) => Some(NodeLog::Value(log.clone())),
            None if self.engines.use_commit_log() => {
                let id = self.runtime.random_u64();
                let (disk, settings) = (self.disk.clone(), self.log_settings);
                let log = node_log::create_commit_log(disk, directory, id, settings)?;
                Some(NodeLog::Commit(log))
            }
            None => None,
        };
        *self.log.lock() = log;
        Ok(())
    }

    fn behind_log(&self, engine: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match self.log() {
            Some(log) => log.over(engine, self.engines.default_durability()),
            None => engine,
        }
    }

    /// The value log keeps what a store has in it until it is known to be erased: one that is not open
    /// is opened for that.
    fn erase_unopened(&self, size: RingSize, partition: Partition) -> anyhow::Result<()> {
        if self.value_log.is_some() && self.engines.has_files(size, partition)? {
            let store = self
                .engines
                .open(size, partition, self.value_log.as_ref())?;
            store.erase()?;
            store.close()?;
        }
        Ok(())
    }
}

impl Stores for NodeStores {
    fn open_first(
        &self,
        size: RingSize,
        partitions: &[Partition],
    ) -> Result<FirstStores, StoreError> {
        Ok(self.open_stores(size, partitions)?)
    }

    fn open(&self, size: RingSize, partition: Partition) -> Result<Arc<dyn Backend>, StoreError> {
        let store = self
            .engines
            .open(size, partition, self.value_log.as_ref())?;
        if let Some(log) = &self.value_log {
            node_log::admit(log, std::slice::from_ref(&store))?;
        }
        Ok(self.behind_log(store))
    }

    fn remove(
        &self,
        size: RingSize,
        partition: Partition,
        open: Option<Arc<dyn Backend>>,
    ) -> Result<(), StoreError> {
        if let Some(store) = open {
            store.erase()?;
            store.close()?;
            if let Some(NodeLog::Commit(log)) = self.log() {
                log.forget(store.identity());
            }
        } else {
            self.erase_unopened(size, partition)?;
        }
        Ok(self.engines.remove(size, partition)?)
    }
}

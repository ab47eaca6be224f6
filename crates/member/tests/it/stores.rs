//! The stores of a simulated node: bitcask behind a commit log, on the node's disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Backend, Durability};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed, recover};
use kvorum_disk::Disk;
use kvorum_member::{FirstStores, StoreError, Stores};
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Runtime;
use parking_lot::Mutex;

pub(crate) struct DiskStores {
    disk: Arc<dyn Disk>,
    runtime: Runtime,
    log: Mutex<Option<CommitLog>>,
}

impl DiskStores {
    pub(crate) fn new(disk: Arc<dyn Disk>, runtime: Runtime) -> Self {
        Self {
            disk,
            runtime,
            log: Mutex::new(None),
        }
    }

    fn engine(&self, directory: &Path) -> Result<Arc<dyn Backend>, StoreError> {
        let randomness = self.runtime.randomness();
        let draw = Arc::new(move || randomness.next_u64());
        let settings = BitcaskSettings::default();
        let store = Bitcask::open(self.disk.clone(), directory, settings, draw)?;
        Ok(Arc::new(store))
    }

    fn committed(&self, engine: Arc<dyn Backend>) -> Arc<dyn Backend> {
        let log = self.log.lock().clone().unwrap();
        Arc::new(Committed::new(engine, log, Durability::Grouped))
    }

    pub(crate) fn directory(size: RingSize, partition: Partition) -> PathBuf {
        PathBuf::from("stores").join(partition.index_decimal(size))
    }
}

impl Stores for DiskStores {
    fn open_first(
        &self,
        size: RingSize,
        partitions: &[Partition],
    ) -> Result<FirstStores, StoreError> {
        let mut engines = vec![self.engine(Path::new("hints"))?];
        for partition in partitions {
            engines.push(self.engine(&Self::directory(size, *partition))?);
        }
        let directory = Path::new("commit_log");
        recover(&*self.disk, directory, &engines)?;
        let settings = CommitLogSettings {
            segment_bytes: 1 << 20,
            bytes_max: 1 << 28,
        };
        let id = self.runtime.random_u64();
        *self.log.lock() = Some(CommitLog::create(
            self.disk.clone(),
            directory,
            id,
            settings,
        )?);
        let mut stores = engines.into_iter().map(|engine| self.committed(engine));
        let hints = stores.next().ok_or("no store of hints")?;
        Ok(FirstStores {
            partitions: partitions.iter().copied().zip(stores).collect(),
            hints,
        })
    }

    fn open(&self, size: RingSize, partition: Partition) -> Result<Arc<dyn Backend>, StoreError> {
        let engine = self.engine(&Self::directory(size, partition))?;
        Ok(self.committed(engine))
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
            if let Some(log) = &*self.log.lock() {
                log.forget(store.identity());
            }
        }
        let directory = Self::directory(size, partition);
        if self.disk.info(&directory)?.is_some() {
            self.disk.remove_directory(&directory)?;
        }
        Ok(())
    }
}

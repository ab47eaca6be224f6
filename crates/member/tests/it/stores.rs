//! The stores of a simulated node: bitcask behind a commit log, on the node's disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Backend, Belonging, Durability, FoundStore, StoreId};
use kvorum_backend_bitcask::check::find_store;
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed, Recovered, recover_some};
use kvorum_disk::{Disk, create_directory_durably};
use kvorum_member::{Found, StoreError, Stores};
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Runtime;
use parking_lot::{Condvar, Mutex};

pub(crate) struct DiskStores {
    disk: Arc<dyn Disk>,
    runtime: Runtime,
    log: Mutex<Option<CommitLog>>,
    recovered: Mutex<Recovered>,
    gate: Arc<Gate>,
}

/// Which stores are not opened at present, by the numbers of their partitions.
#[derive(Default)]
pub(crate) struct Gate {
    closed: Mutex<Closed>,
    opened: Condvar,
    /// Each time when the log was to keep nothing for others than these.
    forgotten: Mutex<Vec<BTreeSet<StoreId>>>,
}

#[derive(Default)]
struct Closed {
    /// Whoever reads one waits.
    held: BTreeSet<u16>,
    /// Whoever reads one is told that the device fails.
    refused: BTreeSet<u16>,
    /// The room that puts have, where that is known.
    room: Option<u64>,
}

impl Gate {
    pub(crate) fn hold(&self, partitions: impl IntoIterator<Item = u16>) {
        self.closed.lock().held.extend(partitions);
    }

    pub(crate) fn refuse(&self, partitions: impl IntoIterator<Item = u16>) {
        self.closed.lock().refused.extend(partitions);
    }

    pub(crate) fn set_room(&self, bytes: u64) {
        self.closed.lock().room = Some(bytes);
    }

    pub(crate) fn open(&self) {
        *self.closed.lock() = Closed::default();
        self.opened.notify_all();
    }

    pub(crate) fn forgotten(&self) -> Vec<BTreeSet<StoreId>> {
        self.forgotten.lock().clone()
    }

    fn pass(&self, partition: Partition) -> Result<(), StoreError> {
        let mut closed = self.closed.lock();
        while closed.held.contains(&partition.number()) {
            self.opened.wait(&mut closed);
        }
        if closed.refused.contains(&partition.number()) {
            return Err("the device fails".into());
        }
        Ok(())
    }
}

const LOG_DIRECTORY: &str = "commit_log";

impl DiskStores {
    pub(crate) fn new(disk: Arc<dyn Disk>, runtime: Runtime, gate: Arc<Gate>) -> Self {
        Self {
            disk,
            runtime,
            log: Mutex::new(None),
            recovered: Mutex::default(),
            gate,
        }
    }

    fn engine_of(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        let belonging = Belonging {
            label: partition.index_decimal(size),
            identity: known,
        };
        self.engine(&Self::directory(size, partition), belonging)
    }

    fn engine(
        &self,
        directory: &Path,
        belonging: Belonging,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        let randomness = self.runtime.randomness();
        let draw = Arc::new(move || randomness.next_u64());
        let settings = BitcaskSettings {
            belonging,
            ..BitcaskSettings::default()
        };
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
    fn is_log_shared(&self) -> bool {
        true
    }

    fn room_for_puts(&self) -> Option<u64> {
        self.gate.closed.lock().room
    }

    fn begin(&self) -> Result<Arc<dyn Backend>, StoreError> {
        let hints = self.engine(Path::new("hints"), Belonging::default())?;
        let directory = Path::new(LOG_DIRECTORY);
        let mut recovered = self.recovered.lock();
        recover_some(
            &*self.disk,
            directory,
            std::slice::from_ref(&hints),
            &mut recovered,
        )?;
        let settings = CommitLogSettings {
            segment_bytes: 1 << 20,
            bytes_max: 1 << 28,
        };
        let id = self.runtime.random_u64();
        recovered.running = Some(id);
        *self.log.lock() = Some(CommitLog::create(
            self.disk.clone(),
            directory,
            id,
            settings,
        )?);
        Ok(self.committed(hints))
    }

    fn find(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Found, StoreError> {
        let directory = Self::directory(size, partition);
        let belonging = Belonging {
            label: partition.index_decimal(size),
            identity: known,
        };
        Ok(match find_store(&*self.disk, &directory, &belonging)? {
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
        let directory = Self::directory(size, partition);
        if self.disk.info(&directory)?.is_none() {
            return Ok(Vec::new());
        }
        let lost = PathBuf::from("lost");
        create_directory_durably(&*self.disk, &lost)?;
        let to = lost.join(partition.index_decimal(size));
        self.disk.rename(&directory, &to)?;
        self.disk.sync_directory(&lost)?;
        Ok(vec![to])
    }

    fn read(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        self.gate.pass(partition)?;
        self.engine_of(size, partition, known)
    }

    fn admit(&self, stores: &[Arc<dyn Backend>]) -> Vec<Result<Arc<dyn Backend>, StoreError>> {
        let directory = Path::new(LOG_DIRECTORY);
        let mut recovered = self.recovered.lock();
        let recovered = recover_some(&*self.disk, directory, stores, &mut recovered);
        let recovered = recovered.map_err(|error| error.to_string());
        let committed = |store: &Arc<dyn Backend>| match &recovered {
            Ok(found) if found.failed.is_empty() => Ok(self.committed(store.clone())),
            other => Err(StoreError::from(format!("{other:?}"))),
        };
        stores.iter().map(committed).collect()
    }

    fn forget_others(&self, known: &BTreeSet<StoreId>) -> Result<(), StoreError> {
        self.gate.forgotten.lock().push(known.clone());
        Ok(())
    }

    fn openings_at_once(&self) -> usize {
        2
    }

    fn open(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        let engine = self.engine_of(size, partition, known)?;
        Ok(self.committed(engine))
    }

    fn remove(
        &self,
        size: RingSize,
        partition: Partition,
        _known: Option<StoreId>,
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

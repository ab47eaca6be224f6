//! The stores of a simulated node: bitcask over a value log, on the node's disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use kvorum_backend::{Backend, Belonging, FoundStore, Sequence, StoreId};
use kvorum_backend_bitcask::check::find_store;
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{Disk, create_directory_durably};
use kvorum_member::{Found, StoreError, Stores};
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Runtime;
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};
use parking_lot::{Condvar, Mutex};

pub(crate) struct DiskStores {
    disk: Arc<dyn Disk>,
    runtime: Runtime,
    log: Mutex<Option<ValueLog>>,
    tenants: Mutex<BTreeMap<StoreId, Weak<dyn Tenant>>>,
    losses: Mutex<Vec<(StoreId, Sequence)>>,
    gate: Arc<Gate>,
}

/// Stores that are not opened at present, by the numbers of their partitions.
#[derive(Default)]
pub(crate) struct Gate {
    closed: Mutex<Closed>,
    opened: Condvar,
    /// Each time when the log was to keep nothing for others than these.
    forgotten: Mutex<Vec<BTreeSet<StoreId>>>,
}

#[derive(Default)]
struct Closed {
    /// A thread that reads one waits.
    held: BTreeSet<u16>,
    /// A thread that reads one gets an error of the device.
    refused: BTreeSet<u16>,
    /// The room for puts, if known.
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

pub(crate) const LOG_DIRECTORY: &str = "value_log";

impl DiskStores {
    pub(crate) fn new(disk: Arc<dyn Disk>, runtime: Runtime, gate: Arc<Gate>) -> Self {
        Self {
            disk,
            runtime,
            log: Mutex::new(None),
            tenants: Mutex::default(),
            losses: Mutex::default(),
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
        let log = self.log.lock().clone().unwrap();
        let store = Bitcask::open(self.disk.clone(), directory, settings, draw, Some(log))?;
        let store = Arc::new(store);
        let tenant: Arc<dyn Tenant> = store.clone();
        let tenant = Arc::downgrade(&tenant);
        self.tenants.lock().insert(store.identity(), tenant);
        Ok(store)
    }

    /// Gives stores the logged writes of an earlier run.
    fn admit_to_log(&self, stores: &[Arc<dyn Backend>]) -> Result<(), StoreError> {
        let known = self.tenants.lock();
        let tenants = stores
            .iter()
            .map(|it| known[&it.identity()].upgrade().unwrap());
        let tenants: Vec<Arc<dyn Tenant>> = tenants.collect();
        drop(known);
        let log = self.log.lock().clone().unwrap();
        let found = log.admit_some(&tenants)?;
        self.losses.lock().extend(found.lost);
        match found.failed.into_iter().next() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }

    pub(crate) fn directory(size: RingSize, partition: Partition) -> PathBuf {
        PathBuf::from("stores").join(partition.index_decimal(size))
    }
}

impl Stores for DiskStores {
    fn orders_batches(&self) -> bool {
        true
    }

    fn is_log_shared(&self) -> bool {
        true
    }

    fn room_for_puts(&self) -> Option<u64> {
        self.gate.closed.lock().room
    }

    fn begin(&self) -> Result<Arc<dyn Backend>, StoreError> {
        let settings = ValueLogSettings {
            segment_bytes: 1 << 20,
            garbage_percent_max: 30,
        };
        let id = self.runtime.random_u64();
        let directory = Path::new(LOG_DIRECTORY);
        let (log, _) = ValueLog::open(self.disk.clone(), directory, id, settings)?;
        *self.log.lock() = Some(log);
        let hints = self.engine(Path::new("hints"), Belonging::default())?;
        self.admit_to_log(std::slice::from_ref(&hints))?;
        Ok(hints)
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
        let admitted = self.admit_to_log(stores).map_err(|error| error.to_string());
        let admitted = |store: &Arc<dyn Backend>| match &admitted {
            Ok(()) => Ok(store.clone()),
            Err(error) => Err(StoreError::from(error.clone())),
        };
        stores.iter().map(admitted).collect()
    }

    fn take_losses(&self) -> Vec<(StoreId, Sequence)> {
        std::mem::take(&mut self.losses.lock())
    }

    fn note_loss(&self, store: StoreId, lost_to: Sequence) -> Result<(), StoreError> {
        let log = self.log.lock().clone().unwrap();
        Ok(log.note_loss(store, lost_to)?)
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
        let store = self.engine_of(size, partition, known)?;
        self.admit_to_log(std::slice::from_ref(&store))?;
        Ok(store)
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
        }
        let directory = Self::directory(size, partition);
        if self.disk.info(&directory)?.is_some() {
            self.disk.remove_directory(&directory)?;
        }
        Ok(())
    }
}

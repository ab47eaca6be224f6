//! The stores of a running node: engines over the value log.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use anyhow::Context;
use kvorum_backend::{Backend, BackendError, FoundStore, Sequence, StoreId};
use kvorum_backend_bitcask::ReadCache;
use kvorum_backend_innostore::PageCache;
use kvorum_backend_leveldb::Shared;
use kvorum_cluster::AgreedState;
use kvorum_disk::{Disk, Reserve};
use kvorum_maintenance::MaintainedLog as _;
use kvorum_member::{Found, StoreError, Stores, known_stores};
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::Runtime;
use kvorum_settings::Settings;
use kvorum_value_log::{Admission, Tenant, ValueLog};
use parking_lot::Mutex;

use crate::data_directory::{DataDirectory, EngineFile};
use crate::engine_names;
use crate::engines::Engines;
use crate::hints_opening::HintsOpening;
use crate::maintained_value_log::{self, MaintainedValueLog};
use crate::value_log_check::LogNote;

/// Threads that give stores their entries of the value log; each reads the log.
const ADMISSION_THREADS_MAX: usize = 4;

/// Opens and removes stores for the member that this node is.
pub(crate) struct NodeStores {
    disk: Arc<dyn Disk>,
    engines: Engines,
    /// The free space that clients' writes leave alone, if the engine has files.
    reserve: Option<Arc<Reserve>>,
    engine_before: Option<String>,
    /// The engine of the run before kept nothing over its stop.
    kept_nothing: bool,
    /// The value log, for engines that keep their entries in it.
    value_log: Option<ValueLog>,
    /// Value logs whose loss was accepted.
    lost_logs: BTreeSet<u64>,
    /// From the beginning on, where the engine's writes go through one.
    log: Mutex<Option<MaintainedValueLog>>,
    found: Mutex<FoundInLog>,
    /// The partition of each open store; none for the store of hints.
    opened: Mutex<Opened>,
}

/// Findings in the log, which is read for some stores after the other.
#[derive(Default)]
struct FoundInLog {
    /// Damage that was reported.
    damage: BTreeSet<String>,
    /// Lost batches not yet reported to the member, by the tenants of the log that lost them.
    losses: Vec<(StoreId, Sequence)>,
    /// Lost batches that were reported to the member; they are noted in the log when the member has
    /// noted them.
    reported_losses: Vec<(StoreId, Sequence)>,
}

/// Stores that are open, by their identity.
type Opened = BTreeMap<StoreId, (Option<Partition>, Weak<dyn Backend>)>;

/// Stores that could not be brought up to date.
type Failed = Vec<(StoreId, BackendError)>;

impl NodeStores {
    /// `engine_before` is that of the run before, if it was another.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        runtime: &Runtime,
        settings: &Settings,
        data: &DataDirectory,
        engine_before: Option<String>,
    ) -> anyhow::Result<Self> {
        let left = data.engine_left(&*disk)?;
        let kept_nothing =
            matches!(&left, EngineFile::Whole(left) if left.engine == engine_names::MEMORY);
        let mut engines = Engines::new(disk.clone(), settings.clone(), runtime.randomness());
        let value_log = if engines.use_value_log(data.has_value_log(&*disk)?) {
            data.note_value_log(&*disk, settings.node.storage_backend)?;
            data.create_value_log(&*disk)?;
            let log = maintained_value_log::open_value_log(
                &disk,
                &data.value_log(),
                settings,
                runtime.random_u64(),
            )?;
            for root in engines.roots() {
                log.reserve().watch(root);
            }
            Some(log)
        } else {
            None
        };
        let reserve = match &value_log {
            Some(log) => Some(log.reserve().clone()),
            None => engines.hold_back(),
        };
        Ok(Self {
            reserve,
            lost_logs: LogNote::read(&*disk, data.path())?.lost().clone(),
            disk,
            engines,
            engine_before,
            kept_nothing,
            value_log,
            log: Mutex::new(None),
            found: Mutex::default(),
            opened: Mutex::default(),
        })
    }

    /// The log, from the beginning on and if there is to be one.
    pub(crate) fn log(&self) -> Option<MaintainedValueLog> {
        self.log.lock().clone()
    }

    /// The free space that clients' writes leave alone, if the engine has files.
    pub(crate) fn reserve(&self) -> Option<Arc<Reserve>> {
        self.reserve.clone()
    }

    /// The engine's name, as in `storage_backend`.
    pub(crate) fn engine_name(&self) -> &'static str {
        self.engines.name()
    }

    /// The shared parts of an engine's stores over merge trees.
    pub(crate) fn trees_shared(&self) -> Option<Shared> {
        self.engines.trees_shared().cloned()
    }

    /// The pages that the stores of innostore have read.
    pub(crate) fn page_cache(&self) -> Option<Arc<PageCache>> {
        self.engines.page_cache().cloned()
    }

    /// The read cache of bitcask's stores, if there is one.
    pub(crate) fn read_cache(&self) -> Option<Arc<ReadCache>> {
        self.engines.read_cache().cloned()
    }

    /// Notes that a store is open, and refuses a second one of the same identity: a copy of a directory.
    /// Opened beside each other, both would take the other's entries in the log for their own.
    fn note_opened(
        &self,
        partition: Option<Partition>,
        store: Arc<dyn Backend>,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        let identity = store.identity();
        let mut opened = self.opened.lock();
        let other = opened.get(&identity).filter(|it| it.1.strong_count() > 0);
        if let Some((other, _)) = other.filter(|(other, _)| *other != partition) {
            let of = |partition: Option<Partition>| match partition {
                Some(partition) => format!("partition {}", partition.number()),
                None => "the store of hints".to_owned(),
            };
            let why = format!(
                "the directory of {} is a copy of that of {} (store {:#018x}); put back the directory that \
                 belongs here",
                of(partition),
                of(*other),
                identity.0
            );
            return Err(why.into());
        }
        opened.insert(identity, (partition, Arc::downgrade(&store)));
        Ok(store)
    }

    /// The files of a partition's store. One that has entries in another value log than the node's is
    /// not to be opened: it would count them as lost, and note that for good.
    fn look(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> anyhow::Result<Option<(PathBuf, FoundStore)>> {
        let Some((directory, found)) = self.engines.find(size, partition, known)? else {
            return Ok(None);
        };
        let foreign = match (&found, &self.value_log) {
            (FoundStore::Store { log, .. }, Some(own)) if *log != 0 => {
                let is_known = *log == own.log_id() || self.lost_logs.contains(log);
                (!is_known).then_some((*log, own.log_id()))
            }
            _ => None,
        };
        let found = match foreign {
            Some((log, own)) => FoundStore::Unusable(format!(
                "{} has entries in the value log {log:#018x}, and this node's is {own:#018x}; put back \
                 the directory that belongs here",
                directory.display()
            )),
            None => found,
        };
        Ok(Some((directory, found)))
    }

    /// The stores of partitions in the node's record.
    fn recorded(&self) -> anyhow::Result<BTreeSet<StoreId>> {
        let recorded = known_stores(&*self.disk, self.engines.ring_directory())?;
        let stores = recorded.into_iter().flat_map(|it| it.stores.into_values());
        Ok(stores.collect())
    }

    /// Drops the value log's entries of stores that are gone. One that is open or in some directory of
    /// a store is not gone, and neither is any store while a directory does not name its own.
    fn forget_gone(&self, gone: &BTreeSet<StoreId>) -> anyhow::Result<()> {
        let Some(log) = self.value_log.as_ref().filter(|_| !gone.is_empty()) else {
            return Ok(());
        };
        let mut there = self.engines.identities_there()?;
        let opened = self.opened.lock();
        let open = opened.iter().filter(|(_, it)| it.1.strong_count() > 0);
        there.extend(open.map(|(identity, _)| *identity));
        drop(opened);
        for store in gone.difference(&there) {
            log.announce_erasure(*store)?;
            log.forget(*store, *store)?;
            let store = format!("{:#018x}", store.0);
            tracing::info!(event = "store_forgotten", %store, "the value log keeps nothing of it");
        }
        Ok(())
    }

    fn begin(&self) -> anyhow::Result<Arc<dyn Backend>> {
        let opening = HintsOpening {
            disk: &self.disk,
            engines: &self.engines,
            log: self.value_log.as_ref(),
            recorded: self.recorded()?,
        };
        // It gets its entries of earlier logs, and the others find theirs when they are admitted.
        let hints = opening.open(|hints| {
            let mut failed = self.recover(std::slice::from_ref(hints))?;
            match failed.pop() {
                Some((_, error)) => Err(error).context("bring it up to date"),
                None => Ok(()),
            }
        })?;
        self.log_lost_hints(&*hints)?;
        let hints = self.note_opened(None, hints);
        let hints = hints.map_err(|error| anyhow::anyhow!(error))?;
        *self.log.lock() = self.value_log.as_ref().map(|log| MaintainedValueLog {
            values: log.clone(),
            merges: self.engines.merge_policy(),
        });
        Ok(hints)
    }

    /// Hints that are lost were for other nodes, which get them from other replicas.
    fn log_lost_hints(&self, hints: &dyn Backend) -> anyhow::Result<()> {
        let losses = std::mem::take(&mut self.found.lock().losses);
        let Some(log) = self.value_log.as_ref().filter(|_| !losses.is_empty()) else {
            return Ok(());
        };
        for (store, lost_to) in losses {
            let whole = self.engines.whole_of(store);
            assert_eq!(whole, hints.identity(), "no other store was admitted yet");
            tracing::error!(
                event = "hints_lost",
                lost_to = lost_to.0,
                "objects that were kept for other nodes were in a damaged part of the value log; those nodes \
                 have to get them from other replicas",
            );
            log.note_loss(store, lost_to)?;
        }
        Ok(())
    }

    /// Gives stores the logged writes of earlier runs; returns those that failed.
    fn recover(&self, stores: &[Arc<dyn Backend>]) -> anyhow::Result<Failed> {
        match &self.value_log {
            Some(log) => self.admit_to(log, stores),
            None => Ok(Failed::new()),
        }
    }

    fn admit_to(&self, log: &ValueLog, stores: &[Arc<dyn Backend>]) -> anyhow::Result<Failed> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = threads.min(ADMISSION_THREADS_MAX);
        let tenants = self.engines.tenants_of(stores);
        let found = admit_by_threads(log, &tenants, threads).context("replay the value log")?;
        if found.batches_replayed > 0 {
            tracing::info!(
                event = "value_log_replayed",
                stores = stores.len(),
                segments_read = found.segments_read,
                batches_replayed = found.batches_replayed,
            );
        }
        self.log_damage(&found.damage);
        self.found.lock().losses.extend(found.lost);
        let failed = found.failed.into_iter();
        Ok(failed
            .map(|(tenant, error)| (self.engines.whole_of(tenant), error))
            .collect())
    }

    /// The log is read for some stores after the other, and its damage is met each time.
    fn log_damage(&self, found: &[String]) {
        let mut reported = self.found.lock();
        for damage in found {
            if reported.damage.insert(damage.clone()) {
                tracing::error!(event = "value_log_damaged", damage = %damage);
            }
        }
    }

    /// Removes a store that is not open. The value log keeps a store's entries until it is known to be
    /// erased: so the store is opened for that. A store that is not the partition's is set aside: it
    /// may be another partition's, and its only copy.
    fn remove_unopened(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> anyhow::Result<()> {
        let Some((_, found)) = self.look(size, partition, known)? else {
            return self.engines.remove(size, partition);
        };
        if let FoundStore::Nothing = found {
            self.engines.remove(size, partition)?;
        } else if let Err(reason) = is_of_partition(&found, known) {
            let kept_as = self.engines.set_aside(size, partition)?;
            let index = partition.index_decimal(size);
            tracing::warn!(event = "store_set_aside", partition = %index, ?kept_as, %reason);
        } else {
            return self.erase_unopened(size, partition, known);
        }
        self.forget_gone(&known.into_iter().collect())
    }

    fn erase_unopened(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> anyhow::Result<()> {
        let Some(log) = &self.value_log else {
            return self.engines.remove(size, partition);
        };
        let erased = match self.engines.open(size, partition, known, Some(log)) {
            Ok(store) => {
                store.erase()?;
                store.close()?;
                None
            }
            // It is removed all the same. If its identity is unknown, the log keeps its entries.
            Err(error) => {
                let index = partition.index_decimal(size);
                let error = in_one_line(&error);
                tracing::warn!(event = "store_removed_unread", partition = %index, %error);
                self.engines.identity_left(size, partition)
            }
        };
        if let Some(store) = erased {
            log.announce_erasure(store)?;
        }
        self.engines.remove(size, partition)?;
        match erased {
            Some(store) => Ok(log.forget(store, store)?),
            None => Ok(()),
        }
    }
}

/// The error is the reason why the store found is not the one of its partition: it is not the recorded store
/// or, if there is no record, does not have the partition's label.
fn is_of_partition(found: &FoundStore, known: Option<StoreId>) -> Result<(), String> {
    match found {
        FoundStore::Nothing => Ok(()),
        FoundStore::Unusable(why) => Err(why.clone()),
        FoundStore::Store {
            identity,
            erased,
            is_labelled,
            ..
        } => match known {
            Some(known) if [*identity, *erased].contains(&known) => Ok(()),
            Some(known) => Err(format!(
                "it is the store {:#018x}, and this partition had {:#018x}",
                identity.0, known.0
            )),
            None if *is_labelled => Ok(()),
            None => Err(format!(
                "the owner of the store {:#018x} is not recorded",
                identity.0
            )),
        },
    }
}

/// Has this many threads admit a share of the stores each.
fn admit_by_threads(
    log: &ValueLog,
    stores: &[Arc<dyn Tenant>],
    threads: usize,
) -> kvorum_backend::Result<Admission> {
    let share = stores.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let admit = |share| scope.spawn(move || log.admit_some(share));
        let threads: Vec<_> = stores.chunks(share).map(admit).collect();
        let mut all = Admission::default();
        for thread in threads {
            all.add(thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(all)
    })
}

impl Stores for NodeStores {
    fn engine_before(&self) -> Option<String> {
        self.engine_before.clone()
    }

    fn begins_anew(&self) -> bool {
        self.kept_nothing || self.engine_before.is_some()
    }

    fn forget_others(&self, known: &BTreeSet<StoreId>) -> Result<(), StoreError> {
        let holders = self.value_log.as_ref().map(ValueLog::holders);
        let mut others = holders.unwrap_or_default();
        others.retain(|store| !known.contains(store));
        Ok(self.forget_gone(&others)?)
    }

    fn begin(&self) -> Result<Arc<dyn Backend>, StoreError> {
        Ok(NodeStores::begin(self)?)
    }

    fn find(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Found, StoreError> {
        let found = self.look(size, partition, known);
        let found = found.map_err(|error| in_one_line(&error))?;
        Ok(
            found.map_or(Found::NotKept, |(directory, found)| match found {
                FoundStore::Nothing => Found::Nothing { directory },
                FoundStore::Store {
                    identity, erased, ..
                } => Found::Store {
                    directory,
                    identity,
                    erased,
                },
                FoundStore::Unusable(why) => Found::Unusable { directory, why },
            }),
        )
    }

    fn set_aside(&self, size: RingSize, partition: Partition) -> Result<Vec<PathBuf>, StoreError> {
        let moved = self.engines.set_aside(size, partition);
        moved.map_err(|error| in_one_line(&error))
    }

    fn read(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        let log = self.value_log.as_ref();
        let opened = self.engines.open(size, partition, known, log);
        let opened = opened.map_err(|error| in_one_line(&error))?;
        self.note_opened(Some(partition), opened)
    }

    fn admit(&self, stores: &[Arc<dyn Backend>]) -> Vec<Result<Arc<dyn Backend>, StoreError>> {
        let failed = self.recover(stores);
        let admitted = |store: &Arc<dyn Backend>| {
            let identity = store.identity();
            match &failed {
                Ok(failed) => match failed.iter().find(|(failed, _)| *failed == identity) {
                    Some((_, error)) => Err(StoreError::from(error.clone())),
                    None => Ok(store.clone()),
                },
                Err(error) => Err(StoreError::from(format!("{error:#}"))),
            }
        };
        stores.iter().map(admitted).collect()
    }

    fn agreed(&self, state: Arc<dyn AgreedState>) {
        self.engines.follow(state);
    }

    fn take_losses(&self) -> Vec<(StoreId, Sequence)> {
        let mut found = self.found.lock();
        let losses = std::mem::take(&mut found.losses);
        found.reported_losses.extend(losses.iter().copied());
        let of_wholes = losses.into_iter();
        of_wholes
            .map(|(tenant, lost_to)| (self.engines.whole_of(tenant), lost_to))
            .collect()
    }

    fn note_loss(&self, store: StoreId, lost_to: Sequence) -> Result<(), StoreError> {
        let Some(log) = &self.value_log else {
            return Ok(());
        };
        let is_it = |loss: &(StoreId, Sequence)| {
            loss.1 == lost_to && self.engines.whole_of(loss.0) == store
        };
        let mut found = self.found.lock();
        let parts: Vec<_> = found
            .reported_losses
            .extract_if(.., |it| is_it(it))
            .collect();
        drop(found);
        if parts.is_empty() {
            return Ok(log.note_loss(store, lost_to)?);
        }
        for (tenant, lost_to) in parts {
            log.note_loss(tenant, lost_to)?;
        }
        Ok(())
    }

    fn all_admitted(&self) {
        if let Some(log) = &self.value_log {
            log.settle_erasures();
        }
    }

    fn log_failure(&self) -> Option<String> {
        self.log().and_then(|log| log.failure())
    }

    fn orders_batches(&self) -> bool {
        !self.engines.are_several()
    }

    fn is_log_shared(&self) -> bool {
        self.value_log.is_some()
    }

    fn room_for_puts(&self) -> Option<u64> {
        match &self.value_log {
            Some(log) => Some(log.room_for_puts()),
            None => Some(self.reserve.as_ref()?.measure().for_puts()),
        }
    }

    /// Reading a store from its hint files is work for a processor. Two at least: so one that waits for
    /// its device does not hold up all others.
    fn openings_at_once(&self) -> usize {
        std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2))
    }

    fn open(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
    ) -> Result<Arc<dyn Backend>, StoreError> {
        let log = self.value_log.as_ref();
        let store = self.engines.open(size, partition, known, log)?;
        let store = self.note_opened(Some(partition), store)?;
        if let Some(log) = &self.value_log {
            let mut failed = self.admit_to(log, std::slice::from_ref(&store))?;
            if let Some((_, error)) = failed.pop() {
                return Err(error.into());
            }
        }
        Ok(store)
    }

    fn remove(
        &self,
        size: RingSize,
        partition: Partition,
        known: Option<StoreId>,
        open: Option<Arc<dyn Backend>>,
    ) -> Result<(), StoreError> {
        if let Some(store) = open {
            store.erase()?;
            store.close()?;
            return Ok(self.engines.remove(size, partition)?);
        }
        Ok(self.remove_unopened(size, partition, known)?)
    }
}

/// The error with all its causes, for loggers that show no chain of them.
fn in_one_line(error: &anyhow::Error) -> StoreError {
    format!("{error:#}").into()
}

#[cfg(test)]
#[path = "node_stores_test.rs"]
mod tests;

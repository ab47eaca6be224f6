//! An open store, as its users see it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{
    Durability, ErrorKind, Lease, Lookup, ReadAt, Receipt, Replayed, Replays, Result, Sequence,
    StepBudget, StepOutcome, StoreId, Task, Timestamp,
};
use kvorum_disk::{Disk, Reserve};
use kvorum_storage_errors::IntoBackend;
use kvorum_value_log::ValueLog;

use crate::files::LOCK_NAME;
use crate::lost::LostLog;
use crate::merging;
use crate::op::Op;
use crate::recovery::Recovery;
use crate::snapshot::LsmSnapshot;
use crate::store::Store;
use crate::upkeep::Upkeep;
use crate::{DrawNumber, LsmSettings, Shared, Value};

/// The bytes of an entry in a table that are not key, head or small body: its fields, its part of
/// the index and the filter, the place of a large body.
const TABLED_ENTRY_BYTES: u64 = 32;

/// A store of keys, each with fields, extra bytes, a head and a body.
pub struct Lsm {
    pub(crate) store: Arc<Store>,
    pub(crate) upkeep: Upkeep,
}

impl Lsm {
    /// Opens a store, creating it if it is missing. `draw` gives random numbers for identities.
    ///
    /// With a value log, all puts of any durability go to the log, and large bodies stay there. The
    /// store's own files have keys, small bodies, and collected bodies.
    /// [`Tenant`](kvorum_value_log::Tenant) describes the steps before the store may be used. A
    /// store that had a log of its own uses the value log from then on.
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] when another process has it open, [`ErrorKind::NewerFormat`] when a
    /// newer version wrote it, [`ErrorKind::Corrupt`] when no copy of its manifest is whole and
    /// belongs to it, [`ErrorKind::Denied`] when its slow directory has moved. Other damage is
    /// listed in [`kvorum_backend::Status::lost`] and does not fail the opening.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        settings: LsmSettings,
        shared: Shared,
        draw: DrawNumber,
        log: Option<ValueLog>,
    ) -> Result<Self> {
        kvorum_disk::create_directory_durably(&*disk, directory).into_backend()?;
        let holder = format!("pid {}\n", std::process::id());
        let lock = disk
            .lock(&directory.join(LOCK_NAME), &holder)
            .into_backend()?;
        let (disk, slow) = kvorum_tiers::settle(disk, directory, settings.tiers.as_ref(), &*draw)?;
        let lost = Arc::new(LostLog::open(&*disk, directory));
        let recovery = Recovery {
            disk,
            slow,
            directory: directory.to_owned(),
            log,
            settings,
            shared,
            draw,
            lost,
            doubts: Arc::default(),
        };
        let store = recovery.run(lock)?;
        store.shared.memory.enter();
        let upkeep = Upkeep::of(store.clone());
        let opened = Self { store, upkeep };
        if opened.store.log.is_some() {
            opened.flush_own_log()?;
        }
        Ok(opened)
    }

    /// Moves the batches of the store's own log to tables, since the store now uses the value log,
    /// and later batches there must not survive without these. If the disk is full, the own log is
    /// synced instead, and a later opening moves the batches.
    fn flush_own_log(&self) -> Result<()> {
        match self.upkeep.flush_all() {
            Err(error) if error.kind() == ErrorKind::Full => self.store.sync_own_log(),
            flushed => flushed.map(drop),
        }
    }

    /// Keeps puts to a log of the store's own off this reserve. Has no effect on a store over the
    /// value log, which has its own reserve. A second reserve is ignored.
    pub fn set_reserve(&self, reserve: Arc<Reserve>) {
        self.store.intake.set_reserve(reserve);
    }

    /// Starts to note the batches that the value log gives back, by the anti-entropy segments of their
    /// keys. A second call changes nothing.
    pub fn note_replays(&self, segment_of: fn(&[u8]) -> Option<u32>) {
        self.store.replays.get_or_init(|| Replays::new(segment_of));
    }

    /// Batches that the value log has given back; see [`kvorum_backend::Backend::take_replayed`].
    pub fn take_replayed(&self) -> Option<Replayed> {
        self.store.replays.get().and_then(Replays::take)
    }

    /// True when the store keeps a journal of its entries.
    pub fn has_journal(&self) -> bool {
        self.store.settings.journaled.is_some()
    }

    /// The identity of the present contents.
    pub fn identity(&self) -> StoreId {
        StoreId(self.store.identity())
    }

    /// Applies a batch atomically. `now` is for the upkeep that a put pays for when the store has
    /// fallen behind.
    pub fn write(&self, ops: &[Op], durability: Durability, now: Timestamp) -> Result<Receipt> {
        let receipt = self.store.write(ops, durability, None)?;
        self.after_write(ops, now);
        receipt.ok_or_else(|| {
            let detail = "a batch without a guard was refused";
            kvorum_backend::BackendError::new(ErrorKind::Misuse, detail)
        })
    }

    pub(crate) fn after_write(&self, ops: &[Op], now: Timestamp) {
        let bytes: usize = ops.iter().map(Op::payload_bytes).sum();
        let bytes = bytes as u64;
        self.store
            .counters
            .put_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        let threshold = self.store.settings.blob_threshold_bytes;
        let tabled = || ops.iter().map(|it| it.tabled_bytes(threshold)).sum();
        self.upkeep.pay(bytes, tabled, now);
    }

    /// The value of a key, its body included.
    pub fn get(&self, key: &Bytes, at: ReadAt) -> Result<Lookup<(Sequence, Value, Bytes)>> {
        let version = self.store.version.load();
        let reading = at.reading.into();
        let found = self.store.find_unexpired(&version, key, reading, at.now)?;
        let (sequence, value) = match found {
            Lookup::Found(found) => found,
            Lookup::Absent => return Ok(Lookup::Absent),
            Lookup::WouldBlock => return Ok(Lookup::WouldBlock),
        };
        let entry = (&key[..], sequence, value.body.clone());
        let body = self.store.body(&version, entry, None, reading)?;
        Ok(body.map(|body| (Sequence(sequence), value, body)))
    }

    /// The value of a key without its body.
    pub fn head(&self, key: &Bytes, at: ReadAt) -> Result<Lookup<(Sequence, Value)>> {
        let version = self.store.version.load();
        let reading = at.reading.into();
        let found = self.store.find_unexpired(&version, key, reading, at.now)?;
        Ok(found.map(|(sequence, value)| (Sequence(sequence), value)))
    }

    /// A consistent view of the present contents.
    pub fn snapshot(&self, lease: Lease) -> LsmSnapshot {
        LsmSnapshot::take(&self.store, lease)
    }

    /// Makes everything put so far durable and returns the sequence up to which that holds.
    pub fn sync(&self) -> Result<Sequence> {
        self.store.sync_all().map(Sequence)
    }

    /// The sequence up to which every batch is known to be durable.
    pub fn durable(&self) -> Sequence {
        Sequence(self.store.durable.load(Ordering::Acquire))
    }

    /// The due upkeep, most urgent first.
    pub fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        self.store.replaced.release_unread();
        if self.store.intake.check_writable().is_err() {
            return Vec::new();
        }
        self.upkeep.due(now)
    }

    /// Does a part of a task.
    pub fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let outcome = self.upkeep.step(task, budget, now);
        // The next step may need the space of the files that this step has replaced.
        self.store.replaced.release_unread();
        outcome
    }

    /// True when entries expire by the time of their last change.
    pub fn expires_by_age(&self) -> bool {
        self.store.expiry.age_micros().is_some()
    }

    /// The pressure of merging's backlog on writers, in thousandths; 0 while merging keeps up.
    pub fn pressure_permille(&self) -> u64 {
        let version = self.store.version.load();
        merging::backlog(&self.store, &version).pressure_permille
    }

    /// Flushes, syncs, and refuses further writes.
    pub fn close(&self) -> Result<()> {
        let store = &*self.store;
        {
            let _puts_wait = store.writer.lock();
            if store.intake.close() {
                return Ok(());
            }
        }
        self.upkeep.jobs.lock().abandon(store);
        let synced = store.sync_all();
        let finished = synced.clone().and_then(|_| self.upkeep.flush_all());
        store.read_side.lost.write(&*store.disk);
        *store.lock.lock() = None;
        match finished {
            // On a full disk the puts are durable in the log, which the next opening reads.
            Err(error) if error.kind() == ErrorKind::Full && synced.is_ok() => Ok(()),
            finished => finished.map(drop),
        }
    }
}

impl Drop for Lsm {
    fn drop(&mut self) {
        let version = self.store.version.load();
        let held: u64 = version.memtables().map(|it| it.held_bytes()).sum();
        self.store.shared.memory.subtract(held);
        self.store.shared.memory.leave();
    }
}

impl Op {
    /// The approximate bytes that it takes in tables; for a large body, only its place.
    fn tabled_bytes(&self, blob_threshold_bytes: usize) -> u64 {
        let (key_bytes, value_bytes) = match self {
            Self::Put { key, value } => {
                let body = usize::try_from(value.body_len()).unwrap_or(usize::MAX);
                let body = if body < blob_threshold_bytes { body } else { 0 };
                (key.len(), value.head.len() + value.extra.len() + body)
            }
            Self::Remove { key } => (key.len(), 0),
            Self::RemoveRange { from, to } => (from.len(), to.len()),
        };
        (key_bytes + value_bytes) as u64 + TABLED_ENTRY_BYTES
    }

    fn payload_bytes(&self) -> usize {
        match self {
            Self::Put { key, value } => {
                let body = usize::try_from(value.body_len()).unwrap_or(0);
                key.len() + value.head.len() + body
            }
            Self::Remove { key } => key.len(),
            Self::RemoveRange { from, to } => from.len() + to.len(),
        }
    }
}

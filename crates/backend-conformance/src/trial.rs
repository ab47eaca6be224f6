//! A trial: one store under test beside its model, and the steps that are played on both.

pub(crate) mod backup;
mod reading;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Capabilities, Durability, Durable, EntryPlace, ErrorKind, Fields, IndexEntry,
    Lease, Lookup, OldEntry, ReadAt, Reading, Sequence, Snapshot, StoreId, SyncTicket, Tag,
    Timestamp, Write,
};
use kvorum_disk::Disk;
use kvorum_encoding::StorageKey;
use parking_lot::Mutex;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::model::State;
use crate::names;
use crate::script::{PlannedValue, PlannedWrite, Step};
use crate::violation::{MustSucceed, ensure, unexpected};
use crate::{Checked, EngineUnderTest, Opening, Violation};

/// A backup of a trial, and the contents that it has to keep.
struct HeldBackup {
    directory: PathBuf,
    state: State,
}

/// The start time of every trial.
const START: Timestamp = Timestamp(1_700_000_000_000_000);
/// The number of snapshots that a script can hold.
const SLOTS: usize = 3;

/// One store under test beside its model.
pub(crate) struct Trial<'a> {
    pub(crate) engine: &'a dyn EngineUnderTest,
    pub(crate) opening: Opening,
    pub(crate) store: Option<Box<dyn Backend>>,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    last_sequence: Sequence,
    identity: StoreId,
    snapshots: [Option<HeldSnapshot>; SLOTS],
    tickets: Vec<SyncTicket>,
    pub(crate) values_made: u32,
    /// Places of entries from earlier heads. Writes pass them back.
    places: BTreeMap<StorageKey, EntryPlace>,
    entry_bytes_max: u64,
    backups_made: u32,
    backup: Option<HeldBackup>,
}

/// A snapshot and its expected contents.
struct HeldSnapshot {
    snapshot: Box<dyn Snapshot>,
    state: State,
    lease: Lease,
    /// The store was erased since; that may have ended the snapshot.
    is_erased: bool,
}

impl<'a> Trial<'a> {
    /// Opens a new store on a disk.
    pub(crate) fn open(
        engine: &'a dyn EngineUnderTest,
        disk: Arc<dyn Disk>,
        variation: u32,
        rng: ChaCha8Rng,
    ) -> Checked<Self> {
        Self::open_with(engine, opening(disk, variation, rng))
    }

    /// Opens a new store.
    pub(crate) fn open_with(engine: &'a dyn EngineUnderTest, opening: Opening) -> Checked<Self> {
        let store = engine.open(&opening).must("opening a new store")?;
        let trial = Self::over(engine, opening, store);
        let store = trial.store()?;
        // A variation of the engine may claim to drop entries, although it drops none here.
        let claimed = Capabilities {
            drops_entries: store.capabilities().drops_entries,
            ..engine.capabilities()
        };
        if store.capabilities() != claimed {
            return Err(Violation::of_method("capabilities are not those claimed"));
        }
        if store.indexes().is_some() != store.capabilities().indexes
            || store.backups().is_some() != store.capabilities().backups
        {
            return Err(Violation::of_method("capabilities and facets disagree"));
        }
        trial.check_emptiness()?;
        Ok(trial)
    }

    /// A trial of a store that is open and was empty.
    pub(crate) fn over(
        engine: &'a dyn EngineUnderTest,
        opening: Opening,
        store: Box<dyn Backend>,
    ) -> Self {
        Self {
            engine,
            opening,
            state: State::default(),
            now: START,
            last_sequence: Sequence(0),
            identity: store.identity(),
            snapshots: Default::default(),
            tickets: Vec::new(),
            values_made: 0,
            places: BTreeMap::new(),
            entry_bytes_max: 0,
            backups_made: 0,
            backup: None,
            store: Some(store),
        }
    }

    /// Plays a script; a violation names the step at which it appeared.
    pub(crate) fn play(&mut self, steps: &[Step]) -> Checked {
        for (number, step) in steps.iter().enumerate() {
            self.step(step)
                .map_err(|violation| violation.after(format!("step {number}: {step:?}")))?;
        }
        self.check_last_backup()?;
        self.check_all()
    }

    pub(crate) fn step(&mut self, step: &Step) -> Checked {
        match step {
            Step::Put {
                writes,
                durability,
                is_awaited,
            } => self.put(writes, *durability, *is_awaited),
            Step::AwaitTickets => self.await_tickets(),
            Step::ReadAll => self.check_all(),
            Step::Fold { slot: None, fold } => self.fold_now(fold),
            Step::Fold {
                slot: Some(slot),
                fold,
            } => self.fold_held(*slot, fold),
            Step::FoldBuckets { fold } => self.fold_buckets(fold),
            Step::FoldIndex {
                bucket,
                field,
                from,
                to,
                chunk,
            } => self.fold_index(*bucket, *field, (*from, *to), *chunk),
            Step::TakeSnapshot { slot, lease_micros } => self.take_snapshot(*slot, *lease_micros),
            Step::DropSnapshot { slot } => {
                self.snapshots[slot % SLOTS] = None;
                Ok(())
            }
            Step::Maintain { pick, budget_bytes } => self.maintain(*pick, *budget_bytes),
            Step::MaintainAll => self.maintain_all(),
            Step::Sync => self.sync(),
            Step::Backup => self.backup(),
            Step::Reopen => self.reopen(true),
            Step::DropAndReopen => self.reopen(false),
            Step::Erase => self.erase(),
            Step::Advance { micros } => {
                self.now = Timestamp(self.now.0 + micros);
                Ok(())
            }
        }
    }

    /// The open store.
    pub(crate) fn store(&self) -> Checked<&dyn Backend> {
        self.store
            .as_deref()
            .ok_or_else(|| Violation::of_method("the suite lost its store"))
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    pub(crate) fn at(&self, reading: Reading) -> ReadAt {
        ReadAt {
            reading,
            now: self.now,
        }
    }

    fn put(
        &mut self,
        writes: &[PlannedWrite],
        durability: Durability,
        is_awaited: bool,
    ) -> Checked {
        let batch = self.batch(writes);
        let sequence = self.put_batch(&batch, durability, is_awaited)?;
        ensure(sequence > self.last_sequence, 1, || {
            format!(
                "a put got {sequence:?} after {:?} was given",
                self.last_sequence
            )
        })?;
        self.last_sequence = sequence;
        self.state.apply(&batch, Some(sequence));
        for write in &batch.writes {
            self.check_key(write.key())?;
            self.note_place(write.key())?;
        }
        Ok(())
    }

    fn put_batch(
        &mut self,
        batch: &Batch,
        durability: Durability,
        is_awaited: bool,
    ) -> Checked<Sequence> {
        let receipt = self.store()?.put(batch, durability).must("put")?;
        let sequence = receipt.sequence;
        if let Durable::After(ticket) = receipt.durable {
            self.tickets.push(ticket);
        }
        if is_awaited {
            self.await_tickets()?;
        }
        Ok(sequence)
    }

    /// The batch that a step plans.
    pub(crate) fn batch(&mut self, writes: &[PlannedWrite]) -> Batch {
        let mut batch = Batch::default();
        for write in writes {
            let key = names::key(write.key);
            let write = match &write.value {
                None => Write::Remove {
                    old: self.old_entry(&key),
                    key,
                },
                Some(value) => self.put_of(key, value),
            };
            batch.writes.push(write);
        }
        self.entry_bytes_max = self.entry_bytes_max.max(batch.payload_bytes());
        batch
    }

    fn put_of(&mut self, key: StorageKey, value: &PlannedValue) -> Write {
        self.values_made += 1;
        Write::Put {
            old: self.old_entry(&key),
            key,
            fields: Fields {
                segment: value.segment,
                last_modified: Timestamp(self.now.0 - value.age_micros),
                expiry: value
                    .expires_in_micros
                    .map(|micros| Timestamp(self.now.0 + micros)),
                tag: Tag(value.tag),
            },
            head: filled(self.values_made, value.head_bytes.max(4)),
            body: filled(!self.values_made, value.body_bytes),
            index_entries: self.index_entries(value),
        }
    }

    /// Sometimes keeps the old place, so that some places are out of date.
    fn note_place(&mut self, key: &StorageKey) -> Checked {
        let head = self.store()?.head(key, self.at(Reading::MayBlock));
        if let Lookup::Found(found) = head.must("head")?
            && let Some(place) = found.place
            && !self.values_made.is_multiple_of(3)
        {
            self.places.insert(key.clone(), place);
        }
        Ok(())
    }

    fn old_entry(&self, key: &StorageKey) -> OldEntry {
        OldEntry {
            place: self.places.get(key).copied(),
            ..OldEntry::UNKNOWN
        }
    }

    fn index_entries(&self, value: &PlannedValue) -> Vec<IndexEntry> {
        if !self
            .store
            .as_ref()
            .is_some_and(|it| it.capabilities().indexes)
        {
            return Vec::new();
        }
        let entries: BTreeSet<IndexEntry> = value
            .terms
            .iter()
            .map(|term| names::index_entry(*term))
            .collect();
        entries.into_iter().collect()
    }

    fn await_tickets(&mut self) -> Checked {
        for ticket in std::mem::take(&mut self.tickets) {
            ticket.wait().must("waiting for a ticket")?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Checked {
        let synced = self.store()?.sync().must("sync")?;
        ensure(synced >= self.last_sequence, 6, || {
            format!(
                "sync() returned {synced:?} with {:?} put",
                self.last_sequence
            )
        })?;
        let durable = self.store()?.durable();
        ensure(durable >= synced, 6, || {
            format!("durable() is {durable:?} after sync() returned {synced:?}")
        })
    }

    fn reopen(&mut self, is_closed_first: bool) -> Checked {
        if is_closed_first {
            self.close()?;
        } else {
            // Unsynced data may be only in the dropped store's memory.
            self.sync()?;
        }
        self.snapshots = Default::default();
        self.tickets.clear();
        self.store = None;
        let store = self.engine.open(&self.opening).must("opening again")?;
        let identity = store.identity();
        self.store = Some(store);
        if self.capabilities().persistent {
            if identity != self.identity {
                return Err(Violation::of_method("the identity changed by reopening"));
            }
            if is_closed_first {
                let durable = self.store()?.durable();
                ensure(durable >= self.last_sequence, 7, || {
                    format!(
                        "durable is {durable:?} after closing at {:?}",
                        self.last_sequence
                    )
                })?;
            }
        } else {
            self.forget(identity)?;
        }
        self.check_all()
    }

    fn close(&mut self) -> Checked {
        self.store()?.close().must("close")?;
        let batch = self.batch(&[PlannedWrite::put(0, 1)]);
        match self.store()?.put(&batch, Durability::Buffered) {
            Err(error) if error.kind() == ErrorKind::Closed => Ok(()),
            Err(error) => Err(unexpected("a put after close", &error)),
            Ok(_) => Err(Violation::of_method("a closed store took a put")),
        }
    }

    fn erase(&mut self) -> Checked {
        self.store()?.erase().must("erase")?;
        let identity = self.store()?.identity();
        self.tickets.clear();
        for held in self.snapshots.iter_mut().flatten() {
            held.is_erased = true;
        }
        self.forget(identity)?;
        self.check_all()
    }

    /// Notes that the contents and their identity are gone.
    fn forget(&mut self, identity: StoreId) -> Checked {
        if identity == self.identity {
            return Err(Violation::of_method(
                "other contents have the same identity",
            ));
        }
        self.identity = identity;
        self.last_sequence = Sequence(0);
        self.state = State::default();
        Ok(())
    }
}

/// The arguments of an opening in a trial.
pub(crate) fn opening(disk: Arc<dyn Disk>, variation: u32, rng: ChaCha8Rng) -> Opening {
    let rng = Mutex::new(rng);
    Opening {
        disk,
        directory: PathBuf::from("vnodes/17"),
        variation,
        draw: Arc::new(move || rng.lock().random()),
    }
}

/// Bytes of a given length that differ for each `number` and compress about as well as text.
pub(crate) fn filled(number: u32, len: usize) -> Bytes {
    let mut state = number;
    let mut bytes = Vec::with_capacity(len + 4);
    bytes.extend_from_slice(&number.to_le_bytes());
    while bytes.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let letter = b'a' + state.to_be_bytes()[0] % 16;
        bytes.extend_from_slice(&[letter; 3]);
    }
    bytes.truncate(len);
    bytes.into()
}

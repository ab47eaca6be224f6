//! The trait of all engines. The crate's documentation has the contract.

use kvorum_encoding::StorageKey;

use crate::{
    Backups, Batch, Capabilities, Durability, IndexFolds, JournalFolds, Lease, Lookup, Moves,
    ReadAt, Receipt, Replayed, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome,
    StoreId, StoredEntry, StoredHead, Task, Timestamp,
};

/// One vnode's store. See the crate's documentation for the contract.
pub trait Backend: Send + Sync {
    /// Powers of this engine beyond the core. Constant for the life of the store.
    fn capabilities(&self) -> Capabilities;

    /// The identity of the present contents; see [`StoreId`]. A store that does not persist draws a
    /// new one each time it is opened.
    fn identity(&self) -> StoreId;

    /// Applies a batch atomically.
    ///
    /// It returns once the batch is visible to readers. Durability comes then or with the ticket in
    /// the receipt: no lock is held across a sync.
    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt>;

    /// The whole entry of a key.
    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>>;

    /// The entry of a key without its body.
    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>>;

    /// A consistent view of now. Cheap, and writers never wait for it.
    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>>;

    /// Makes all puts so far durable and returns the sequence up to which that holds.
    fn sync(&self) -> Result<Sequence>;

    /// The sequence up to which every batch is known to be durable.
    fn durable(&self) -> Sequence;

    /// The entries that a log has given back to the store since it was opened, later than all in its own
    /// files; handed out once. `None` where there were none, where not all of them are known, and for an
    /// engine that takes no note of them.
    fn take_replayed(&self) -> Option<Replayed> {
        None
    }

    /// True when the store holds no unexpired entry. Fast, but to be called on the blocking pool.
    fn is_empty(&self, now: Timestamp) -> Result<bool>;

    /// Sizes, counts and the backlog, for operators and for the arbiter.
    fn status(&self) -> Status;

    /// The upkeep that is due in the store, most urgent first.
    fn maintenance_due(&self, now: Timestamp) -> Vec<Task>;

    /// Does a part of a task that [`Backend::maintenance_due`] named. A task that is no longer needed
    /// is done at no cost.
    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome>;

    /// The part of a store that consists of several: the name of the part to which a task belongs, and the
    /// task in the numbering of that part.
    fn part_of(&self, _task: &Task) -> Option<(&str, Task)> {
        None
    }

    /// Removes everything, as after a partition was handed off. Open snapshots may end as if their
    /// leases had run out. Erased entries do not come back after a crash.
    fn erase(&self) -> Result<()>;

    /// Syncs, writes the files for a fast opening, and refuses further writes.
    fn close(&self) -> Result<()>;

    /// Secondary indexes, if the engine keeps them.
    fn indexes(&self) -> Option<&dyn IndexFolds> {
        None
    }

    /// Secondary indexes of the bucket whose storage keys start with these bytes: a store of
    /// several engines keeps them for some buckets only.
    fn indexes_of(&self, _bucket_prefix: &[u8]) -> Option<&dyn IndexFolds> {
        self.indexes()
    }

    /// The engine of the bucket whose storage keys start with these bytes, as in `storage_backend`:
    /// one of several in a store of several.
    fn engine_of(&self, _bucket_prefix: &[u8]) -> &'static str {
        self.status().engine
    }

    /// Folds in the order of the journal, if the engine keeps one.
    fn journal_folds(&self) -> Option<&dyn JournalFolds> {
        None
    }

    /// Backups while serving, if the engine can.
    fn backups(&self) -> Option<&dyn Backups> {
        None
    }

    /// Moves of buckets between the parts of this store, if there are several.
    fn moves(&self) -> Option<&dyn Moves> {
        None
    }
}

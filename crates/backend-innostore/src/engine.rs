//! The engine behind the backend trait.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{
    Backend, Backups, Batch, Capabilities, Durability, FoldEnd, IndexCounts, IndexFolds,
    IndexRange, IndexVisitor, Lease, Lookup, ReadAt, Receipt, Replayed, Result, Sequence, Snapshot,
    Status, StepBudget, StepOutcome, StoreBackup, StoreId, StoredEntry, StoredHead, Task, TaskKind,
    Timestamp,
};
use kvorum_disk::Disk;
use kvorum_encoding::StorageKey;
use kvorum_index_entries::keyspace::{all_objects, object_key};
use kvorum_index_entries::{Indexes, ObjectsView};
use kvorum_ordered_tree::{OrderedTree, ScanRange};
use kvorum_value_log::{Tenant, ValueLog};

use crate::opening::Opening;
use crate::settings::{DrawNumber, InnostoreSettings, Shared};
use crate::tree::OpenTree;

/// An open store.
pub struct Innostore {
    tree: Arc<OpenTree>,
    indexes: Indexes,
}

impl Innostore {
    /// Opens a store, creating it if it is missing. `shared` has the node's cache of pages; `draw`
    /// gives random numbers for identities. [`Tenant`] describes the steps with the log before the
    /// store's use.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::Locked`] when another process has it open,
    /// [`kvorum_backend::ErrorKind::NewerFormat`] when a newer version wrote it,
    /// [`kvorum_backend::ErrorKind::Corrupt`] when no copy of its manifest is whole and belongs to
    /// it. Other damage is listed in [`Status::lost`] and does not fail the opening.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        settings: &InnostoreSettings,
        shared: Shared,
        draw: DrawNumber,
        log: ValueLog,
    ) -> Result<Self> {
        let indexes = Indexes::new(settings.expiry.is_some());
        let opening = Opening {
            disk,
            directory: directory.to_owned(),
            settings: settings.clone(),
            shared,
            draw,
            log,
        };
        let tree = Arc::new(opening.run()?);
        Ok(Self { tree, indexes })
    }

    /// The store as a tenant of the log.
    pub fn tenant(&self) -> Arc<dyn Tenant> {
        self.tree.clone()
    }
}

impl Backend for Innostore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: true,
            drops_entries: self.tree.store.expiry.is_by_age(),
        }
    }

    fn identity(&self) -> StoreId {
        StoreId(self.tree.store.identity())
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        self.indexes.put(&*self.tree, batch, durability)
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        let store = &*self.tree.store;
        let (version, key) = (store.version.load(), object_key(key.as_bytes()));
        let entry = match store.find(&version, &key, at)? {
            Lookup::Found(entry) => entry,
            Lookup::Absent => return Ok(Lookup::Absent),
            Lookup::WouldBlock => return Ok(Lookup::WouldBlock),
        };
        let body = store.body(&version, &key, &entry, at.reading.into())?;
        Ok(body.map(|body| StoredEntry {
            sequence: Sequence(entry.sequence),
            fields: entry.fields,
            head: entry.head,
            body,
        }))
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        let store = &*self.tree.store;
        let (version, key) = (store.version.load(), object_key(key.as_bytes()));
        let found = store.find(&version, &key, at)?;
        Ok(found.map(|entry| StoredHead {
            sequence: Sequence(entry.sequence),
            fields: entry.fields,
            body_len: entry.body_len(),
            head: entry.head,
            place: None,
        }))
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(ObjectsView::of(self.tree.view(lease))))
    }

    fn sync(&self) -> Result<Sequence> {
        self.tree.store.sync_all().map(Sequence)
    }

    fn durable(&self) -> Sequence {
        let durable = &self.tree.store.durable;
        Sequence(durable.load(std::sync::atomic::Ordering::Acquire))
    }

    fn take_replayed(&self) -> Option<Replayed> {
        self.tree.store.replays.take()
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        ObjectsView::of(self.tree.view(Lease::Unlimited)).is_empty(now)
    }

    fn status(&self) -> Status {
        let (from, to) = all_objects();
        self.tree.status(&ScanRange { from, to })
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        let store = &*self.tree.store;
        if store.intake.check_writable().is_err() {
            self.tree.release_room();
            return Vec::new();
        }
        store.pins.release_expired(now);
        // During a step of another thread, due tasks are not listed.
        let jobs = self.tree.jobs.try_lock();
        let mut due = jobs.map_or_else(Vec::new, |mut jobs| jobs.due(store, now));
        due.extend(self.indexes.reindexing().due(&*self.tree));
        due
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let store = &*self.tree.store;
        store.pins.release_expired(now);
        if task.kind == TaskKind::Reindex {
            return self.indexes.reindexing().step(&*self.tree, budget, now);
        }
        if (task.kind, task.subject) == (TaskKind::Sync, 0) {
            return store.sync_all().map(|_| StepOutcome::nothing_left());
        }
        let mut jobs = self.tree.jobs.lock();
        store.intake.check_writable()?;
        // Steps of other stores may have taken much of the free space since the last measurement.
        store.intake.measure();
        jobs.step(store, task, budget, now)
    }

    fn erase(&self) -> Result<()> {
        self.tree.erase()
    }

    fn close(&self) -> Result<()> {
        self.tree.close()
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        Some(self)
    }

    fn backups(&self) -> Option<&dyn Backups> {
        Some(self)
    }
}

impl IndexFolds for Innostore {
    fn fold_index(
        &self,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        self.indexes.fold(&*self.tree, range, lease, now, visitor)
    }

    fn counts(&self) -> IndexCounts {
        self.indexes.counts()
    }
}

impl Backups for Innostore {
    fn backup(&self, directory: &Path) -> Result<StoreBackup> {
        self.tree.backup(directory)
    }
}

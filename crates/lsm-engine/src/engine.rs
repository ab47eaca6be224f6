//! The engine as the backend trait shows it.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{
    Backend, Backups, Batch, Capabilities, Durability, FoldEnd, FoldFilter, FoldRange, IndexCounts,
    IndexFolds, IndexRange, IndexVisitor, JournalFolded, JournalFolds, Lease, Lookup, ReadAt,
    Receipt, Replayed, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreBackup,
    StoreId, StoredEntry, StoredHead, Task, TaskKind, Timestamp, Visited, Visitor,
};
use kvorum_disk::{Disk, Reserve};
use kvorum_encoding::StorageKey;
use kvorum_index_entries::keyspace::{
    all_objects, object_key, object_range, object_segment, storage_key,
};
use kvorum_index_entries::{Indexes, ObjectsView};
use kvorum_lsm::{DrawNumber, JournalShown, Lsm, LsmSettings, Shared};
use kvorum_ordered_tree::{OrderedTree, ScanRange, TreeView};
use kvorum_value_log::{Tenant, ValueLog};

/// An open store.
pub struct LsmEngine {
    lsm: Arc<Lsm>,
    indexes: Indexes,
}

impl LsmEngine {
    /// Opens a store, creating it if it is missing. `shared` is the node's block cache and its budget
    /// for memtables; `draw` gives random numbers for identities.
    ///
    /// With a log, large bodies stay there: all puts go there, of any durability. [`Tenant`]
    /// describes the steps before its use. A store with files of its own continues from them and
    /// cannot return.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::Locked`] when another process has it open,
    /// [`kvorum_backend::ErrorKind::NewerFormat`] when a newer version wrote it,
    /// [`kvorum_backend::ErrorKind::Corrupt`] when no copy of its manifest is whole and belongs to
    /// it, [`kvorum_backend::ErrorKind::Denied`] when its slow directory has moved. Other damage is
    /// listed in [`Status::lost`] and does not fail the opening.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        settings: impl Into<LsmSettings>,
        shared: Shared,
        draw: DrawNumber,
        log: Option<ValueLog>,
    ) -> Result<Self> {
        let settings = settings.into();
        let indexes = Indexes::new(settings.expiry.is_some());
        let lsm = Arc::new(Lsm::open(disk, directory, settings, shared, draw, log)?);
        lsm.note_replays(object_segment);
        Ok(Self { lsm, indexes })
    }

    /// As [`Lsm::set_reserve`].
    #[must_use]
    pub fn with_reserve(self, reserve: Arc<Reserve>) -> Self {
        self.lsm.set_reserve(reserve);
        self
    }

    /// The store as a tenant of the value log, if it was opened over one.
    pub fn tenant(&self) -> Arc<dyn Tenant> {
        self.lsm.clone()
    }

    /// The pressure of merging's backlog on writers, in thousandths.
    pub fn pressure_permille(&self) -> u64 {
        self.lsm.pressure_permille()
    }
}

impl Backend for LsmEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: true,
            drops_entries: self.lsm.expires_by_age(),
        }
    }

    fn identity(&self) -> StoreId {
        self.lsm.identity()
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        self.indexes.put(&*self.lsm, batch, durability)
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        let found = self.lsm.get(&object_key(key.as_bytes()), at)?;
        Ok(found.map(|(sequence, value, body)| StoredEntry {
            sequence,
            fields: value.fields,
            head: value.head,
            body,
        }))
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        let found = self.lsm.head(&object_key(key.as_bytes()), at)?;
        Ok(found.map(|(sequence, value)| StoredHead {
            sequence,
            fields: value.fields,
            body_len: value.body_len(),
            head: value.head,
            place: None,
        }))
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(ObjectsView::of(self.lsm.snapshot(lease))))
    }

    fn sync(&self) -> Result<Sequence> {
        self.lsm.sync()
    }

    fn durable(&self) -> Sequence {
        self.lsm.durable()
    }

    fn take_replayed(&self) -> Option<Replayed> {
        self.lsm.take_replayed()
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        ObjectsView::of(self.lsm.snapshot(Lease::Unlimited)).is_empty(now)
    }

    fn status(&self) -> Status {
        let (from, to) = all_objects();
        let mut status = self.lsm.status(&ScanRange { from, to });
        let doubts = self.lsm.doubts().all().len().to_string();
        status.details.push(("ranges_in_doubt", doubts));
        status
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        let mut due = self.lsm.maintenance_due(now);
        due.extend(self.indexes.reindexing().due(&*self.lsm));
        due
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        match task.kind {
            TaskKind::Reindex => self.indexes.reindexing().step(&*self.lsm, budget, now),
            _ => self.lsm.maintenance_step(task, budget, now),
        }
    }

    fn erase(&self) -> Result<()> {
        self.lsm.erase()
    }

    fn close(&self) -> Result<()> {
        self.lsm.close()
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        Some(self)
    }

    fn backups(&self) -> Option<&dyn Backups> {
        Some(self)
    }

    fn journal_folds(&self) -> Option<&dyn JournalFolds> {
        let has_journal = self.lsm.has_journal();
        has_journal.then_some(self as &dyn JournalFolds)
    }
}

impl JournalFolds for LsmEngine {
    fn fold_in_journal_order(
        &self,
        range: &FoldRange,
        lease: Lease,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<JournalFolded> {
        let (from, to) = object_range(range);
        let snapshot = self.lsm.snapshot(lease);
        let visit = &mut |shown: &JournalShown<'_>| {
            visitor(Visited {
                key: &storage_key(shown.key),
                sequence: Sequence(shown.sequence),
                fields: shown.value.fields,
                head: shown.value.head.clone(),
                body: shown.body.clone(),
            })
        };
        let end = snapshot.scan_journal(&FoldRange { from, to }, filter, visit)?;
        let has_met_damage = snapshot.has_met_damage();
        Ok(JournalFolded {
            end,
            has_met_damage,
        })
    }
}

impl IndexFolds for LsmEngine {
    fn fold_index(
        &self,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        self.indexes.fold(&*self.lsm, range, lease, now, visitor)
    }

    fn counts(&self) -> IndexCounts {
        self.indexes.counts()
    }
}

impl Backups for LsmEngine {
    fn backup(&self, directory: &Path) -> Result<StoreBackup> {
        self.lsm.backup(directory)
    }
}

//! The engine as the backend trait shows it.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, BackendError, Backups, Batch, Capabilities, Durability, ErrorKind, Flow, FoldEnd,
    FoldFilter, IndexCounts, IndexFolds, IndexRange, IndexVisitor, Lease, Lookup, ReadAt, Receipt,
    Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreBackup, StoreId, StoredEntry,
    StoredHead, Task, TaskKind, Timestamp,
};
use kvorum_disk::{Disk, Reserve};
use kvorum_encoding::{KeyRange, StorageKey};
use kvorum_index_entries::changes::{changes_of, plain_counts};
use kvorum_index_entries::counters::IndexCounters;
use kvorum_index_entries::keyspace::{IndexKeys, all_objects, index_range, object_key};
use kvorum_lsm::{DoubtKind, DrawNumber, Lsm, Op, ScanEnd, ScanRange, ScanStep, Shared};
use kvorum_value_log::{Tenant, ValueLog};

use crate::LeveldbSettings;
use crate::index::Indexed;
use crate::put_op::put_op;
use crate::reindexing::Reindexing;
use crate::snapshot::LeveldbSnapshot;

/// An open store.
pub struct Leveldb {
    lsm: Arc<Lsm>,
    /// Entries expire by age, and index entries with them.
    expires_by_age: bool,
    counts: IndexCounters,
    reindexing: Reindexing,
}

impl Leveldb {
    /// Opens a store, creating it if it is missing. `shared` is the node's block cache and its budget
    /// for memtables; `draw` gives random numbers for identities.
    ///
    /// With a log, large bodies stay there: puts go there, whatever their durability. [`Tenant`] says what
    /// is to be done before it is used. A store with files of its own goes on from there; there is no way
    /// back.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::Locked`] when another process has it open,
    /// [`kvorum_backend::ErrorKind::NewerFormat`] when a newer version wrote it,
    /// [`kvorum_backend::ErrorKind::Corrupt`] when no copy of its manifest is whole and belongs to it,
    /// [`kvorum_backend::ErrorKind::Denied`] when its slow directory is not where it was. Damage to
    /// anything else is listed in [`Status::lost`] and no reason not to open.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        settings: &LeveldbSettings,
        shared: Shared,
        draw: DrawNumber,
        log: Option<ValueLog>,
    ) -> Result<Self> {
        let lsm = Lsm::open(disk, directory, settings.to_lsm(), shared, draw, log)?;
        Ok(Self {
            lsm: Arc::new(lsm),
            expires_by_age: settings.expiry.is_some(),
            counts: IndexCounters::default(),
            reindexing: Reindexing::default(),
        })
    }

    /// As [`Lsm::set_reserve`].
    #[must_use]
    pub fn with_reserve(self, reserve: Arc<Reserve>) -> Self {
        self.lsm.set_reserve(reserve);
        self
    }

    /// The store as the value log knows it, if it was opened over one.
    pub fn tenant(&self) -> Arc<dyn Tenant> {
        self.lsm.clone()
    }

    /// How hard writers should feel that merging is behind, in thousandths.
    pub fn pressure_permille(&self) -> u64 {
        self.lsm.pressure_permille()
    }

    fn check_undoubted(&self, from: &Bound<Bytes>, to: &Bound<Bytes>) -> Result<()> {
        let range = match (from, to) {
            (Bound::Included(from), Bound::Excluded(to)) => KeyRange {
                from: from.clone(),
                to: Some(to.clone()),
            },
            _ => KeyRange::everything(),
        };
        match self.lsm.has_extras() && self.lsm.is_in_doubt(&range) {
            true => Err(in_doubt()),
            false => Ok(()),
        }
    }

    fn has_index_entries(batch: &Batch) -> bool {
        batch.writes.iter().any(|it| !it.index_entries().is_empty())
    }

    /// With indexes a put depends on what is there: if that changes meanwhile, it is read again.
    fn put_indexed(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        loop {
            let guard = self.lsm.guard();
            let changes = changes_of(&Indexed(&self.lsm), batch, self.expires_by_age)?;
            let doubt = || {
                let kind = DoubtKind::Replaced;
                self.lsm.open_doubts(kind, &changes.unknown);
            };
            doubt();
            let ops = &changes.ops;
            let put = self
                .lsm
                .write_if_unchanged(ops, durability, guard, Timestamp(0))?;
            if let Some(receipt) = put {
                // Once more: who settles doubts may have looked before there was the new object.
                doubt();
                self.counts.add(&changes.counts);
                return Ok(receipt);
            }
        }
    }
}

fn in_doubt() -> BackendError {
    let detail = "index entries of this range may be missing: they were lost with a damaged block, \
                  and are being made again from their objects";
    BackendError::new(ErrorKind::Corrupt, detail)
}

impl Backend for Leveldb {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: true,
        }
    }

    fn identity(&self) -> StoreId {
        self.lsm.identity()
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        if self.lsm.has_extras() || Self::has_index_entries(batch) {
            return self.put_indexed(batch, durability);
        }
        let ops: Vec<Op> = batch
            .writes
            .iter()
            .map(|it| put_op(it, Bytes::new(), self.lsm.kept_from()))
            .collect();
        let receipt = self.lsm.write(&ops, durability, Timestamp(0))?;
        self.counts.add(&plain_counts(batch));
        Ok(receipt)
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
        Ok(Box::new(LeveldbSnapshot {
            view: self.lsm.snapshot(lease),
        }))
    }

    fn sync(&self) -> Result<Sequence> {
        self.lsm.sync()
    }

    fn durable(&self) -> Sequence {
        self.lsm.durable()
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        let (from, to) = all_objects();
        let filter = FoldFilter::unexpired(now);
        let view = self.lsm.snapshot(Lease::Unlimited);
        let end = view.scan(&ScanRange { from, to }, &filter, &mut |_| ScanStep::Stop)?;
        Ok(end == ScanEnd::Complete)
    }

    fn status(&self) -> Status {
        let (from, to) = all_objects();
        let mut status = self.lsm.status(&ScanRange { from, to });
        let doubts = self.lsm.doubts().len().to_string();
        status.details.push(("ranges_in_doubt", doubts));
        status
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        let mut due = self.lsm.maintenance_due(now);
        due.extend(self.reindexing.due(&self.lsm));
        due
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        match task.kind {
            TaskKind::Reindex => self.reindexing.step(&self.lsm, budget, now),
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
}

impl IndexFolds for Leveldb {
    fn fold_index(
        &self,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        let keys = IndexKeys::of(range);
        let (from, to) = index_range(range);
        // Before the view is taken and once it was walked: what was made again in between is not in it.
        let opened = self.lsm.doubts_opened();
        self.check_undoubted(&from, &to)?;
        let view = self.lsm.snapshot(lease);
        let mut last = StorageKey::from_encoded(Bytes::new());
        let filter = FoldFilter::unexpired(now);
        let end = view.scan(&ScanRange { from, to }, &filter, &mut |shown| {
            let Some((term, key)) = keys.term_and_key(shown.key) else {
                return ScanStep::Next;
            };
            let flow = visitor(&term, &key);
            last = key;
            match flow {
                Flow::Continue => ScanStep::Next,
                Flow::Stop => ScanStep::Stop,
            }
        })?;
        if self.lsm.has_extras() && self.lsm.doubts_opened() != opened {
            return Err(in_doubt());
        }
        Ok(match end {
            ScanEnd::Complete => FoldEnd::Complete,
            ScanEnd::Stopped => FoldEnd::Stopped(last),
            ScanEnd::LeaseExpired(at) => {
                let key = keys.term_and_key(&at).map_or(last, |(_, key)| key);
                FoldEnd::LeaseExpired(key)
            }
        })
    }

    fn counts(&self) -> IndexCounts {
        self.counts.read()
    }
}

impl Backups for Leveldb {
    fn backup(&self, directory: &Path) -> Result<StoreBackup> {
        self.lsm.backup(directory)
    }
}

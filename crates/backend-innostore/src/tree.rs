//! An open store as an ordered tree, the interface for code that derives keys from other keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{
    Durability, ErrorKind, Fields, Lease, Lookup, ReadAt, Receipt, Result, Sequence, StepOutcome,
    Timestamp,
};
use kvorum_encoding::KeyRange;
use kvorum_ordered_tree::{DoubtKind, Doubts, OrderedTree, PutBelow};
use kvorum_page_tree::{Body, Change, Entry};
use parking_lot::Mutex;

use crate::change::Op;
use crate::store::Store;
use crate::upkeep::{Jobs, is_late};
use crate::view::View;
use crate::write::Guard;

/// A store and the jobs on it.
pub(crate) struct OpenTree {
    pub(crate) store: Arc<Store>,
    pub(crate) jobs: Mutex<Jobs>,
}

impl OpenTree {
    fn after_write(&self) {
        if is_late(&self.store)
            && let Some(mut jobs) = self.jobs.try_lock()
        {
            jobs.pay(&self.store);
        }
    }

    /// Moves everything to the tree, and returns the last sequence in it.
    pub(crate) fn flush_all(&self) -> Result<u64> {
        let wanted = self.store.visible_sequence();
        self.jobs.lock().flush_up_to(&self.store, wanted)?;
        Ok(wanted)
    }

    /// Gives up the jobs of a store that has failed: other stores may need the room that they were to
    /// take.
    pub(crate) fn release_room(&self) {
        if self.store.intake.check_not_failed().is_err()
            && let Some(mut jobs) = self.jobs.try_lock()
        {
            jobs.abandon(&self.store);
        }
    }

    /// Flushes, syncs, and refuses further writes.
    pub(crate) fn close(&self) -> Result<()> {
        let store = &*self.store;
        {
            let _puts_wait = store.writer.lock();
            if store.intake.close() {
                return Ok(());
            }
        }
        let synced = store.sync_all();
        let finished = synced.clone().and_then(|_| self.flush_all());
        self.jobs.lock().abandon(store);
        store.losses.write(&*store.disk);
        *store.lock.lock() = None;
        match finished {
            // On a full disk the puts are durable in the log, which the next opening reads.
            Err(error) if error.kind() == ErrorKind::Full && synced.is_ok() => Ok(()),
            finished => finished.map(drop),
        }
    }
}

/// Copies a part to keep in memory, since requests are slices of larger buffers.
fn copied(part: &[u8]) -> Bytes {
    Bytes::copy_from_slice(part)
}

impl OrderedTree for OpenTree {
    type Op = Op;
    type Guard = Guard;
    type View = View;

    fn extra(&self, key: &Bytes, at: ReadAt) -> Result<Lookup<(Fields, Bytes)>> {
        let version = self.store.version.load();
        let found = self.store.find(&version, key, at)?;
        Ok(found.map(|entry| (entry.fields, entry.extra)))
    }

    fn has_extras(&self) -> bool {
        self.store.has_extras.load(Ordering::Acquire)
    }

    fn view(&self, lease: Lease) -> View {
        View::take(&self.store, lease)
    }

    fn put_op(&self, key: &[u8], fields: Fields, extra: Bytes, head: &[u8], body: &Bytes) -> Op {
        Op {
            key: copied(key),
            entry: Some(Entry {
                sequence: 0,
                fields,
                extra,
                head: copied(head),
                body: Body::Inline(copied(body)),
            }),
        }
    }

    fn bare_op(&self, key: Bytes, fields: Fields) -> Op {
        let entry = Entry {
            sequence: 0,
            fields,
            extra: Bytes::new(),
            head: Bytes::new(),
            body: Body::Inline(Bytes::new()),
        };
        let entry = Some(entry);
        Op { key, entry }
    }

    fn remove_op(&self, key: Bytes) -> Op {
        Op { key, entry: None }
    }

    fn put(&self, ops: &[Op], durability: Durability) -> Result<Receipt> {
        let receipt = self.store.write(ops, durability, None)?;
        self.after_write();
        receipt.ok_or_else(|| {
            let detail = "a batch without a guard was refused";
            kvorum_backend::BackendError::new(ErrorKind::Misuse, detail)
        })
    }

    fn guard(&self) -> Guard {
        let frozen_count = self.store.version.load().frozen_count;
        Guard {
            sequence: self.store.visible_sequence(),
            frozen_count,
        }
    }

    fn put_if_unchanged(
        &self,
        ops: &[Op],
        durability: Durability,
        guard: Guard,
    ) -> Result<Option<Receipt>> {
        let receipt = self.store.write(ops, durability, Some(guard))?;
        if receipt.is_some() {
            self.after_write();
        }
        Ok(receipt)
    }

    fn put_below<T>(
        &self,
        budget_bytes: u64,
        now: Timestamp,
        decide: impl FnOnce() -> Result<(Vec<Op>, T)>,
    ) -> Result<PutBelow<T>> {
        let mut jobs = self.jobs.lock();
        let store = &*self.store;
        store.intake.check_writable()?;
        // A rewrite in progress would lack the changes at keys that it has passed.
        if jobs.rewriting.is_going_on() {
            let step = jobs.rewriting.step(store, budget_bytes, now)?;
            return Ok(PutBelow::Flushing(step));
        }
        let (ops, decided) = decide()?;
        let sequence = store.manifest.lock().sequence;
        let change = |op: Op| {
            let entry = op.entry.map(|entry| Entry { sequence, ..entry });
            (op.key, entry.map_or(Change::Remove, Change::Put))
        };
        let changes: BTreeMap<Bytes, Change> = ops.into_iter().map(change).collect();
        let changes: Vec<_> = changes.into_iter().collect();
        let bytes = match changes.is_empty() {
            true => 0,
            false => jobs.rewriting.change_below(store, changes)?,
        };
        Ok(PutBelow::Done(decided, bytes))
    }

    fn flush_part(&self, budget_bytes: u64, now: Timestamp) -> Result<StepOutcome> {
        let mut jobs = self.jobs.lock();
        self.store.intake.check_writable()?;
        jobs.flush(&self.store, budget_bytes, now)
    }

    fn flushed(&self) -> Sequence {
        Sequence(self.store.manifest.lock().sequence)
    }

    fn is_writable(&self) -> bool {
        self.store.intake.check_writable().is_ok()
    }

    fn walked_bytes(&self) -> u64 {
        let manifest = self.store.manifest.lock();
        manifest.files.iter().map(|it| it.live_bytes).sum()
    }

    fn doubts(&self) -> &Doubts {
        &self.store.losses.doubts
    }

    fn is_lost(&self, range: &KeyRange) -> bool {
        let version = self.store.version.load();
        let has_file = |number| version.tree.files().contains_key(&number);
        let is_there = |name| self.store.losses.is_there(name, has_file);
        self.doubts().has_met(range, is_there)
    }

    fn open_doubts(&self, kind: DoubtKind, ranges: &[KeyRange]) {
        if ranges.is_empty() {
            return;
        }
        for range in ranges {
            self.doubts().open(kind, range.clone());
        }
        // The doubts in memory are valid, and are written with the next change.
        let _written_or_failing_disk = self.store.change_manifest(|_| {});
    }

    fn settle_doubts(&self, ids: &[u64], lost: &[KeyRange]) -> Result<()> {
        self.doubts().settle(ids);
        for range in lost {
            self.doubts().open(DoubtKind::Lost, range.clone());
        }
        self.store.change_manifest(|_| {})
    }
}

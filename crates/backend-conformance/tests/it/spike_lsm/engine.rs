//! The LSM spike behind the backend trait.

use std::sync::Arc;

use kvorum_backend::{
    Backend, Batch, Capabilities, Durability, Durable, ErrorKind, GroupSync, Lease, Lookup, ReadAt,
    Receipt, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreId, StoredEntry,
    StoredHead, SyncTicket, Task, TaskKind, Timestamp, Urgency,
};
use kvorum_backend_conformance::{EngineUnderTest, Opening, conformance_suite, expect_caught};
use kvorum_encoding::StorageKey;
use kvorum_planted_defects::{PlantedDefect, is_planted};

use super::LsmSnapshot;
use super::files::{Manifest, batch_frame, disk_error, log_path, table_path};
use super::recovery::remove_if_there;
use super::store::{Shared, State, TABLES_MAX};
use crate::entry_encoding::{Value, change_of};

/// The spike as the suite sees it.
pub(crate) struct Lsm;

impl EngineUnderTest for Lsm {
    fn name(&self) -> &'static str {
        "lsm spike"
    }

    /// Its log.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &["*.log"]
    }

    fn names_its_files(&self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: false,
            ordered: true,
            indexes: false,
            backups: false,
            drops_entries: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let shared = Shared::open(opening)?;
        Ok(Box::new(LsmStore::new(Arc::new(shared))))
    }

    fn is_spike(&self) -> bool {
        true
    }

    fn keys_lost_per_flip_max(&self) -> usize {
        usize::MAX
    }
}

conformance_suite!(Lsm);

#[test]
fn planted_defects_are_caught() {
    for defect in [
        PlantedDefect::DirectoryNotSynced,
        PlantedDefect::RenameBeforeSync,
        PlantedDefect::GroupNotAwaited,
        PlantedDefect::TombstoneDroppedTooEarly,
        PlantedDefect::ExpiredEntryReturned,
        PlantedDefect::SnapshotSeesLaterWrites,
    ] {
        match expect_caught(&Lsm, defect, &conformance_plan()) {
            // Printed with the test's output, as evidence that the defect was caught for the right reason.
            Ok(violation) => println!("{defect:?}: {violation}"),
            Err(missed) => panic!("{missed}"),
        }
    }
}

struct LsmStore {
    shared: Arc<Shared>,
    group: Arc<GroupSync>,
}

impl LsmStore {
    fn new(shared: Arc<Shared>) -> Self {
        let synced = Arc::clone(&shared);
        let group = GroupSync::new(move || synced.sync_log().map(|sequence| sequence.0));
        Self { shared, group }
    }
}

impl Backend for LsmStore {
    fn capabilities(&self) -> Capabilities {
        Lsm.capabilities()
    }

    fn identity(&self) -> StoreId {
        StoreId(self.shared.state.lock().manifest.identity)
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        let mut state = self.shared.state.lock();
        state.check_writable()?;
        let sequence = state.last_sequence.next();
        let changes: Vec<_> = batch
            .writes
            .iter()
            .map(|write| change_of(write, sequence))
            .collect();
        let frame = batch_frame(sequence, &changes);
        let log = self.shared.log(&mut state)?;
        let number = state.log_number();
        let end = state.log_lens.entry(number).or_default();
        // The end moves only when all of it is written; the leftovers of a failed write are
        // overwritten.
        log.write_at(&frame, *end).map_err(disk_error)?;
        *end += frame.len() as u64;
        state.memtable_bytes += frame.len() as u64;
        state.last_sequence = sequence;
        let memtable = Arc::make_mut(&mut state.layers.memtable);
        memtable.extend(changes);
        let is_acknowledged = durability != Durability::Grouped || is_planted!(GroupNotAwaited);
        let durable = if is_acknowledged {
            Durable::Already
        } else {
            Durable::After(SyncTicket::new(self.group.clone(), sequence.0))
        };
        Ok(Receipt { sequence, durable })
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        Ok(self.lookup(key, at)?.map(|value| value.to_stored()))
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        Ok(self.lookup(key, at)?.map(|value| value.to_head()))
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        let state = self.shared.state.lock();
        let snapshot = LsmSnapshot {
            layers: state.layers.clone(),
            sequence: state.last_sequence,
            lease,
            shows_expired: is_planted!(ExpiredEntryReturned),
        };
        if is_planted!(SnapshotSeesLaterWrites) {
            let shared = Arc::clone(&self.shared);
            return Ok(Box::new(LateSnapshot { shared, snapshot }));
        }
        Ok(Box::new(snapshot))
    }

    fn sync(&self) -> Result<Sequence> {
        self.shared.sync_log()
    }

    fn durable(&self) -> Sequence {
        self.shared.state.lock().synced_to
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        let snapshot = self.snapshot(Lease::Unlimited)?;
        let mut is_empty = true;
        snapshot.fold(
            kvorum_backend::FoldDetail::Keys,
            &kvorum_backend::FoldRange::all(),
            &kvorum_backend::FoldFilter::unexpired(now),
            &mut |_| {
                is_empty = false;
                kvorum_backend::Flow::Stop
            },
        )?;
        Ok(is_empty)
    }

    fn status(&self) -> Status {
        let mut keys = 0;
        if let Ok(snapshot) = self.snapshot(Lease::Unlimited) {
            let counted = snapshot.fold(
                kvorum_backend::FoldDetail::Keys,
                &kvorum_backend::FoldRange::all(),
                &kvorum_backend::FoldFilter::unexpired(Timestamp(0)),
                &mut |_| {
                    keys += 1;
                    kvorum_backend::Flow::Continue
                },
            );
            keys = counted.map_or(0, |_| keys);
        }
        Status {
            engine: "lsm spike",
            keys,
            ..Status::default()
        }
    }

    fn maintenance_due(&self, _now: Timestamp) -> Vec<Task> {
        let state = self.shared.state.lock();
        let mut due = Vec::new();
        let mut add = |kind| {
            due.push(Task {
                kind,
                subject: 0,
                urgency: Urgency::Normal,
                cost_bytes: 1,
            });
        };
        let running = state.job.as_ref().map(|job| job.kind);
        if running == Some(TaskKind::Flush) || (running.is_none() && state.has_flush()) {
            add(TaskKind::Flush);
        }
        let has_many = state.layers.tables.len() > TABLES_MAX;
        if running == Some(TaskKind::Compact) || (running.is_none() && has_many) {
            add(TaskKind::Compact);
        }
        due
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let mut state = self.shared.state.lock();
        if !matches!(task.kind, TaskKind::Flush | TaskKind::Compact) {
            return Ok(StepOutcome::nothing_left());
        }
        state.check_writable()?;
        if state.job.is_none() {
            let is_due = match task.kind {
                TaskKind::Flush => state.has_flush(),
                _ => state.layers.tables.len() > TABLES_MAX,
            };
            if !is_due {
                return Ok(StepOutcome::nothing_left());
            }
            self.shared.start_job(&mut state, task.kind)?;
        }
        let Some(mut job) = state.job.take().filter(|job| job.kind == task.kind) else {
            return Ok(StepOutcome::nothing_left());
        };
        let (cost_bytes, is_done) = job.step(budget.bytes, now)?;
        if is_done {
            self.shared.finish_job(&mut state, &job)?;
        } else {
            state.job = Some(job);
        }
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    fn erase(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.check_writable()?;
        let erased = self.erase_locked(&mut state);
        Shared::or_fail(&mut state, erased)
    }

    /// Notes the length of the logs in the manifest, so that the next opening can distinguish a
    /// damaged log from a torn one.
    fn close(&self) -> Result<()> {
        self.sync()?;
        let mut state = self.shared.state.lock();
        state.is_closed = true;
        state.manifest.closed_log_bytes = state.log_lens.values().sum();
        match self.shared.write_manifest(&state.manifest) {
            Err(error) if error.kind() == ErrorKind::Full => Ok(()),
            outcome => outcome,
        }
    }
}

impl LsmStore {
    fn lookup(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<Value>> {
        let layers = self.shared.state.lock().layers.clone();
        let shows_expired = is_planted!(ExpiredEntryReturned);
        let is_cached = at.reading == kvorum_backend::Reading::CachedOnly;
        let in_memory = [Some(&layers.memtable), layers.frozen.as_ref()];
        let is_in_memory = in_memory
            .into_iter()
            .flatten()
            .any(|it| it.contains_key(key));
        if is_cached && !is_in_memory && !layers.tables.is_empty() {
            return Ok(Lookup::WouldBlock);
        }
        let found = layers.get(key)?;
        let found = found.filter(|it| shows_expired || !it.fields.is_expired(at.now));
        Ok(found.map_or(Lookup::Absent, Lookup::Found))
    }

    fn erase_locked(&self, state: &mut State) -> Result<()> {
        let shared = &self.shared;
        let old_logs = state.manifest.first_log..state.next_number;
        let manifest = Manifest {
            identity: (shared.draw)(),
            first_log: state.next_number,
            sequence: state.last_sequence.0,
            closed_log_bytes: 0,
            tables: Vec::new(),
        };
        shared.write_manifest(&manifest)?;
        let old = std::mem::take(&mut state.layers);
        state.job = None;
        state.manifest = manifest;
        state.log = None;
        state.log_lens.clear();
        state.memtable_bytes = 0;
        state.synced_to = state.last_sequence;
        for table in old.tables {
            remove_if_there(&*shared.disk, &table_path(&shared.directory, table.number))?;
        }
        for log in old_logs {
            remove_if_there(&*shared.disk, &log_path(&shared.directory, log))?;
        }
        Ok(())
    }
}

/// The planted defect of a snapshot that reads the present store.
struct LateSnapshot {
    shared: Arc<Shared>,
    snapshot: LsmSnapshot,
}

impl Snapshot for LateSnapshot {
    fn sequence(&self) -> Sequence {
        self.snapshot.sequence
    }

    fn fold(
        &self,
        detail: kvorum_backend::FoldDetail,
        range: &kvorum_backend::FoldRange,
        filter: &kvorum_backend::FoldFilter,
        visitor: &mut kvorum_backend::Visitor<'_>,
    ) -> Result<kvorum_backend::FoldEnd> {
        let late = LsmSnapshot {
            layers: self.shared.state.lock().layers.clone(),
            ..self.snapshot
        };
        late.fold(detail, range, filter, visitor)
    }

    fn fold_buckets(
        &self,
        range: &kvorum_backend::FoldRange,
        filter: &kvorum_backend::FoldFilter,
        visitor: &mut kvorum_backend::Visitor<'_>,
    ) -> Result<kvorum_backend::FoldEnd> {
        self.snapshot.fold_buckets(range, filter, visitor)
    }
}

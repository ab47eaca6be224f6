//! The LSM spike behind the backend trait.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{
    Backend, BackendError, Batch, Capabilities, Durability, Durable, ErrorKind, GroupSync, Lease,
    Lookup, PlantedDefect, ReadAt, Receipt, Result, Sequence, Snapshot, Status, StepBudget,
    StepOutcome, StoreId, StoredEntry, StoredHead, SyncTicket, Task, TaskKind, Timestamp, Urgency,
};
use kvorum_backend_conformance::{
    DrawNumber, EngineUnderTest, Opening, conformance_suite, expect_caught,
};
use kvorum_disk::{Disk, DiskFile, DiskLock, OpenMode};
use kvorum_encoding::StorageKey;
use parking_lot::Mutex;

use super::files::{
    Manifest, Table, batch_frame, disk_error, log_path, manifest_path, number_of, read_log,
    table_path,
};
use super::job::Job;
use super::{Layers, LsmSnapshot, Memtable};
use crate::entry_encoding::{Value, change_of};

const MEMTABLE_BYTES_MAX: u64 = 3_000;
const TABLES_MAX: usize = 2;
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// The spike as the suite sees it.
pub(crate) struct Lsm {
    planted_defect: Option<PlantedDefect>,
}

impl EngineUnderTest for Lsm {
    fn name(&self) -> &'static str {
        "lsm spike"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: false,
            ordered: true,
            indexes: false,
            backups: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let shared = Shared::open(opening, self.planted_defect)?;
        Ok(Box::new(LsmStore::new(Arc::new(shared))))
    }

    fn keys_lost_per_flip_max(&self) -> usize {
        usize::MAX
    }
}

conformance_suite!(Lsm {
    planted_defect: None
});

#[test]
fn planted_defects_are_caught() {
    for defect in [
        PlantedDefect::DirectoryNotSynced,
        PlantedDefect::RenameBeforeSync,
        PlantedDefect::AcknowledgedBeforeSync,
        PlantedDefect::TombstoneDroppedTooEarly,
        PlantedDefect::ExpiredEntryReturned,
        PlantedDefect::SnapshotSeesLaterWrites,
    ] {
        let engine = Lsm {
            planted_defect: Some(defect),
        };
        match expect_caught(&engine, defect, &conformance_plan()) {
            // Shown with the test's output, to see that it was caught for the right reason.
            Ok(violation) => println!("{defect:?}: {violation}"),
            Err(missed) => panic!("{missed}"),
        }
    }
}

struct LsmStore {
    shared: Arc<Shared>,
    group: Arc<GroupSync>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    draw: DrawNumber,
    defect: Option<PlantedDefect>,
    state: Mutex<State>,
    _lock: Box<dyn DiskLock>,
}

struct State {
    layers: Layers,
    manifest: Manifest,
    /// The log that puts go to; made by the first put, so that opening needs no space.
    log: Option<Arc<dyn DiskFile>>,
    /// The length of each log that is still needed.
    log_lens: BTreeMap<u64, u64>,
    /// The number of the next log or table.
    next_number: u64,
    memtable_bytes: u64,
    last_sequence: Sequence,
    synced_to: Sequence,
    job: Option<Job>,
    /// A failed sync or half a change of files: no more writes.
    failure: Option<BackendError>,
    is_closed: bool,
}

impl LsmStore {
    fn new(shared: Arc<Shared>) -> Self {
        let synced = Arc::clone(&shared);
        let group = GroupSync::new(move || synced.sync_log().map(|sequence| sequence.0));
        Self { shared, group }
    }
}

impl Shared {
    fn open(opening: &Opening, defect: Option<PlantedDefect>) -> Result<Self> {
        let (disk, directory) = (Arc::clone(&opening.disk), opening.directory.clone());
        create_durably(&*disk, &directory)?;
        let lock = disk
            .lock(&directory.join("lock"), "spike")
            .map_err(disk_error)?;
        let path = manifest_path(&directory);
        let manifest = match disk.info(&path).map_err(disk_error)? {
            None => {
                let manifest = Manifest {
                    identity: (opening.draw)(),
                    first_log: 0,
                    sequence: 0,
                    closed_log_bytes: 0,
                    tables: Vec::new(),
                };
                write_manifest(&*disk, &directory, &manifest, defect)?;
                manifest
            }
            Some(_) => {
                let bytes = kvorum_disk::read_file(&*disk, &path, MANIFEST_BYTES_MAX);
                Manifest::decode(&bytes.map_err(disk_error)?)
                    .ok_or_else(|| BackendError::new(ErrorKind::Corrupt, "manifest"))?
            }
        };
        let state = recover(&*disk, &directory, manifest)?;
        Ok(Self {
            disk,
            directory,
            draw: Arc::clone(&opening.draw),
            defect,
            state: Mutex::new(state),
            _lock: lock,
        })
    }

    fn has(&self, defect: PlantedDefect) -> bool {
        self.defect == Some(defect)
    }

    fn sync_log(&self) -> Result<Sequence> {
        let (log, sequence) = {
            let state = self.state.lock();
            state.check_writable()?;
            (state.log.clone(), state.last_sequence)
        };
        let synced = log.map_or(Ok(()), |log| log.sync()).map_err(disk_error);
        let mut state = self.state.lock();
        match synced {
            Ok(()) => state.synced_to = state.synced_to.max(sequence),
            Err(error) => {
                state.failure.get_or_insert(error.clone());
                return Err(error);
            }
        }
        Ok(sequence)
    }

    /// What follows happens on disk in an order that a failure would leave half done.
    fn or_fail<T>(state: &mut State, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            state.failure.get_or_insert(error.clone());
        }
        outcome
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        write_manifest(&*self.disk, &self.directory, manifest, self.defect)
    }

    /// Leaves the memtable to a flush; the next put starts a new log.
    fn freeze(state: &mut State) -> Result<()> {
        if let Some(log) = state.log.take() {
            log.sync().map_err(disk_error)?;
        }
        state.synced_to = state.last_sequence;
        state.memtable_bytes = 0;
        state.layers.frozen = Some(std::mem::take(&mut state.layers.memtable));
        Ok(())
    }

    /// The log that puts go to. A put that found no space leaves things as they were.
    fn log(&self, state: &mut State) -> Result<Arc<dyn DiskFile>> {
        if let Some(log) = &state.log {
            return Ok(Arc::clone(log));
        }
        if state.manifest.closed_log_bytes > 0 {
            let manifest = Manifest {
                closed_log_bytes: 0,
                ..state.manifest.clone()
            };
            self.write_manifest(&manifest)?;
            state.manifest = manifest;
        }
        let number = state.next_number;
        let log = create_log(&*self.disk, &self.directory, number, self.defect)?;
        state.next_number += 1;
        state.log_lens.insert(number, 0);
        state.log = Some(Arc::clone(&log));
        Ok(log)
    }

    fn start_job(&self, state: &mut State, kind: TaskKind) -> Result<()> {
        let is_flush = kind == TaskKind::Flush;
        if is_flush && state.layers.frozen.is_none() {
            let frozen = Self::freeze(state);
            Self::or_fail(state, frozen)?;
        }
        let source = if is_flush {
            Layers {
                frozen: state.layers.frozen.clone(),
                ..Layers::default()
            }
        } else {
            Layers {
                tables: state.layers.tables.clone(),
                ..Layers::default()
            }
        };
        let is_last = !is_flush || state.layers.tables.is_empty();
        let drops = is_last || self.has(PlantedDefect::TombstoneDroppedTooEarly);
        let number = state.take_number();
        let job = Job::start(&*self.disk, &self.directory, kind, number, source, drops)?;
        state.job = Some(job);
        Ok(())
    }

    /// The job's table takes the place of its sources.
    fn finish_job(&self, state: &mut State, job: &Job) -> Result<()> {
        let unsafely = self.has(PlantedDefect::RenameBeforeSync);
        let table = job.finish(&*self.disk, &self.directory, unsafely)?;
        if !self.has(PlantedDefect::DirectoryNotSynced) {
            self.disk
                .sync_directory(&self.directory)
                .map_err(disk_error)?;
        }
        let mut tables = vec![Arc::new(table)];
        let old_logs = if job.kind == TaskKind::Flush {
            tables.extend(state.layers.tables.iter().cloned());
            state.manifest.first_log..state.log_number()
        } else {
            0..0
        };
        let replaced = std::mem::replace(&mut state.layers.tables, tables);
        if job.kind == TaskKind::Flush {
            state.layers.frozen = None;
            state.manifest.first_log = state.log_number();
            state.log_lens = state.log_lens.split_off(&state.manifest.first_log);
        }
        state.manifest.tables = state.layers.tables.iter().map(|it| it.number).collect();
        state.manifest.sequence = state.last_sequence.0.min(state.synced_to.0);
        state.manifest.closed_log_bytes = 0;
        let written = self.write_manifest(&state.manifest);
        Self::or_fail(state, written)?;
        for table in replaced {
            if !state.manifest.tables.contains(&table.number) {
                remove_if_there(&*self.disk, &table_path(&self.directory, table.number))?;
            }
        }
        for log in old_logs {
            remove_if_there(&*self.disk, &log_path(&self.directory, log))?;
        }
        Ok(())
    }
}

impl State {
    fn check_writable(&self) -> Result<()> {
        if self.is_closed {
            return Err(BackendError::new(ErrorKind::Closed, "lsm spike"));
        }
        match &self.failure {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn log_number(&self) -> u64 {
        let path = self.log.as_ref().map(|log| log.path());
        let name = path.and_then(|it| it.file_name()?.to_str());
        name.and_then(number_of).unwrap_or(self.next_number)
    }

    fn has_flush(&self) -> bool {
        self.layers.frozen.is_some() || self.memtable_bytes > MEMTABLE_BYTES_MAX
    }
}

impl Backend for LsmStore {
    fn capabilities(&self) -> Capabilities {
        Lsm {
            planted_defect: None,
        }
        .capabilities()
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
        // The end moves only when all of it is written; what a failed write left is overwritten.
        log.write_at(&frame, *end).map_err(disk_error)?;
        *end += frame.len() as u64;
        state.memtable_bytes += frame.len() as u64;
        state.last_sequence = sequence;
        let memtable = Arc::make_mut(&mut state.layers.memtable);
        memtable.extend(changes);
        let is_acknowledged = durability != Durability::Grouped
            || self.shared.has(PlantedDefect::AcknowledgedBeforeSync);
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
            shows_expired: self.shared.has(PlantedDefect::ExpiredEntryReturned),
        };
        if self.shared.has(PlantedDefect::SnapshotSeesLaterWrites) {
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

    /// Says in the manifest how long the logs are, so that the next opening can tell a log that was
    /// damaged from one that was torn.
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
        let shows_expired = self.shared.has(PlantedDefect::ExpiredEntryReturned);
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

/// The planted defect of a snapshot that looks at the store as it is.
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

/// Opens the manifest's tables and replays the logs.
fn recover(disk: &dyn Disk, directory: &Path, manifest: Manifest) -> Result<State> {
    let mut names = BTreeMap::new();
    for entry in disk.list(directory).map_err(disk_error)? {
        if let Some(number) = number_of(&entry.name) {
            names.insert((number, entry.name.clone()), directory.join(&entry.name));
        }
    }
    let next_number = names.keys().map(|(number, _)| number + 1).max();
    let next_number = next_number.unwrap_or(0).max(manifest.first_log);
    let mut tables = Vec::new();
    for number in &manifest.tables {
        tables.push(Arc::new(Table::open(disk, directory, *number)?));
    }
    let mut memtable = Memtable::new();
    let mut last_sequence = Sequence(manifest.sequence);
    let mut log_lens = BTreeMap::new();
    let mut logs = Vec::new();
    for ((number, name), path) in &names {
        if !name.ends_with(".log") || *number < manifest.first_log {
            continue;
        }
        let bytes = kvorum_disk::read_file(disk, path, 1 << 30).map_err(disk_error)?;
        let (batches, end) = read_log(&bytes)?;
        log_lens.insert(*number, end);
        for (sequence, changes) in batches {
            memtable.extend(changes);
            last_sequence = last_sequence.max(sequence);
        }
        logs.push((path, end));
    }
    let log_bytes: u64 = log_lens.values().sum();
    if log_bytes < manifest.closed_log_bytes {
        let expected = manifest.closed_log_bytes;
        let detail = format!("logs of {log_bytes} bytes where {expected} were written");
        return Err(BackendError::new(ErrorKind::Corrupt, detail));
    }
    // Only now: a damaged log must not be cut. What was read may be in the page cache only, and a
    // torn end must not be read again.
    for (path, end) in logs {
        let file = disk.open(path, OpenMode::ReadWrite).map_err(disk_error)?;
        file.truncate(end).map_err(disk_error)?;
        file.sync().map_err(disk_error)?;
    }
    for ((number, name), path) in &names {
        let is_table = name.ends_with(".table") && manifest.tables.contains(number);
        let is_log = name.ends_with(".log") && *number >= manifest.first_log;
        if !is_table && !is_log {
            remove_if_there(disk, path)?;
        }
    }
    Ok(State {
        layers: Layers {
            memtable: Arc::new(memtable),
            frozen: None,
            tables,
        },
        manifest,
        log: None,
        log_lens,
        next_number,
        memtable_bytes: log_bytes,
        last_sequence,
        synced_to: last_sequence,
        job: None,
        failure: None,
        is_closed: false,
    })
}

/// Creates a directory and everything above it, names included.
fn create_durably(disk: &dyn Disk, directory: &Path) -> Result<()> {
    disk.create_directory(directory).map_err(disk_error)?;
    for above in directory.ancestors().skip(1) {
        disk.sync_directory(above).map_err(disk_error)?;
    }
    Ok(())
}

fn create_log(
    disk: &dyn Disk,
    directory: &Path,
    number: u64,
    defect: Option<PlantedDefect>,
) -> Result<Arc<dyn DiskFile>> {
    let path = log_path(directory, number);
    let log = disk.open(&path, OpenMode::Create).map_err(disk_error)?;
    log.truncate(0).map_err(disk_error)?;
    if defect != Some(PlantedDefect::DirectoryNotSynced) {
        disk.sync_directory(directory).map_err(disk_error)?;
    }
    Ok(log)
}

fn write_manifest(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    defect: Option<PlantedDefect>,
) -> Result<()> {
    let path = manifest_path(directory);
    let bytes = manifest.encode();
    if defect != Some(PlantedDefect::RenameBeforeSync) {
        return kvorum_disk::replace_file(disk, &path, &bytes).map_err(disk_error);
    }
    let temporary = kvorum_disk::temporary_name(&path);
    let file = disk
        .open(&temporary, OpenMode::Create)
        .map_err(disk_error)?;
    file.truncate(0).map_err(disk_error)?;
    file.write_at(&bytes, 0).map_err(disk_error)?;
    disk.rename(&temporary, &path).map_err(disk_error)?;
    file.sync().map_err(disk_error)?;
    disk.sync_directory(directory).map_err(disk_error)
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove_file(path) {
        Err(error) if error.kind() == kvorum_disk::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(disk_error),
    }
}

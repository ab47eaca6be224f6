//! An engine that persists nothing by itself: what a crash leaves of it is its last sync, and
//! everything after that has to come from the log.
//!
//! It is the memory engine plus the list of its batches. A sync writes a number to disk that names
//! the list as it is; opening reads the number and plays the list. The lists live in the test, so
//! that no format has to be invented: only which of them counts is on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{
    Backend, BackendError, Batch, Capabilities, Durability, Durable, ErrorKind, IndexFolds, Lease,
    Lookup, ReadAt, Receipt, Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreId,
    StoredEntry, StoredHead, Task, TaskKind, Timestamp,
};
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_disk::{Disk, DiskError, create_directory_durably, read_file, replace_file};
use kvorum_encoding::StorageKey;
use parking_lot::Mutex;

/// Contents that were synced, by number; shared by all openings of all stores of a test.
pub(crate) type Synced = Arc<Mutex<BTreeMap<u64, Contents>>>;

/// What a store held at one sync.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    identity: u64,
    batches: Vec<Batch>,
}

/// See the module.
pub(crate) struct VolatileEngine {
    memory: MemoryBackend,
    disk: Arc<dyn Disk>,
    file: PathBuf,
    synced: Synced,
    draw: Box<dyn Fn() -> u64 + Send + Sync>,
    state: Mutex<State>,
}

struct State {
    contents: Contents,
    durable: Sequence,
    is_closed: bool,
    failure: Option<BackendError>,
}

impl VolatileEngine {
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        synced: Synced,
        draw: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Self> {
        create_directory_durably(&*disk, directory).map_err(failed)?;
        let file = directory.join("synced");
        let found = disk.info(&file).map_err(failed)?;
        let contents = match found {
            None => Contents {
                identity: draw(),
                batches: Vec::new(),
            },
            Some(_) => {
                // The name may be known to the page cache only.
                disk.sync_directory(directory).map_err(failed)?;
                let bytes = read_file(&*disk, &file, 1 << 20).map_err(failed)?;
                let number = <[u8; 8]>::try_from(&bytes[..]).map(u64::from_le_bytes);
                let known = |number: u64| synced.lock().get(&number).cloned();
                let unreadable = || BackendError::new(ErrorKind::Corrupt, "the number is damaged");
                number.ok().and_then(known).ok_or_else(unreadable)?
            }
        };
        let memory = MemoryBackend::new(Settings::default(), || 0);
        for batch in &contents.batches {
            let _played = memory.put(batch, Durability::Buffered)?;
        }
        let durable = memory.durable();
        let engine = Self {
            memory,
            disk,
            file,
            synced,
            draw: Box::new(draw),
            state: Mutex::new(State {
                contents,
                durable,
                is_closed: false,
                failure: None,
            }),
        };
        if found.is_none() {
            engine.write(&mut engine.state.lock())?;
        }
        Ok(engine)
    }

    fn write(&self, state: &mut State) -> Result<()> {
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let number = (self.draw)();
        self.synced.lock().insert(number, state.contents.clone());
        replace_file(&*self.disk, &self.file, &number.to_le_bytes()).map_err(|error| {
            let error = failed(error);
            if error.kind() == ErrorKind::Failed {
                state.failure = Some(error.clone());
            }
            error
        })?;
        state.durable = Sequence(state.contents.batches.len() as u64);
        Ok(())
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is what errors are mapped with"
)]
fn failed(error: DiskError) -> BackendError {
    let kind = match error.kind() {
        kvorum_disk::ErrorKind::NoSpace => ErrorKind::Full,
        _ => ErrorKind::Failed,
    };
    BackendError::new(kind, error.to_string())
}

impl Backend for VolatileEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            ..self.memory.capabilities()
        }
    }

    fn identity(&self) -> StoreId {
        StoreId(self.state.lock().contents.identity)
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        assert_eq!(durability, Durability::Buffered, "the log is what waits");
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(BackendError::new(ErrorKind::Closed, "the store was closed"));
        }
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let sequence = self.memory.put(batch, durability)?.sequence;
        state.contents.batches.push(batch.clone());
        Ok(Receipt {
            sequence,
            durable: Durable::Already,
        })
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        self.memory.get(key, at)
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        self.memory.head(key, at)
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        self.memory.snapshot(lease)
    }

    fn sync(&self) -> Result<Sequence> {
        let mut state = self.state.lock();
        let is_behind = state.durable.0 < state.contents.batches.len() as u64;
        if is_behind || state.failure.is_some() {
            self.write(&mut state)?;
        }
        Ok(state.durable)
    }

    fn durable(&self) -> Sequence {
        self.state.lock().durable
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        self.memory.is_empty(now)
    }

    fn status(&self) -> Status {
        self.memory.status()
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        // A collection that a crash undoes would leave index entries that the log knows nothing of.
        let mut due = self.memory.maintenance_due(now);
        due.retain(|task| task.kind != TaskKind::Expire);
        due
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        self.memory.maintenance_step(task, budget, now)
    }

    fn erase(&self) -> Result<()> {
        let mut state = self.state.lock();
        let kept = state.contents.clone();
        // Sequences go on, so empty batches stand for what was.
        state.contents = Contents {
            identity: (self.draw)(),
            batches: vec![Batch::default(); kept.batches.len()],
        };
        if let Err(error) = self.write(&mut state) {
            state.contents = kept;
            return Err(error);
        }
        self.memory.erase()
    }

    fn close(&self) -> Result<()> {
        self.sync()?;
        self.state.lock().is_closed = true;
        Ok(())
    }

    fn indexes(&self) -> Option<&dyn IndexFolds> {
        self.memory.indexes()
    }
}

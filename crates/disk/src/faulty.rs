//! A disk that fails where it is told to, around any other disk.
//!
//! It counts and logs every operation, so that a test can fail each in turn, and can also check an
//! order: that the directory was synced before the write was acknowledged. Around a
//! [`MemoryDisk`] a failed sync also does what Linux does: the unsynced writes are read as before,
//! yet no later sync makes them durable.

mod file;
mod rule;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub use rule::{Fault, Rule};

use crate::{
    DirectoryEntry, Disk, DiskError, DiskFile, DiskLock, ErrorKind, FileInfo, MemoryDisk, OpenMode,
    Operation, Result, Space,
};
use file::{Below, FaultyFile};
use rule::{Call, RuleCount};

/// A disk with faults; clones are handles to the same disk.
#[derive(Clone)]
pub struct FaultyDisk {
    shared: Arc<Shared>,
}

/// Names a rule of one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(usize);

/// An operation that was asked of the disk, logged when it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedOperation {
    /// Its number, from 1, in the order in which operations began.
    pub number: u64,
    /// What was asked.
    pub operation: Operation,
    /// Of which path; a file's is that under which it was opened.
    pub path: PathBuf,
    /// The new name of a rename or link.
    pub other: Option<PathBuf>,
    /// Where in the file; the new length for truncations and reservations.
    pub offset: Option<u64>,
    /// How many bytes were asked for or given.
    pub bytes: usize,
    /// The fault that met it.
    pub fault: Option<Fault>,
    /// Whether the caller was told of success.
    pub succeeded: bool,
}

struct Shared {
    below: Arc<dyn Disk>,
    /// The disk below once more, when it is one whose failed syncs can lose writes.
    memory: Option<MemoryDisk>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    operations: u64,
    faults: u64,
    fail_number: Option<u64>,
    rules: BTreeMap<RuleId, RuleCount>,
    rules_added: usize,
    log: Vec<LoggedOperation>,
    /// The mark shared by the handles of a file, by the name it has now.
    suspects: BTreeMap<PathBuf, Weak<AtomicBool>>,
}

impl FaultyDisk {
    /// Wraps a disk. For a [`MemoryDisk`] prefer [`FaultyDisk::over_memory`].
    pub fn new(below: Arc<dyn Disk>) -> Self {
        Self::wrap(below, None)
    }

    /// Wraps a disk in memory, whose unsynced writes a failed sync loses.
    pub fn over_memory(memory: &MemoryDisk) -> Self {
        Self::wrap(Arc::new(memory.clone()), Some(memory.clone()))
    }

    fn wrap(below: Arc<dyn Disk>, memory: Option<MemoryDisk>) -> Self {
        Self {
            shared: Arc::new(Shared {
                below,
                memory,
                state: Mutex::default(),
            }),
        }
    }

    /// Adds a rule. Where several apply to an operation, the one added first decides.
    pub fn add_rule(&self, rule: Rule) -> RuleId {
        let mut state = self.shared.state.lock();
        let id = RuleId(state.rules_added);
        state.rules_added += 1;
        state.rules.insert(id, RuleCount::new(rule));
        id
    }

    /// How often a rule has made an operation fail; 0 when it was removed.
    pub fn fired(&self, id: RuleId) -> u64 {
        self.shared
            .state
            .lock()
            .rules
            .get(&id)
            .map_or(0, |count| count.fired)
    }

    /// Removes a rule.
    pub fn remove_rule(&self, id: RuleId) {
        self.shared.state.lock().rules.remove(&id);
    }

    /// Removes all rules and [`FaultyDisk::fail_operation_number`]. Suspect files stay suspect.
    pub fn heal(&self) {
        let mut state = self.shared.state.lock();
        state.rules.clear();
        state.fail_number = None;
    }

    /// Fails the operation of this number with [`ErrorKind::Device`]; numbers start at 1 and count
    /// every operation, reads included. A loop over n ends when a run has no [`FaultyDisk::faults`].
    pub fn fail_operation_number(&self, n: u64) {
        self.shared.state.lock().fail_number = Some(n);
    }

    /// How many operations have begun.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// How many operations have met a fault.
    pub fn faults(&self) -> u64 {
        self.shared.state.lock().faults
    }

    /// The operations since the start or the last [`FaultyDisk::clear_log`], in the order in which
    /// they ended.
    pub fn log(&self) -> Vec<LoggedOperation> {
        self.shared.state.lock().log.clone()
    }

    /// Empties the log; numbers go on.
    pub fn clear_log(&self) {
        self.shared.state.lock().log.clear();
    }
}

impl Shared {
    /// Numbers, fails or does, and logs one operation. `act` is told of the faults that are not plain
    /// errors.
    fn run<T>(&self, call: &Call<'_>, act: impl FnOnce(Option<Fault>) -> Result<T>) -> Result<T> {
        let (number, fault) = self.state.lock().begin(call);
        let injected = |kind| {
            let error = DiskError::new(call.operation, call.path, kind, "injected");
            Err(call.offset.into_iter().fold(error, DiskError::at))
        };
        let result = match fault {
            Some(Fault::Error(kind)) => injected(kind),
            Some(Fault::NotCached) => injected(ErrorKind::WouldBlock),
            other => act(other),
        };
        self.state.lock().log.push(LoggedOperation {
            number,
            operation: call.operation,
            path: call.path.to_owned(),
            other: call.other.map(Path::to_owned),
            offset: call.offset,
            bytes: call.bytes,
            fault,
            succeeded: result.is_ok(),
        });
        result
    }

    /// The mark that a new handle of a file shares with the others.
    fn suspect_mark(&self, path: &Path) -> Arc<AtomicBool> {
        let mut state = self.state.lock();
        if let Some(mark) = state.suspects.get(path).and_then(Weak::upgrade) {
            return mark;
        }
        let mark = Arc::default();
        state
            .suspects
            .insert(path.to_owned(), Arc::downgrade(&mark));
        mark
    }

    /// Later handles of a suspect file start anew. The file may have another name by now.
    fn forget(&self, path: &Path, mark: &Arc<AtomicBool>) {
        let mut state = self.state.lock();
        state.suspects.remove(path);
        state
            .suspects
            .retain(|_, it| it.as_ptr() != Arc::as_ptr(mark));
    }
}

impl State {
    fn begin(&mut self, call: &Call<'_>) -> (u64, Option<Fault>) {
        self.operations += 1;
        let by_rule = self
            .rules
            .values_mut()
            .fold(None, |first, it| first.or(it.meet(call)));
        let by_number = self.fail_number.filter(|n| *n == self.operations);
        let fault = by_number
            .map(|_| Fault::Error(ErrorKind::Device))
            .or(by_rule);
        self.faults += u64::from(fault.is_some());
        (self.operations, fault)
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        let below = self.shared.run(&Call::new(Operation::Open, path), |_| {
            Ok(match &self.shared.memory {
                Some(memory) => Below::Memory(memory.open_file(path, mode)?),
                None => Below::Any(self.shared.below.open(path, mode)?),
            })
        })?;
        let suspect = self.shared.suspect_mark(path);
        Ok(Arc::new(FaultyFile {
            shared: Arc::clone(&self.shared),
            below,
            suspect,
        }))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        let call = Call::new(Operation::CreateDirectory, path);
        self.shared
            .run(&call, |_| self.shared.below.create_directory(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.shared.run(&Call::new(Operation::List, path), |_| {
            self.shared.below.list(path)
        })
    }

    fn info(&self, path: &Path) -> Result<Option<FileInfo>> {
        self.shared.run(&Call::new(Operation::Info, path), |_| {
            self.shared.below.info(path)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut call = Call::new(Operation::Rename, from);
        call.other = Some(to);
        self.shared
            .run(&call, |_| self.shared.below.rename(from, to))?;
        let mut state = self.shared.state.lock();
        state.suspects.remove(to);
        if let Some(mark) = state.suspects.remove(from) {
            state.suspects.insert(to.to_owned(), mark);
        }
        Ok(())
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<()> {
        let mut call = Call::new(Operation::Link, existing);
        call.other = Some(new);
        self.shared
            .run(&call, |_| self.shared.below.link(existing, new))?;
        let mut state = self.shared.state.lock();
        if let Some(mark) = state.suspects.get(existing).cloned() {
            state.suspects.insert(new.to_owned(), mark);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let call = Call::new(Operation::Remove, path);
        self.shared
            .run(&call, |_| self.shared.below.remove_file(path))?;
        self.shared.state.lock().suspects.remove(path);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let call = Call::new(Operation::Remove, path);
        self.shared
            .run(&call, |_| self.shared.below.remove_directory(path))?;
        self.shared
            .state
            .lock()
            .suspects
            .retain(|below, _| !below.starts_with(path));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let call = Call::new(Operation::SyncDirectory, path);
        self.shared
            .run(&call, |_| self.shared.below.sync_directory(path))
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DiskLock>> {
        self.shared.run(&Call::new(Operation::Lock, path), |_| {
            self.shared.below.lock(path, holder)
        })
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.shared.run(&Call::new(Operation::Space, path), |_| {
            self.shared.below.space(path)
        })
    }
}

//! A disk with injected failures, around any other disk.
//!
//! It counts and logs every operation, so that a test can fail each in turn, or check an order,
//! such as a sync of the directory before the acknowledgement of a write. Around a [`MemoryDisk`],
//! a failed sync has the same effect as on Linux: the unsynced writes are read as before, but no
//! later sync makes them durable.

mod file;
mod rule;
mod shared;

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

pub use rule::{Fault, Rule};
pub use shared::{LoggedOperation, RuleId};

use crate::{
    DirectoryEntry, Disk, DiskFile, DiskLock, FileInfo, MemoryDisk, OpenMode, Operation, Result,
    Space,
};
use file::{Below, FaultyFile};
use rule::{Call, RuleCount};
use shared::Shared;

/// A disk with faults; clones are handles to the same disk.
#[derive(Clone)]
pub struct FaultyDisk {
    shared: Arc<Shared>,
}

impl FaultyDisk {
    /// Wraps a disk. For a [`MemoryDisk`] prefer [`FaultyDisk::over_memory`].
    pub fn new(below: Arc<dyn Disk>) -> Self {
        Self::wrap(below, None)
    }

    /// Wraps a disk in memory. A failed sync loses its unsynced writes.
    pub fn over_memory(memory: &MemoryDisk) -> Self {
        Self::wrap(Arc::new(memory.clone()), Some(memory.clone()))
    }

    /// Performs an operation on the disk below, unless a rule makes it fail.
    fn forward<T>(
        &self,
        operation: Operation,
        path: &Path,
        act: impl FnOnce(&dyn Disk) -> Result<T>,
    ) -> Result<T> {
        let call = Call::new(operation, path);
        self.shared.run(&call, |_| act(&*self.shared.below))
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

    /// Adds a rule. If several rules apply to an operation, the first one added decides.
    pub fn add_rule(&self, rule: Rule) -> RuleId {
        let mut state = self.shared.state.lock();
        let id = RuleId(state.rules_added);
        state.rules_added += 1;
        state.rules.insert(id, RuleCount::new(rule));
        id
    }

    /// The number of operations that a rule has made fail; 0 if the rule was removed.
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

    /// Fails the operation with this number with [`crate::ErrorKind::Device`]. Numbers start at 1
    /// and include reads. A loop over n ends when a run has no [`FaultyDisk::faults`].
    pub fn fail_operation_number(&self, n: u64) {
        self.shared.state.lock().fail_number = Some(n);
    }

    /// The number of operations that have begun.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// The number of operations that have met a fault.
    pub fn faults(&self) -> u64 {
        self.shared.state.lock().faults
    }

    /// The operations since the start or the last [`FaultyDisk::clear_log`], in the order of their
    /// ends.
    pub fn log(&self) -> Vec<LoggedOperation> {
        self.shared.state.lock().log.clone()
    }

    /// Empties the log; numbers continue.
    pub fn clear_log(&self) {
        self.shared.state.lock().log.clear();
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
        self.forward(Operation::CreateDirectory, path, |below| {
            below.create_directory(path)
        })
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.forward(Operation::List, path, |below| below.list(path))
    }

    fn info(&self, path: &Path) -> Result<Option<FileInfo>> {
        self.forward(Operation::Info, path, |below| below.info(path))
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
        self.forward(Operation::Remove, path, |below| below.remove_file(path))?;
        self.shared.state.lock().suspects.remove(path);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let remove = |below: &dyn Disk| below.remove_directory(path);
        self.forward(Operation::Remove, path, remove)?;
        self.shared
            .state
            .lock()
            .suspects
            .retain(|below, _| !below.starts_with(path));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let call = Call::new(Operation::SyncDirectory, path);
        self.shared.run(&call, |fault| match fault {
            Some(Fault::Forgotten) => Ok(()),
            _ => self.shared.below.sync_directory(path),
        })
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DiskLock>> {
        self.forward(Operation::Lock, path, |below| below.lock(path, holder))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.forward(Operation::Space, path, |below| below.space(path))
    }
}

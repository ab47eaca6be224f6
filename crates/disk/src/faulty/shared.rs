//! The shared state of all handles of a faulty disk: the disk below, the rules, the log and the
//! suspect files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::rule::{Call, Fault, RuleCount};
use crate::{Disk, DiskError, ErrorKind, MemoryDisk, Operation, Result};

/// Identifies a rule of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(pub(super) usize);

/// An operation on the disk, logged when it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedOperation {
    /// Its number, from 1, in the order in which operations began.
    pub number: u64,
    /// The operation.
    pub operation: Operation,
    /// Its path; for a file, the path at its opening.
    pub path: PathBuf,
    /// The new name of a rename or link.
    pub other: Option<PathBuf>,
    /// The offset in the file; the new length for truncations and reservations.
    pub offset: Option<u64>,
    /// The number of bytes requested or passed.
    pub bytes: usize,
    /// True for a read that must not wait for a device.
    pub is_cached_read: bool,
    /// The fault that hit it.
    pub fault: Option<Fault>,
    /// True if the operation returned success.
    pub succeeded: bool,
}

pub(super) struct Shared {
    pub(super) below: Arc<dyn Disk>,
    /// The disk below again, if its failed syncs can lose writes.
    pub(super) memory: Option<MemoryDisk>,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) operations: u64,
    pub(super) faults: u64,
    pub(super) fail_number: Option<u64>,
    pub(super) rules: BTreeMap<RuleId, RuleCount>,
    pub(super) rules_added: usize,
    pub(super) log: Vec<LoggedOperation>,
    /// The marks that handles of a file share, by the file's present name.
    pub(super) suspects: BTreeMap<PathBuf, Weak<AtomicBool>>,
}

impl Shared {
    /// Numbers one operation, does it or fails it, and logs it. `act` gets the faults that are not
    /// plain errors.
    pub(super) fn run<T>(
        &self,
        call: &Call<'_>,
        act: impl FnOnce(Option<Fault>) -> Result<T>,
    ) -> Result<T> {
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
            is_cached_read: call.is_cached_read,
            fault,
            succeeded: result.is_ok(),
        });
        result
    }

    /// The mark that a new handle of a file shares with the others.
    pub(super) fn suspect_mark(&self, path: &Path) -> Arc<AtomicBool> {
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

    /// Removes a mark, so that later handles of a suspect file start again. The file may have
    /// another name by now.
    pub(super) fn forget(&self, path: &Path, mark: &Arc<AtomicBool>) {
        let mut state = self.state.lock();
        state.suspects.remove(path);
        state
            .suspects
            .retain(|_, it| it.as_ptr() != Arc::as_ptr(mark));
    }
}

impl State {
    pub(super) fn begin(&mut self, call: &Call<'_>) -> (u64, Option<Fault>) {
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

//! An open file and a held lock of the disk in memory.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::content::{Change, FileNode};
use super::state::{Shared, State};
use crate::{DiskError, DiskFile, DiskLock, ErrorKind, Operation, Reading, Result};

/// A file of a [`super::MemoryDisk`], open until its disk crashes.
pub(crate) struct MemoryFile {
    shared: Arc<Shared>,
    node: Arc<FileNode>,
    path: PathBuf,
    generation: u64,
    writable: bool,
}

impl MemoryFile {
    pub(super) fn new(
        shared: &Arc<Shared>,
        node: Arc<FileNode>,
        path: &Path,
        writable: bool,
    ) -> Self {
        node.hold();
        let generation = shared.generation.load(Ordering::Acquire);
        Self {
            shared: Arc::clone(shared),
            node,
            path: path.to_owned(),
            generation,
            writable,
        }
    }

    /// The effect of a failed sync on the file: unsynced writes are read as before, and are never
    /// durable.
    pub(crate) fn forget_unsynced(&self) {
        self.node.content.lock().forget_unsynced();
    }

    fn error(&self, operation: Operation, kind: ErrorKind, detail: &str) -> DiskError {
        DiskError::new(operation, &self.path, kind, detail)
    }

    fn check_alive(&self, operation: Operation) -> Result<()> {
        if self.shared.generation.load(Ordering::Acquire) == self.generation {
            return Ok(());
        }
        Err(self.error(
            operation,
            ErrorKind::Device,
            "the handle is from before the crash",
        ))
    }

    fn change(&self, operation: Operation, change: Change) -> Result<()> {
        if !self.writable {
            return Err(self.error(operation, ErrorKind::Denied, "opened for reading"));
        }
        let mut state = self.shared.state.lock();
        self.check_alive(operation)?;
        state.check_power(operation, &self.path)?;
        let len = self.node.content.lock().current.len();
        let taken = |len| state.used.of_file(len);
        let growth = taken(change.len_after(len)).saturating_sub(taken(len));
        if growth > state.available() {
            return Err(self.error(operation, ErrorKind::NoSpace, ""));
        }
        state.operations += 1;
        self.node.change(change);
        Ok(())
    }

    fn size(&self, operation: Operation, bytes: u64) -> Result<usize> {
        usize::try_from(bytes).map_err(|_| self.error(operation, ErrorKind::NoSpace, ""))
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.node.release();
    }
}

impl DiskFile for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        self.check_alive(Operation::Info)?;
        Ok(self.node.content.lock().current.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64, _reading: Reading) -> Result<usize> {
        self.check_alive(Operation::Read)?;
        let content = self.node.content.lock();
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = content.current.get(offset..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let offset = self.size(Operation::Write, offset)?;
        self.change(
            Operation::Write,
            Change::Write {
                offset,
                bytes: bytes.to_vec(),
            },
        )
    }

    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let offset = self.size(Operation::Write, offset)?;
        let bytes = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.change(Operation::Write, Change::Write { offset, bytes })
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        self.check_alive(Operation::Sync)?;
        state.check_power(Operation::Sync, &self.path)?;
        state.operations += 1;
        self.node.content.lock().sync();
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let len = self.size(Operation::Truncate, len)?;
        self.change(Operation::Truncate, Change::Truncate { len })
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let len = self.size(Operation::Allocate, len)?;
        self.change(Operation::Allocate, Change::Reserve { len })
    }
}

/// A lock, which a crash releases too.
pub(super) struct MemoryLock {
    shared: Arc<Shared>,
    node: Arc<FileNode>,
    generation: u64,
}

impl MemoryLock {
    /// Takes the lock, unless the file is locked already.
    pub(super) fn take(
        shared: &Arc<Shared>,
        state: &mut State,
        node: Arc<FileNode>,
    ) -> Option<Self> {
        let generation = shared.generation.load(Ordering::Acquire);
        let taken = state.locks.insert(node.id);
        taken.then(|| Self {
            shared: Arc::clone(shared),
            node,
            generation,
        })
    }
}

impl DiskLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if self.shared.generation.load(Ordering::Acquire) == self.generation {
            state.locks.remove(&self.node.id);
        }
    }
}

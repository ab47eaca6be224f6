//! A disk in memory that records which data are durable, and can lose power at any operation.
//!
//! Every file keeps its durable bytes apart from the unsynced writes, and every directory its
//! durable names apart from the unsynced creations, renames, links and removals. A crash draws the
//! surviving unsynced changes. The disk is stricter than known filesystems: a sync of a file does
//! not make its name durable, and a sync of a directory commits nothing outside it. So code that is
//! correct here is correct on ext4 and XFS.
//!
//! To sweep a script over all its crash points: run it once and call [`MemoryDisk::operations`];
//! then, for each lower n, run it on a new disk after [`MemoryDisk::cut_after`], and open the
//! result of [`MemoryDisk::crash_image`].

mod content;
mod crash;
mod file;
mod names;
mod state;
mod survey;
mod used;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub use crash::{CrashOptions, DataSurvival, NameSurvival};
pub(crate) use file::MemoryFile;

use crate::{
    DirectoryEntry, Disk, DiskError, DiskFile, DiskLock, EntryKind, ErrorKind, FileInfo, OpenMode,
    Operation, Result, Space,
};
use file::MemoryLock;
use names::{Edit, Node, ROOT, Tree};
use state::{Shared, State, names_of, wrong_kind};
use used::Used;

/// The default size of a disk: enough for tests, and a limit for wrong offsets.
const CAPACITY_BYTES: u64 = 4 << 30;

/// A disk in memory; clones are handles to the same disk.
#[derive(Clone)]
pub struct MemoryDisk {
    shared: Arc<Shared>,
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryDisk {
    /// An empty disk of 4 GiB.
    pub fn new() -> Self {
        Self::with_capacity(CAPACITY_BYTES)
    }

    /// An empty disk for `bytes` of file content. Further writes fail with [`ErrorKind::NoSpace`]
    /// until files are removed or cut.
    pub fn with_capacity(bytes: u64) -> Self {
        Self::with_blocks(bytes, 1)
    }

    /// An empty disk of `bytes`, on which files take whole blocks. The space of a file is free
    /// again when the file has neither a name nor a handle.
    pub fn with_blocks(bytes: u64, block_bytes: u64) -> Self {
        Self::from_tree(Tree::new(), bytes, Used::new(block_bytes))
    }

    fn from_tree(tree: Tree, capacity: u64, used: Arc<Used>) -> Self {
        let state = State {
            tree,
            operations: 0,
            cut_after: None,
            locks: BTreeSet::new(),
            capacity,
            used,
        };
        let shared = Shared {
            state: Mutex::new(state),
            generation: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The number of operations that have changed the disk: each write, sync, truncation,
    /// reservation, and each name created, renamed, linked or removed. Removing a directory counts
    /// once for each name.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// Cuts the power after the operation with this number, as counted by
    /// [`MemoryDisk::operations`]: every later change fails with [`ErrorKind::Device`] and has no
    /// effect. Reads continue.
    pub fn cut_after(&self, operations: u64) {
        self.shared.state.lock().cut_after = Some(operations);
    }

    /// True when changes fail because the power is cut.
    pub fn is_cut(&self) -> bool {
        let state = self.shared.state.lock();
        state.cut_after.is_some_and(|cut| state.operations >= cut)
    }

    /// The disk as another machine would find it if the power failed now. This disk continues.
    #[must_use]
    pub fn crash_image(&self, options: CrashOptions) -> Self {
        let state = self.shared.state.lock();
        let (tree, used) = survey::survey(&state.tree, &state.used, options);
        Self::from_tree(tree, state.capacity, used)
    }

    /// Crashes this disk in place: the surviving data remain, the power is back, locks are
    /// released, and files opened before fail with [`ErrorKind::Device`]. The operation counter
    /// continues.
    pub fn crash(&self, options: CrashOptions) {
        let mut state = self.shared.state.lock();
        let (tree, used) = survey::survey(&state.tree, &state.used, options);
        state.tree = tree;
        state.used = used;
        state.cut_after = None;
        state.locks.clear();
        self.shared.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// As [`Disk::open`], for code in this crate that needs the file's own type.
    pub(crate) fn open_file(&self, path: &Path, mode: OpenMode) -> Result<MemoryFile> {
        let mut state = self.shared.state.lock();
        let node = state.open(path, mode)?;
        Ok(MemoryFile::new(
            &self.shared,
            node,
            path,
            mode != OpenMode::Read,
        ))
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.open_file(path, mode)?))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        let operation = Operation::CreateDirectory;
        let mut state = self.shared.state.lock();
        let mut directory = ROOT;
        for name in names_of(operation, path)? {
            directory = match state.tree.get(directory, name) {
                Some(Node::Directory(id)) => *id,
                Some(Node::File(_)) => {
                    return Err(DiskError::new(
                        operation,
                        path,
                        ErrorKind::AlreadyExists,
                        name,
                    ));
                }
                None => {
                    state.check_power(operation, path)?;
                    let id = state.tree.add_directory();
                    let node = Some(Node::Directory(id));
                    let edits = vec![Edit {
                        directory,
                        name: name.to_owned(),
                        node,
                    }];
                    state.change(operation, path, directory, edits)?;
                    id
                }
            };
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let state = self.shared.state.lock();
        let directory = state.directory(Operation::List, path)?;
        let entry = |(name, node): (&String, &Node)| {
            let kind = match node {
                Node::File(_) => EntryKind::File,
                Node::Directory(_) => EntryKind::Directory,
            };
            DirectoryEntry {
                name: name.clone(),
                kind,
            }
        };
        Ok(state
            .tree
            .names(directory)
            .into_iter()
            .flatten()
            .map(entry)
            .collect())
    }

    fn info(&self, path: &Path) -> Result<Option<FileInfo>> {
        let state = self.shared.state.lock();
        Ok(state
            .tree
            .find(&names_of(Operation::Info, path)?)
            .map(|node| match node {
                Node::Directory(_) => FileInfo {
                    kind: EntryKind::Directory,
                    len: 0,
                },
                Node::File(file) => {
                    let len = file.content.lock().current.len() as u64;
                    FileInfo {
                        kind: EntryKind::File,
                        len,
                    }
                }
            }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let operation = Operation::Rename;
        let mut state = self.shared.state.lock();
        let moved = state.existing(operation, from)?;
        let (old_directory, old_name) = state.holder(operation, from)?;
        let (directory, name) = state.holder(operation, to)?;
        if (old_directory, &old_name) == (directory, &name) {
            return Ok(());
        }
        match (&moved, state.tree.get(directory, &name)) {
            // With two names of one file, POSIX leaves both.
            (Node::File(moved), Some(Node::File(there))) if moved.id == there.id => return Ok(()),
            (Node::Directory(moved), _) if state.tree.is_within(directory, *moved) => {
                return Err(wrong_kind(operation, to, "a directory into itself"));
            }
            (_, None) | (Node::File(_), Some(Node::File(_))) => {}
            (Node::Directory(_), Some(Node::Directory(id)))
                if state.tree.names(*id).is_none_or(BTreeMap::is_empty) => {}
            (Node::Directory(_), Some(Node::Directory(_))) => {
                return Err(wrong_kind(
                    operation,
                    to,
                    "the directory there is not empty",
                ));
            }
            _ => return Err(wrong_kind(operation, to, "a file and a directory")),
        }
        let old = Edit {
            directory: old_directory,
            name: old_name,
            node: None,
        };
        let new = Edit {
            directory,
            name,
            node: Some(moved),
        };
        state.change(operation, from, directory, vec![old, new])
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<()> {
        let operation = Operation::Link;
        let mut state = self.shared.state.lock();
        let node = match state.existing(operation, existing)? {
            node @ Node::File(_) => Some(node),
            Node::Directory(_) => return Err(wrong_kind(operation, existing, "is a directory")),
        };
        let (directory, name) = state.holder(operation, new)?;
        if state.tree.get(directory, &name).is_some() {
            return Err(DiskError::bare(operation, new, ErrorKind::AlreadyExists));
        }
        state.change(
            operation,
            new,
            directory,
            vec![Edit {
                directory,
                name,
                node,
            }],
        )
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut state = self.shared.state.lock();
        if let Node::Directory(_) = state.existing(Operation::Remove, path)? {
            return Err(wrong_kind(Operation::Remove, path, "is a directory"));
        }
        let (directory, name) = state.holder(Operation::Remove, path)?;
        let edits = vec![Edit {
            directory,
            name,
            node: None,
        }];
        state.change(Operation::Remove, path, directory, edits)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let mut state = self.shared.state.lock();
        state.directory(Operation::Remove, path)?;
        let (directory, name) = state.holder(Operation::Remove, path)?;
        state.remove_all(path, directory, name)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let mut state = self.shared.state.lock();
        let directory = state.directory(Operation::SyncDirectory, path)?;
        state.check_power(Operation::SyncDirectory, path)?;
        state.operations += 1;
        state.tree.sync(directory);
        Ok(())
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DiskLock>> {
        let file = self.open_file(path, OpenMode::Create)?;
        let lock = {
            let mut state = self.shared.state.lock();
            let node = state.open(path, OpenMode::Create)?;
            MemoryLock::take(&self.shared, &mut state, node)
        };
        let Some(lock) = lock else {
            let held_by = crate::read_file(self, path, 4096)?;
            let held_by = String::from_utf8_lossy(&held_by);
            return Err(DiskError::new(
                Operation::Lock,
                path,
                ErrorKind::Locked,
                held_by,
            ));
        };
        file.truncate(0)?;
        match file.write_at(holder.as_bytes(), 0) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            written => written?,
        }
        Ok(Box::new(lock))
    }

    fn space(&self, _path: &Path) -> Result<Space> {
        let state = self.shared.state.lock();
        Ok(Space {
            total: state.capacity,
            available: state.available(),
        })
    }
}

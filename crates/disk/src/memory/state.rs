//! The shared state of all handles of a disk in memory: its tree, its counts, and its power.

use std::collections::BTreeSet;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use super::content::{Content, FileNode};
use super::names::{DirectoryId, Edit, Node, Tree};
use super::used::Used;
use crate::{DiskError, ErrorKind, OpenMode, Operation, Result};

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Counts crashes in place. A handle of another generation is stale.
    pub(super) generation: AtomicU64,
}

pub(super) struct State {
    pub(super) tree: Tree,
    pub(super) operations: u64,
    pub(super) cut_after: Option<u64>,
    /// The locked files, by their identities.
    pub(super) locks: BTreeSet<u64>,
    pub(super) capacity: u64,
    pub(super) used: Arc<Used>,
}

impl State {
    pub(super) fn check_power(&self, operation: Operation, path: &Path) -> Result<()> {
        if self.cut_after.is_some_and(|cut| self.operations >= cut) {
            return Err(DiskError::new(
                operation,
                path,
                ErrorKind::Device,
                "power lost",
            ));
        }
        Ok(())
    }

    pub(super) fn available(&self) -> u64 {
        self.capacity.saturating_sub(self.used.bytes())
    }

    /// Makes one numbered change of names.
    pub(super) fn change(
        &mut self,
        operation: Operation,
        path: &Path,
        home: DirectoryId,
        edits: Vec<Edit>,
    ) -> Result<()> {
        self.check_power(operation, path)?;
        self.operations += 1;
        self.tree.change(home, edits);
        Ok(())
    }

    /// Returns the node of a path, which must exist.
    pub(super) fn existing(&self, operation: Operation, path: &Path) -> Result<Node> {
        let found = self.tree.find(&names_of(operation, path)?);
        found.ok_or_else(|| DiskError::bare(operation, path, ErrorKind::NotFound))
    }

    /// The directory that a path names.
    pub(super) fn directory(&self, operation: Operation, path: &Path) -> Result<DirectoryId> {
        match self.existing(operation, path)? {
            Node::Directory(id) => Ok(id),
            Node::File(_) => Err(wrong_kind(operation, path, "not a directory")),
        }
    }

    /// The directory of a path's last name, and the name.
    pub(super) fn holder(
        &self,
        operation: Operation,
        path: &Path,
    ) -> Result<(DirectoryId, String)> {
        let names = names_of(operation, path)?;
        let Some((name, above)) = names.split_last() else {
            return Err(wrong_kind(operation, path, "is the root"));
        };
        match self.tree.find(above) {
            Some(Node::Directory(id)) => Ok((id, (*name).to_owned())),
            Some(Node::File(_)) => Err(wrong_kind(operation, path, "below a file")),
            None => Err(DiskError::bare(operation, path, ErrorKind::NotFound)),
        }
    }

    pub(super) fn open(&mut self, path: &Path, mode: OpenMode) -> Result<Arc<FileNode>> {
        let (directory, name) = self.holder(Operation::Open, path)?;
        match (self.tree.get(directory, &name), mode) {
            (Some(_), OpenMode::CreateNew) => Err(DiskError::bare(
                Operation::Open,
                path,
                ErrorKind::AlreadyExists,
            )),
            (Some(Node::File(file)), _) => Ok(Arc::clone(file)),
            (Some(Node::Directory(_)), _) => {
                Err(wrong_kind(Operation::Open, path, "is a directory"))
            }
            (None, OpenMode::Read | OpenMode::ReadWrite) => {
                Err(DiskError::bare(Operation::Open, path, ErrorKind::NotFound))
            }
            (None, OpenMode::CreateNew | OpenMode::Create) => {
                let file = FileNode::new(self.tree.mint_id(), Content::default(), &self.used);
                let node = Some(Node::File(Arc::clone(&file)));
                self.change(
                    Operation::Open,
                    path,
                    directory,
                    vec![Edit {
                        directory,
                        name,
                        node,
                    }],
                )?;
                Ok(file)
            }
        }
    }

    /// Removes everything below a name and then the name, with one operation each.
    pub(super) fn remove_all(
        &mut self,
        path: &Path,
        directory: DirectoryId,
        name: String,
    ) -> Result<()> {
        if let Some(Node::Directory(id)) = self.tree.get(directory, &name).cloned() {
            let below: Vec<String> = self
                .tree
                .names(id)
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect();
            for name in below {
                self.remove_all(path, id, name)?;
            }
        }
        let edits = vec![Edit {
            directory,
            name,
            node: None,
        }];
        self.change(Operation::Remove, path, directory, edits)
    }
}

/// The names of a path, from the root; the root has none.
pub(super) fn names_of(operation: Operation, path: &Path) -> Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
            Component::ParentDir => {
                names.pop();
            }
            Component::Normal(name) => {
                let name = name.to_str().ok_or_else(|| {
                    DiskError::new(operation, path, ErrorKind::Denied, "the name is not UTF-8")
                })?;
                names.push(name);
            }
        }
    }
    Ok(names)
}

pub(super) fn wrong_kind(operation: Operation, path: &Path, detail: &str) -> DiskError {
    DiskError::new(operation, path, ErrorKind::Device, detail)
}

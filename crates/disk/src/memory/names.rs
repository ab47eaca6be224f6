//! The directories of a disk in memory: the names that programs see, the durable names, and the
//! changes between the two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::content::FileNode;
use super::crash::{Draw, NameSurvival};

pub(super) type DirectoryId = u64;
pub(super) type Names = BTreeMap<String, Node>;

/// The root directory, which exists from the start.
pub(super) const ROOT: DirectoryId = 0;

/// Kinds of nodes behind a name.
#[derive(Clone)]
pub(super) enum Node {
    File(Arc<FileNode>),
    Directory(DirectoryId),
}

/// One name set to a node or removed.
#[derive(Clone)]
pub(super) struct Edit {
    pub(super) directory: DirectoryId,
    pub(super) name: String,
    pub(super) node: Option<Node>,
}

/// Edits that happen together or not at all. A rename has two, other changes have one.
struct NameChange {
    /// The directory whose sync makes the change durable; for a rename, the new name's directory.
    home: DirectoryId,
    edits: Vec<Edit>,
}

#[derive(Default)]
struct Directory {
    durable: Names,
    current: Names,
}

/// All directories.
pub(super) struct Tree {
    directories: BTreeMap<DirectoryId, Directory>,
    unsynced: Vec<NameChange>,
    next_id: u64,
}

impl Tree {
    pub(super) fn new() -> Self {
        Self {
            directories: BTreeMap::from([(ROOT, Directory::default())]),
            unsynced: Vec::new(),
            next_id: ROOT + 1,
        }
    }

    /// An identity for a new file or directory.
    pub(super) fn mint_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Adds a directory without a name.
    pub(super) fn add_directory(&mut self) -> DirectoryId {
        let id = self.mint_id();
        self.directories.insert(id, Directory::default());
        id
    }

    /// Sets the names of a directory after a crash, all of which are durable.
    pub(super) fn set_durable(&mut self, directory: DirectoryId, names: Names) {
        for node in names.values() {
            if let Node::File(file) = node {
                file.hold();
            }
        }
        let found = Directory {
            durable: names.clone(),
            current: names,
        };
        self.directories.insert(directory, found);
    }

    /// The names in a directory as programs see them.
    pub(super) fn names(&self, directory: DirectoryId) -> Option<&Names> {
        self.directories.get(&directory).map(|found| &found.current)
    }

    /// The node of one name in a directory.
    pub(super) fn get(&self, directory: DirectoryId, name: &str) -> Option<&Node> {
        self.names(directory)?.get(name)
    }

    /// Follows names from the root.
    pub(super) fn find(&self, names: &[&str]) -> Option<Node> {
        let mut node = Node::Directory(ROOT);
        for name in names {
            let Node::Directory(directory) = node else {
                return None;
            };
            node = self.get(directory, name)?.clone();
        }
        Some(node)
    }

    /// True when `directory` is `above` or below it.
    pub(super) fn is_within(&self, directory: DirectoryId, above: DirectoryId) -> bool {
        let below = |node: &Node| match node {
            Node::File(_) => false,
            Node::Directory(id) => self.is_within(directory, *id),
        };
        directory == above
            || self
                .names(above)
                .is_some_and(|names| names.values().any(below))
    }

    /// Changes names at once for programs, and for the device when `home` is synced.
    pub(super) fn change(&mut self, home: DirectoryId, edits: Vec<Edit>) {
        for edit in &edits {
            if let Some(directory) = self.directories.get_mut(&edit.directory) {
                // Held before the other name of a rename is removed.
                if let Some(Node::File(file)) = &edit.node {
                    file.hold();
                }
                if let Some(Node::File(file)) = apply(edit, &mut directory.current) {
                    file.release();
                }
            }
        }
        self.unsynced.push(NameChange { home, edits });
    }

    /// Makes the names in a directory durable, with all earlier changes of the same names: a state
    /// of a name is never durable without the changes that led to it.
    pub(super) fn sync(&mut self, directory: DirectoryId) {
        let mut needed: BTreeSet<(DirectoryId, String)> = BTreeSet::new();
        let mut synced = Vec::new();
        let mut rest = Vec::new();
        for change in std::mem::take(&mut self.unsynced).into_iter().rev() {
            let mut touched = change
                .edits
                .iter()
                .map(|it| (it.directory, it.name.clone()));
            if change.home == directory || touched.any(|it| needed.contains(&it)) {
                needed.extend(
                    change
                        .edits
                        .iter()
                        .map(|it| (it.directory, it.name.clone())),
                );
                synced.push(change);
            } else {
                rest.push(change);
            }
        }
        rest.reverse();
        self.unsynced = rest;
        for edit in synced.iter().rev().flat_map(|change| &change.edits) {
            if let Some(directory) = self.directories.get_mut(&edit.directory) {
                let _replaced = apply(edit, &mut directory.durable);
            }
        }
        self.drop_unreachable();
    }

    /// Drops directories that neither programs nor the device can reach.
    fn drop_unreachable(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        for edit in self.unsynced.iter().flat_map(|change| &change.edits) {
            open.push(edit.directory);
            reached.insert(edit.directory);
            if let Some(Node::Directory(id)) = edit.node
                && reached.insert(id)
            {
                open.push(id);
            }
        }
        while let Some(id) = open.pop() {
            let Some(directory) = self.directories.get(&id) else {
                continue;
            };
            for node in directory.durable.values().chain(directory.current.values()) {
                if let Node::Directory(id) = node
                    && reached.insert(*id)
                {
                    open.push(*id);
                }
            }
        }
        self.directories.retain(|id, _| reached.contains(id));
    }

    /// The names that a crash leaves in each directory, reachable or not.
    pub(super) fn survivors(
        &self,
        names: NameSurvival,
        draw: &mut Draw,
    ) -> BTreeMap<DirectoryId, Names> {
        let mut left: BTreeMap<DirectoryId, Names> = self
            .directories
            .iter()
            .map(|(id, it)| (*id, it.durable.clone()))
            .collect();
        let mode = draw.below(4);
        let first = draw.below(self.unsynced.len() + 1);
        let mut lost: BTreeSet<(DirectoryId, &str)> = BTreeSet::new();
        for (number, change) in self.unsynced.iter().enumerate() {
            let chosen = match (names, mode) {
                (NameSurvival::Nothing, _) | (NameSurvival::Drawn, 0) => false,
                (NameSurvival::Everything, _) | (NameSurvival::Drawn, 1) => true,
                (NameSurvival::Drawn, 2) => number < first,
                (NameSurvival::Drawn, _) => draw.coin(),
            };
            let touched = || {
                change
                    .edits
                    .iter()
                    .map(|it| (it.directory, it.name.as_str()))
            };
            if !chosen || touched().any(|it| lost.contains(&it)) {
                lost.extend(touched());
                continue;
            }
            for edit in &change.edits {
                if let Some(names) = left.get_mut(&edit.directory) {
                    apply(edit, names);
                }
            }
        }
        left
    }
}

/// Applies an edit, and returns the old node of the name.
fn apply(edit: &Edit, names: &mut Names) -> Option<Node> {
    match &edit.node {
        Some(node) => names.insert(edit.name.clone(), node.clone()),
        None => names.remove(&edit.name),
    }
}

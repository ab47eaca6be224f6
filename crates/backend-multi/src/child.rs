//! The children of a store, and sets of them.

use std::sync::Arc;

use kvorum_backend::{
    Backend, BackendError, ErrorKind, Lookup, ReadAt, Result, StoreId, StoredEntry, StoredHead,
    Timestamp,
};
use kvorum_encoding::StorageKey;

/// The number of a child in the order of the configuration, from 0.
pub type ChildNumber = usize;

/// The most children of a store: they are numbered in a byte of the subject of a task, and a set of
/// them is a word.
pub(crate) const CHILDREN_MAX: usize = 32;

/// An open part of the store.
#[derive(Clone)]
pub struct Child {
    /// Its name in the configuration, and that of its directory.
    pub name: String,
    /// The store.
    pub store: Arc<dyn Backend>,
    /// The identity of its contents before its last erasure, if there was one; 0 for none.
    pub erased: StoreId,
}

impl Child {
    /// True when its data survives the process.
    pub(crate) fn is_kept(&self) -> bool {
        self.store.capabilities().persistent
    }

    /// The name of its engine.
    pub(crate) fn engine(&self) -> &'static str {
        self.store.status().engine
    }

    /// The head of a key's entry, expired or not. Blocks.
    pub(crate) fn head_of_any_age(&self, key: &StorageKey) -> Result<Option<StoredHead>> {
        let of_any_age = ReadAt::may_block(Timestamp(0));
        self.named(self.store.head(key, of_any_age).map(found))
    }

    /// A key's entry, expired or not. Blocks.
    pub(crate) fn entry_of_any_age(&self, key: &StorageKey) -> Result<Option<StoredEntry>> {
        let of_any_age = ReadAt::may_block(Timestamp(0));
        self.named(self.store.get(key, of_any_age).map(found))
    }

    /// The result of a call to the store; an error names the child.
    pub(crate) fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.name_error(error))
    }

    fn name_error(&self, error: BackendError) -> BackendError {
        let kind = error.kind();
        // A hint to the caller, returned by each read that is not cached.
        if kind == ErrorKind::WouldBlock {
            return error;
        }
        BackendError::new(kind, format!("backend {}: {error}", self.name))
    }
}

/// The result of a read that may block.
fn found<T>(lookup: Lookup<T>) -> Option<T> {
    match lookup {
        Lookup::Found(it) => Some(it),
        Lookup::Absent | Lookup::WouldBlock => None,
    }
}

/// Some children of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChildSet(u32);

impl ChildSet {
    pub(crate) const NONE: Self = Self(0);

    /// The first so many.
    pub(crate) fn all(children: usize) -> Self {
        assert!(children <= CHILDREN_MAX, "{children} children");
        (0..children).fold(Self::NONE, Self::with)
    }

    pub(crate) fn with(self, child: ChildNumber) -> Self {
        Self(self.0 | (1 << child))
    }

    pub(crate) fn without(self, child: ChildNumber) -> Self {
        Self(self.0 & !(1 << child))
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In their order.
    pub(crate) fn iter(self) -> impl Iterator<Item = ChildNumber> {
        (0..CHILDREN_MAX).filter(move |child| self.0 & (1 << child) != 0)
    }
}

//! The children of a store, and sets of them.

use std::sync::Arc;

use kvorum_backend::{Backend, BackendError, ErrorKind, Result, StoreId};

/// The number of a child in the order of the configuration, from 0.
pub type ChildNumber = usize;

/// A store has at most so many children: they are numbered in a byte of the subject of a task, and a set of
/// them is a word.
pub(crate) const CHILDREN_MAX: usize = 32;

/// One of the stores that make up a store, open.
#[derive(Clone)]
pub struct Child {
    /// Its name in the configuration, and that of its directory.
    pub name: String,
    /// The store.
    pub store: Arc<dyn Backend>,
    /// The identity of what it had before its last erasure, as it was found; 0 for none.
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

    /// The result of a call to the store; an error names the child.
    pub(crate) fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.name_error(error))
    }

    fn name_error(&self, error: BackendError) -> BackendError {
        let kind = error.kind();
        // A hint to the caller, met at each read that is not cached.
        if kind == ErrorKind::WouldBlock {
            return error;
        }
        BackendError::new(kind, format!("backend {}: {error}", self.name))
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

//! Batches: the unit in which a store changes.

use bytes::Bytes;
use kvorum_encoding::StorageKey;

use crate::{Fields, OldEntry, Tag};

/// Writes that happen together or not at all. Later writes in a batch win over earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The writes, in order.
    pub writes: Vec<Write>,
}

/// The part of the free space that a batch may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It stores an entry, and leaves the reserve alone.
    Store,
    /// It frees space in the end, and may take a part of the reserve.
    Free,
}

impl Purpose {
    /// The purpose of writes, each of which frees space or not. A batch without any writes frees nothing.
    pub fn of(frees: impl IntoIterator<Item = bool>) -> Self {
        let mut frees = frees.into_iter().peekable();
        match frees.peek().is_some() && frees.all(|frees| frees) {
            true => Self::Free,
            false => Self::Store,
        }
    }
}

/// One change to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Stores an entry, in place of the key's former one.
    Put {
        /// The key.
        key: StorageKey,
        /// Fields that folds filter by.
        fields: Fields,
        /// The separately readable part.
        head: Bytes,
        /// The rest.
        body: Bytes,
        /// All index entries of the key from now on, each once; other earlier ones are removed.
        /// Engines without the index facet get none.
        index_entries: Vec<IndexEntry>,
        /// Known facts of the key's present entry.
        old: OldEntry,
    },
    /// Removes a key and its index entries; the key may be absent.
    Remove {
        /// The key.
        key: StorageKey,
        /// Known facts of the key's present entry.
        old: OldEntry,
    },
}

/// An index entry: `field` of the object has `term`. The object is the write's key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexEntry {
    /// The index, such as `age_int`.
    pub field: Bytes,
    /// The term in order-preserving form: byte order is term order.
    pub term: Bytes,
}

impl Batch {
    /// A batch of one write.
    pub fn of(write: Write) -> Self {
        Self {
            writes: vec![write],
        }
    }

    /// The batch's purpose: one with nothing but removals and tombstones frees space.
    pub fn purpose(&self) -> Purpose {
        Purpose::of(self.writes.iter().map(Write::frees))
    }

    /// The bytes of keys, heads and bodies in the batch.
    pub fn payload_bytes(&self) -> u64 {
        self.writes.iter().map(Write::payload_bytes).sum()
    }
}

impl Write {
    /// A put without index entries.
    pub fn put(key: StorageKey, fields: Fields, head: Bytes, body: Bytes) -> Self {
        Self::Put {
            key,
            fields,
            head,
            body,
            index_entries: Vec::new(),
            old: OldEntry::UNKNOWN,
        }
    }

    /// A removal.
    pub fn remove(key: StorageKey) -> Self {
        let old = OldEntry::UNKNOWN;
        Self::Remove { key, old }
    }

    /// The key of the write.
    pub fn key(&self) -> &StorageKey {
        match self {
            Self::Put { key, .. } | Self::Remove { key, .. } => key,
        }
    }

    /// Known facts of the entry that the write replaces.
    pub fn old(&self) -> OldEntry {
        match self {
            Self::Put { old, .. } | Self::Remove { old, .. } => *old,
        }
    }

    /// The key's index entries after the write.
    pub fn index_entries(&self) -> &[IndexEntry] {
        match self {
            Self::Put { index_entries, .. } => index_entries,
            Self::Remove { .. } => &[],
        }
    }

    fn frees(&self) -> bool {
        match self {
            Self::Put { fields, .. } => fields.tag == Tag::TOMBSTONE,
            Self::Remove { .. } => true,
        }
    }

    fn payload_bytes(&self) -> u64 {
        let value_bytes = match self {
            Self::Put { head, body, .. } => head.len() + body.len(),
            Self::Remove { .. } => 0,
        };
        (self.key().as_bytes().len() + value_bytes) as u64
    }
}

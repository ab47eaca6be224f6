//! What a batch changes in a tree, index entries included.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kvorum_backend::{Batch, Fields, IndexCounts, IndexEntry, Reading, Result, Write};
use kvorum_encoding::{KeyRange, StorageKey};

use crate::keyspace::{index_key, object_range_of};
use crate::listing::{decode, encode};

/// A tree that keeps objects and index entries.
pub trait IndexedTree {
    /// One change to the tree.
    type Op;

    /// The object of a key, expired or not.
    ///
    /// # Errors
    /// Those of reading the tree; of kind [`kvorum_backend::ErrorKind::WouldBlock`] where `reading` forbids
    /// to wait. Damage is none: a write over it repairs it.
    fn stored(&self, key: &StorageKey, reading: Reading) -> Result<Stored>;

    /// Changes an object as the write says; `listed` is the list of its index entries.
    fn object_op(&self, write: &Write, listed: Bytes) -> Self::Op;

    /// Puts an index entry that lives and expires as an object with these fields does.
    fn entry_op(&self, key: Bytes, fields: Fields) -> Self::Op;

    /// Removes an index entry.
    fn remove_op(&self, key: Bytes) -> Self::Op;
}

/// An object before a write, as far as its index entries are concerned.
pub enum Stored {
    /// It is there.
    Found {
        /// The list of its index entries.
        listed: Bytes,
        /// Its fields.
        fields: Fields,
    },
    /// There is none.
    Absent,
    /// It may have been there, and damage took it. Its index entries are found later, by reading them all.
    Unknown,
}

/// The changes of a batch.
pub struct Changes<Op> {
    /// In the order of the batch.
    pub ops: Vec<Op>,
    /// What is counted once they are written.
    pub counts: IndexCounts,
    /// Objects whose former index entries are not known.
    pub unknown: Vec<KeyRange>,
}

/// An object's index entries before a write.
#[derive(Clone, Default)]
struct Before {
    entries: BTreeSet<IndexEntry>,
    fields: Option<Fields>,
}

/// Computes what a batch changes.
///
/// `rewrites_all` says that index entries are gone by their own age, so that those which stay have to
/// be written again.
///
/// # Errors
/// Those of [`IndexedTree::stored`].
pub fn changes_of<T: IndexedTree>(
    tree: &T,
    batch: &Batch,
    rewrites_all: bool,
) -> Result<Changes<T::Op>> {
    let mut known: BTreeMap<&StorageKey, Before> = BTreeMap::new();
    let mut changes = Changes {
        ops: Vec::with_capacity(batch.writes.len()),
        counts: plain_counts(batch),
        unknown: Vec::new(),
    };
    for write in &batch.writes {
        let key = write.key();
        let before = match known.remove(key) {
            Some(before) => before,
            None => read_before(tree, write, &mut changes.unknown)?,
        };
        let after = changes.add(tree, write, &before, rewrites_all);
        known.insert(key, after);
    }
    Ok(changes)
}

/// What a batch counts besides its index entries.
pub fn plain_counts(batch: &Batch) -> IndexCounts {
    let is_put = |write: &&Write| matches!(write, Write::Put { .. });
    let puts = batch.writes.iter().filter(is_put).count();
    IndexCounts {
        writes: puts as u64,
        deletes: (batch.writes.len() - puts) as u64,
        ..IndexCounts::default()
    }
}

impl<Op> Changes<Op> {
    /// Adds those of a write; the object's index entries after it.
    fn add<T: IndexedTree<Op = Op>>(
        &mut self,
        tree: &T,
        write: &Write,
        before: &Before,
        rewrites_all: bool,
    ) -> Before {
        let key = write.key();
        let after = Before {
            entries: write.index_entries().iter().cloned().collect(),
            fields: fields_of(write),
        };
        for gone in before.entries.difference(&after.entries) {
            self.ops.push(tree.remove_op(index_key(key, gone)));
            self.counts.postings_deleted += 1;
        }
        let is_new = |entry: &&IndexEntry| !before.entries.contains(entry);
        self.counts.postings_written += after.entries.iter().filter(is_new).count() as u64;
        if let Some(fields) = after.fields {
            let is_as_before = before.fields.map(|it| it.expiry) == Some(fields.expiry);
            let stays = is_as_before && !rewrites_all;
            let written = after.entries.iter().filter(|it| !stays || is_new(it));
            let ops = written.map(|it| tree.entry_op(index_key(key, it), fields));
            self.ops.extend(ops);
        }
        self.ops.push(tree.object_op(write, encode(&after.entries)));
        after
    }
}

fn fields_of(write: &Write) -> Option<Fields> {
    match write {
        Write::Put { fields, .. } => Some(*fields),
        Write::Remove { .. } => None,
    }
}

fn read_before<T: IndexedTree>(
    tree: &T,
    write: &Write,
    unknown: &mut Vec<KeyRange>,
) -> Result<Before> {
    let key = write.key();
    match tree.stored(key, write.old().reading)? {
        Stored::Found { listed, fields } => Ok(Before {
            entries: decode(&listed).unwrap_or_default(),
            fields: Some(fields),
        }),
        Stored::Absent => Ok(Before::default()),
        Stored::Unknown => {
            unknown.push(object_range_of(key));
            Ok(Before::default())
        }
    }
}

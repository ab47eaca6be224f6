//! The changes that a batch makes to a tree, index entries included.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kvorum_backend::{Batch, Fields, IndexCounts, IndexEntry, Result, Write};
use kvorum_encoding::{KeyRange, StorageKey};
use kvorum_ordered_tree::OrderedTree;

use crate::keyspace::{index_key, object_key, object_range_of};
use crate::listing::{decode, encode};
use crate::stored::{Stored, read_stored};

/// The changes of a batch.
pub(crate) struct Changes<Op> {
    /// In the order of the batch.
    pub(crate) ops: Vec<Op>,
    /// The counts for when the changes are written.
    pub(crate) counts: IndexCounts,
    /// Objects with unknown old index entries.
    pub(crate) unknown: Vec<KeyRange>,
}

/// An object's index entries before a write.
#[derive(Clone, Default)]
struct Before {
    entries: BTreeSet<IndexEntry>,
    fields: Option<Fields>,
}

/// Computes the changes of a batch.
///
/// `rewrites_all` means that index entries expire by their own age, so that unchanged entries have
/// to be written again.
pub(crate) fn changes_of<T: OrderedTree>(
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

/// The counts of a batch without its index entries.
pub(crate) fn plain_counts(batch: &Batch) -> IndexCounts {
    let is_put = |write: &&Write| matches!(write, Write::Put { .. });
    let puts = batch.writes.iter().filter(is_put).count();
    IndexCounts {
        writes: puts as u64,
        deletes: (batch.writes.len() - puts) as u64,
        ..IndexCounts::default()
    }
}

impl<Op> Changes<Op> {
    /// Adds the changes of a write; returns the object's new index entries.
    fn add<T: OrderedTree<Op = Op>>(
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
            let ops = written.map(|it| tree.bare_op(index_key(key, it), fields));
            self.ops.extend(ops);
        }
        self.ops
            .push(object_op(tree, write, encode(&after.entries)));
        after
    }
}

fn fields_of(write: &Write) -> Option<Fields> {
    match write {
        Write::Put { fields, .. } => Some(*fields),
        Write::Remove { .. } => None,
    }
}

fn read_before<T: OrderedTree>(
    tree: &T,
    write: &Write,
    unknown: &mut Vec<KeyRange>,
) -> Result<Before> {
    let key = write.key();
    let is_lost = || tree.doubts().opened() > 0 && tree.doubts().is_doubt(&object_range_of(key));
    match read_stored(tree, key, write.old().reading)? {
        Stored::Found(fields, listed) => Ok(Before {
            entries: decode(&listed).unwrap_or_default(),
            fields: Some(fields),
        }),
        Stored::Absent if !is_lost() => Ok(Before::default()),
        // The object may have been lost to damage, and a write over it repairs that. Its old index
        // entries are found later, by reading all entries.
        Stored::Absent | Stored::Damaged => {
            unknown.push(object_range_of(key));
            Ok(Before::default())
        }
    }
}

/// The write's change of its object; `listed` is the list of the object's index entries.
pub(crate) fn object_op<T: OrderedTree>(tree: &T, write: &Write, listed: Bytes) -> T::Op {
    let at = object_key(write.key().as_bytes());
    match write {
        Write::Remove { .. } => tree.remove_op(at),
        Write::Put {
            fields, head, body, ..
        } => tree.put_op(&at, *fields, listed, head, body),
    }
}

//! The indexes of an open tree: writes update them, folds read them, upkeep repairs them.

use std::ops::Bound;

use bytes::Bytes;
use kvorum_backend::{
    BackendError, Batch, Durability, ErrorKind, Flow, FoldEnd, FoldFilter, IndexCounts, IndexRange,
    IndexVisitor, Lease, Receipt, Result, Timestamp,
};
use kvorum_encoding::{KeyRange, StorageKey};
use kvorum_ordered_tree::{
    DoubtKind, OrderedTree, ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView,
};

use crate::changes::{changes_of, object_op, plain_counts};
use crate::counters::IndexCounters;
use crate::keyspace::{IndexKeys, index_range};
use crate::reindexing::Reindexing;

/// See the module.
pub struct Indexes {
    expires_by_age: bool,
    counts: IndexCounters,
    reindexing: Reindexing,
}

impl Indexes {
    /// `expires_by_age` means that entries of the tree, index entries included, expire by their
    /// age.
    pub fn new(expires_by_age: bool) -> Self {
        Self {
            expires_by_age,
            counts: IndexCounters::default(),
            reindexing: Reindexing::default(),
        }
    }

    /// Puts a batch of objects together with their index entries.
    ///
    /// # Errors
    /// Those of [`kvorum_backend::Backend::put`].
    pub fn put<T: OrderedTree>(
        &self,
        tree: &T,
        batch: &Batch,
        durability: Durability,
    ) -> Result<Receipt> {
        let has_entries = || batch.writes.iter().any(|it| !it.index_entries().is_empty());
        if tree.has_extras() || has_entries() {
            return self.put_indexed(tree, batch, durability);
        }
        let writes = batch.writes.iter();
        let ops: Vec<T::Op> = writes.map(|it| object_op(tree, it, Bytes::new())).collect();
        let receipt = tree.put(&ops, durability)?;
        self.counts.add(&plain_counts(batch));
        Ok(receipt)
    }

    /// With indexes a put depends on the old entry, which is read again if it changes meanwhile.
    fn put_indexed<T: OrderedTree>(
        &self,
        tree: &T,
        batch: &Batch,
        durability: Durability,
    ) -> Result<Receipt> {
        loop {
            let guard = tree.guard();
            let changes = changes_of(tree, batch, self.expires_by_age)?;
            let doubt = || tree.open_doubts(DoubtKind::Replaced, &changes.unknown);
            doubt();
            let put = tree.put_if_unchanged(&changes.ops, durability, guard)?;
            if let Some(receipt) = put {
                // Again, since the settling of doubts may have read before the new object existed.
                doubt();
                self.counts.add(&changes.counts);
                return Ok(receipt);
            }
        }
    }

    /// Visits the entries of a range of terms.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] while entries of the range may be missing.
    pub fn fold<T: OrderedTree>(
        &self,
        tree: &T,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd> {
        let keys = IndexKeys::of(range);
        let (from, to) = index_range(range);
        // Compared before the view is taken and after the walk: the view lacks entries that were
        // rebuilt meanwhile.
        let opened = tree.doubts().opened();
        check_undoubted(tree, &from, &to)?;
        let view = tree.view(lease);
        let mut last = StorageKey::from_encoded(Bytes::new());
        let filter = FoldFilter::unexpired(now);
        let end = view.scan(&ScanRange { from, to }, &filter, &mut |shown| {
            let Some((term, key)) = keys.term_and_key(shown.key()) else {
                return ScanStep::Next;
            };
            let flow = visitor(&term, &key);
            last = key;
            match flow {
                Flow::Continue => ScanStep::Next,
                Flow::Stop => ScanStep::Stop,
            }
        })?;
        if tree.has_extras() && tree.doubts().opened() != opened {
            return Err(in_doubt());
        }
        Ok(match end {
            ScanEnd::Complete => FoldEnd::Complete,
            ScanEnd::Stopped => FoldEnd::Stopped(last),
            ScanEnd::LeaseExpired(at) => {
                let key = keys.term_and_key(&at).map_or(last, |(_, key)| key);
                FoldEnd::LeaseExpired(key)
            }
        })
    }

    /// Changes of index entries since the tree was opened.
    pub fn counts(&self) -> IndexCounts {
        self.counts.read()
    }

    /// The upkeep.
    pub fn reindexing(&self) -> &Reindexing {
        &self.reindexing
    }
}

fn check_undoubted<T: OrderedTree>(tree: &T, from: &Bound<Bytes>, to: &Bound<Bytes>) -> Result<()> {
    let range = match (from, to) {
        (Bound::Included(from), Bound::Excluded(to)) => KeyRange {
            from: from.clone(),
            to: Some(to.clone()),
        },
        _ => KeyRange::everything(),
    };
    match tree.has_extras() && tree.doubts().is_in_doubt(&range) {
        true => Err(in_doubt()),
        false => Ok(()),
    }
}

fn in_doubt() -> BackendError {
    let detail = "index entries of this range may be missing: they were lost with a damaged \
     block, and are being rebuilt from their objects";
    BackendError::new(ErrorKind::Corrupt, detail)
}

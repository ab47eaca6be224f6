//! Builds a vnode's trees and corrects their leaves, from the stored entries.

use std::ops::Bound;
use std::sync::Arc;

use kvorum_backend::{FoldClock, FoldDetail, FoldRange, Lease, Status, Visited};
use kvorum_encoding::{SegmentFilter, StorageKey};
use kvorum_object::{Clock, DecodeError, Head};
use kvorum_tictac::{LeafHash, TreeSize, entry_hash};

use crate::hash_trees::{HashTrees, RecountOrder, TreeEntry, TreesStatus};
use crate::kept_trees::OpenedStore;
use crate::page::PageFailure;
use crate::scanning::{ScanLimits, ScanRequest, Scanned};
use crate::stored_form::head_of;
use crate::tree_name::{TreeName, TreePlacing};
use crate::vnode::Vnode;

/// Divisor of a vnode's number of keys, for the expected keys of a tree without a record.
const TREES_EXPECTED: u64 = 3;

/// The result of a step in building the trees of a vnode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStep {
    /// There was nothing to do.
    Idle,
    /// There is more to do.
    Going,
    /// The trees have every entry from now on.
    Built,
}

/// Counts the reported losses and failed reads of a store.
pub(crate) fn losses_of(status: &Status) -> u64 {
    status.corrupt_reads + status.lost.len() as u64
}

/// The hash of an entry with these parts.
pub(crate) fn hash_of(key: &StorageKey, clock: &Clock, body_hash: u64, is_tombstone: bool) -> u64 {
    let dots = clock.entries().iter().map(|dot| (dot.actor.0, dot.counter));
    entry_hash(key.as_bytes(), dots, body_hash, is_tombstone)
}

pub(crate) fn hash_of_head(key: &StorageKey, head: &Head) -> u64 {
    hash_of(key, head.clock(), head.body_hash(), head.is_tombstone())
}

impl Scanned for (StorageKey, TreeEntry) {
    const DETAIL: FoldDetail = FoldDetail::Heads;

    fn of(visited: &Visited<'_>) -> Result<Self, DecodeError> {
        let head = head_of(visited.fields.tag, &visited.head)?;
        let hash = LeafHash::of_entry(hash_of_head(visited.key, &head));
        let segment = visited.fields.segment;
        Ok((visited.key.clone(), TreeEntry { segment, hash }))
    }
}

impl Vnode {
    /// Keeps trees of hashes over the stored entries, for anti-entropy. They have to be built:
    /// [`Vnode::build_trees`].
    ///
    /// Trees of an earlier run may be taken instead ([`Vnode::take_kept_trees`]): the store must
    /// not have been written to since it was opened.
    #[must_use]
    pub fn with_trees(mut self, placing: Arc<dyn TreePlacing>) -> Self {
        let opened = OpenedStore {
            store: self.backend.identity(),
            sequence: self.backend.durable(),
            replayed: self.backend.take_replayed(),
        };
        self.trees = Some(Arc::new(HashTrees::new(placing).opened_on(opened)));
        self
    }

    /// The state of its trees; `None` if it keeps none.
    pub fn trees_status(&self) -> Option<TreesStatus> {
        self.trees.as_ref().map(|trees| trees.status())
    }

    /// Drops the trees, which have to be built again: their keys may be in other trees now, or the
    /// store may lack some of their entries.
    pub fn drop_trees(&self) {
        if let Some(trees) = &self.trees {
            trees.drop_all();
        }
    }

    /// True when the trees have more keys than they were made for: they still find differences, at
    /// a higher cost.
    pub fn are_trees_outgrown(&self) -> bool {
        self.trees.as_ref().is_some_and(|it| it.are_outgrown())
    }

    /// Takes this many more entries into trees that are being built. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read. Entries taken in before stay.
    pub fn build_trees(
        &self,
        clock: &FoldClock,
        lease: Lease,
        entries_max: usize,
    ) -> Result<BuildStep, PageFailure> {
        let Some(trees) = &self.trees else {
            return Ok(BuildStep::Idle);
        };
        if trees.status().is_built {
            return Ok(BuildStep::Idle);
        }
        let keys_expected = match trees.are_begun() {
            true => 0,
            false => self.store_status().keys / TREES_EXPECTED,
        };
        let Some(from) = trees.begin_page(keys_expected) else {
            return Ok(BuildStep::Idle);
        };
        let request = ScanRequest {
            range: FoldRange::all().resumed_at(&from),
            clock: clock.clone(),
            lease,
            limits: ScanLimits {
                entries_max,
                ..ScanLimits::NONE
            },
        };
        let scope = trees.scope();
        let page = self.scan_admitted::<(StorageKey, TreeEntry)>(
            &request,
            |filter| filter.segments = scope,
            &mut |_| true,
        );
        let page = page.inspect_err(|_| trees.give_up())?;
        // Every write that the snapshot may have seen is shown by now.
        self.await_earlier_writes();
        let is_last = page.next.is_none();
        let is_taken = trees.take_page(page.entries, page.next);
        if !(is_last && is_taken) {
            return Ok(BuildStep::Going);
        }
        trees.note_losses(losses_of(&self.store_status()));
        Ok(BuildStep::Built)
    }

    /// Corrects leaves of a tree from the stored entries; nothing happens while the trees are being
    /// built or other leaves are corrected. Blocks.
    pub(crate) fn recount(
        &self,
        trees: &HashTrees,
        (name, size, leaves): (TreeName, TreeSize, &Arc<[u32]>),
        clock: &FoldClock,
        lease: Lease,
    ) -> Result<(), PageFailure> {
        if !trees.begin_recount() {
            return Ok(());
        }
        let request = ScanRequest {
            range: FoldRange {
                from: Bound::Unbounded,
                to: Bound::Unbounded,
            },
            clock: clock.clone(),
            lease,
            limits: ScanLimits::NONE,
        };
        let wanted = SegmentFilter::Leaves {
            leaves: size.leaves(),
            wanted: leaves.to_vec(),
        };
        let page = self.scan_admitted::<(StorageKey, TreeEntry)>(
            &request,
            |filter| filter.segments = Some(wanted),
            &mut |key| trees.tree_of(key) == Some(name),
        );
        let page = page.inspect_err(|_| trees.give_up())?;
        if page.next.is_some() {
            trees.give_up();
            return Err(PageFailure::OutOfTime);
        }
        self.await_earlier_writes();
        let order = RecountOrder {
            tree: name,
            size,
            leaves: leaves.clone(),
        };
        trees.end_recount(&order, page.entries);
        Ok(())
    }
}

//! The part of kept trees that lacks entries: leaves that a fold has to fill again.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_encoding::SegmentFilter;
use kvorum_tictac::{Tree, TreeSize};

use crate::kept_trees::OpenedStore;
use crate::tree_name::TreeName;

/// The most segments that are noted before trees are taken from a file. With more, trees are built anew.
const NOTED_MAX: usize = 1 << 16;
/// At most one leaf in this many is caught up: filling more costs as much as new trees.
const CAUGHT_UP_PART: usize = 8;

/// The store at the opening of its vnode, and the segments that were changed since.
pub(crate) struct SinceOpening {
    pub(crate) opened: OpenedStore,
    changed: BTreeSet<u32>,
    is_overfull: bool,
}

/// A part of all trees: the leaves that fold onto these.
pub(crate) struct Scope {
    size: TreeSize,
    /// Ascending.
    leaves: Vec<u32>,
}

impl SinceOpening {
    pub(crate) fn new(opened: OpenedStore) -> Self {
        Self {
            opened,
            changed: BTreeSet::new(),
            is_overfull: false,
        }
    }

    pub(crate) fn note(&mut self, segment: u32) {
        if self.changed.len() < NOTED_MAX {
            self.changed.insert(segment);
        } else {
            self.is_overfull |= !self.changed.contains(&segment);
        }
    }

    /// The changed segments; `None` when not all are known.
    pub(crate) fn changed(self) -> Option<BTreeSet<u32>> {
        (!self.is_overfull).then_some(self.changed)
    }
}

impl Scope {
    /// The leaves of these segments, at the size of the smallest tree; `None` when they are too many.
    pub(crate) fn of(
        trees: &BTreeMap<TreeName, Tree>,
        segments: impl Iterator<Item = u32>,
    ) -> Option<Self> {
        let smallest = trees.values().map(Tree::size).min();
        let size = smallest.unwrap_or(TreeSize::XxSmall);
        let leaves: BTreeSet<u32> = segments.map(|it| size.leaf_of(it)).collect();
        let leaves_max = size.leaves() as usize / CAUGHT_UP_PART;
        let is_worth_it = leaves.len() <= leaves_max;
        is_worth_it.then(|| Self {
            size,
            leaves: leaves.into_iter().collect(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// True if entries of this segment are in these leaves.
    pub(crate) fn has(&self, segment: u32) -> bool {
        let leaf = self.size.leaf_of(segment);
        self.leaves.binary_search(&leaf).is_ok()
    }

    /// Clears these leaves in a tree.
    pub(crate) fn forget_in(&self, tree: &mut Tree) {
        tree.forget_leaves(self.size, &self.leaves);
    }

    /// Admits the entries of these leaves.
    pub(crate) fn filter(&self) -> SegmentFilter {
        SegmentFilter::Leaves {
            leaves: self.size.leaves(),
            wanted: self.leaves.clone(),
        }
    }
}

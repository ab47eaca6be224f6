//! Answers questions about a vnode's trees.

use std::ops::Bound;

use kvorum_backend::{FoldClock, FoldDetail, FoldRange, Lease, Timestamp, Visited};
use kvorum_encoding::{SegmentFilter, StorageKey};
use kvorum_object::DecodeError;
use kvorum_tictac::{Tree, TreeSize};

use crate::hash_trees::HashTrees;
use crate::page::PageFailure;
use crate::replica_request::ReplicaFailure;
use crate::scanning::{ScanLimits, ScanRequest, Scanned};
use crate::stored_form::head_of;
use crate::tree_building::hash_of_head;
use crate::tree_name::TreeName;
use crate::tree_request::{LeafKeys, SeenEntry, TreeAnswer, TreeQuestion, TreeRequest};
use crate::vnode::Vnode;

/// The most bytes of keys and heads in an answer; one entry may exceed it.
const LISTED_BYTES_MAX: u64 = 4 << 20;

impl Scanned for SeenEntry {
    const DETAIL: FoldDetail = FoldDetail::Heads;

    fn of(visited: &Visited<'_>) -> Result<Self, DecodeError> {
        let head = head_of(visited.fields.tag, &visited.head)?;
        let fields = &visited.fields;
        Ok(Self {
            key: visited.key.clone(),
            segment: fields.segment,
            version: hash_of_head(visited.key, &head),
            modified: fields.last_modified.0,
            expiry: fields.expiry.map(|it| it.0),
        })
    }
}

impl Vnode {
    /// Answers a question about a tree. Blocks for the keys of leaves and for recounts, which read the store.
    ///
    /// # Errors
    /// When the store cannot be read, or not in time, and for a request of an older ring.
    pub fn answer_about_trees(
        &self,
        request: &TreeRequest,
        clock: &FoldClock,
        lease: Lease,
    ) -> Result<TreeAnswer, PageFailure> {
        self.check_epoch(request.epoch)?;
        let Some(trees) = &self.trees else {
            return Ok(TreeAnswer::Unknown);
        };
        let name = request.tree;
        match &request.question {
            TreeQuestion::Root => Ok(self.root(trees, name)),
            TreeQuestion::Branches { size, branches } => {
                Ok(self.branches(trees, name, *size, branches))
            }
            TreeQuestion::Keys(keys) => self.leaf_keys(trees, name, keys, clock, lease),
            TreeQuestion::Recount { size, leaves } => {
                self.recount(trees, (name, *size, leaves), clock, lease)?;
                Ok(TreeAnswer::Recounted)
            }
        }
    }

    fn root(&self, trees: &HashTrees, name: TreeName) -> TreeAnswer {
        trees.look(name, |tree, is_building| TreeAnswer::Root {
            size: tree.size(),
            hash_version: tree.hash_version(),
            root: tree.root().to_vec(),
            is_building: is_building || !self.is_complete(),
        })
    }

    fn branches(
        &self,
        trees: &HashTrees,
        name: TreeName,
        size: TreeSize,
        branches: &[u32],
    ) -> TreeAnswer {
        let exists = |number: &u32| (*number as usize) < size.branches();
        if !branches.iter().all(exists) {
            return TreeAnswer::Unknown;
        }
        let show = |tree: &Tree, is_building| {
            if tree.size() < size {
                return TreeAnswer::Unknown;
            }
            let leaves_of = |number: &u32| tree.branch_at(size, *number as usize);
            TreeAnswer::Branches {
                branches: branches.iter().map(leaves_of).collect(),
                is_building: is_building || !self.is_complete(),
            }
        };
        trees.look(name, show)
    }

    fn leaf_keys(
        &self,
        trees: &HashTrees,
        name: TreeName,
        asked: &LeafKeys,
        clock: &FoldClock,
        lease: Lease,
    ) -> Result<TreeAnswer, PageFailure> {
        self.check_complete()?;
        let request = ScanRequest {
            range: range_of(asked),
            clock: clock.clone(),
            lease,
            limits: ScanLimits {
                entries_max: (asked.keys_max as usize).max(1),
                bytes_max: LISTED_BYTES_MAX,
                ..ScanLimits::NONE
            },
        };
        let wanted = SegmentFilter::Leaves {
            leaves: asked.size.leaves(),
            wanted: asked.leaves.to_vec(),
        };
        let modified = asked
            .modified
            .map(|(first, last)| Timestamp(first)..=Timestamp(last));
        let page = self.scan_admitted::<SeenEntry>(
            &request,
            |filter| {
                filter.segments = Some(wanted);
                filter.last_modified = modified;
            },
            &mut |key: &StorageKey| trees.tree_of(key) == Some(name),
        )?;
        let is_cut = page.next.is_some();
        if is_cut && page.entries.is_empty() {
            return Err(PageFailure::OutOfTime);
        }
        if page.undecodable > 0 {
            let text = "an entry cannot be read: the leaves cannot be compared";
            return Err(ReplicaFailure::Damaged(text.to_owned()).into());
        }
        Ok(TreeAnswer::Keys {
            entries: page.entries,
            is_cut,
            now: clock.now().0,
        })
    }
}

fn range_of(asked: &LeafKeys) -> FoldRange {
    let range = match &asked.bucket_prefix {
        Some(prefix) => FoldRange::prefix(prefix),
        None => FoldRange::all(),
    };
    let Some(after) = &asked.after else {
        return range;
    };
    let is_behind = match &range.from {
        Bound::Included(from) => after.as_bytes() < &from[..],
        Bound::Excluded(_) | Bound::Unbounded => false,
    };
    match is_behind {
        true => range,
        false => FoldRange {
            from: Bound::Excluded(after.to_bytes()),
            ..range
        },
    }
}

//! Questions about the trees of a vnode, and their answers: those of an exchange between replicas.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_encoding::StorageKey;
use kvorum_ring::{Epoch, Partition};
use kvorum_tictac::TreeSize;

use crate::tree_name::TreeName;

/// A question about one tree of a vnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRequest {
    /// The vnode.
    pub partition: Partition,
    /// The partition's epoch in the sender's ring.
    pub epoch: Epoch,
    /// The tree.
    pub tree: TreeName,
    /// The question.
    pub question: TreeQuestion,
}

/// The question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeQuestion {
    /// The root.
    Root,
    /// Branches of the tree, folded to a size.
    Branches {
        /// The size to which the tree is folded.
        size: TreeSize,
        /// The branches, ascending.
        branches: Arc<[u32]>,
    },
    /// The entries in leaves.
    Keys(LeafKeys),
    /// The correction of leaves from the stored entries.
    Recount {
        /// The size of the tree with these leaves.
        size: TreeSize,
        /// The leaves, ascending.
        leaves: Arc<[u32]>,
    },
}

/// A request for the entries of some leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafKeys {
    /// The size of the tree with these leaves.
    pub size: TreeSize,
    /// The leaves, ascending.
    pub leaves: Arc<[u32]>,
    /// Only keys that start with this.
    pub bucket_prefix: Option<Bytes>,
    /// Only entries that changed in this time, in microseconds since the Unix epoch: the first and the last.
    pub modified: Option<(u64, u64)>,
    /// Only keys behind this one.
    pub after: Option<StorageKey>,
    /// The largest number of entries.
    pub keys_max: u32,
}

/// The answer to a [`TreeQuestion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeAnswer {
    /// The root.
    Root {
        /// The size of the tree.
        size: TreeSize,
        /// The version of the hash in its leaves.
        hash_version: u8,
        /// One number for each branch.
        root: Vec<u32>,
        /// The tree lacks entries: it is being built, or the vnode itself is not complete.
        is_building: bool,
    },
    /// Leaves of branches, in the order of the request.
    Branches {
        /// The leaves of each branch.
        branches: Vec<Vec<u32>>,
        /// As with the root.
        is_building: bool,
    },
    /// Entries by ascending key, tombstones among them, expired ones left out.
    Keys {
        /// The entries.
        entries: Vec<SeenEntry>,
        /// There may be more behind the last one.
        is_cut: bool,
        /// The time by which entries count as expired, in microseconds since the Unix epoch.
        now: u64,
    },
    /// The leaves are correct, unless the tree is being built or another recount is in progress.
    Recounted,
    /// The vnode keeps no trees, or its tree has become smaller than the requested size.
    Unknown,
}

/// An entry as it is listed for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenEntry {
    /// The key.
    pub key: StorageKey,
    /// The anti-entropy segment that is stored beside it.
    pub segment: u32,
    /// Equal for entries with equal clocks, bodies and kinds.
    pub version: u64,
    /// The time of the last change of the entry, in microseconds since the Unix epoch.
    pub modified: u64,
    /// The time of its expiry, in microseconds since the Unix epoch.
    pub expiry: Option<u64>,
}

//! The names of a vnode's trees, and the placing of keys in them.

use kvorum_encoding::StorageKey;
use kvorum_ring::Partition;

/// Names the tree of the keys with one owner partition and one n_val. Each replica of that
/// preference list has such a tree, and anti-entropy compares them.
///
/// The n_val is the bucket's, not the number of replicas that the ring has reached: while the
/// latter grows, a tree keeps its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeName {
    /// The first partition of the keys' preference list.
    pub owner: Partition,
    /// The n_val of their buckets; 255 for larger ones.
    pub n_val: u8,
}

/// The tree of each key. Ring and buckets are outside a vnode.
pub trait TreePlacing: Send + Sync {
    /// The tree of a key; `None` for keys that are not compared, since their bucket type is unknown.
    ///
    /// Called for each write under the key's lock: it must be quick and must not call the vnode.
    fn tree_of(&self, key: &StorageKey) -> Option<TreeName>;
}

//! The names of a vnode's trees, and the placing of keys in them.

use kvorum_encoding::StorageKey;
use kvorum_ring::Partition;

/// Names the tree over the keys that have one owner partition and one n_val. The replicas of such a
/// preference list have one each, which anti-entropy compares.
///
/// The n_val is the bucket's, not the number of replicas that the ring has come to: while that grows, a tree
/// goes on over the same keys.
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
    /// Asked for each write, with the key's lock held: quick, and it asks nothing of the vnode.
    fn tree_of(&self, key: &StorageKey) -> Option<TreeName>;
}

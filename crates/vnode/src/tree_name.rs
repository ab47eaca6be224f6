//! The names of a vnode's trees, and what says in which of them a key is.

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

/// Says in which tree a key is. Vnodes know neither ring nor buckets.
pub trait TreePlacing: Send + Sync {
    /// The tree of a key; `None` for keys that are not compared, since their bucket type is unknown.
    ///
    /// Asked for each write, with the key's lock held: quick, and it asks nothing of the vnode.
    fn tree_of(&self, key: &StorageKey) -> Option<TreeName>;
}

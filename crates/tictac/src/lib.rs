//! Mergeable trees of hashes over the entries of a partition, which anti-entropy compares.
//!
//! A tree has two levels. A *leaf* is the exclusive or of the hashes of all entries that fall into
//! it, 256 leaves are a *branch*, and the *root* has for each branch the exclusive or of its
//! leaves. So a tree depends on the stored entries and not on their order, a write changes one leaf
//! and one number of the root, and an exclusive or merges the trees of two sets of keys.
//!
//! The hash of an entry covers its key, its clock and its bytes ([`LeafHash`]). Replicas with equal
//! clocks and different bytes have different trees.
//!
//! # Size and memory
//!
//! The number of keys decides the size of a tree ([`TreeSize::for_keys`]): at most four keys for
//! each leaf, up to the largest size. This takes about a byte of memory for each key. Unchanged
//! branches take a pointer. Folding its branches onto each other makes a tree smaller, so trees of
//! two sizes are compared at the smaller one. A tree becomes larger only when it is built again.
//!
//! # Leaves and stored segments
//!
//! Entries have a segment of 32 bits, by which stores filter folds. A leaf is the low bits of
//! [`kvorum_encoding::tree_position`] of that segment, in a tree of any size.
//!
//! Outside this crate: objects, stores, and the comparison.

mod file_form;
mod leaf_hash;
mod riak_form;
mod size;
mod tree;

#[cfg(test)]
mod file_form_test;
#[cfg(test)]
mod riak_form_test;
#[cfg(test)]
mod tree_test;

pub use file_form::{Stamp, TreeFileError};
pub use leaf_hash::{HASH_VERSION, LeafHash, entry_hash, seeded_hash};
pub use riak_form::{compressed_branch, level_bytes, level_json, tree_json};
pub use size::{LEAVES_A_BRANCH, TreeSize};
pub use tree::{Tree, differing, folded_root};

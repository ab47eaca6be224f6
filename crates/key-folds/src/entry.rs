//! An entry of a store, as far as folds look at it.

use bytes::Bytes;
use kvorum_encoding::Key;

/// What a fold asks of an entry. Each question asks for little of it: what costs something to tell is told
/// when it is asked for.
pub trait FoldedEntry {
    /// The key within its bucket.
    fn key(&self) -> &Key;

    /// The number of siblings, tombstones among them.
    fn siblings(&self) -> u64;

    /// The size of the whole object, in bytes.
    fn size_bytes(&self) -> u64;

    /// True when every sibling is deleted.
    fn is_tombstone(&self) -> bool;

    /// The anti-entropy segment that the key hashes into.
    fn segment(&self) -> u32;

    /// What the entry adds to its leaf of a tree; with a seed, another number for each seed.
    fn leaf_hash(&self, seed: Option<u64>) -> u32;

    /// The encoded clock.
    fn clock(&self) -> Bytes;
}

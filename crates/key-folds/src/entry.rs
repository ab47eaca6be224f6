//! Entries of a store, as folds see them.

use bytes::Bytes;
use kvorum_encoding::Key;

/// An entry for a fold. A question needs few of these facts, so the costly ones are computed on request.
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

    /// The number that the entry adds to its leaf of a tree; with a seed, another number for each seed.
    fn leaf_hash(&self, seed: Option<u64>) -> u32;

    /// The encoded clock.
    fn clock(&self) -> Bytes;
}

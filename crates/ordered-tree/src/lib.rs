//! The interface of an ordered tree to the engines above it, so that their common parts exist once.
//!
//! An [`OrderedTree`] keeps values under keys in byte order. Each value has fields for the filters
//! of folds, a head, a body, and *extra bytes*. The tree's user keeps these with the head and reads
//! both together. Derived keys, such as those of an index, need more than gets and puts: a write
//! that fails if the keys on which it depends have changed, and a record of keys lost to damage
//! ([`Doubts`]).

mod doubtful_ranges;
mod scan;
mod tree;

pub use doubtful_ranges::{BadBlock, Doubt, DoubtKind, DoubtRecord, Doubts};
pub use scan::{ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView};
pub use tree::{OrderedTree, PutBelow};

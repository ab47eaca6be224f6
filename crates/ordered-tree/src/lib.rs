//! The interface of engines to an ordered tree beneath them, so that their common parts exist once.
//!
//! An [`OrderedTree`] keeps values under keys in byte order. Each value has fields for the filters
//! of folds, a head, a body, and *extra bytes*. The tree's user keeps these beside the head and
//! reads both together. Keys that are derived from other keys, such as those of an index, need more
//! than gets and puts: a write that fails if the keys on which it depends have changed, and a
//! record of keys that damage took ([`Doubts`]).

mod doubtful_ranges;
mod scan;
mod tree;

pub use doubtful_ranges::{BadBlock, Doubt, DoubtKind, DoubtRecord, Doubts};
pub use scan::{ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView};
pub use tree::{OrderedTree, PutBelow};

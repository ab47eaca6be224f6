//! The interface of engines to an ordered tree beneath them, so that their common parts exist once.
//!
//! An [`OrderedTree`] keeps values under keys in byte order. Each value has fields that folds
//! filter by, a head, a body, and *extra bytes*, which the tree's user keeps beside the head and
//! reads with it. Keys that are derived from other keys, such as those of an index, need more than
//! gets and puts: a write that fails when the keys it was decided from have changed, and a record
//! of keys that damage took ([`Doubts`]).

mod doubtful_ranges;
mod scan;
mod tree;

pub use doubtful_ranges::{BadBlock, Doubt, DoubtKind, DoubtRecord, Doubts};
pub use scan::{ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView};
pub use tree::{OrderedTree, PutBelow};

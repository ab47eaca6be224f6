//! What engines ask of an ordered tree beneath them, so that what they build on it exists once.
//!
//! An [`OrderedTree`] keeps values under keys in byte order. Each value has fields that folds filter by, a
//! head, a body, and *extra bytes*, which the tree's user keeps beside the head and reads with it. Keys that
//! are derived from other keys, such as those of an index, need more than gets and puts: a write that fails
//! when what it was decided from has changed, and a word about keys that damage took ([`Doubts`]).

mod doubts;
mod scan;
mod tree;

pub use doubts::{BadBlock, Doubt, DoubtKind, DoubtRecord, Doubts};
pub use scan::{ScanEnd, ScanRange, ScanStep, TreeEntry, TreeView};
pub use tree::{OrderedTree, PutBelow};

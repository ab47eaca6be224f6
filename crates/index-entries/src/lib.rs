//! Secondary indexes over an ordered tree, for every engine that has one.
//!
//! An index entry is a key of its own, so that a range of terms is a range of keys ([`keyspace`]).
//! The list of an object's entries stands beside its head ([`listing`]): a put reads that list, and
//! writes the difference to the new list in the same batch ([`changes`]). The list makes index
//! entries expire with their object, and lets a removal find them all.
//!
//! Nothing here reads or writes: the engine implements [`changes::IndexedTree`] over its tree.

pub mod changes;
pub mod counters;
pub mod keyspace;
pub mod listing;

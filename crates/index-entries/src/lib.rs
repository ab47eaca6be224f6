//! Secondary indexes over an ordered tree, for every engine that has one.
//!
//! An index entry is a key of its own, so that a range of terms is a range of keys ([`keyspace`]).
//! The list of an object's entries stands beside its head ([`listing`]): a put reads that list, and
//! writes the difference to the new list in the same batch. The list makes index entries expire with their
//! object, and lets a removal find them all. Trees that never had an index entry read nothing before they
//! write.
//!
//! Where damage took index entries, a fold over them fails and says so, until upkeep has made them again
//! from those lists; where it took an object, entries that no object has any more are looked for and
//! removed.
//!
//! An engine has [`Indexes`] beside its tree, and shows its objects with [`ObjectsView`].

mod changes;
mod counters;
mod indexes;
pub mod keyspace;
pub mod listing;
mod objects;
mod reindexing;
mod stored;

pub use indexes::Indexes;
pub use objects::ObjectsView;
pub use reindexing::Reindexing;

//! Secondary indexes over an ordered tree, for every engine that has one.
//!
//! An index entry is a key of its own, so that a range of terms is a range of keys ([`keyspace`]).
//! The list of an object's entries is kept beside its head ([`listing`]): a put reads that list,
//! and writes the difference to the new list in the same batch. The list makes index entries expire
//! with their object, and lets a removal find them all. Trees that never had an index entry read
//! nothing before they write.
//!
//! After a loss of index entries by damage, a fold over them fails, until upkeep has rebuilt them
//! from those lists. After a loss of an object, entries without an object are searched and removed.
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

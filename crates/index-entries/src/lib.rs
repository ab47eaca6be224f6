//! Secondary indexes over an ordered tree, for every engine that has one.
//!
//! An index entry is a key of its own, so that a range of terms is a range of keys ([`keyspace`]).
//! An object has the list of its entries with its head ([`listing`]): a put reads the old list, and
//! writes the difference to the new list in the same batch. With the list, index entries expire
//! with their object, and a removal finds all of them. Trees that never had an index entry read
//! nothing before they write.
//!
//! After damage to index entries, folds over them fail until upkeep has rebuilt them from the
//! lists. After a loss of objects, upkeep searches and removes entries without an object.
//!
//! An engine has [`Indexes`] in addition to its tree, and shows its objects with [`ObjectsView`].

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

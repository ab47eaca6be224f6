//! The `leveldb` engine: an LSM tree with secondary indexes, behind the backend trait.
//!
//! The tree is `kvorum-lsm`; here is what makes it an engine: how objects and index entries share one
//! key space ([`keyspace`]), and how index entries come and go with their object.
//!
//! # Indexes
//!
//! An index entry is a key of its own, so that a range of terms is a range of keys. Which entries an
//! object has stands beside its head: a put reads that list, and writes the difference to what the
//! object is to have in the same batch. The list makes index entries expire with their object, and
//! lets a removal find them all. Stores that never had an index entry read nothing before they write.
//!
//! Where damage took index entries, a fold over them fails and says so, until upkeep has made them again
//! from those lists; where it took an object, entries that no object has any more are looked for and
//! removed.

mod engine;
mod index;
pub mod keyspace;
mod put_op;
mod reindexing;
pub mod repair;
mod settings;
mod snapshot;

pub use engine::Leveldb;
pub use kvorum_lsm::anatomy::identity_of;
pub use kvorum_lsm::check::find_store;
pub use kvorum_lsm::policy::PolicySettings;
pub use kvorum_lsm::tiers::{Tiers, remove_store};
pub use kvorum_lsm::{Compression, DrawNumber, Shared, SyncStrategy};
pub use settings::LeveldbSettings;

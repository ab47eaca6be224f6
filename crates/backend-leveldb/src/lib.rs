//! The `leveldb` engine: an LSM tree with secondary indexes, behind the backend trait.
//!
//! The tree is `kvorum-lsm`, and the shape of index entries `kvorum-index-entries`; here is what makes
//! them an engine. Stores that never had an index entry read nothing before they write.
//!
//! Where damage took index entries, a fold over them fails and says so, until upkeep has made them again
//! from those lists; where it took an object, entries that no object has any more are looked for and
//! removed.

mod engine;
mod index;
mod put_op;
mod reindexing;
pub mod repair;
mod settings;
mod snapshot;

pub use engine::Leveldb;
pub use kvorum_lsm::anatomy::identity_of;
pub use kvorum_lsm::manifest::find_store;
pub use kvorum_lsm::policy::PolicySettings;
pub use kvorum_lsm::{Compression, DrawNumber, Shared, SyncStrategy};
pub use kvorum_tiers::{Tiers, remove_store};
pub use settings::LeveldbSettings;

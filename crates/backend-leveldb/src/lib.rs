//! The `leveldb` engine: an LSM tree with secondary indexes, behind the backend trait.
//!
//! The engine is [`kvorum_lsm_engine::LsmEngine`]. This crate has its settings, under the names of
//! the `leveldb.*` keys, and the search, identification and repair of its stores.

pub mod repair;
mod settings;

pub use kvorum_lsm::anatomy::identity_of;
pub use kvorum_lsm::manifest::find_store;
pub use kvorum_lsm::policy::PolicySettings;
pub use kvorum_lsm::{Compression, DrawNumber, Shared, SyncStrategy};
pub use kvorum_lsm_engine::LsmEngine as Leveldb;
pub use kvorum_tiers::{Tiers, has_slow, remove_store};
pub use settings::LeveldbSettings;

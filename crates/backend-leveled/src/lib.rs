//! The `leveled` engine: a journal of whole entries, and a ledger of their keys and heads.
//!
//! The journal consists of the node's value log, and of files of the store's own with records of
//! dropped segments. The ledger is an LSM tree of keys, heads, and places in the journal. It is
//! small, so that heads are read, folded and merged without bodies; only gets and folds over whole
//! entries read these. A collection of the journal moves records and changes no entry of the
//! ledger, and a lost ledger is rebuilt from the journal (`docs/decisions/0027-leveled.md`).
//!
//! The engine is [`kvorum_lsm_engine::LsmEngine`] over a tree that keeps a journal
//! ([`kvorum_lsm::LsmSettings::journaled`]). This crate has its settings, under the names of the
//! `leveled.*` keys.

mod engine;
pub mod repair;
mod settings;

pub use engine::open;
pub use kvorum_index_entries::listing::encode as encode_index_list;
pub use kvorum_lsm::anatomy::identity_of;
pub use kvorum_lsm::manifest::find_store;
pub use kvorum_lsm::policy::PolicySettings;
pub use kvorum_lsm::{
    Compression, CompressionPoint, DrawNumber, JournalPolicy, Shared, SyncStrategy,
};
pub use kvorum_lsm_engine::LsmEngine as Leveled;
pub use settings::LeveledSettings;

//! The engine over an LSM tree, with secondary indexes, behind the backend trait.
//!
//! The tree is `kvorum-lsm`, and its indexes are `kvorum-index-entries`; this crate makes an engine
//! of them. Settings select which one: crates such as `backend-leveldb` have their names and
//! defaults.

mod engine;

pub use engine::LsmEngine;

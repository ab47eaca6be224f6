//! The `hanoidb` engine: a merge tree of doubling levels, behind the backend trait.
//!
//! A level has up to three runs, each of at most twice the size of those above, and two of them are
//! merged into one of the next. Merges of all levels go on side by side, and each put is charged
//! nine bytes of merging for each of them per byte of its own: no put waits for a merge to end, and
//! its highest charge is known beforehand ([`kvorum_lsm::DoublingLevels`] has the bound and its
//! proof, `docs/decisions/0030-hanoidb.md` the reasons).
//!
//! The engine is [`kvorum_lsm_engine::LsmEngine`] over a tree with that policy; here are its
//! settings, under the names of the `hanoidb.*` keys, and the repair of its stores. It has no code
//! and no files in common with the original of that name.

pub mod repair;
mod settings;

pub use kvorum_lsm::anatomy::identity_of;
pub use kvorum_lsm::manifest::find_store;
pub use kvorum_lsm::{Compression, DrawNumber, SHARE_PER_BYTE, Shared, SyncStrategy};
pub use kvorum_lsm_engine::LsmEngine as Hanoidb;
pub use settings::{HanoidbSettings, LEVELS};

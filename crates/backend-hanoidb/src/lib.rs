//! The `hanoidb` engine: a merge tree of doubling levels, behind the backend trait.
//!
//! A level has up to three runs, at most twice as large as those above, and two runs are merged
//! into one of the next level. Merges of all levels run side by side, and for each of them a put is
//! charged nine bytes of merging per byte. So no put waits for a merge to end, and its highest
//! charge is known in advance. [`kvorum_lsm::DoublingLevels`] has the bound and its proof,
//! `docs/decisions/0030-hanoidb.md` the reasons.
//!
//! The engine is [`kvorum_lsm_engine::LsmEngine`] over a tree with that policy. This crate has its
//! settings, under the names of the `hanoidb.*` keys, and the repair of its stores. It shares no
//! code and no files with the original of that name.

pub mod repair;
mod settings;

pub use kvorum_lsm::anatomy::identity_of;
pub use kvorum_lsm::manifest::find_store;
pub use kvorum_lsm::{Compression, DrawNumber, SHARE_PER_BYTE, Shared, SyncStrategy};
pub use kvorum_lsm_engine::LsmEngine as Hanoidb;
pub use settings::{HanoidbSettings, LEVELS};

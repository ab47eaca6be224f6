//! The `innostore` engine: a B+tree for data that is read far more than written, and for ranges.
//!
//! What is put goes to the node's log and stands in memory until a *rewrite* merges it into the tree of
//! `kvorum-page-tree`: leaves that it touches are written anew, and a manifest names the next root. The log is
//! the redo log: after a crash it gives back what the last root does not have. A put reads no page, unless its
//! store has index entries.
//!
//! # Modules
//!
//! `engine` is the backend trait, `tree` what indexes are built on, `tenant` what the log asks. `overlay` is
//! what stands in memory, `version` what readers see, `store` what all parts share; `write`, `read` and `view`
//! put, get and scan. `rewriting` moves memory to the tree, `leaving` empties files in which little lives, `scrub`
//! reads pages again, and `upkeep` says what is due of these. `opening`, `erase`, `backup` and `status` are what their names say,
//! `check` looks at a store that is not opened, `records` is the form of a batch in the log, and `losses` what damage took.
//!
//! # Locks
//!
//! They are taken in this order: jobs, manifest, writer. A put holds the writer's over one append; upkeep
//! holds the jobs' over a step.

mod backup;
mod change;
pub mod check;
mod engine;
mod erase;
mod expiry;
mod leaving;
mod losses;
mod opening;
mod overlay;
mod pins;
mod read;
mod records;
mod rewriting;
mod scrub;
mod settings;
mod status;
mod store;
mod tenant;
mod tree;
mod upkeep;
mod version;
mod view;
mod write;

pub use check::find_store;
pub use engine::Innostore;
pub use kvorum_backend::SyncStrategy;
pub use kvorum_page_tree::PageCache;
pub use settings::{DrawNumber, InnostoreSettings, Shared};

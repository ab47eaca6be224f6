//! The `innostore` engine: a B+tree for data with far more reads than writes, and for ranges.
//!
//! A put goes to the value log and stays in memory until a *rewrite* merges it into the tree of
//! `kvorum-page-tree`: touched leaves are rewritten, and a manifest names the next root. The log is
//! the redo log: after a crash it replays the batches that the last root lacks. A put reads no
//! page, unless its store has index entries.
//!
//! # Modules
//!
//! `engine` is the backend trait, `tree` the base of indexes, `tenant` the interface for the log.
//! `overlay` has the entries in memory, `version` is the view of readers, `store` has the shared
//! parts; `write`, `read` and `view` put, get and scan. `rewriting` moves memory to the tree,
//! `leaving` empties files that are mostly garbage, `scrub` reads pages again, and `upkeep` lists
//! the due ones of these. `room` lets memory wait on a full disk, and `claims` counts the room of
//! rewrites in progress. `opening`, `erase`, `backup` and `status` do what their names suggest.
//! `check` checks a closed store, `records` is the form of a batch in the log, and `losses` records
//! damage.
//!
//! # Locks
//!
//! They are taken in this order: jobs, manifest, writer. A put holds the lock of the writer during one
//! append; upkeep holds the lock of the jobs during a step.

mod backup;
mod change;
pub mod check;
mod claims;
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
mod room;
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

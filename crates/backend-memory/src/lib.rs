//! The memory engine: an ordered in-memory store with TTL and an exact memory bound.
//!
//! Nothing persists: the engine is for caches, for tests, and for data that replicas can restore.
//! One ordered map has the entries and another the index entries. Both keep superseded versions
//! while an open snapshot may read them, so that taking a snapshot costs nothing, and a fold holds
//! the lock only for a few dozen entries at a time.
//!
//! There is one reader-writer lock, without shards: a node has one store for each vnode, so dozens
//! of locks share the requests already. Folds, index folds and bucket listings use the ordered
//! maps, and reads of one key use a hash table. Rejected for snapshots: a persistent
//! (copy-on-write) tree, in which every write copies a path although snapshots are rare.

mod backend;
mod by_key;
mod contents;
mod entry;
mod open_snapshots;
mod settings;
mod snapshot;
mod store;
mod versioned_map;

pub use backend::MemoryBackend;
pub use entry::{ENTRY_OVERHEAD_BYTES, INDEX_ENTRY_OVERHEAD_BYTES};
pub use settings::Settings;

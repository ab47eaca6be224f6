//! The memory engine: an ordered in-memory store with TTL and an exact memory bound.
//!
//! Nothing persists: for caches, for tests, and for data that replicas can restore. One ordered map
//! holds the entries and another the index entries; both keep superseded versions for as long as an
//! open snapshot may read them, so that a snapshot costs nothing to take and a fold holds the lock
//! for a few dozen entries at a time only.
//!
//! One reader-writer lock, and no shards: a node has one store for each of its vnodes, so requests
//! are spread over dozens of locks already. Folds, index folds and bucket listings use the ordered
//! maps, reads of one key a hash table beside them. A persistent (copy-on-write) tree was the
//! alternative for snapshots; it taxes every write with path copies although snapshots are rare.

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

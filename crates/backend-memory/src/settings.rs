//! The settings of the memory engine.

use std::time::Duration;

/// The behaviour of a memory store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The time between an entry's last modification and its expiry; `None`, the default, for
    /// never. If an entry has an expiry of its own, the earlier time counts.
    pub ttl: Option<Duration>,
    /// The most bytes that the entries of this store may take, for a cache; `None`, the default,
    /// for no bound. The count is exact: keys, heads, bodies, index entries, and
    /// [`ENTRY_OVERHEAD_BYTES`](crate::ENTRY_OVERHEAD_BYTES) for each entry. The entries that were
    /// written first are evicted until the rest fits. Pinned versions of open snapshots are not
    /// counted, and are freed when their leases end. The bound is for one vnode: a node holds as
    /// many stores as it has vnodes.
    pub memory_bytes_max: Option<u64>,
}

impl Settings {
    /// True when the store drops single entries, by age or for lack of memory.
    pub(crate) fn drops_entries(&self) -> bool {
        self.ttl.is_some() || self.memory_bytes_max.is_some()
    }
}

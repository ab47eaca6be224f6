//! Caches and write buffers of the node's engines: their sizes, and their reduction.

use std::sync::Arc;

use kvorum_arbiter::{MemoryOrders, SharedMemory};
use kvorum_backend_bitcask::ReadCache;
use kvorum_backend_leveldb::Shared;

/// The rounding of caches, which share their bound out over their parts.
const ROUNDED_BYTES_MAX: u64 = 4096;

/// Memory that can be reduced, with its configured limits.
#[derive(Clone, Default)]
pub struct GivingWay {
    read_cache: Option<(Arc<ReadCache>, u64)>,
    trees: Option<(Shared, SharedMemory)>,
}

impl GivingWay {
    /// Takes the present bounds of both for the configured limits.
    pub fn new(read_cache: Option<Arc<ReadCache>>, trees: Option<Shared>) -> Self {
        let read_cache = read_cache.map(|cache| {
            let most = cache.bytes_max();
            (cache, most)
        });
        let trees = trees.map(|shared| {
            let most = SharedMemory {
                caches_max: shared.cache.bytes_max(),
                write_buffers_max: shared.memory.bytes_max(),
                ..SharedMemory::default()
            };
            (shared, most)
        });
        Self { read_cache, trees }
    }

    pub(crate) fn used(&self) -> SharedMemory {
        let mut used = SharedMemory::default();
        if let Some((cache, most)) = &self.read_cache {
            used.caches += cache.bytes();
            used.caches_max += most;
        }
        if let Some((shared, most)) = &self.trees {
            used.caches += shared.cache.bytes();
            used.caches_max += most.caches_max;
            used.write_buffers += shared.memory.used();
            used.write_buffers_max += most.write_buffers_max;
        }
        used
    }

    /// Applies the present limits; excess is freed at once. A node has stores of one engine, so one
    /// of the two has all of it.
    pub(crate) fn obey(&self, orders: &MemoryOrders) {
        if let Some((cache, most)) = &self.read_cache {
            let allowed = orders.caches_max.min(*most);
            if is_other(cache.bytes_max(), allowed) {
                cache.set_bytes_max(allowed);
            }
        }
        if let Some((shared, most)) = &self.trees {
            let allowed = orders.caches_max.min(most.caches_max);
            if is_other(shared.cache.bytes_max(), allowed) {
                shared.cache.set_bytes_max(allowed);
            }
            let allowed = orders.write_buffers_max.min(most.write_buffers_max);
            shared.memory.set_bytes_max(allowed);
        }
    }
}

fn is_other(present: u64, allowed: u64) -> bool {
    present.abs_diff(allowed) > ROUNDED_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    #[test]
    fn caches_and_write_buffers_keep_to_what_they_may_have_and_get_back_what_they_had() {
        let shared = Shared::new(64 * MEBIBYTE, 32 * MEBIBYTE);
        let cache = Arc::new(ReadCache::new(16 * MEBIBYTE));
        let giving_way = GivingWay::new(Some(cache.clone()), Some(shared.clone()));
        let used = giving_way.used();
        assert!((80..=81).contains(&(used.caches_max / MEBIBYTE)));
        assert_eq!(used.write_buffers_max, 32 * MEBIBYTE);
        let orders = |caches_max, write_buffers_max| MemoryOrders {
            caches_max,
            write_buffers_max,
            fullness: 0.0,
            refuses_puts: false,
        };
        giving_way.obey(&orders(MEBIBYTE, 2 * MEBIBYTE));
        assert_eq!(cache.bytes_max() / MEBIBYTE, 1);
        assert_eq!(shared.cache.bytes_max() / MEBIBYTE, 1);
        assert_eq!(shared.memory.bytes_max(), 2 * MEBIBYTE);
        giving_way.obey(&orders(u64::MAX, u64::MAX));
        assert_eq!(cache.bytes_max() / MEBIBYTE, 16);
        assert_eq!(shared.cache.bytes_max() / MEBIBYTE, 64);
        assert_eq!(shared.memory.bytes_max(), 32 * MEBIBYTE);
    }
}

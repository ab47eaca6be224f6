//! Caches and write buffers of the node's engines: their sizes, and their reduction.

use std::sync::Arc;

use kvorum_arbiter::{MemoryOrders, SharedMemory};
use kvorum_backend_bitcask::ReadCache;
use kvorum_backend_innostore::PageCache;
use kvorum_backend_leveldb::Shared;

/// The rounding error of caches, which divide their bound among their parts.
const ROUNDED_BYTES_MAX: u64 = 4096;

/// Memory that can be reduced, with its configured limits.
#[derive(Clone, Default)]
pub struct GivingWay {
    caches: Vec<BoundedCache>,
    /// Memtables of the engines over merge trees, and their bound by the settings. Bytes.
    write_buffers: Option<(Shared, u64)>,
}

/// A cache that the stores of a node share.
#[derive(Clone)]
enum NodeCache {
    /// Objects that stores of bitcask have read.
    Objects(Arc<ReadCache>),
    /// Blocks of tables, of the engines over merge trees.
    Blocks(Shared),
    /// Pages of innostore.
    Pages(Arc<PageCache>),
}

/// A cache, and its bound by the settings. Bytes.
#[derive(Clone)]
struct BoundedCache {
    cache: NodeCache,
    most: u64,
}

impl GivingWay {
    /// Takes the present bounds as the configured limits.
    pub fn new(
        read_cache: Option<Arc<ReadCache>>,
        trees: Option<Shared>,
        page_cache: Option<Arc<PageCache>>,
    ) -> Self {
        let caches = [
            read_cache.map(NodeCache::Objects),
            trees.clone().map(NodeCache::Blocks),
            page_cache.map(NodeCache::Pages),
        ];
        let write_buffers = trees.map(|shared| {
            let most = shared.memory.bytes_max();
            (shared, most)
        });
        Self {
            caches: caches.into_iter().flatten().map(BoundedCache::of).collect(),
            write_buffers,
        }
    }

    pub(crate) fn used(&self) -> SharedMemory {
        let mut used = SharedMemory {
            caches: self.caches.iter().map(|it| it.cache.bytes()).sum(),
            caches_max: self.caches_most(),
            ..SharedMemory::default()
        };
        if let Some((shared, most)) = &self.write_buffers {
            used.write_buffers = shared.memory.used();
            used.write_buffers_max = *most;
        }
        used
    }

    /// Applies the present limits; excess is freed at once. Caches share in proportion to their
    /// configured limits.
    pub(crate) fn obey(&self, orders: &MemoryOrders) {
        let most = self.caches_most();
        for cache in &self.caches {
            cache.keep_to(share(cache.most, orders.caches_max, most));
        }
        if let Some((shared, most)) = &self.write_buffers {
            shared
                .memory
                .set_bytes_max(orders.write_buffers_max.min(*most));
        }
    }

    fn caches_most(&self) -> u64 {
        self.caches.iter().map(|it| it.most).sum()
    }
}

impl BoundedCache {
    fn of(cache: NodeCache) -> Self {
        let most = cache.bytes_max();
        Self { cache, most }
    }

    fn keep_to(&self, allowed: u64) {
        if is_other(self.cache.bytes_max(), allowed) {
            self.cache.set_bytes_max(allowed);
        }
    }
}

impl NodeCache {
    fn bytes(&self) -> u64 {
        match self {
            Self::Objects(cache) => cache.bytes(),
            Self::Blocks(shared) => shared.cache.bytes(),
            Self::Pages(cache) => cache.bytes(),
        }
    }

    fn bytes_max(&self) -> u64 {
        match self {
            Self::Objects(cache) => cache.bytes_max(),
            Self::Blocks(shared) => shared.cache.bytes_max(),
            Self::Pages(cache) => cache.bytes_max(),
        }
    }

    fn set_bytes_max(&self, bytes_max: u64) {
        match self {
            Self::Objects(cache) => cache.set_bytes_max(bytes_max),
            Self::Blocks(shared) => shared.cache.set_bytes_max(bytes_max),
            Self::Pages(cache) => cache.set_bytes_max(bytes_max),
        }
    }
}

/// The share of a cache with the bound `most` in the memory for all caches, whose bounds sum to
/// `all_most`.
fn share(most: u64, allowed: u64, all_most: u64) -> u64 {
    if allowed >= all_most {
        return most;
    }
    let part = u128::from(most) * u128::from(allowed) / u128::from(all_most);
    u64::try_from(part).unwrap_or(most)
}

fn is_other(present: u64, allowed: u64) -> bool {
    present.abs_diff(allowed) > ROUNDED_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    /// Rounded as by caches, which divide their bound among their parts.
    fn rounded(bytes: u64) -> u64 {
        (bytes + MEBIBYTE / 2) / MEBIBYTE
    }

    #[test]
    fn caches_and_write_buffers_keep_to_what_they_may_have_and_get_back_what_they_had() {
        let shared = Shared::new(64 * MEBIBYTE, 32 * MEBIBYTE);
        let cache = Arc::new(ReadCache::new(16 * MEBIBYTE));
        let pages = Arc::new(PageCache::new(16 * MEBIBYTE));
        let giving_way = GivingWay::new(
            Some(cache.clone()),
            Some(shared.clone()),
            Some(pages.clone()),
        );
        let used = giving_way.used();
        assert!((96..=97).contains(&(used.caches_max / MEBIBYTE)));
        assert_eq!(used.write_buffers_max, 32 * MEBIBYTE);
        let orders = |caches_max, write_buffers_max| MemoryOrders {
            caches_max,
            write_buffers_max,
            fullness: 0.0,
            refuses_puts: false,
        };
        giving_way.obey(&orders(12 * MEBIBYTE, 2 * MEBIBYTE));
        assert_eq!(rounded(cache.bytes_max()), 2);
        assert_eq!(rounded(pages.bytes_max()), 2);
        assert_eq!(rounded(shared.cache.bytes_max()), 8);
        assert_eq!(shared.memory.bytes_max(), 2 * MEBIBYTE);
        giving_way.obey(&orders(u64::MAX, u64::MAX));
        assert_eq!(cache.bytes_max() / MEBIBYTE, 16);
        assert_eq!(pages.bytes_max() / MEBIBYTE, 16);
        assert_eq!(shared.cache.bytes_max() / MEBIBYTE, 64);
        assert_eq!(shared.memory.bytes_max(), 32 * MEBIBYTE);
    }
}

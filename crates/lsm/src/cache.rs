//! One block cache for all stores of a node.
//!
//! The replacement policy is S3-FIFO's: a block enters a short queue first and moves to the main one
//! when it is asked for again, so that what is read once does not push out what is read often. Folds
//! offer it no data blocks at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_sst::{Block, BlockCache, CacheKey};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

/// For sizing the cache's own tables.
const BLOCK_BYTES_EXPECTED: u64 = 4096;

type Inner = Cache<CacheKey, Arc<Block>, BlockWeight, foldhash::fast::FixedState>;

/// A cache of blocks with a bound on their bytes.
pub struct SharedCache {
    blocks: Inner,
    next_table: AtomicU64,
}

#[derive(Clone)]
struct BlockWeight;

impl Weighter<CacheKey, Arc<Block>> for BlockWeight {
    fn weight(&self, _key: &CacheKey, block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64
    }
}

impl SharedCache {
    /// A cache for at most so many bytes of blocks.
    pub fn new(bytes_max: u64) -> Self {
        let expected = usize::try_from(bytes_max / BLOCK_BYTES_EXPECTED).unwrap_or(usize::MAX);
        let blocks = Cache::with(
            expected.max(16),
            bytes_max,
            BlockWeight,
            // Fixed, so that what is evicted is the same in each run of a simulation.
            foldhash::fast::FixedState::default(),
            DefaultLifecycle::default(),
        );
        Self {
            blocks,
            next_table: AtomicU64::new(1),
        }
    }

    /// Bytes of blocks held now.
    pub fn bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// The bound.
    pub fn bytes_max(&self) -> u64 {
        self.blocks.capacity()
    }

    /// Changes the bound; what no longer fits is dropped.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.blocks.set_capacity(bytes_max);
    }

    /// A number that no other table in this cache has.
    pub(crate) fn new_table(&self) -> u64 {
        self.next_table.fetch_add(1, Ordering::Relaxed)
    }
}

impl BlockCache for SharedCache {
    fn get(&self, key: &CacheKey) -> Option<Arc<Block>> {
        self.blocks.get(key)
    }

    fn insert(&self, key: CacheKey, block: &Arc<Block>) {
        self.blocks.insert(key, Arc::clone(block));
    }
}

//! The interface of tables to a block cache, which all stores of a node share.

use std::sync::Arc;

use crate::Block;

/// Names a block in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The table's number, which no other table in the same cache has.
    pub table: u64,
    /// The start of the block, in bytes.
    pub offset: u64,
}

/// Keeps blocks in memory. Never waits for a device.
pub trait BlockCache: Send + Sync {
    /// A block, if the cache has it.
    fn get(&self, key: &CacheKey) -> Option<Arc<Block>>;

    /// Offers a block; the cache may decline.
    fn insert(&self, key: CacheKey, block: &Arc<Block>);
}

/// A cache that keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCache;

impl BlockCache for NoCache {
    fn get(&self, _key: &CacheKey) -> Option<Arc<Block>> {
        None
    }

    fn insert(&self, _key: CacheKey, _block: &Arc<Block>) {}
}

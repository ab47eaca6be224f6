//! One cache for all stores of a node: blocks of tables and blob files, and bodies that stay in the
//! value log.
//!
//! The replacement policy is S3-FIFO's: a block enters a short queue first and moves to the main
//! one when it is read again, so that a single read evicts no block that is read often. Folds offer
//! the cache little more than their first blocks. A body enters when it is read from the log a
//! second time: it serves one key, while a block may be read again for neighbouring keys.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::ReadOnce;
use kvorum_segment::RECORD_ALIGN_BYTES;
use kvorum_sst::{Block, BlockCache, CacheKey};
use kvorum_value_log::LogPlace;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

/// For sizing the cache's tables.
const BLOCK_BYTES_EXPECTED: u64 = 4096;

/// For detecting second reads of bodies.
const BODY_BYTES_EXPECTED: u64 = 2048;
/// Larger bodies, in bytes, are not kept: copying one from the page cache costs more than the
/// system call.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The memory of a body besides its bytes: the value, the cache's tables, and the reference count.
const BODY_OVERHEAD_BYTES: usize = 256;

type Inner = Cache<CacheKey, Held, HeldWeight, foldhash::fast::FixedState>;

/// A cache with a bound on its bytes.
pub struct SharedCache {
    held: Inner,
    bodies_read: ReadOnce,
    next_table: AtomicU64,
}

#[derive(Clone)]
enum Held {
    Block(Arc<Block>),
    Body { sequence: u64, bytes: Bytes },
}

#[derive(Clone)]
struct HeldWeight;

impl Weighter<CacheKey, Held> for HeldWeight {
    fn weight(&self, _key: &CacheKey, held: &Held) -> u64 {
        let bytes = match held {
            Held::Block(block) => block.memory_bytes(),
            Held::Body { bytes, .. } => bytes.len() + BODY_OVERHEAD_BYTES,
        };
        bytes as u64
    }
}

/// Names a body: the reading store's number in the cache takes the place of the table.
fn body_key(store: u64, at: &LogPlace) -> CacheKey {
    // In units of eight bytes, an offset takes less than 32 bits.
    CacheKey {
        table: store,
        offset: (u64::from(at.segment) << 32) + at.record.offset / RECORD_ALIGN_BYTES,
    }
}

impl SharedCache {
    /// A cache for at most this many bytes. The record of first reads takes eight more for each 2
    /// KB, and 8 MB at most.
    pub fn new(bytes_max: u64) -> Self {
        let expected = |each| usize::try_from(bytes_max / each).unwrap_or(usize::MAX);
        let held = Cache::with(
            expected(BLOCK_BYTES_EXPECTED).max(16),
            bytes_max,
            HeldWeight,
            // Fixed, so that evictions are the same in each run of a simulation.
            foldhash::fast::FixedState::default(),
            DefaultLifecycle::default(),
        );
        Self {
            held,
            bodies_read: ReadOnce::new(expected(BODY_BYTES_EXPECTED)),
            next_table: AtomicU64::new(1),
        }
    }

    /// Bytes held now.
    pub fn bytes(&self) -> u64 {
        self.held.weight()
    }

    /// The bound.
    pub fn bytes_max(&self) -> u64 {
        self.held.capacity()
    }

    /// Changes the bound; what no longer fits is dropped.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.held.set_capacity(bytes_max);
    }

    /// A number that no other table or store has in this cache.
    pub(crate) fn new_table(&self) -> u64 {
        self.next_table.fetch_add(1, Ordering::Relaxed)
    }

    /// The cached body at this place of the value log, if it was put with this sequence.
    pub(crate) fn body(&self, store: u64, at: &LogPlace, put_with: u64) -> Option<Bytes> {
        match self.held.get(&body_key(store, at))? {
            Held::Body { sequence, bytes } if sequence == put_with => Some(bytes),
            _ => None,
        }
    }

    /// Keeps a copy of a body if it was also read recently. The body itself may be a slice of a
    /// larger buffer, which would stay in memory with it.
    pub(crate) fn keep_body(&self, store: u64, at: &LogPlace, sequence: u64, body: &[u8]) {
        if body.len() > BODY_BYTES_MAX {
            return;
        }
        let key = body_key(store, at);
        let hash = foldhash::fast::FixedState::default().hash_one(key);
        if !self.bodies_read.again(hash) {
            return;
        }
        let bytes = Bytes::copy_from_slice(body);
        self.held.insert(key, Held::Body { sequence, bytes });
    }
}

impl BlockCache for SharedCache {
    fn get(&self, key: &CacheKey) -> Option<Arc<Block>> {
        match self.held.get(key)? {
            Held::Block(block) => Some(block),
            Held::Body { .. } => None,
        }
    }

    fn insert(&self, key: CacheKey, block: &Arc<Block>) {
        self.held.insert(key, Held::Block(Arc::clone(block)));
    }
}

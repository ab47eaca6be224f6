//! A cache of pages for all trees of a node, with one bound of bytes.
//!
//! The replacement policy is S3-FIFO's: a page that is read once evicts no page that is read often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::page::Page;
use crate::place::PagePlace;

/// For sizing the cache's tables, in bytes.
const PAGE_BYTES_EXPECTED: u64 = 8_192;
/// The memory of a page besides itself, in bytes: the cache's tables, and the reference count.
const OVERHEAD_BYTES: usize = 128;

type Inner = Cache<PageKey, Arc<Page>, PageWeight, foldhash::fast::FixedState>;

/// A cache with a bound on its bytes.
pub struct PageCache {
    held: Inner,
    next_owner: AtomicU64,
}

/// Names a page. An owner never reuses a place for another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PageKey {
    owner: u64,
    file: u64,
    offset: u64,
}

#[derive(Clone)]
struct PageWeight;

impl Weighter<PageKey, Arc<Page>> for PageWeight {
    fn weight(&self, _key: &PageKey, page: &Arc<Page>) -> u64 {
        (page.memory_bytes() + OVERHEAD_BYTES) as u64
    }
}

impl PageCache {
    /// A cache for at most this many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let expected = usize::try_from(bytes_max / PAGE_BYTES_EXPECTED).unwrap_or(usize::MAX);
        let held = Cache::with(
            expected.max(16),
            bytes_max,
            PageWeight,
            // Fixed, so that evictions are the same in each run of a simulation.
            foldhash::fast::FixedState::default(),
            DefaultLifecycle::default(),
        );
        Self {
            held,
            next_owner: AtomicU64::new(1),
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

    /// Changes the bound; pages that no longer fit are dropped.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.held.set_capacity(bytes_max);
    }

    /// A number for an open store that no other store in this cache has.
    pub(crate) fn new_owner(&self) -> u64 {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self, owner: u64, place: &PagePlace) -> Option<Arc<Page>> {
        self.held.get(&key(owner, place))
    }

    pub(crate) fn insert(&self, owner: u64, place: &PagePlace, page: &Arc<Page>) {
        self.held.insert(key(owner, place), page.clone());
    }
}

fn key(owner: u64, place: &PagePlace) -> PageKey {
    PageKey {
        owner,
        file: place.file,
        offset: place.offset,
    }
}

//! Settings of a store: what it does, and how fast. Live objects are handed in beside them.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Belonging, SyncStrategy};
use kvorum_page_tree::PageCache;

/// Draws a random number.
pub type DrawNumber = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Live objects that all stores of a node share.
#[derive(Clone)]
pub struct Shared {
    /// Pages that were read.
    pub cache: Arc<PageCache>,
}

impl Shared {
    /// A cache of so many bytes.
    pub fn new(cache_bytes: u64) -> Self {
        Self {
            cache: Arc::new(PageCache::new(cache_bytes)),
        }
    }
}

/// Behaviour and performance of a store.
#[derive(Clone, Debug)]
pub struct InnostoreSettings {
    // Behaviour.
    /// The opener's knowledge of the store.
    pub belonging: Belonging,
    /// The promise of [`kvorum_backend::Durability::BackendDefault`], and the time of syncs of the log.
    pub sync: SyncStrategy,
    /// Entries are gone this long after their last modification; `None` for never. An entry's own expiry
    /// counts too, whichever comes first.
    pub expiry: Option<Duration>,
    /// All pages are read again once in this time; `None` for never.
    pub scrub_period: Option<Duration>,

    // Performance.
    /// Pages of about so many bytes. One entry may make a page larger.
    pub page_bytes: usize,
    /// A body of so many bytes gets a page of its own.
    pub body_apart_bytes: usize,
    /// What is in memory is moved to the tree when it takes so many bytes. It is also what is read from the log
    /// after a crash.
    pub dirty_bytes_max: u64,
    /// What is in memory is moved to the tree, however little, when the oldest of it stands more than so many
    /// segments of the log behind the newest.
    pub log_segments_behind_max: u32,
    /// And when it has been there for so long.
    pub dirty_age_max: Duration,
    /// Another file is begun when one has so many bytes.
    pub file_bytes_max: u64,
    /// A file is emptied when this share of its bytes is not used any more, in percent.
    pub garbage_percent: u8,
    /// Files below half of the largest size are joined when there are more than so many.
    pub small_files_max: usize,
}

impl Default for InnostoreSettings {
    fn default() -> Self {
        Self {
            belonging: Belonging::default(),
            sync: SyncStrategy::Grouped,
            expiry: None,
            scrub_period: None,
            page_bytes: 16 << 10,
            body_apart_bytes: 4 << 10,
            dirty_bytes_max: 32 << 20,
            log_segments_behind_max: 32,
            dirty_age_max: Duration::from_secs(300),
            file_bytes_max: 64 << 20,
            garbage_percent: 50,
            small_files_max: 16,
        }
    }
}

//! Settings of a store: behaviour and performance. Live objects are passed separately.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Belonging, SyncStrategy};
use kvorum_page_tree::PageCache;

use crate::claims::Claims;

/// Draws a random number.
pub type DrawNumber = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Live objects that all stores of a node share.
#[derive(Clone)]
pub struct Shared {
    /// The cache of pages.
    pub cache: Arc<PageCache>,
    /// The room that rewrites in progress have claimed.
    pub(crate) claims: Arc<Claims>,
}

impl Shared {
    /// A cache of this many bytes.
    pub fn new(cache_bytes: u64) -> Self {
        Self {
            cache: Arc::new(PageCache::new(cache_bytes)),
            claims: Arc::default(),
        }
    }
}

/// Behaviour and performance of a store.
#[derive(Clone, Debug)]
pub struct InnostoreSettings {
    // Behaviour.
    /// The store's label and identity, as far as they are known at the opening.
    pub belonging: Belonging,
    /// The promise of [`kvorum_backend::Durability::BackendDefault`], and the time of syncs of the log.
    pub sync: SyncStrategy,
    /// Entries expire this long after their last modification; `None` for never. If an entry has an
    /// expiry of its own, the earlier time counts.
    pub expiry: Option<Duration>,
    /// The period in which all pages are read again; `None` for never.
    pub scrub_period: Option<Duration>,

    // Performance.
    /// The approximate size of pages. One entry may make a page larger.
    pub page_bytes: usize,
    /// A body of this size or more gets a page of its own.
    pub body_apart_bytes: usize,
    /// Memory is moved to the tree when it has this many bytes, which also limits the replay after
    /// a crash.
    pub dirty_bytes_max: u64,
    /// Memory of any size is moved to the tree when its oldest entry is more than this many
    /// segments of the log behind the newest.
    pub log_segments_behind_max: u32,
    /// Memory of any size is moved when its oldest entry has this age.
    pub dirty_age_max: Duration,
    /// The size at which the next file is begun.
    pub file_bytes_max: u64,
    /// A file with this share of garbage is emptied, in percent.
    pub garbage_percent: u8,
    /// Files below half of the largest size are joined when there are more than this many.
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

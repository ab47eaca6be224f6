//! The store: the parts that reads and writes use. It does not depend on upkeep, whose jobs get
//! parts of the store.

use std::sync::{Arc, OnceLock};

use kvorum_backend::GroupSync;
use kvorum_disk::DiskLock;
use kvorum_segment::Compressor;
use parking_lot::Mutex;

use crate::contents::Contents;
use crate::home::Home;
use crate::log_share::LogShare;
use crate::read_cache::ReadCache;
use crate::segment_files::SegmentFiles;
use crate::unread::UnreadRecords;

/// Draws a random number.
pub type DrawNumber = Arc<dyn Fn() -> u64 + Send + Sync>;

/// An open store.
pub(crate) struct Store {
    pub(crate) home: Arc<Home>,
    pub(crate) contents: Arc<Contents>,
    pub(crate) log: Arc<LogShare>,
    pub(crate) files: Arc<SegmentFiles>,
    pub(crate) draw: DrawNumber,
    pub(crate) unread: UnreadRecords,
    pub(crate) compressor: Compressor,
    pub(crate) group: Arc<GroupSync>,
    /// Shared by the stores of a node; unset until the node sets it.
    pub(crate) cache: OnceLock<Arc<ReadCache>>,
    /// Released when the store is dropped or closed.
    pub(crate) lock: Mutex<Option<Box<dyn DiskLock>>>,
}

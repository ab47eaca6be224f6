//! A store's share of the value log: the log, if any, and the part that the store's own files
//! cover.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{Replays, StoreId};
use kvorum_encoding::key_segment;
use kvorum_value_log::{Holds, ValueLog};
use parking_lot::Mutex;

use crate::home::Home;

/// The value log, as seen by one store.
pub(crate) struct LogShare {
    home: Arc<Home>,
    /// The log, in which entries stay.
    pub(crate) log: Option<ValueLog>,
    /// The batch up to which the store's own files are complete.
    covered: AtomicU64,
    /// Removals that the opening found in the store's own files, by fingerprint and check: without
    /// a checkpoint, the log also replays older entries of their keys. Empty after the replay.
    pub(crate) hidden: Mutex<BTreeMap<(u64, u64), u64>>,
    /// Batches that the log gave back at the opening.
    pub(crate) replays: Replays,
    /// Segments of the log that copies of the store in progress need.
    pub(crate) holds: Holds,
    /// Expired bytes in the log at its last survey.
    pub(crate) reported_bytes: AtomicU64,
}

impl LogShare {
    pub(crate) fn new(
        home: Arc<Home>,
        log: Option<ValueLog>,
        covered: u64,
        hidden: BTreeMap<(u64, u64), u64>,
    ) -> Self {
        Self {
            home,
            log,
            covered: AtomicU64::new(covered),
            hidden: Mutex::new(hidden),
            replays: Replays::new(|key| Some(key_segment(key))),
            holds: Holds::default(),
            reported_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn covered(&self) -> u64 {
        self.covered.load(Ordering::Acquire)
    }

    /// Notes that a checkpoint or an erasure covers batches up to this one.
    pub(crate) fn cover(&self, sequence: u64) {
        self.covered.fetch_max(sequence, Ordering::AcqRel);
    }

    /// The log's oldest segment with records of this store. The log searches all segments for it,
    /// so a step calls this once. An old result errs on the safe side: segments only disappear, and
    /// records added meanwhile are newer than all records that the step reads.
    pub(crate) fn oldest(&self) -> Option<u32> {
        let log = self.log.as_ref()?;
        log.oldest_segment_of(StoreId(self.home.identity()))
    }

    /// Makes the log survey the store's usage.
    pub(crate) fn usage_changed(&self) {
        if let Some(log) = &self.log {
            log.usage_changed();
        }
    }
}

//! A store's share of the value log: the log, if the store has one, and how much of it the store's own files
//! repeat.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{Replays, StoreId};
use kvorum_encoding::key_segment;
use kvorum_value_log::{Holds, ValueLog};
use parking_lot::Mutex;

use crate::home::Home;

/// The value log as one store has it.
pub(crate) struct LogShare {
    home: Arc<Home>,
    /// The log, where entries stay that were put through it.
    pub(crate) log: Option<ValueLog>,
    /// The batch up to which the store's own files say what it has.
    covered: AtomicU64,
    /// Removals that opening found in the store's own files, by fingerprint and check: without a
    /// checkpoint the log gives back older entries of their keys as well. Empty once it has.
    pub(crate) hidden: Mutex<BTreeMap<(u64, u64), u64>>,
    /// What the log gave back at the opening.
    pub(crate) replays: Replays,
    /// What copies of the store that are being made need of the log.
    pub(crate) holds: Holds,
    /// What was known to have expired in the log when the log last asked. Bytes.
    pub(crate) told_bytes: AtomicU64,
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
            told_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn covered(&self) -> u64 {
        self.covered.load(Ordering::Acquire)
    }

    /// Takes note of a checkpoint, or of an erasure, which leaves nothing to cover.
    pub(crate) fn cover(&self, sequence: u64) {
        self.covered.fetch_max(sequence, Ordering::AcqRel);
    }

    /// The log's oldest segment with anything of this store. The log looks through all of its segments for
    /// it, so that a step asks once: what is known stays on the safe side, for segments only go, and what
    /// comes meanwhile is newer than all that the step looks at.
    pub(crate) fn oldest(&self) -> Option<u32> {
        let log = self.log.as_ref()?;
        log.oldest_segment_of(StoreId(self.home.identity()))
    }

    /// Has the log ask what the store needs of it.
    pub(crate) fn usage_changed(&self) {
        if let Some(log) = &self.log {
            log.usage_changed();
        }
    }
}

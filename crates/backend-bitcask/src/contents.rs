//! The contents of a store: its segments, and the key directory with slots that point into them.

use std::sync::atomic::Ordering;

use parking_lot::RwLock;

use crate::fingerprint::Fingerprints;
use crate::keydir::Keydir;
use crate::segments::Catalog;
use crate::slot::Slot;

/// The view of readers, changed under the catalog's write lock.
pub(crate) struct Contents {
    pub(crate) catalog: RwLock<Catalog>,
    pub(crate) keydir: Keydir,
    pub(crate) fingerprints: Fingerprints,
}

impl Contents {
    /// Drops a key, if it still has this slot.
    pub(crate) fn forget(&self, slot: &Slot) {
        self.catalog.write().forget(&self.keydir, slot);
    }

    /// Notes that a segment of the store's own has unreadable records.
    pub(crate) fn mark_damaged(&self, number: u32) {
        if let Some(entry) = self.catalog.read().segments.get(&number) {
            entry.segment.is_damaged.store(true, Ordering::Relaxed);
        }
    }
}

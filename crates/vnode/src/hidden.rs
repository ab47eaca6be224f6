//! The entries of a store that count as absent, by the batches that wrote them.
//!
//! They are what a store had when its replica turned out to be from before the watermark, until the
//! replica is repaired (decision 37).

use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_backend::{Sequence, StoreId};
use kvorum_reaping::{BatchName, Extent};
use parking_lot::RwLock;

#[derive(Default)]
pub(crate) struct Hidden {
    /// Looked at first, since nearly no vnode hides anything.
    is_any: AtomicBool,
    extent: RwLock<Extent>,
}

impl Hidden {
    pub(crate) fn set(&self, extent: Extent) {
        *self.extent.write() = extent;
        self.is_any.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        self.is_any.store(false, Ordering::Release);
        *self.extent.write() = Extent::default();
    }

    pub(crate) fn has(&self, store: StoreId, written_by: Sequence) -> bool {
        let batch = BatchName {
            store: store.0,
            sequence: written_by.0,
        };
        self.is_any() && self.extent.read().has(batch)
    }

    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }
}

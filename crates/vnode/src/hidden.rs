//! The entries of a store that count as absent, by the batches that wrote them.
//!
//! A replica that turned out to be from before the watermark hides the entries that its store had then,
//! until it is repaired (decision 37).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_backend::{Sequence, StoreId};
use kvorum_reaping::{BatchName, Extent};
use parking_lot::RwLock;

#[derive(Default)]
pub(crate) struct Hidden {
    /// Looked at first, since nearly no vnode hides anything.
    is_any: AtomicBool,
    extent: RwLock<Extent>,
    /// Rises whenever more is hidden.
    generation: AtomicU64,
}

impl Hidden {
    pub(crate) fn set(&self, extent: Extent) {
        *self.extent.write() = extent;
        self.is_any.store(true, Ordering::Release);
        self.generation.fetch_add(1, Ordering::AcqRel);
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

    /// True if all of an extent is hidden.
    pub(crate) fn covers(&self, extent: &Extent) -> bool {
        let own = self.extent.read();
        self.is_any() && extent.lasts().iter().all(|last| own.has(*last))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }
}

//! The open snapshots, so that upkeep can release the version of an expired one.

use std::sync::{Arc, Weak};

use kvorum_backend::{Lease, Timestamp};
use parking_lot::Mutex;

use crate::version::Version;

/// The version that a snapshot uses until its lease ends.
pub(crate) struct Pin {
    pub(crate) lease: Lease,
    version: Mutex<Option<Arc<Version>>>,
}

impl Pin {
    /// The version, or `None` after its release.
    pub(crate) fn version(&self) -> Option<Arc<Version>> {
        self.version.lock().clone()
    }
}

/// The open snapshots of a store.
#[derive(Default)]
pub(crate) struct Pins {
    pins: Mutex<Vec<Weak<Pin>>>,
}

impl Pins {
    pub(crate) fn add(&self, version: Arc<Version>, lease: Lease) -> Arc<Pin> {
        let pin = Arc::new(Pin {
            lease,
            version: Mutex::new(Some(version)),
        });
        let mut pins = self.pins.lock();
        pins.retain(|it| it.strong_count() > 0);
        pins.push(Arc::downgrade(&pin));
        pin
    }

    /// Releases the versions of expired snapshots.
    pub(crate) fn release_expired(&self, now: Timestamp) {
        let mut pins = self.pins.lock();
        pins.retain(|it| match it.upgrade() {
            Some(pin) if pin.lease.is_over(now) => {
                *pin.version.lock() = None;
                false
            }
            pin => pin.is_some(),
        });
    }

    /// Releases all versions.
    pub(crate) fn release_all(&self) {
        for pin in self.pins.lock().drain(..).filter_map(|it| it.upgrade()) {
            *pin.version.lock() = None;
        }
    }

    /// The versions that snapshots hold.
    pub(crate) fn versions(&self) -> Vec<Arc<Version>> {
        let pins = self.pins.lock();
        let held = pins.iter().filter_map(Weak::upgrade);
        held.filter_map(|pin| pin.version()).collect()
    }
}

//! The open snapshots, so that upkeep can release the version of an expired one.

use std::sync::{Arc, Weak};

use kvorum_backend::{Lease, Timestamp};
use parking_lot::Mutex;

use crate::version::Version;

/// The version that a snapshot uses until its lease ends.
pub(crate) struct Pin {
    pub(crate) lease: Lease,
    version: Mutex<Option<Version>>,
}

impl Pin {
    /// The version, or `None` after its release.
    pub(crate) fn version(&self) -> Option<Version> {
        self.version.lock().clone()
    }
}

/// The open snapshots of a store.
#[derive(Default)]
pub(crate) struct Pins {
    pins: Mutex<Vec<Weak<Pin>>>,
}

impl Pins {
    pub(crate) fn add(&self, version: Version, lease: Lease) -> Arc<Pin> {
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
        self.release(|pin| pin.lease.is_over(now));
    }

    /// Releases all versions.
    pub(crate) fn release_all(&self) {
        self.release(|_| true);
    }

    fn release(&self, is_to_go: impl Fn(&Pin) -> bool) {
        let mut released = Vec::new();
        self.pins.lock().retain(|it| match it.upgrade() {
            Some(pin) if is_to_go(&pin) => {
                released.push(pin);
                false
            }
            pin => pin.is_some(),
        });
        for pin in released {
            *pin.version.lock() = None;
        }
    }

    /// The versions that snapshots hold.
    pub(crate) fn versions(&self) -> Vec<Version> {
        let pins = self.pins.lock();
        let held = pins.iter().filter_map(Weak::upgrade);
        held.filter_map(|pin| pin.version()).collect()
    }
}

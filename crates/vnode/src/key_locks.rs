//! Per-key serialisation of read-modify-write, by striped locks.
//!
//! A put reads the stored object, decides, and writes; two puts of one key must not interleave. A
//! stripe serves many keys: a needless wait now and then costs less than a map of locks. No lock is
//! held across a sync.

use std::hash::{BuildHasher, RandomState};

use kvorum_encoding::StorageKey;
use parking_lot::{Mutex, MutexGuard};

const STRIPES: usize = 64;

/// The locks of one vnode.
pub(crate) struct KeyLocks {
    stripes: Vec<Mutex<()>>,
    // Keyed at random: a client must not be able to choose keys that share a stripe. The choice of a
    // stripe changes no answer, so simulation stays deterministic.
    hasher: RandomState,
}

impl KeyLocks {
    pub(crate) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Waits for the key's turn. For threads that may block.
    pub(crate) fn lock(&self, key: &StorageKey) -> MutexGuard<'_, ()> {
        self.stripe(key).lock()
    }

    /// The key's turn if it is free now.
    pub(crate) fn try_lock(&self, key: &StorageKey) -> Option<MutexGuard<'_, ()>> {
        self.stripe(key).try_lock()
    }

    /// Waits until all present holders have released their locks.
    pub(crate) fn await_holders(&self) {
        for stripe in &self.stripes {
            drop(stripe.lock());
        }
    }

    fn stripe(&self, key: &StorageKey) -> &Mutex<()> {
        let hash = self.hasher.hash_one(key.as_bytes());
        &self.stripes[usize::try_from(hash % STRIPES as u64).unwrap_or(0)]
    }
}

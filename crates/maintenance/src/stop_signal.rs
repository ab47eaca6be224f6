//! A signal that stops the maintenance thread, and wakes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A flag that ends rests when it is set.
#[derive(Default)]
pub struct StopSignal {
    is_stopping: AtomicBool,
    gate: Mutex<()>,
    woken: Condvar,
}

impl StopSignal {
    /// Sets the flag, and ends a rest.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let _gate = self.gate.lock();
        self.woken.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Waits for this time, or until the signal is set. Blocks.
    pub fn rest(&self, duration: Duration) {
        let mut gate = self.gate.lock();
        if !self.is_set() {
            self.woken.wait_for(&mut gate, duration);
        }
    }
}

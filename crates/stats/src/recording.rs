//! Common data of all figures of one event: its time, and the copies that its thread records to.

use std::time::Duration;

use crate::stripe::Stripe;

/// A histogram's window is ten slices of six seconds.
pub(crate) const SLICE_SECONDS: u64 = 6;
pub(crate) const SLICES: u64 = 10;

/// A moment at which several figures are recorded by one thread, worked out once for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    pub(crate) stripe: Stripe,
    pub(crate) second: u64,
    /// The place and the turn of a histogram's slice.
    pub(crate) slice: (usize, u64),
}

impl Recording {
    /// Figures of the calling thread at this time.
    pub fn new(now: Duration) -> Self {
        Self::to(Stripe::of_this_thread(), now)
    }

    /// Figures that all threads record to one copy. It takes less memory, and threads wait for each other.
    pub fn shared(now: Duration) -> Self {
        Self::to(Stripe::OF_ALL, now)
    }

    fn to(stripe: Stripe, now: Duration) -> Self {
        let second = now.as_secs();
        Self {
            stripe,
            second,
            slice: slot_of(second / SLICE_SECONDS),
        }
    }
}

/// Slot of a slice of time, and the turn around the window.
pub(crate) fn slot_of(number: u64) -> (usize, u64) {
    (
        usize::try_from(number % SLICES).unwrap_or(0),
        number / SLICES,
    )
}

//! What all figures of one event have in common: when it was, and which copies its thread records to.

use std::time::Duration;

use crate::histogram;
use crate::stripe::Stripe;

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
        let second = now.as_secs();
        Self {
            stripe: Stripe::of_this_thread(),
            second,
            slice: histogram::slice_of(second),
        }
    }
}

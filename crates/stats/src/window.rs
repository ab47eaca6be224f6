//! A count that belongs to one turn of a window, and expires with it.
//!
//! A window is an array of cells, one for each slice of time, reused at every turn around it. A cell holds
//! the turn and the count in one word, so that the first recorder of a new turn replaces the old count in
//! one step. Clearing a slice by a sweep would need a lock, or lose concurrent counts.
//!
//! ```text
//! turn, 24 bits | count, 40 bits
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use crate::stripe::Stripe;

const COUNT_BITS: u32 = 40;
/// The largest count, and the largest value that a [`Cell`] keeps as a maximum.
pub(crate) const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const TURN_MASK: u64 = (1 << (64 - COUNT_BITS)) - 1;
/// The most that is added at once, so that the count cannot overflow into the turn within one slice.
const ADDED_MAX: u64 = u32::MAX as u64;

/// One slice's count or maximum.
#[derive(Debug, Default)]
pub(crate) struct Cell(AtomicU64);

impl Cell {
    /// Adds to this turn's count, unless the turn has passed.
    #[inline]
    pub(crate) fn add(&self, stripe: Stripe, turn: u64, count: u64) {
        let turn = turn & TURN_MASK;
        let count = count.min(ADDED_MAX);
        if self.0.load(Ordering::Relaxed) >> COUNT_BITS == turn || self.begin(turn) {
            stripe.add(&self.0, count);
        }
    }

    /// Starts a turn at zero, unless it has passed.
    #[cold]
    fn begin(&self, turn: u64) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen >> COUNT_BITS != turn {
            if seen >> COUNT_BITS > turn {
                return false;
            }
            let fresh = turn << COUNT_BITS;
            match self
                .0
                .compare_exchange_weak(seen, fresh, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        true
    }

    /// Raises this turn's maximum. Words of later turns are greater anyway.
    pub(crate) fn raise(&self, turn: u64, value: u64) {
        let raised = (turn & TURN_MASK) << COUNT_BITS | value.min(COUNT_MAX);
        // The maximum is seldom raised, and a load leaves the cache line shared.
        if self.0.load(Ordering::Relaxed) < raised {
            self.0.fetch_max(raised, Ordering::Relaxed);
        }
    }

    /// This turn's count or maximum.
    pub(crate) fn get(&self, turn: u64) -> u64 {
        let seen = self.0.load(Ordering::Relaxed);
        if seen >> COUNT_BITS == turn & TURN_MASK {
            seen & COUNT_MAX
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_turn_starts_from_nothing() {
        let cell = Cell::default();
        let stripe = Stripe::of_this_thread();
        cell.add(stripe, 0, 2);
        cell.add(stripe, 0, 3);
        assert_eq!(cell.get(0), 5);
        cell.add(stripe, 7, 1);
        assert_eq!((cell.get(0), cell.get(7)), (0, 1));
        cell.add(stripe, 6, 9);
        assert_eq!(cell.get(7), 1);
    }

    #[test]
    fn a_maximum_belongs_to_its_turn() {
        let cell = Cell::default();
        cell.raise(1, 50);
        cell.raise(1, 20);
        assert_eq!(cell.get(1), 50);
        cell.raise(2, 3);
        assert_eq!((cell.get(1), cell.get(2)), (0, 3));
        cell.raise(2, u64::MAX);
        assert_eq!(cell.get(2), COUNT_MAX);
    }
}

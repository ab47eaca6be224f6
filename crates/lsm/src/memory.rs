//! One budget for the memtables of all stores of a node.
//!
//! Each store flushes when its own memtable is full. The memtables of many stores may together
//! exceed the budget: then the stores with the larger shares flush early.

use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of memtables and its limit, in bytes.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: AtomicU64,
    used: AtomicU64,
    stores: AtomicU64,
}

impl MemoryBudget {
    /// A budget of this many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max: AtomicU64::new(bytes_max),
            used: AtomicU64::new(0),
            stores: AtomicU64::new(0),
        }
    }

    /// Changes the budget.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// The budget, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// The present memory of memtables, in bytes.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self) {
        self.stores.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.stores.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// True when a memtable of `bytes` should be flushed early: more than three quarters of the
    /// budget are used, and this memtable has more than half of a store's share.
    pub(crate) fn wants_flush(&self, bytes: u64) -> bool {
        self.used() > self.bytes_max() / 4 * 3 && self.is_large(bytes)
    }

    /// True when puts to a memtable of `bytes` should pay for flushing it: the budget is exceeded,
    /// and this memtable has more than half of a store's share.
    pub(crate) fn is_exceeded_by(&self, bytes: u64) -> bool {
        self.used() > self.bytes_max() && self.is_large(bytes)
    }

    fn is_large(&self, bytes: u64) -> bool {
        let share = self.bytes_max() / self.stores.load(Ordering::Relaxed).max(1);
        bytes > share / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_above_their_share_make_room_when_the_budget_runs_out() {
        let budget = MemoryBudget::new(1000);
        (0..10).for_each(|_| budget.enter());
        budget.add(700);
        assert!(!budget.wants_flush(300));
        budget.add(100);
        assert!(budget.wants_flush(300) && !budget.wants_flush(20));
        assert!(!budget.is_exceeded_by(300));
        budget.add(300);
        assert!(budget.is_exceeded_by(300) && !budget.is_exceeded_by(20));
        budget.subtract(700);
        assert!(!budget.wants_flush(300));
    }
}

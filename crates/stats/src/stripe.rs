//! Which copy of a counter a thread records to.
//!
//! Two cores that record to one word wait for each other's cache line, some 100 ns each time. So
//! every counter has a few copies, a thread keeps to one of them, and readers add them up.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// As many copies as there are; more threads than this share them.
pub(crate) const STRIPES: usize = 8;

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
}

/// The copy of the calling thread, below [`STRIPES`].
pub(crate) fn stripe() -> usize {
    // A thread that is ending may record too; any copy is as right as another.
    STRIPE.try_with(Cell::get).unwrap_or(0)
}

//! A bound on what is in progress: beyond it, the answer is "no" at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is in progress.
pub(crate) struct Gate {
    max: usize,
    in_progress: AtomicUsize,
}

/// One thing in progress; dropped when it has ended.
pub(crate) struct Pass<'a>(&'a Gate);

impl Gate {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            in_progress: AtomicUsize::new(0),
        }
    }

    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress.load(Ordering::Relaxed)
    }

    /// True when there is no room for one more.
    pub(crate) fn is_full(&self) -> bool {
        self.in_progress() >= self.max
    }

    /// Room for one more, until the pass is dropped.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        self.count_in().then(|| Pass(self))
    }

    /// Room for one more, until [`Gate::count_out`]; for those who cannot hold a borrow.
    pub(crate) fn count_in(&self) -> bool {
        let before = self.in_progress.fetch_add(1, Ordering::Relaxed);
        if before >= self.max {
            self.count_out();
            return false;
        }
        true
    }

    pub(crate) fn count_out(&self) {
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.count_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_bound_is_refused_until_something_ends() {
        let gate = Gate::new(2);
        let first = gate.enter();
        let second = gate.enter();
        assert!(first.is_some() && second.is_some());
        assert!(gate.is_full() && gate.enter().is_none());
        assert_eq!(gate.in_progress(), 2);
        drop(first);
        assert!(!gate.is_full());
        assert!(gate.enter().is_some());
        assert!(Gate::new(0).enter().is_none());
    }
}

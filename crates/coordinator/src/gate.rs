//! A bound on requests in progress: beyond it, a request is refused at once.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the requests in progress.
pub(crate) struct Gate {
    max: usize,
    in_progress: AtomicUsize,
}

/// Holds the place of one request; dropped when the request ends.
pub(crate) struct Pass<G: Deref<Target = Gate>>(G);

/// A pass that outlives every borrow of its gate.
pub(crate) type OwnPass = Pass<Arc<Gate>>;

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
    pub(crate) fn enter(&self) -> Option<Pass<&Self>> {
        self.has_counted_in().then(|| Pass(self))
    }

    /// Like [`Gate::enter`], for callers that cannot hold a borrow.
    pub(crate) fn enter_owned(self: &Arc<Self>) -> Option<OwnPass> {
        self.has_counted_in().then(|| Pass(self.clone()))
    }

    fn has_counted_in(&self) -> bool {
        let before = self.in_progress.fetch_add(1, Ordering::Relaxed);
        if before >= self.max {
            self.count_out();
            return false;
        }
        true
    }

    fn count_out(&self) {
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<G: Deref<Target = Gate>> Drop for Pass<G> {
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

//! The copy of a counter that a thread records to.
//!
//! Two cores that record to one word wait for each other's cache line, some 100 ns each time. So every
//! counter has a few copies, and readers add them up. The first threads that record get a copy of their
//! own until they end. They load, add and store, which is cheaper than an atomic addition. Later threads
//! share the last copy.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of copies.
pub(crate) const STRIPES: usize = 16;
/// The copy of all threads that have none of their own.
const SHARED: usize = STRIPES - 1;

/// A bit for each copy that belongs to a thread.
static OWNED: AtomicU64 = AtomicU64::new(0);

/// The copy that a thread records to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    number: usize,
    is_own: bool,
}

/// Gives the thread's copy back when the thread ends.
struct Claim(Stripe);

thread_local! {
    static CLAIM: Claim = Claim::new();
}

impl Stripe {
    /// The copy that belongs to no thread.
    pub(crate) const OF_ALL: Self = Self {
        number: SHARED,
        is_own: false,
    };

    /// The copy of the calling thread.
    #[inline]
    pub(crate) fn of_this_thread() -> Self {
        // A thread that is ending may record too.
        CLAIM.try_with(|claim| claim.0).unwrap_or(Self::OF_ALL)
    }

    /// Its place among the copies, below [`STRIPES`].
    #[inline]
    pub(crate) fn number(self) -> usize {
        self.number
    }

    /// Adds to a word of this copy.
    #[inline]
    pub(crate) fn add(self, word: &AtomicU64, amount: u64) {
        if self.is_own {
            let before = word.load(Ordering::Relaxed);
            word.store(before.wrapping_add(amount), Ordering::Relaxed);
        } else {
            word.fetch_add(amount, Ordering::Relaxed);
        }
    }
}

impl Claim {
    fn new() -> Self {
        // The next owner sees the stores of the last one: `Acquire` here, `Release` below.
        let claimed = OWNED.try_update(Ordering::Acquire, Ordering::Relaxed, |owned| {
            let free = owned.trailing_ones() as usize;
            (free < SHARED).then_some(owned | 1 << free)
        });
        Self(claimed.map_or(Stripe::OF_ALL, |owned| Stripe {
            number: owned.trailing_ones() as usize,
            is_own: true,
        }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.0.is_own {
            OWNED.fetch_and(!(1 << self.0.number), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn no_two_running_threads_own_one_copy() {
        let threads = 2 * STRIPES;
        let all_have = Barrier::new(threads);
        let claim = || {
            let stripe = Stripe::of_this_thread();
            assert_eq!(stripe, Stripe::of_this_thread());
            all_have.wait();
            stripe
        };
        let stripes: Vec<Stripe> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(claim)).collect();
            running.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let (mut owned, shared): (Vec<Stripe>, Vec<Stripe>) =
            stripes.into_iter().partition(|stripe| stripe.is_own);
        owned.sort_unstable_by_key(|stripe| stripe.number);
        let is_distinct = owned.windows(2).all(|it| it[0].number < it[1].number);
        assert!(is_distinct, "{owned:?}");
        assert!(owned.iter().all(|stripe| stripe.number < SHARED));
        assert!(!shared.is_empty() && shared.iter().all(|stripe| *stripe == Stripe::OF_ALL));
    }

    #[test]
    fn the_copy_of_a_thread_that_ended_is_given_to_another() {
        let mut owned = 0;
        for _ in 0..10 * STRIPES {
            let stripe = std::thread::scope(|scope| scope.spawn(Stripe::of_this_thread).join());
            owned += usize::from(stripe.unwrap().is_own);
        }
        assert!(owned > STRIPES, "{owned}");
    }
}

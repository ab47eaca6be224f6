//! Counters: events with a one-minute window, total events, and present amounts.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::recording::Recording;
use crate::stripe::{self, STRIPES};
use crate::window::Cell;

/// The window, in seconds.
const WINDOW: u64 = 60;
/// One slice per second, and four more, so that a recorder that is a little late does not meet a new turn.
const SLICES: usize = 64;

/// Events of the last minute and since the start. The copy for a thread's stripe is made at its
/// first count.
#[derive(Debug, Default)]
pub struct Counter {
    stripes: [OnceLock<Box<Stripe>>; STRIPES],
}

#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    total: AtomicU64,
    seconds: [Cell; SLICES],
}

impl Default for Stripe {
    fn default() -> Self {
        Self {
            total: AtomicU64::new(0),
            seconds: std::array::from_fn(|_| Cell::default()),
        }
    }
}

impl Counter {
    /// Counts one event.
    pub fn count(&self, now: Duration) {
        self.add(now, 1);
    }

    /// Counts several events at once.
    pub fn add(&self, now: Duration, events: u64) {
        self.add_at(&Recording::new(now), events);
    }

    /// Counts one event, as one of several recordings of a caller.
    pub fn count_at(&self, recording: &Recording) {
        self.add_at(recording, 1);
    }

    fn add_at(&self, recording: &Recording, events: u64) {
        let own = recording.stripe;
        let stripe = self.stripes[own.number()].get_or_init(Box::default);
        let (slot, turn) = slot_of(recording.second);
        stripe.seconds[slot].add(own, turn, events);
        own.add(&stripe.total, events);
    }

    /// The events of the 60 seconds that end with the present one.
    pub fn last_minute(&self, now: Duration) -> u64 {
        let last = now.as_secs();
        let seconds = last.saturating_sub(WINDOW - 1)..=last;
        let in_second = |second: u64| -> u64 {
            let (slot, turn) = slot_of(second);
            self.counted()
                .map(|stripe| stripe.seconds[slot].get(turn))
                .sum()
        };
        seconds.map(in_second).sum()
    }

    /// The events since the start.
    pub fn total(&self) -> u64 {
        self.counted()
            .map(|stripe| stripe.total.load(Ordering::Relaxed))
            .sum()
    }

    fn counted(&self) -> impl Iterator<Item = &Stripe> {
        self.stripes
            .iter()
            .filter_map(|stripe| stripe.get().map(Box::as_ref))
    }
}

/// The slot of a second, and its turn around the window.
fn slot_of(second: u64) -> (usize, u64) {
    let slices = SLICES as u64;
    (
        usize::try_from(second % slices).unwrap_or(0),
        second / slices,
    )
}

/// Events since the start.
#[derive(Debug, Default)]
pub struct Total {
    stripes: [Word; STRIPES],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Word(AtomicU64);

impl Total {
    /// Counts one event.
    pub fn count(&self) {
        self.add(1);
    }

    /// Counts several events at once.
    pub fn add(&self, events: u64) {
        let own = stripe::Stripe::of_this_thread();
        own.add(&self.stripes[own.number()].0, events);
    }

    /// The events since the start.
    pub fn total(&self) -> u64 {
        self.stripes
            .iter()
            .map(|word| word.0.load(Ordering::Relaxed))
            .sum()
    }
}

/// A present amount.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets the amount.
    pub fn set(&self, amount: i64) {
        self.0.store(amount, Ordering::Relaxed);
    }

    /// Adds to the amount; a negative change reduces it.
    pub fn add(&self, change: i64) {
        self.0.fetch_add(change, Ordering::Relaxed);
    }

    /// The amount.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn a_minute_ends_with_the_present_second() {
        let counter = Counter::default();
        counter.count(at(0));
        counter.add(at(59), 4);
        assert_eq!(counter.last_minute(at(59)), 5);
        assert_eq!(counter.last_minute(at(60)), 4);
        assert_eq!(counter.last_minute(at(118)), 4);
        assert_eq!(counter.last_minute(at(119)), 0);
        assert_eq!(counter.total(), 5);
    }

    #[test]
    fn a_window_used_again_does_not_show_its_last_turn() {
        let counter = Counter::default();
        for second in 0..1000 {
            counter.count(at(second));
            assert_eq!(counter.last_minute(at(second)), (second + 1).min(60));
        }
        assert_eq!(counter.last_minute(at(5000)), 0);
    }

    #[test]
    fn threads_lose_no_event() {
        let (counter, total) = (Counter::default(), Total::default());
        let (threads, each) = (20, 5000);
        let count = |event| {
            counter.count(at(event / 100));
            total.count();
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..each).for_each(count));
            }
        });
        assert_eq!(total.total(), threads * each);
        assert_eq!(counter.total(), threads * each);
        assert_eq!(counter.last_minute(at(49)), threads * each);
    }
}

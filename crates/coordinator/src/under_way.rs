//! Work under way, counted so that a round of reaping can wait for earlier work (decision 37).
//!
//! Work may carry an object that is older than a tombstone: a put that waits for a device, a repair that
//! has read an old replica, a hint that is being handed over. Such work holds a [`Pass`] while it may still
//! write. [`UnderWay::settle`] waits until all passes issued before the call are returned.
//!
//! Passes are of at most two generations, and new ones are of the later generation. Counts are in
//! several places, so that cores that issue passes do not share a word.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kvorum_runtime::Runtime;

/// Places of counts.
const PLACES: usize = 16;
/// Pause between two readings of the counts.
const LOOK_PERIOD: Duration = Duration::from_millis(2);

/// See the module's description.
#[derive(Default)]
pub struct UnderWay {
    generation: AtomicU64,
    places: [Place; PLACES],
}

/// Passes that are out, by generation. Each place is alone on its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Place([AtomicU64; 2]);

/// Work counts as under way until this is dropped.
#[must_use = "the work counts for as long as this is there"]
pub(crate) struct Pass<U: Deref<Target = UnderWay>> {
    under_way: U,
    place: usize,
    generation: u64,
}

impl UnderWay {
    /// A pass for work that ends within the caller's borrow.
    pub(crate) fn begin(&self) -> Pass<&Self> {
        Pass::new(self)
    }

    /// A pass for work that outlives the caller.
    pub(crate) fn begin_owned(self: &Arc<Self>) -> Pass<Arc<Self>> {
        Pass::new(self.clone())
    }

    /// Waits until all work that was under way at the call has ended.
    pub async fn settle(&self, runtime: &Runtime) {
        let present = loop {
            let present = self.generation.load(Ordering::SeqCst);
            let next = present.wrapping_add(1);
            // The next generation reuses the counts of the generation before the present one.
            self.until_empty(next, runtime).await;
            let order = Ordering::SeqCst;
            let exchanged = self
                .generation
                .compare_exchange(present, next, order, order);
            if exchanged.is_ok() {
                break present;
            }
        };
        self.until_empty(present, runtime).await;
    }

    async fn until_empty(&self, generation: u64, runtime: &Runtime) {
        while !self.is_empty(generation) {
            runtime.sleep(LOOK_PERIOD).await;
        }
    }

    fn is_empty(&self, generation: u64) -> bool {
        let mut counts = self.places.iter().map(|it| it.of(generation));
        counts.all(|it| it.load(Ordering::SeqCst) == 0)
    }
}

impl Place {
    fn of(&self, generation: u64) -> &AtomicU64 {
        &self.0[usize::from(!generation.is_multiple_of(2))]
    }
}

impl<U: Deref<Target = UnderWay>> Pass<U> {
    fn new(under_way: U) -> Self {
        let place = own_place();
        loop {
            let generation = under_way.generation.load(Ordering::SeqCst);
            let count = under_way.places[place].of(generation);
            count.fetch_add(1, Ordering::SeqCst);
            if under_way.generation.load(Ordering::SeqCst) == generation {
                return Self {
                    under_way,
                    place,
                    generation,
                };
            }
            // Counted for a generation that may have been found empty already.
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl<U: Deref<Target = UnderWay>> Drop for Pass<U> {
    fn drop(&mut self) {
        let count = self.under_way.places[self.place].of(self.generation);
        count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The place of this thread's counts.
fn own_place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.with(|own| {
        let place = own.get();
        let place = place.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) % PLACES);
        own.set(Some(place));
        place
    })
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Polls a settling; true if it has ended.
    fn has_ended(settling: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        settling.poll(&mut context) == Poll::Ready(())
    }

    fn simulated<F: Future<Output = ()>>(test: impl FnOnce(Runtime) -> F) {
        let executor = Runtime::simulated(1).unwrap();
        executor.block_on(test(executor.runtime()));
    }

    #[test]
    fn settling_waits_for_what_began_before_and_for_nothing_else() {
        simulated(|runtime| async move {
            let under_way = Arc::new(UnderWay::default());
            under_way.settle(&runtime).await;
            let before = under_way.begin_owned();
            let mut settling = Box::pin(under_way.settle(&runtime));
            assert!(!has_ended(settling.as_mut()));
            let _later = under_way.begin_owned();
            drop(before);
            settling.await;
        });
    }

    #[test]
    fn work_of_each_generation_is_waited_for_in_turn() {
        simulated(|runtime| async move {
            let under_way = UnderWay::default();
            for _ in 0..5 {
                let pass = under_way.begin();
                let mut settling = Box::pin(under_way.settle(&runtime));
                assert!(!has_ended(settling.as_mut()));
                drop(pass);
                settling.await;
            }
        });
    }

    /// A call that is given up leaves earlier work to the next call.
    #[test]
    fn settling_that_was_given_up_is_made_up_for_by_the_next() {
        simulated(|runtime| async move {
            let under_way = UnderWay::default();
            let before = under_way.begin();
            let mut given_up = Box::pin(under_way.settle(&runtime));
            assert!(!has_ended(given_up.as_mut()));
            drop(given_up);
            let mut settling = Box::pin(under_way.settle(&runtime));
            assert!(!has_ended(settling.as_mut()));
            drop(before);
            settling.await;
        });
    }
}

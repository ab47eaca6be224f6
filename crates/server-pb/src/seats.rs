//! The connections that are still served, and the signal to all of them that the server stops.
//!
//! Each connection and each acceptor holds a seat. A stop wakes every waiting holder; the last to leave
//! wakes the stopping task. With a shared `watch` or `Notify`, every wait for input would take a
//! lock that all connections share. Here a wait costs an atomic swap.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// All seats of a server.
#[derive(Default)]
pub(crate) struct Seats {
    is_stopping: AtomicBool,
    taken: Mutex<Taken>,
    all_left: Notify,
}

#[derive(Default)]
struct Taken {
    next_number: u64,
    waiting: BTreeMap<u64, Arc<AtomicWaker>>,
}

/// One holder's place; dropped when it is done.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    waiting: Arc<AtomicWaker>,
}

impl Seats {
    /// A seat, unless the server stops.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Seat> {
        let mut taken = self.taken.lock();
        if self.is_stopping.load(Ordering::Acquire) {
            return None;
        }
        let number = taken.next_number;
        taken.next_number += 1;
        let waiting = Arc::<AtomicWaker>::default();
        taken.waiting.insert(number, Arc::clone(&waiting));
        Some(Seat {
            seats: Arc::clone(self),
            number,
            waiting,
        })
    }

    /// Number of seats taken, those of acceptors included.
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().waiting.len()
    }

    /// Signals the stop to all holders and waits until they have left.
    pub(crate) async fn stop(&self) {
        {
            let taken = self.taken.lock();
            self.is_stopping.store(true, Ordering::Release);
            for waiting in taken.waiting.values() {
                waiting.wake();
            }
        }
        loop {
            let mut left = pin!(self.all_left.notified());
            left.as_mut().enable();
            if self.taken.lock().waiting.is_empty() {
                return;
            }
            left.await;
        }
    }
}

impl Seat {
    /// Waits for a future, or drops it when the server stops. The stop is checked first.
    pub(crate) async fn unless_stopping<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|context| {
            if self.is_stopping() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            self.waiting.register(context.waker());
            // A stop between the first check and the registration has woken no task.
            match self.is_stopping() {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
        .await
    }

    fn is_stopping(&self) -> bool {
        self.seats.is_stopping.load(Ordering::Acquire)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        taken.waiting.remove(&self.number);
        if taken.waiting.is_empty() {
            self.seats.all_left.notify_waiters();
        }
    }
}

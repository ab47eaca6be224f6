//! A value that some tasks wait to see changed.
//!
//! Like tokio's `watch`, except that waits end in the order in which they began. Tokio's order
//! depends on randomness without a seed, so a simulation would not be repeatable.

use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The value on the side that changes it. After it is dropped, there are no more changes.
#[derive(Debug)]
pub struct Watched<T> {
    shared: Arc<Shared<T>>,
}

/// Reads the value, and waits for its changes. A clone has seen the same changes as its original.
#[derive(Clone, Debug)]
pub struct Watcher<T> {
    shared: Arc<Shared<T>>,
    /// The change that was seen last.
    seen: u64,
}

/// There will be no more changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the source of changes is gone")]
pub struct Gone;

#[derive(Debug)]
struct Shared<T> {
    present: Mutex<Present<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct Present<T> {
    value: T,
    /// Number of times that the value was set.
    changes: u64,
    is_over: bool,
}

impl<T: Copy> Watched<T> {
    /// Begins with `value`.
    pub fn new(value: T) -> Self {
        let present = Mutex::new(Present {
            value,
            changes: 0,
            is_over: false,
        });
        let changed = Notify::new();
        let shared = Arc::new(Shared { present, changed });
        Self { shared }
    }

    /// The value at this moment.
    pub fn get(&self) -> T {
        self.shared.present.lock().value
    }

    /// Sets the value and wakes all waiting tasks, even if the value is the same.
    pub fn set(&self, value: T) {
        {
            let mut present = self.shared.present.lock();
            present.value = value;
            present.changes += 1;
        }
        self.shared.changed.notify_waiters();
    }

    /// Another watcher; the present value counts as seen.
    pub fn watch(&self) -> Watcher<T> {
        let shared = self.shared.clone();
        let seen = shared.present.lock().changes;
        Watcher { shared, seen }
    }
}

impl<T: Copy + Default> Default for Watched<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        self.shared.present.lock().is_over = true;
        self.shared.changed.notify_waiters();
    }
}

impl<T: Copy> Watcher<T> {
    /// The present value, which then counts as seen.
    pub fn see(&mut self) -> T {
        let present = self.shared.present.lock();
        self.seen = present.changes;
        present.value
    }

    /// Waits for a change that was not seen yet, and returns the new value.
    ///
    /// # Errors
    /// There will be no more changes.
    pub async fn changed(&mut self) -> Result<T, Gone> {
        let shared = self.shared.clone();
        loop {
            let mut changed = pin!(shared.changed.notified());
            // Enabled before the check, so that no later change is missed.
            changed.as_mut().enable();
            let before = self.seen;
            let value = self.see();
            if self.seen != before {
                return Ok(value);
            }
            if shared.present.lock().is_over {
                return Err(Gone);
            }
            changed.await;
        }
    }

    /// Waits until `holds` returns true for the value.
    ///
    /// # Errors
    /// There will be no more changes, and `holds` returns false.
    pub async fn until(&mut self, holds: impl Fn(&T) -> bool) -> Result<T, Gone> {
        let mut value = self.see();
        while !holds(&value) {
            value = self.changed().await?;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Runtime;

    #[test]
    fn waits_end_in_the_order_in_which_they_began() {
        let executor = Runtime::simulated(1).unwrap();
        let runtime = executor.runtime();
        executor.block_on(async {
            let watched = Watched::new(0_u64);
            let order = Arc::new(Mutex::new(Vec::new()));
            let waits: Vec<_> = (0..40)
                .map(|number| {
                    let (mut watcher, order) = (watched.watch(), order.clone());
                    runtime.spawn("wait", async move {
                        watcher.until(|it| *it > 2).await.unwrap();
                        order.lock().push(number);
                    })
                })
                .collect();
            for value in 1..=3 {
                runtime.sleep(Duration::from_millis(1)).await;
                watched.set(value);
            }
            for wait in waits {
                wait.await.unwrap();
            }
            assert!(order.lock().iter().copied().eq(0..40), "{:?}", order.lock());
        });
    }

    #[test]
    fn a_change_is_seen_once_also_by_a_late_reader() {
        let executor = Runtime::simulated(1).unwrap();
        let runtime = executor.runtime();
        executor.block_on(async {
            let watched = Watched::new(0_u64);
            let (mut early, mut late) = (watched.watch(), watched.watch());
            watched.set(1);
            watched.set(2);
            assert_eq!(early.changed().await, Ok(2));
            assert_eq!(late.see(), 2);
            for watcher in [&mut early, &mut late] {
                let wait = Duration::from_secs(1);
                let ended = runtime.timeout(wait, watcher.changed()).await;
                assert!(ended.is_err(), "seen again: {ended:?}");
            }
            assert_eq!(watched.get(), 2);
        });
    }

    #[test]
    fn the_last_change_is_seen_before_the_end() {
        let executor = Runtime::simulated(1).unwrap();
        executor.block_on(async {
            let watched = Watched::new(0_u64);
            let (mut changed, mut until) = (watched.watch(), watched.watch());
            watched.set(1);
            drop(watched);
            assert_eq!(changed.changed().await, Ok(1));
            assert_eq!(changed.changed().await, Err(Gone));
            assert_eq!(until.until(|it| *it == 1).await, Ok(1));
            assert_eq!(until.until(|it| *it == 2).await, Err(Gone));
        });
    }
}

//! Waits for progress of the library.
//!
//! tokio wakes the library's own waits in an order that it draws without a seed: when several end
//! at once, a simulation could not be repeated. Here tokio wakes one task, which wakes the others
//! in the order in which they began to wait.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kvorum_runtime::Runtime;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;

/// Progress, and the tasks that wait for it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Progress<T> {
    latest: Receiver<T>,
    changed: Arc<Notify>,
}

/// The reason why a wait ended without its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WaitEnd {
    #[error("the time is over")]
    Time,
    #[error("the log is stopping")]
    Stopped,
}

impl<T: Send + Sync + 'static> Progress<T> {
    /// Progress that follows all changes from now on.
    pub(crate) fn follow(runtime: &Runtime, latest: Receiver<T>) -> Self {
        let changed = Arc::new(Notify::new());
        let (mut followed, notify) = (latest.clone(), changed.clone());
        runtime.spawn("agreement progress", async move {
            while followed.changed().await.is_ok() {
                notify.notify_waiters();
            }
            notify.notify_waiters();
        });
        Self { latest, changed }
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(
        &self,
        runtime: &Runtime,
        wait: Duration,
        holds: impl Fn(&T) -> bool,
    ) -> Result<(), WaitEnd> {
        let waiting = async {
            loop {
                let mut changed = pin!(self.changed.notified());
                changed.as_mut().enable();
                if holds(&self.latest.borrow()) {
                    return Ok(());
                }
                // An error means that no further change will come.
                if self.latest.has_changed().is_err() {
                    return Err(WaitEnd::Stopped);
                }
                changed.await;
            }
        };
        let ended = runtime.timeout(wait, waiting).await;
        ended.unwrap_or(Err(WaitEnd::Time))
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the library's channel is the one that is followed"
)]
mod tests {
    use parking_lot::Mutex;
    use tokio::sync::watch;

    use super::*;

    #[test]
    fn who_waits_first_goes_on_first_when_several_waits_end_at_once() {
        let executor = Runtime::simulated(1).unwrap();
        let runtime = executor.runtime();
        executor.block_on(async {
            let (sender, receiver) = watch::channel(0_u64);
            let progress = Progress::follow(&runtime, receiver);
            let order = Arc::new(Mutex::new(Vec::new()));
            let wait = Duration::from_secs(10);
            let waits: Vec<_> = (0..40)
                .map(|number| {
                    let (progress, runtime) = (progress.clone(), runtime.clone());
                    let (order, clock) = (order.clone(), runtime.clone());
                    runtime.spawn("wait", async move {
                        progress.until(&clock, wait, |it| *it > 2).await.unwrap();
                        order.lock().push(number);
                    })
                })
                .collect();
            for value in 1..=3 {
                runtime.sleep(Duration::from_millis(1)).await;
                sender.send(value).unwrap();
            }
            for wait in waits {
                wait.await.unwrap();
            }
            assert!(order.lock().iter().copied().eq(0..40), "{:?}", order.lock());
        });
    }

    #[test]
    fn a_wait_ends_in_time_and_when_no_change_will_come() {
        let executor = Runtime::simulated(1).unwrap();
        let runtime = executor.runtime();
        executor.block_on(async {
            let (sender, receiver) = watch::channel(0_u64);
            let progress = Progress::follow(&runtime, receiver);
            let wait = Duration::from_secs(1);
            let never = |it: &u64| *it > 0;
            let ended = progress.until(&runtime, wait, never).await;
            assert_eq!(ended, Err(WaitEnd::Time));
            drop(sender);
            let ended = progress.until(&runtime, wait, never).await;
            assert_eq!(ended, Err(WaitEnd::Stopped));
        });
    }
}

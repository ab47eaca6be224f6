//! Waiting for stores that are being opened.
//!
//! A node answers as soon as it listens, and its stores open one after the other. A request that meets a
//! store before that waits for it within its own time-out: a client that connects at once would else have
//! its first requests refused for a few milliseconds. Nothing waits if other replicas suffice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_runtime::Moment;

use crate::coordinator::{Coordinator, Progress};

/// A request is tried again after this long at first, then after twice as long, up to the longest pause;
/// sooner when a store of this node is opened. Stores of other nodes send no word.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The time that one request has waited between its tries.
pub(crate) struct OpeningWait {
    pause: Duration,
}

impl Default for OpeningWait {
    fn default() -> Self {
        Self { pause: PAUSE_MIN }
    }
}

impl Coordinator {
    /// Ends the waits of requests for stores that are being opened: they are refused at once from here on.
    /// Called by a node that stops.
    pub fn stop_waiting(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Waits until all stores of this node that can be opened are open, at most for the time-out of a
    /// request. Listings and queries call it, as they need every store; nothing waits if other nodes have
    /// replicas.
    pub async fn until_opened(&self, timeout: Option<Duration>) {
        if !self.parts.vnodes.is_any_opening() {
            return;
        }
        let timeout = timeout.unwrap_or(self.settings.request_timeout);
        let deadline = self.parts.runtime.now().plus(timeout);
        let mut wait = OpeningWait::default();
        let is_alone = || self.state().ring().replicas_max() < 2;
        while self.parts.vnodes.is_any_opening() && is_alone() {
            if !self.wait_until(&mut wait, deadline).await {
                return;
            }
        }
    }

    /// Waits before a request is tried again; false when there is no time for that.
    pub(crate) async fn wait_to_open(
        &self,
        wait: &mut OpeningWait,
        progress: &mut Progress,
    ) -> bool {
        let runtime = &self.parts.runtime;
        let begun = runtime.now();
        let has_time = self.wait_until(wait, progress.deadline).await;
        // No store was slow: background work has no reason to give way.
        progress.trace.slowed += runtime.now().since(begun);
        has_time
    }

    async fn wait_until(&self, wait: &mut OpeningWait, deadline: Moment) -> bool {
        let runtime = &self.parts.runtime;
        let now = runtime.now();
        if self.is_stopping.load(Ordering::Relaxed) || now >= deadline {
            return false;
        }
        let pause = wait.pause.min(deadline.since(now));
        wait.pause = wait.pause.saturating_mul(2).min(PAUSE_MAX);
        match self.parts.vnodes.next_opening() {
            Some(opening) => {
                let _opened_or_not = runtime.timeout(pause, opening).await;
            }
            None => runtime.sleep(pause).await,
        }
        !self.is_stopping.load(Ordering::Relaxed) && runtime.now() < deadline
    }
}

//! Writes of the log and of snapshots, repeated until they succeed.
//!
//! The library ends a log for good when one write fails: after a moment with a full disk, a node
//! would have no vote and no updates until a restart. So the log waits instead. To other nodes,
//! this node does not answer; afterwards it continues where it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_runtime::Runtime;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Pause after a failed write.
const PAUSE: Duration = Duration::from_millis(500);

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Persistence {
    runtime: Runtime,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_stopping: AtomicBool,
    stopping: Notify,
    /// The reason why the last write failed, until one succeeds.
    hindrance: Mutex<Option<String>>,
}

impl Persistence {
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            shared: Arc::default(),
        }
    }

    /// The reason why nothing can be written at present.
    pub(crate) fn hindrance(&self) -> Option<String> {
        self.shared.hindrance.lock().clone()
    }

    /// From now on gives up writes that fail.
    pub(crate) fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.stopping.notify_waiters();
    }

    /// Repeats a write until it succeeds, or until the log is stopped.
    pub(crate) async fn keep_writing(
        &self,
        write: impl Fn() -> std::io::Result<()> + Clone + Send + 'static,
    ) -> std::io::Result<()> {
        loop {
            let stopping = self.shared.stopping.notified();
            let Err(error) = self.runtime.blocking(write.clone()).await else {
                if self.shared.hindrance.lock().take().is_some() {
                    tracing::info!(event = "agreed_log_written_again");
                }
                return Ok(());
            };
            let text = error.to_string();
            let before = self.shared.hindrance.lock().replace(text.clone());
            if before.as_ref() != Some(&text) {
                tracing::error!(
                    event = "agreed_log_not_written",
                    error = %text,
                    "this node takes no part in the agreed log until its disk takes writes again",
                );
            }
            if self.shared.is_stopping.load(Ordering::Acquire) {
                return Err(error);
            }
            let _stopped_or_time = self.runtime.timeout(PAUSE, stopping).await;
        }
    }
}

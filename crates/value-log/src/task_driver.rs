//! A log's driver for programs without threads, such as a simulation.

use std::future::poll_fn;
use std::sync::Arc;

use crate::queue::Shared;

/// Commits groups as a task. While it exists, awaiting a ticket is enough. A blocking wait commits
/// by itself, since this task may be on the same thread.
pub struct TaskDriver {
    log: Arc<Shared>,
}

impl TaskDriver {
    pub(crate) fn of(log: Arc<Shared>) -> Self {
        log.take_task_role();
        Self { log }
    }

    /// Waits until something is queued; false when the log was stopped and the queue is empty.
    pub async fn queued(&self) -> bool {
        poll_fn(|context| self.log.poll_queued(context.waker())).await
    }

    /// Commits the open group, if there is one: an append and a sync.
    pub fn commit(&self) {
        self.log.commit_as_task();
    }
}

impl Drop for TaskDriver {
    fn drop(&mut self) {
        self.log.give_task_role_back();
    }
}

//! The tasks of one process of a simulation, which end together when it is killed.

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The tasks of one process.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    running: Vec<AbortHandle>,
    is_killed: bool,
    /// The number of tasks at which finished ones are next removed.
    sweep_at: usize,
}

/// The least number of tasks at which finished ones are removed.
const SWEEP_MIN: usize = 256;

impl Scope {
    pub(crate) fn note(&self, task: AbortHandle) {
        let mut tasks = self.tasks.lock();
        if tasks.is_killed {
            task.abort();
            return;
        }
        tasks.running.push(task);
        if tasks.running.len() >= tasks.sweep_at.max(SWEEP_MIN) {
            tasks.running.retain(|task| !task.is_finished());
            tasks.sweep_at = tasks.running.len() * 2;
        }
    }

    pub(crate) fn kill(&self) {
        let mut tasks = self.tasks.lock();
        tasks.is_killed = true;
        for task in tasks.running.drain(..) {
            task.abort();
        }
    }
}

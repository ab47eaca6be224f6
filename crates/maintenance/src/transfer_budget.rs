//! Transfers between nodes under the arbiter: the wait before a page.

use std::sync::Arc;
use std::time::Duration;

use kvorum_arbiter::Arbiter;
use kvorum_member::Budget;
use kvorum_runtime::Runtime;
use parking_lot::Mutex;

/// The longest wait before the next query: the arbiter's rate may have risen meanwhile.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// See the module's description.
pub struct TransferBudget {
    /// The runtime, for its clock.
    pub runtime: Runtime,
    /// Shared with [`crate::Maintenance`].
    pub arbiter: Arc<Mutex<Arbiter>>,
}

impl Budget for TransferBudget {
    fn ask(&self, bytes: u64) -> Duration {
        let wait = self.arbiter.lock().transfer(bytes, self.runtime.now());
        wait.min(WAIT_MAX)
    }
}

#[cfg(test)]
#[path = "transfer_budget_test.rs"]
mod tests;

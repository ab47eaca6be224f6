//! The value log as the maintenance thread works on it.

use std::time::Duration;

use kvorum_arbiter::Told;
use kvorum_backend::{BackendError, StepBudget, StepOutcome, Task, Timestamp};
use kvorum_maintenance::MaintainedLog;

use crate::node_log::NodeLog;

impl MaintainedLog for NodeLog {
    fn batches(&self) -> u64 {
        NodeLog::batches(self)
    }

    fn failure(&self) -> Option<String> {
        NodeLog::failure(self)
    }

    fn queued_bytes(&self) -> u64 {
        NodeLog::queued_bytes(self)
    }

    fn owed(&self, now: Timestamp) -> Told {
        NodeLog::owed(self, now)
    }

    fn scrub_due(&self, period: Option<Duration>, now: Timestamp) -> Option<Task> {
        NodeLog::scrub_due(self, period, now)
    }

    fn scrub_step(
        &self,
        budget: StepBudget,
        period: Option<Duration>,
        now: Timestamp,
    ) -> Result<StepOutcome, BackendError> {
        NodeLog::scrub_step(self, budget, period, now)
    }

    fn step(&self, task: &Task, budget: StepBudget) -> Result<StepOutcome, BackendError> {
        NodeLog::step(self, task, budget)
    }
}

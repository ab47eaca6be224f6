//! The value log as an owner of background tasks beside the stores.

use std::time::Duration;

use kvorum_arbiter::Answer;
use kvorum_backend::{BackendError, StepBudget, StepOutcome, Task, Timestamp};

/// A log that all stores of a node share.
pub trait MaintainedLog: Send + Sync {
    /// The number of batches committed since the start.
    fn batches(&self) -> u64;

    /// The reason why the log takes no more writes; `None` if it does.
    fn failure(&self) -> Option<String>;

    /// Bytes of memory that wait to be written.
    fn queued_bytes(&self) -> u64;

    /// The log's due tasks, without scrubbing.
    fn due(&self, now: Timestamp) -> Answer;

    /// The part that a scrub would read now, if every file is read again within `period`.
    fn scrub_due(&self, period: Option<Duration>, now: Timestamp) -> Option<Task>;

    /// Reads a part again. Damage is logged.
    ///
    /// # Errors
    /// Those of the disk.
    fn scrub_step(
        &self,
        budget: StepBudget,
        period: Option<Duration>,
        now: Timestamp,
    ) -> Result<StepOutcome, BackendError>;

    /// Does a part of a due task.
    ///
    /// # Errors
    /// Those of the disk; [`kvorum_backend::ErrorKind::Full`] if it has no room.
    fn step(&self, task: &Task, budget: StepBudget) -> Result<StepOutcome, BackendError>;
}

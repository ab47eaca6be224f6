//! Events for the arbiter.

use std::time::Duration;

use kvorum_backend::{StepOutcome, Task};

use crate::foreground::Latency;
use crate::memory::SharedMemory;
use crate::order::{Order, Owner};

/// An observation or action of the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The answer to [`crate::Decision::Look`].
    Looked(Looked),
    /// The answer to [`crate::Decision::Ask`].
    Answered {
        /// The owner that was queried.
        owner: Owner,
        /// Its answer.
        answer: Answer,
    },
    /// A step, or one sync of a round, has ended.
    Ended {
        /// The order.
        order: Order,
        /// Its result.
        ended: Ended,
    },
}

/// Cheap figures of the whole node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// All possible owners, with a number that changes with puts to them. Missing owners are
    /// removed.
    pub written: Vec<(Owner, u64)>,
    /// Latencies of reads since the last look with enough of them.
    pub reads: Latency,
    /// Latencies of writes, without their delays by backpressure.
    pub writes: Latency,
    /// Open files of the process, if known.
    pub open_files: Option<u64>,
    /// Memory that can be reduced.
    pub memory: SharedMemory,
    /// Free space on the disk of the stores and the log, if known.
    pub disk: Option<DiskRoom>,
}

/// Free space on the file system of the stores and of the log; on the fullest, if there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskRoom {
    /// Free space, in bytes.
    pub available_bytes: u64,
    /// The part of it reserved for work that frees space, in bytes. Clients' writes may not use it.
    pub reserve_bytes: u64,
}

impl DiskRoom {
    /// True when work that frees space comes before everything else.
    pub fn is_scarce(&self) -> bool {
        self.available_bytes < self.reserve_bytes.saturating_mul(2)
    }
}

/// A store's answer to a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Backlog of the store.
    pub tasks: Vec<Task>,
    /// Payload bytes put since it was opened.
    pub put_bytes: u64,
    /// Its whole backlog, if it is more than the sum of its tasks.
    pub backlog_bytes: u64,
    /// Memory that it holds.
    pub memory_bytes: u64,
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its result.
    pub result: StepResult,
    /// Its duration.
    pub took: Duration,
    /// Its processor time.
    pub cpu: Duration,
}

/// Results of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// The outcome that the engine reports.
    Done(StepOutcome),
    /// An error, which the driver has reported.
    Failed,
    /// The task had no space. It is tried again soon, and at once when there is space.
    NoSpace,
}

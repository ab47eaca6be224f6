//! What the arbiter is told.

use std::time::Duration;

use kvorum_backend::{StepOutcome, Task};

use crate::foreground::Latency;
use crate::memory::SharedMemory;
use crate::order::{Order, Owner};

/// Something that the driver has seen or done.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The answer to [`crate::Decision::Look`].
    Looked(Looked),
    /// The answer to [`crate::Decision::Ask`].
    Told {
        /// Who was asked.
        owner: Owner,
        /// What they said.
        told: Told,
    },
    /// A step, or one sync of a round, has ended.
    Ended {
        /// What was ordered.
        order: Order,
        /// How it ended.
        ended: Ended,
    },
}

/// What costs little to see of the whole node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// Everybody who can owe something, with a number that changes when they are written to. Who is
    /// missing is forgotten.
    pub written: Vec<(Owner, u64)>,
    /// How reads fared since the last look, or since there were last enough of them.
    pub reads: Latency,
    /// How writes fared, but for what they were held back by.
    pub writes: Latency,
    /// Open files of the process, where that is known.
    pub open_files: Option<u64>,
    /// Memory that can give way.
    pub memory: SharedMemory,
    /// Free space on the disk of the stores and the log, where that is known.
    pub disk: Option<DiskRoom>,
}

/// Free space on the file system of the stores and of the log; on the fullest, if there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskRoom {
    /// Free space, in bytes.
    pub available_bytes: u64,
    /// The part of it that is held back for work that frees space, in bytes. Clients' writes leave it alone.
    pub reserve_bytes: u64,
}

impl DiskRoom {
    /// True when work that frees space comes before everything else.
    pub fn is_scarce(&self) -> bool {
        self.available_bytes < self.reserve_bytes.saturating_mul(2)
    }
}

/// What a store says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// All that it owes.
    pub tasks: Vec<Task>,
    /// Payload bytes put since it was opened.
    pub put_bytes: u64,
    /// What it owes in all, should that be more than its tasks say.
    pub debt_bytes: u64,
    /// Memory that it holds.
    pub memory_bytes: u64,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What came of it.
    pub result: StepResult,
    /// How long it took.
    pub took: Duration,
    /// Processor time of it.
    pub cpu: Duration,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// The engine's word.
    Done(StepOutcome),
    /// An error, which the driver has reported.
    Failed,
    /// The task had no space. It is tried again soon, and at once when there is some.
    NoSpace,
}

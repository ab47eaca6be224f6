//! The arbiter's report for operators.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_backend::{Task, TaskKind};

use crate::event::DiskRoom;
use crate::foreground::Latency;
use crate::memory::{MemoryOrders, SharedMemory};
use crate::order::{Order, Owner};

/// A due task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTask {
    /// Its owner.
    pub owner: Owner,
    /// The task.
    pub task: Task,
    /// The rest of its hold after failures.
    pub held_for: Option<Duration>,
}

/// Steps of a kind since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Their number.
    pub count: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// The number of steps that cost more than twice the expected cost.
    pub overruns: u64,
    /// The number of steps that failed.
    pub failures: u64,
}

impl Steps {
    /// Steps of two kinds together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            overruns: self.overruns + other.overruns,
            failures: self.failures + other.failures,
        }
    }
}

/// The arbiter's state. Rates are bytes per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Steps in progress, with their durations.
    pub running: Vec<(Order, Duration)>,
    /// All tasks, syncs included.
    pub due: Vec<DueTask>,
    /// The backlog of each owner, in bytes; an owner without one is missing.
    pub backlog_by_owner: BTreeMap<Owner, u64>,
    /// The backlog by kind. A store's backlog beyond its tasks has the kind of its first task.
    pub backlog_by_kind: BTreeMap<TaskKind, u64>,
    /// The whole backlog.
    pub backlog_bytes: u64,
    /// Its pressing part.
    pub pressing_bytes: u64,
    /// The time until the backlog is done at the present rates; `None` when it is not shrinking.
    pub paid_in: Option<Duration>,
    /// The actual rate.
    pub done_rate: u64,
    /// The needed rate.
    pub needed_rate: u64,
    /// The allowed rate; `None` when only the ceilings bound it.
    pub allowed_rate: Option<u64>,
    /// The rate of transfers between nodes, read and written.
    pub transfer_rate: u64,
    /// Their allowed rate; `None` when only the ceiling bounds it.
    pub transfer_allowed_rate: Option<u64>,
    /// The speed of one worker.
    pub speed: u64,
    /// The rate of clients' puts.
    pub ingest_rate: u64,
    /// The rate of clients' puts by store; a store without puts is missing.
    pub ingest_by_owner: BTreeMap<Owner, u64>,
    /// Background bytes for each byte put, as measured.
    pub amplification: f64,
    /// The part of the free capacity beyond the need that upkeep takes, 0 to 1.
    pub free_share: f64,
    /// Latencies of reads and writes until the last look.
    pub foreground: (Latency, Latency),
    /// The backlog as a fraction of its bound; more than 1 is possible.
    pub fullness: f64,
    /// The delay of a put.
    pub put_delay: Duration,
    /// Steps by kind since the start.
    pub steps: BTreeMap<TaskKind, Steps>,
    /// The longest step since the start.
    pub longest_step: Duration,
    /// Cores that background work keeps busy.
    pub cpu_cores: f64,
    /// Memory of the stores, with their shared caches and the memory of requests, in bytes.
    pub memory_bytes: u64,
    /// The part of it that can be reduced.
    pub memory: SharedMemory,
    /// The present limits of that part.
    pub memory_orders: MemoryOrders,
    /// Puts are refused: memory or open files are used up.
    pub refuses_puts: bool,
    /// Open files at the last look, if known.
    pub open_files: Option<u64>,
    /// Free space and the reserve at the last look, if known.
    pub disk: Option<DiskRoom>,
}

impl Report {
    /// Steps of all kinds.
    pub fn all_steps(&self) -> Steps {
        self.steps
            .values()
            .fold(Steps::default(), |all, one| all.and(*one))
    }
}

//! What operators see of the arbiter.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_backend::{Task, TaskKind};

use crate::event::DiskRoom;
use crate::foreground::Latency;
use crate::memory::{MemoryOrders, SharedMemory};
use crate::order::{Order, Owner};

/// A task that is owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwedTask {
    /// By whom.
    pub owner: Owner,
    /// What.
    pub task: Task,
    /// For how long it is left alone after failures.
    pub held_for: Option<Duration>,
}

/// Steps of a kind since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// How many.
    pub count: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Of them, those that cost more than twice what they were expected to.
    pub overruns: u64,
    /// Of them, those that failed.
    pub failures: u64,
}

/// The arbiter's state. Rates are bytes per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Steps under way, with how long they have been.
    pub running: Vec<(Order, Duration)>,
    /// All tasks, syncs included.
    pub owed: Vec<OwedTask>,
    /// What each owes in all, in bytes; who owes nothing is missing.
    pub owed_by_owner: BTreeMap<Owner, u64>,
    /// The same by kind. What stores owe beyond their tasks counts with the kind of their first.
    pub owed_by_kind: BTreeMap<TaskKind, u64>,
    /// What is owed in all.
    pub debt_bytes: u64,
    /// Of it, what presses.
    pub pressing_bytes: u64,
    /// Until the debt is paid at the present rates; `None` when it is not shrinking.
    pub paid_in: Option<Duration>,
    /// What is being done.
    pub done_rate: u64,
    /// What has to be done.
    pub needed_rate: u64,
    /// What may be done; `None` when only the ceilings bound it.
    pub allowed_rate: Option<u64>,
    /// What transfers between nodes have read and written.
    pub transfer_rate: u64,
    /// What they may; `None` when only the ceiling bounds it.
    pub transfer_allowed_rate: Option<u64>,
    /// What one worker can do.
    pub speed: u64,
    /// What clients put.
    pub ingest_rate: u64,
    /// What clients put, by store; who is not written to is missing.
    pub ingest_by_owner: BTreeMap<Owner, u64>,
    /// Background bytes for each byte put, as measured.
    pub amplification: f64,
    /// The part of what is free beyond the need that upkeep takes, 0 to 1.
    pub free_share: f64,
    /// How reads and writes fared until the last look.
    pub foreground: (Latency, Latency),
    /// How far the debt is on its way to its bound, 0 to 1 and beyond.
    pub fullness: f64,
    /// What a put should be delayed by.
    pub put_delay: Duration,
    /// Steps by kind since the start.
    pub steps: BTreeMap<TaskKind, Steps>,
    /// The longest step since the start.
    pub longest_step: Duration,
    /// Cores that background work keeps busy.
    pub cpu_cores: f64,
    /// Memory that the stores hold, with the caches that they share and what requests hold, in bytes.
    pub memory_bytes: u64,
    /// Of it what can give way.
    pub memory: SharedMemory,
    /// What that may take now.
    pub memory_orders: MemoryOrders,
    /// Puts are refused: memory or open files are used up.
    pub refuses_puts: bool,
    /// Open files at the last look, where that is known.
    pub open_files: Option<u64>,
    /// Free space and the reserve at the last look, where that is known.
    pub disk: Option<DiskRoom>,
}

impl Report {
    /// Steps of all kinds.
    pub fn all_steps(&self) -> Steps {
        self.steps
            .values()
            .fold(Steps::default(), |all, one| Steps {
                count: all.count + one.count,
                bytes: all.bytes + one.bytes,
                overruns: all.overruns + one.overruns,
                failures: all.failures + one.failures,
            })
    }
}

//! Settings of exchanges, and the budget that limits the building of trees.

use std::time::Duration;

use kvorum_anti_entropy::{ExchangeLimits, ScheduleSettings};

/// Settings of exchanges.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeSettings {
    /// Period and number of exchanges.
    pub schedule: ScheduleSettings,
    /// Limits on the cost of one exchange.
    pub limits: ExchangeLimits,
    /// Repairs a second, over all exchanges of the node; 0 for no bound.
    pub repairs_per_second: u32,
    /// The pause before differences are compared again: as long as a write may be under way.
    pub pause: Duration,
    /// Time to wait for an answer or a repair.
    pub answer_wait_max: Duration,
    /// Entries that one step adds to the trees of a vnode.
    pub step_entries_max: usize,
    /// The age at which trees are built again (Riak's `tictacaae_rebuildwait`).
    pub rebuild_wait: Duration,
    /// The largest random addition to that age, so that the vnodes of a node do not all rebuild at
    /// once.
    pub rebuild_delay_max: Duration,
    /// Several replicas of a key may live on one node.
    pub colocated_replicas: bool,
}

/// Limits the rate at which trees are built; asked before each step.
pub trait StepBudget: Send + Sync {
    /// Time to wait before `bytes` may be read. If it is zero, they count as spent.
    fn ask(&self, bytes: u64) -> Duration;
}

/// A budget without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbounded;

impl StepBudget for Unbounded {
    fn ask(&self, _bytes: u64) -> Duration {
        Duration::ZERO
    }
}

//! Settings of exchanges, and the budget that slows the building of trees down.

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
    /// Differences are compared again after this long: as long as a write may be under way.
    pub pause: Duration,
    /// Time to wait for an answer or a repair.
    pub answer_wait_max: Duration,
    /// Entries that one step takes into the trees of a vnode.
    pub step_entries_max: usize,
    /// Trees are built again after this long (Riak's `tictacaae_rebuildwait`).
    pub rebuild_wait: Duration,
    /// The largest random addition to that, so that the vnodes of a node do not come all at once.
    pub rebuild_delay_max: Duration,
    /// Several replicas of a key may live on one node.
    pub colocated_replicas: bool,
}

/// Says how fast the building of trees may go: asked before each step.
pub trait StepBudget: Send + Sync {
    /// Time to wait before `bytes` may be read. With zero they count as spent.
    fn ask(&self, bytes: u64) -> Duration;
}

/// No bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbounded;

impl StepBudget for Unbounded {
    fn ask(&self, _bytes: u64) -> Duration {
        Duration::ZERO
    }
}

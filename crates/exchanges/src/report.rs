//! The state of exchanges and trees, for status.

use kvorum_anti_entropy::TargetReport;
use kvorum_ring::Partition;
use kvorum_vnode::TreesStatus;

/// The exchanges of a node and the trees of its vnodes.
#[derive(Clone, Debug, Default)]
pub struct ExchangesReport {
    /// Times in `targets` are microseconds of the clock whose time this is.
    pub now_micros: u64,
    /// Exchanges are begun.
    pub is_enabled: bool,
    /// The preference lists that this node compares, by partition.
    pub targets: Vec<TargetReport>,
    /// The trees of its vnodes, by partition.
    pub trees: Vec<BuildingReport>,
    /// Keys that were given to repair since the start, by all exchanges.
    pub keys_repaired: u64,
    /// Repairs that did not reach every replica.
    pub repairs_failed: u64,
    /// Exchanges that have ended since the start.
    pub exchanges: u64,
    /// Exchanges among them after which all replicas had the same entries.
    pub exchanges_complete: u64,
}

/// The trees of one vnode.
#[derive(Clone, Copy, Debug)]
pub struct BuildingReport {
    /// The vnode's partition.
    pub partition: Partition,
    /// The state of its trees.
    pub trees: TreesStatus,
    /// The time of building, in microseconds of the same clock; `None` before.
    pub built_at_micros: Option<u64>,
}

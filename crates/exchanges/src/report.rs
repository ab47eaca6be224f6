//! The state of exchanges and trees, for status.

use kvorum_anti_entropy::{Compared, Target, TargetReport};
use kvorum_ring::Partition;
use kvorum_vnode::TreesStatus;

use crate::staying::Stay;

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
    /// The rounds by which tombstones go.
    pub rounds: RoundsReport,
}

/// Tombstones, and the rounds that this node has led since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundsReport {
    /// Rounds are led behind complete exchanges.
    pub are_led: bool,
    /// Rounds that raised a watermark.
    pub raised: u64,
    /// Rounds that did not.
    pub ended_early: u64,
    /// Tombstones that they had removed, over all replicas.
    pub reaped: u64,
    /// Tombstones in the vnodes of this node, as far as they are known. Zero in a cluster of one replica:
    /// it leads no rounds.
    pub waiting: u64,
    /// The preference lists that this node compares, by partition.
    pub lists: Vec<ListTombstones>,
}

/// The tombstones of a preference list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListTombstones {
    /// The list.
    pub target: Target,
    /// Tombstones in this node's vnode of the list, as far as they are known; those of the vnode's other
    /// lists count too.
    pub waiting: u64,
    /// All are known: the store has been gone through since the start.
    pub are_counted: bool,
    /// The number of the last round that went through.
    pub watermark: Option<u64>,
    /// Why they stay, if some do and a reason is known.
    pub stay: Option<Stay>,
}

/// Exchanges that have ended since the start, by the furthest comparison that they ended with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComparedCounts {
    /// Roots of trees.
    pub roots: u64,
    /// Branches of trees.
    pub branches: u64,
    /// Keys and their versions.
    pub keys: u64,
    /// Exchanges without a finished comparison.
    pub nothing: u64,
}

impl ComparedCounts {
    /// All exchanges.
    pub fn all(&self) -> u64 {
        self.roots + self.branches + self.keys + self.nothing
    }

    pub(crate) fn count(&mut self, compared: Compared) {
        let count = match compared {
            Compared::Roots => &mut self.roots,
            Compared::Branches => &mut self.branches,
            Compared::Keys => &mut self.keys,
            Compared::Nothing => &mut self.nothing,
        };
        *count += 1;
    }
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

//! Changes in a ring: a partition's owner, the number of replicas, the detours of lists.

use crate::node_id::NodeId;
use crate::phase::Phase;

/// The move of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The future owner.
    pub to: NodeId,
    /// Its phase.
    pub phase: Phase,
}

/// A change of the number of replicas, or of the detours of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The future number.
    pub to: u16,
    /// Its phase.
    pub phase: Phase,
}

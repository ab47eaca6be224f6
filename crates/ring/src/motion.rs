//! What changes in a ring: a partition's owner, the number of replicas, the detours of lists.

use crate::node_id::NodeId;
use crate::phase::Phase;

/// Where a partition is moving, and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Who will own it.
    pub to: NodeId,
    /// How far it has come.
    pub phase: Phase,
}

/// A change of the number of replicas, or of the detours of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The number that it will be.
    pub to: u16,
    /// How far it has come.
    pub phase: Phase,
}

//! Changes of members that an operator stages.

use kvorum_ring::NodeId;

/// A staged change of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StagedChange {
    /// Hands over its partitions, then leaves.
    Leave,
    /// Hands over its partitions to a node that joins, then leaves.
    Replace {
        /// The node that takes its place.
        by: NodeId,
    },
    /// Is gone for good: others take its partitions, empty.
    ForceRemove,
    /// Is gone for good: a node that joins takes its partitions, empty.
    ForceReplace {
        /// The node that takes its place.
        by: NodeId,
    },
    /// Is in another rack, room or zone.
    Location(Option<String>),
    /// Has another share of the ring.
    Weight(u32),
}

impl StagedChange {
    /// The operators' word for the change.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Leave => "leave",
            Self::Replace { .. } => "replace",
            Self::ForceRemove => "force-remove",
            Self::ForceReplace { .. } => "force-replace",
            Self::Location(_) => "location",
            Self::Weight(_) => "weight",
        }
    }

    pub(crate) fn replacement(&self) -> Option<NodeId> {
        match self {
            Self::Replace { by } | Self::ForceReplace { by } => Some(*by),
            _ => None,
        }
    }

    pub(crate) fn is_forced(&self) -> bool {
        matches!(self, Self::ForceRemove | Self::ForceReplace { .. })
    }

    pub(crate) fn is_departure(&self) -> bool {
        !matches!(self, Self::Location(_) | Self::Weight(_))
    }
}

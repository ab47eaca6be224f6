//! The identity of a cluster.

use std::fmt;
use std::str::FromStr;

use kvorum_ring::{NodeId, NodeIdError};

/// The identity of a cluster: a UUID in the same form as a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(NodeId);

impl ClusterId {
    /// A random UUID from 16 random bytes, which the caller draws.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(NodeId::from_random(bytes))
    }

    /// The identity in the form of a node's identity, for hellos.
    pub const fn as_node_id(&self) -> NodeId {
        self.0
    }
}

impl From<NodeId> for ClusterId {
    fn from(id: NodeId) -> Self {
        Self(id)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ClusterId {
    type Err = NodeIdError;

    fn from_str(text: &str) -> Result<Self, NodeIdError> {
        text.parse().map(Self)
    }
}

//! The types with which we use the Raft library.

use std::fmt;
use std::io::Cursor;

use kvorum_ring::{NodeId, NodeIdError};
use serde::{Deserialize, Serialize};

use crate::raft_runtime::SeamRuntime;

/// A node in Raft: its identity, with the traits that the library requires. Serialized as text,
/// since it is a key of JSON maps.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct MemberId([u8; 16]);

impl From<MemberId> for String {
    fn from(member: MemberId) -> Self {
        member.to_string()
    }
}

impl TryFrom<String> for MemberId {
    type Error = NodeIdError;

    fn try_from(text: String) -> Result<Self, NodeIdError> {
        text.parse::<NodeId>().map(Self::from)
    }
}

impl From<NodeId> for MemberId {
    fn from(node: NodeId) -> Self {
        Self(*node.as_bytes())
    }
}

impl From<MemberId> for NodeId {
    fn from(member: MemberId) -> Self {
        Self::from_bytes(member.0)
    }
}

/// The identity of a numbered node, for the library's own test suite.
#[cfg(test)]
impl From<u64> for MemberId {
    fn from(number: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        Self(bytes)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NodeId::from(*self).fmt(f)
    }
}

/// A command, encoded by its proposer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proposal(pub(crate) String);

/// The machine's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome(pub(crate) String);

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Proposal,
        R = Outcome,
        NodeId = MemberId,
        Node = openraft::EmptyNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = SeamRuntime,
        Responder = openraft::impls::OneshotResponder<Types>,
);

pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type LogId = openraft::LogId<MemberId>;
pub(crate) type Vote = openraft::Vote<MemberId>;
pub(crate) type StorageError = openraft::StorageError<MemberId>;
pub(crate) type StoredMembership = openraft::StoredMembership<MemberId, openraft::EmptyNode>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<MemberId, openraft::EmptyNode>;
pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type Metrics = openraft::RaftMetrics<MemberId, openraft::EmptyNode>;

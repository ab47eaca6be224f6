//! Replicas on other nodes: the same requests as for this node's replicas, with other failures.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_peer::{Lane, Message, PeerError, Peers};
use kvorum_ring::NodeId;
use kvorum_runtime::Moment;
use kvorum_vnode::wire::{PeerRequest, WireMessage, decode_reply, encode_request};
use kvorum_vnode::{Operation, ReplicaReply};

use crate::error::RequestError;

/// A pending answer. Dropping it cancels the request on the other side.
pub type Asking = Pin<Box<dyn Future<Output = Result<ReplicaReply, PeerFailure>> + Send>>;

/// The way to other nodes.
pub trait ReplicaPeers: Send + Sync {
    /// True if requests may be sent to a node. A wrong answer costs time or a stand-in, never data.
    fn is_up(&self, node: NodeId) -> bool;

    /// Sends a request to a node, which answers until `deadline` or not at all. `Stored` and
    /// `Received` come once the object is as durable as requested.
    fn request(&self, node: NodeId, request: PeerRequest, deadline: Moment) -> Asking;
}

/// The reason why there is no answer; it decides whether the request may have had an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerFailure {
    /// The node could not be reached. Nothing was done.
    NotReached(String),
    /// Too many requests are in progress. Nothing was done.
    Overload,
    /// The deadline passed. It may have been done.
    Timeout,
    /// The connection broke, or the answer makes no sense. It may have been done.
    Unknown(String),
}

impl PeerFailure {
    /// True when the request cannot have had an effect.
    pub(crate) fn is_without_effect(&self) -> bool {
        matches!(self, Self::NotReached(_) | Self::Overload)
    }

    pub(crate) fn into_request_error(self) -> RequestError {
        match self {
            Self::NotReached(_) => RequestError::AllNodesDown,
            Self::Unknown(_) => RequestError::OutcomeUnknown,
            Self::Overload => RequestError::Overload,
            Self::Timeout => RequestError::Timeout,
        }
    }
}

/// Reports the nodes that are considered up.
pub trait Liveness: Send + Sync {
    /// True if a node is considered up.
    fn is_up(&self, node: NodeId) -> bool;
}

/// The way over the transport between nodes.
pub struct PeerReplicas {
    peers: Peers,
    liveness: Arc<dyn Liveness>,
}

impl PeerReplicas {
    /// Sends requests through `peers` to nodes that `liveness` considers up.
    pub fn new(peers: Peers, liveness: Arc<dyn Liveness>) -> Self {
        Self { peers, liveness }
    }
}

impl ReplicaPeers for PeerReplicas {
    fn is_up(&self, node: NodeId) -> bool {
        self.liveness.is_up(node)
    }

    fn request(&self, node: NodeId, request: PeerRequest, deadline: Moment) -> Asking {
        let peers = self.peers.clone();
        Box::pin(async move {
            let sent = value_sent(&request);
            let lane = lane_of(&request);
            let WireMessage { head, body } = encode_request(&request);
            drop(request);
            let message = Message { head, body };
            let asked = peers.request(node, lane, message, deadline);
            let Message { head, body } = asked.await.map_err(failure_of)?;
            let reply = decode_reply(&WireMessage { head, body }, &sent);
            reply.map_err(|error| {
                tracing::warn!(event = "peer_answer_malformed", node = %node, error = %error);
                PeerFailure::Unknown(error.to_string())
            })
        })
    }
}

/// The value of a request: the reply of a replica that stores exactly this value omits it.
pub(crate) fn value_sent(request: &PeerRequest) -> Bytes {
    match request {
        PeerRequest::Replica { request, .. } => match &request.operation {
            Operation::Coordinate { update, .. } => update.content.value.clone(),
            _ => Bytes::new(),
        },
        PeerRequest::Page(_)
        | PeerRequest::IndexPage(_)
        | PeerRequest::Tree(_)
        | PeerRequest::KeyFold(_) => Bytes::new(),
    }
}

/// No client waits for comparisons, and folds of operators must leave room for clients.
fn lane_of(request: &PeerRequest) -> Lane {
    match request {
        PeerRequest::Tree(_) | PeerRequest::KeyFold(_) => Lane::Bulk,
        PeerRequest::Replica { .. } | PeerRequest::Page(_) | PeerRequest::IndexPage(_) => {
            Lane::Requests
        }
    }
}

fn failure_of(error: PeerError) -> PeerFailure {
    match error {
        PeerError::Overload { .. } => PeerFailure::Overload,
        PeerError::Timeout { .. } => PeerFailure::Timeout,
        PeerError::Broken { detail, .. } => PeerFailure::Unknown(detail),
        PeerError::NoAddress { .. }
        | PeerError::Unreachable { .. }
        | PeerError::TooLarge { .. }
        | PeerError::Refused { .. }
        | PeerError::Encryption { .. } => PeerFailure::NotReached(error.to_string()),
    }
}

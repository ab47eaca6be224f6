//! The interfaces to a node: its view of the cluster, and its services.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use kvorum_ring::NodeId;
use kvorum_runtime::Moment;

use crate::hello::{Admission, Introduction};
use crate::lane::Lane;
use crate::message::Message;

/// The part of a node's view of its cluster that connections need.
pub trait Directory: Send + Sync {
    /// This node's introduction of itself.
    fn introduction(&self) -> Introduction;

    /// The address at which a node listens for peers.
    fn address(&self, node: NodeId) -> Option<SocketAddr>;

    /// Decides whether a caller is admitted.
    fn admit(&self, caller: &Introduction) -> Admission;

    /// True if a caller that was admitted as a member still is one; checked before each of its
    /// requests.
    fn is_still_member(&self, _node: NodeId) -> bool {
        true
    }

    /// The name of a node, which its certificate has to carry. `None` if the name is unknown: then
    /// any certificate of the cluster is valid.
    fn name(&self, _node: NodeId) -> Option<String> {
        None
    }
}

/// The caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The node according to its introduction; if encryption is required, its certificate has
    /// confirmed it.
    pub node: NodeId,
    /// The lane of the request.
    pub lane: Lane,
    /// False for a node without a cluster.
    pub is_member: bool,
    /// The number of the connection; later connections have higher numbers.
    pub connection: u64,
}

/// The handling of a request.
pub enum Served {
    /// Answered at once.
    Now(Message),
    /// Answered later; dropped when the caller stops waiting.
    Later(Pin<Box<dyn Future<Output = Message> + Send>>),
    /// Not carried out, because of too much other work.
    Overload,
}

/// Answers peers. Called on the task that reads the connection: work that may wait belongs in
/// [`Served::Later`].
pub trait PeerService: Send + Sync {
    /// Answers a request whose sender waits until `deadline`.
    fn handle(&self, caller: Caller, message: Message, deadline: Moment) -> Served;
}

//! The seams to a node: its view of the cluster, and its services.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use kvorum_ring::NodeId;
use kvorum_runtime::Moment;

use crate::hello::{Admission, Introduction};
use crate::lane::Lane;
use crate::message::Message;

/// A node's view of its cluster, as far as connections need it.
pub trait Directory: Send + Sync {
    /// This node's introduction of itself.
    fn introduction(&self) -> Introduction;

    /// The address at which a node listens for peers.
    fn address(&self, node: NodeId) -> Option<SocketAddr>;

    /// Decides if a caller may ask.
    fn admit(&self, caller: &Introduction) -> Admission;

    /// True if a caller that was admitted as a member still is a member; asked before each of its requests.
    fn is_still_member(&self, _node: NodeId) -> bool {
        true
    }

    /// The name of a node in the cluster, which its certificate has to carry; `None` if that is not
    /// known: then any certificate of the cluster is valid.
    fn name(&self, _node: NodeId) -> Option<String> {
        None
    }
}

/// The caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The node, by its own introduction; where connections have to be encrypted, by its certificate as
    /// well.
    pub node: NodeId,
    /// The lane that it asks on.
    pub lane: Lane,
    /// False for one that belongs to no cluster yet.
    pub is_member: bool,
    /// The number of the connection that it asks on: later ones have higher numbers.
    pub connection: u64,
}

/// The handling of a request.
pub enum Served {
    /// Answered at once.
    Now(Message),
    /// Answered later; dropped when the caller stops waiting.
    Later(Pin<Box<dyn Future<Output = Message> + Send>>),
    /// Too much to do; not carried out.
    Overload,
}

/// Answers peers. Called on the task that reads the connection: work that may wait belongs into
/// [`Served::Later`].
pub trait PeerService: Send + Sync {
    /// Answers a request whose sender waits until `deadline`.
    fn handle(&self, caller: Caller, message: Message, deadline: Moment) -> Served;
}

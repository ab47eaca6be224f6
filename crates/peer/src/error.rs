//! The reasons why a request to a peer has no answer, grouped by what the sender can do.

use std::net::SocketAddr;

use kvorum_ring::NodeId;
use kvorum_tls::HandshakeError;

use crate::hello::Refusal;

/// The reason why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The node has no known address: it is no longer a member, or not yet.
    #[error("there is no address of node {node}")]
    NoAddress {
        /// The node.
        node: NodeId,
    },
    /// The node cannot be reached now: ask another replica.
    #[error("node {node} cannot be reached: {detail}")]
    Unreachable {
        /// The node.
        node: NodeId,
        /// The failure.
        detail: String,
    },
    /// The connection broke while the request was under way: the request may have been carried out.
    #[error("the connection to node {node} broke: {detail}")]
    Broken {
        /// The node.
        node: NodeId,
        /// The failure.
        detail: String,
    },
    /// The deadline passed: the request may have been carried out.
    #[error("node {node} did not answer in time")]
    Timeout {
        /// The node.
        node: NodeId,
    },
    /// Too much is queued for the node or in progress on it: retry later or elsewhere. The request
    /// was not carried out.
    #[error("node {node} is overloaded")]
    Overload {
        /// The node.
        node: NodeId,
    },
    /// The message is too large.
    #[error("message of {bytes} bytes where at most {bytes_max} are allowed")]
    TooLarge {
        /// Its size, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// The called node refuses this node, or is not the expected node: fix the configuration.
    #[error("refused by the node at {address}: {refusal}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// The reason.
        refusal: Refusal,
    },
    /// The nodes cannot make an encrypted connection: check `cluster.tls` and the certificates on
    /// both.
    #[error("no encrypted connection to the node at {address}: {failure}")]
    Encryption {
        /// The address.
        address: SocketAddr,
        /// The reason.
        failure: HandshakeError,
    },
}

impl PeerError {
    /// The text without the node's identity, for callers that name the node themselves: before a
    /// first contact its identity is unknown.
    pub fn without_node(&self) -> String {
        match self {
            Self::NoAddress { .. } => "there is no address of it".to_owned(),
            Self::Unreachable { detail, .. } => format!("it cannot be reached: {detail}"),
            Self::Broken { detail, .. } => format!("the connection broke: {detail}"),
            Self::Timeout { .. } => "it did not answer in time".to_owned(),
            Self::Overload { .. } => "it is overloaded".to_owned(),
            Self::TooLarge { .. } | Self::Refused { .. } | Self::Encryption { .. } => {
                self.to_string()
            }
        }
    }

    /// True when the certificates or the settings of TLS on the two nodes do not match.
    pub fn is_about_encryption(&self) -> bool {
        match self {
            Self::Encryption { .. } => true,
            Self::Refused { refusal, .. } => refusal.is_about_encryption(),
            _ => false,
        }
    }
}

/// The reason why bytes of a peer are invalid. Only the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("frame of {got} bytes where at most {max} are allowed")]
    FrameLength { got: usize, max: usize },
    #[error("frame with checksum {got:08x} where {expected:08x} was expected")]
    Checksum { got: u32, expected: u32 },
    #[error("frame of unknown kind {kind}")]
    UnknownKind { kind: u8 },
    #[error("frame of kind {kind} with {got} bytes, too few")]
    Truncated { kind: u8, got: usize },
    #[error("message of {got} bytes where at most {max} are allowed")]
    MessageLength { got: u64, max: usize },
    #[error("fragment of message {stream}, which is not under way")]
    StrayFragment { stream: u64 },
    #[error("message {stream} begins twice")]
    BegunTwice { stream: u64 },
    #[error("message {stream} has more bytes than it announced")]
    Overlong { stream: u64 },
    #[error("more than {max} messages under way at once")]
    TooMany { max: usize },
    #[error("more than {max} bytes of messages under way at once")]
    TooManyBytes { max: usize },
}

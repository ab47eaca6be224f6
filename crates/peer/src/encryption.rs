//! Encryption of connections between nodes, and the names in their certificates.

use std::sync::Arc;

use kvorum_tls::{Certified, HandshakeError, Tls};

/// Encryption of connections.
#[derive(Clone, Default)]
pub enum Encryption {
    /// No connection is encrypted; a caller with TLS is refused.
    #[default]
    Off,
    /// The transition of a cluster to TLS: this node calls with TLS, and without TLS if that fails.
    /// It answers both. This mode protects against eavesdroppers, but not against an attacker that
    /// can make TLS fail.
    Optional(Arc<Tls>),
    /// All connections are encrypted; a peer that calls or answers without TLS is refused.
    Required(Arc<Tls>),
}

impl Encryption {
    /// The means of encryption; `None` when connections are not encrypted.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Off => None,
            Self::Optional(tls) | Self::Required(tls) => Some(tls),
        }
    }

    /// True when all connections have to be encrypted.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self, Self::Required(_))
    }
}

/// Checks that a valid certificate belongs to this cluster, and to the node of this name if the
/// name is known. A node with one member's certificate cannot pose as another, and a removed node
/// cannot come back under another name.
pub(crate) fn check_names(
    certified: &Certified,
    cluster: &str,
    name: Option<&str>,
) -> Result<(), HandshakeError> {
    let speaks = match name {
        Some(name) => certified.speaks_for(cluster, name),
        None => certified.is_of(cluster),
    };
    if speaks {
        return Ok(());
    }
    let node = name.unwrap_or("a node");
    Err(HandshakeError::OtherName {
        certified: certified.names(),
        expected: format!("{node} of cluster {cluster}"),
    })
}

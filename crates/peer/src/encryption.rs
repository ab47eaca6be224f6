//! Whether connections between nodes are encrypted, and whom a certificate lets speak.

use std::sync::Arc;

use kvorum_tls::{Certified, HandshakeError, Tls};

/// Whether connections are encrypted.
#[derive(Clone, Default)]
pub enum Encryption {
    /// None is; who calls with TLS is refused.
    #[default]
    Off,
    /// For the time in which a cluster is switched over: this node calls with TLS, and without it where
    /// that fails; it answers both. It protects against listeners, not against an attacker who can
    /// make TLS fail.
    Optional(Arc<Tls>),
    /// All are; whoever calls or answers without TLS is refused.
    Required(Arc<Tls>),
}

impl Encryption {
    /// With what connections are encrypted; `None` when none is.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Off => None,
            Self::Optional(tls) | Self::Required(tls) => Some(tls),
        }
    }

    /// True when there are none that are not encrypted.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self, Self::Required(_))
    }
}

/// Sees to it that a certificate that is believed is of this cluster, and of the node of this name if
/// the name is known. Who can prove to be one member cannot speak for another, and a node that was
/// removed cannot come back as somebody else.
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

//! Errors of certificates and handshakes, by what their reader can do.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// One of the three files of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The node's certificate, and intermediate certificates if there are any.
    Certificate,
    /// The certificate's private key.
    Key,
    /// The certificates of the accepted authorities.
    Authority,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "certificate",
            Self::Key => "private key",
            Self::Authority => "certificate of an authority",
        })
    }
}

/// The reason why a node cannot prove its identity with its files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaterialError {
    /// The file does not contain the part.
    #[error("no {part} in PEM form is in it")]
    Missing {
        /// The part that was looked for.
        part: Part,
    },
    /// The part cannot be read.
    #[error("the {part} in it cannot be read: {detail}")]
    Unreadable {
        /// The part that was read.
        part: Part,
        /// The error.
        detail: String,
    },
    /// The key is another certificate's. Use the two files that were issued together.
    #[error(
        "the private key does not belong to the certificate; take the two that were issued together"
    )]
    OtherKey,
    /// Another authority issued the certificate. Use the authority's certificate that came with it.
    #[error("the certificate was not issued by this authority; take the file that came with it")]
    OtherAuthority,
    /// The certificate has expired. Issue a new one.
    #[error("the certificate is valid no longer; issue a new one with `kvorum admin tls issue`")]
    Expired,
    /// The certificate is not valid yet. Set the clock.
    #[error("the certificate is not valid yet; is this machine's clock right?")]
    NotYetValid,
    /// The certificate cannot be used at both ends of a connection.
    #[error("the certificate cannot be used: {detail}")]
    Unusable {
        /// The reason.
        detail: String,
    },
    /// The certificate is another node's. Issue one for this node.
    #[error(
        "the certificate is for {certified}, and this is {node} of cluster {cluster}; issue one \
         with `kvorum admin tls issue {node}`"
    )]
    OtherNode {
        /// The names in the certificate.
        certified: String,
        /// The node.
        node: String,
        /// Its cluster.
        cluster: String,
    },
}

impl MaterialError {
    /// The file to look at.
    pub fn part(&self) -> Part {
        match self {
            Self::Missing { part } | Self::Unreadable { part, .. } => *part,
            Self::OtherKey => Part::Key,
            Self::OtherAuthority => Part::Authority,
            Self::Expired | Self::NotYetValid | Self::Unusable { .. } | Self::OtherNode { .. } => {
                Part::Certificate
            }
        }
    }

    /// The error that the library found in the certificate of this node.
    pub(crate) fn from_check(error: Error) -> Self {
        match error {
            Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => Self::Expired,
            Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => Self::NotYetValid,
            Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => Self::OtherAuthority,
            other => Self::Unusable {
                detail: other.to_string(),
            },
        }
    }
}

/// The reason why two nodes have no encrypted connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The other end closes the connection or answers without TLS. Switch TLS on there.
    #[error("the other end does not answer with TLS; is `cluster.tls` off there?")]
    NotSpoken,
    /// This end does not accept the other's certificate.
    #[error("its certificate is refused: {reason}")]
    Certificate {
        /// The reason.
        reason: String,
    },
    /// The other end does not accept this end's certificate, or received none.
    #[error("it refuses this node's certificate: {reason}")]
    Refused {
        /// The reason, in the protocol's words.
        reason: String,
    },
    /// The certificate is valid, but another node's.
    #[error("its certificate is for {certified} where {expected} was expected")]
    OtherName {
        /// The names in the certificate.
        certified: String,
        /// The name of the node that was called.
        expected: String,
    },
    /// Another failure.
    #[error("the TLS handshake failed: {detail}")]
    Failed {
        /// The error.
        detail: String,
    },
}

impl HandshakeError {
    /// The error that ended a handshake or the first exchange after it. The callee checks the
    /// caller's certificate after the caller's side of the handshake has ended. `None` for a
    /// failure of the network.
    pub fn behind(error: &io::Error) -> Option<Self> {
        if let Some(source) = error.get_ref().and_then(|it| it.downcast_ref::<Error>()) {
            return Some(Self::of(source));
        }
        matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        )
        .then_some(Self::NotSpoken)
    }

    fn of(error: &Error) -> Self {
        match error {
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotSpoken,
            Error::InvalidCertificate(certificate) => Self::Certificate {
                reason: refusal(certificate),
            },
            Error::NoCertificatesPresented => Self::Certificate {
                reason: "it has none".to_owned(),
            },
            Error::AlertReceived(alert) => Self::Refused {
                reason: alert_text(*alert),
            },
            other => Self::Failed {
                detail: other.to_string(),
            },
        }
    }
}

fn refusal(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it is valid no longer".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; do the clocks of both machines agree?".to_owned()
        }
        // An authority of the same name with another key looks like a bad signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its authority is not among those of cluster.tls.cacertfile here".to_owned()
        }
        other => other.to_string(),
    }
}

fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateExpired => {
            "it is valid no longer, or not yet there".to_owned()
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "its authority is not among those of cluster.tls.cacertfile there".to_owned()
        }
        AlertDescription::CertificateRequired => "it was not shown".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The reason why an authority cannot issue a certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The files of the authority are invalid.
    #[error("the authority cannot be used: {0}")]
    Unusable(MaterialError),
    /// The library refuses.
    #[error("make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The authority's own certificate is past its end. Make a new authority.
    #[error("the authority was valid until {day}; make a new one with `kvorum admin tls init`")]
    Ended {
        /// Its last day.
        day: String,
    },
    /// The end of the validity cannot be written into a certificate.
    #[error("make a certificate that is valid until after the year 9999")]
    TooLong,
}

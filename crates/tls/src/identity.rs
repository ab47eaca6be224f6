//! The identity in a certificate.
//!
//! ```text
//! kvorum://CLUSTER/NODE        kvorum://orders/kvorum@10.0.0.1
//! ```
//!
//! It is a URI among the certificate's alternative names, with both parts percent-encoded. It has
//! the node's name and not its UUID, which does not exist before the first start and has no meaning
//! for the issuer. It has no address, since addresses change. The agreed state has the UUID of each
//! name.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const SCHEME: &str = "kvorum://";

/// Escapes all characters but letters, digits and these.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'@');

/// A node of a cluster, by names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, as in `cluster_name`.
    pub cluster: String,
    /// The node, as in `nodename`.
    pub node: String,
}

impl Identity {
    /// The identity as it is in a certificate.
    pub fn to_uri(&self) -> String {
        let encode = |text| utf8_percent_encode(text, ENCODED);
        format!("{SCHEME}{}/{}", encode(&self.cluster), encode(&self.node))
    }

    /// Reads the form of [`Identity::to_uri`]; `None` for other URIs.
    pub fn from_uri(uri: &str) -> Option<Self> {
        let (cluster, node) = uri.strip_prefix(SCHEME)?.split_once('/')?;
        let decode = |text| percent_decode_str(text).decode_utf8().ok();
        let is_name = |name: &Cow<'_, str>| !name.is_empty();
        Some(Self {
            cluster: decode(cluster).filter(is_name)?.into_owned(),
            node: decode(node).filter(is_name)?.into_owned(),
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of cluster {}", self.node, self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_its_way() {
        for (cluster, node) in [
            ("orders", "kvorum@10.0.0.1"),
            ("or-ders_1.x", "a@::1"),
            ("kvorum", "n\u{e4}me/with%2f@h\u{f6}st"),
        ] {
            let identity = Identity {
                cluster: cluster.into(),
                node: node.into(),
            };
            let uri = identity.to_uri();
            assert!(uri.is_ascii(), "{uri}");
            assert_eq!(Identity::from_uri(&uri), Some(identity));
        }
    }

    #[test]
    fn uris_of_others_name_no_node() {
        for uri in [
            "https://orders/kvorum@10.0.0.1",
            "kvorum://orders",
            "kvorum:///a@b",
            "kvorum://orders/",
            "kvorum://orders/%ff",
            "",
        ] {
            assert_eq!(Identity::from_uri(uri), None, "{uri}");
        }
    }
}

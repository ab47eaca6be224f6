//! Keys of encryption between the nodes of a cluster.

use crate::key::{Key, own_key};
use crate::kind::{Choice, Kind};
use crate::settings::TlsMode;

pub(super) const KEYS: &[Key] = &[
    own_key(
        "cluster.tls",
        Kind::Choice(&[
            Choice("off", |settings| settings.cluster_tls.mode = TlsMode::Off),
            Choice("optional", |settings| {
                settings.cluster_tls.mode = TlsMode::Optional;
            }),
            Choice("on", |settings| settings.cluster_tls.mode = TlsMode::On),
        ]),
        "off",
        "Encrypts the connections between nodes, with certificates that both ends check. `off` \
         refuses nodes that call with TLS; `on` refuses nodes that call or answer without. \
         `optional` is for switching a running cluster over node by node: such a node accepts \
         both, and calls with TLS or, if that fails, without. `kvorum admin tls init` makes the \
         files.",
    ),
    own_key(
        "cluster.tls.certfile",
        Kind::Path(|settings, value| settings.cluster_tls.certificate = value),
        "./tls/node.crt",
        "The certificate of this node, in PEM form, \
         issued for its `nodename` and `cluster_name` by `kvorum admin tls issue`. \
         It and the two other files are read again when they change, without a restart.",
    ),
    own_key(
        "cluster.tls.keyfile",
        Kind::Path(|settings, value| settings.cluster_tls.key = value),
        "./tls/node.key",
        "The private key of this node's certificate, in PEM form. \
         Keep it readable by the server's user alone.",
    ),
    own_key(
        "cluster.tls.cacertfile",
        Kind::Path(|settings, value| settings.cluster_tls.authority = value),
        "./tls/ca.crt",
        "The certificates of the authorities that issue the nodes' certificates, in PEM form: \
         one, or two while one replaces the other.",
    ),
];

//! Keys of encryption and of who may do what.

use super::family::{Family, RiakKey, ignored};

pub(super) const FAMILY: Family = Family {
    title: "Security and TLS",
    keys: KEYS,
};

const TLS: &str = "TLS for clients is not built in yet: no encrypted listener is opened";

const OLD_TLS: &str =
    "TLS for clients is not built in yet, and protocols before TLS 1.2 never will be";

const KEYS: &[RiakKey] = &[
    ignored("listener.https.$name", TLS),
    ignored("ssl.certfile", TLS),
    ignored("ssl.keyfile", TLS),
    ignored("ssl.cacertfile", TLS),
    ignored("tls_protocols.tlsv1.2", TLS),
    ignored("tls_protocols.tlsv1.3", TLS),
    ignored("honor_cipher_order", TLS),
    ignored("check_crl", TLS),
    ignored("tls_protocols.sslv3", OLD_TLS),
    ignored("tls_protocols.tlsv1", OLD_TLS),
    ignored("tls_protocols.tlsv1.1", OLD_TLS),
    ignored(
        "permit_insecure_http_ops",
        "users and grants are not built in yet: every client that reaches the HTTP listener may use it",
    ),
];

//! Keys of listeners and protocols.

use crate::key::{Key, key, own_key};
use crate::kind::Kind;

pub(super) const KEYS: &[Key] = &[
    key(
        "listener.protobuf.$name",
        Kind::Address(|settings, name, value| {
            if let Some(address) = value {
                settings.listeners.protobuf.insert(name.to_owned(), address);
            }
        }),
        "127.0.0.1:8087",
        "An address for clients of the protocol buffers protocol. Any number of names may be \
         given; the default counts only if there is none. Port 0 lets the system choose; `off` \
         opens nothing.",
    ),
    key(
        "listener.http.$name",
        Kind::Address(|settings, name, value| {
            if let Some(address) = value {
                settings.listeners.http.insert(name.to_owned(), address);
            }
        }),
        "127.0.0.1:8098",
        "An address for clients of HTTP. Any number of names may be given; the default counts \
         only if there is none. Port 0 lets the system choose; `off` opens nothing.",
    ),
    own_key(
        "listener.peer.$name",
        Kind::Address(|settings, name, value| {
            if let Some(address) = value {
                settings.listeners.peer.insert(name.to_owned(), address);
            }
        }),
        "127.0.0.1:8099",
        "An address for the other nodes of the cluster. The first by name is announced to them; \
         if it is 0.0.0.0 or ::, the host of `nodename` with its port is announced instead. Port \
         0 lets the system choose; `off` opens nothing, and the node stays alone.",
    ),
    own_key(
        "peer.advertised_address",
        Kind::Address(|settings, _, value| settings.listeners.peer_advertised = value),
        "off",
        "The address that is announced to the other nodes, if it is not the one listened on: \
         behind a translation of addresses, in a container whose port is published under another, \
         or behind a relay. `off` announces that of the first `listener.peer.$name`.",
    ),
    key(
        "protobuf.backlog",
        Kind::Integer(1..=65_535, |settings, value| {
            settings.protobuf.backlog = u32::try_from(value).unwrap_or(u32::MAX);
        }),
        "128",
        "The number of connections that may wait to be accepted. Raise it when many clients \
         connect at the same moment; the operating system has a limit of its own.",
    ),
    key(
        "protobuf.nagle",
        Kind::Flag(|settings, value| settings.protobuf.nagle = value),
        "off",
        "Lets the operating system hold back small answers to send them together. On saves \
         packets and costs latency.",
    ),
    key(
        "protobuf.keepalive",
        Kind::Flag(|settings, value| settings.protobuf.keepalive = value),
        "on",
        "Probes idle connections, so that those of clients that are gone are closed.",
    ),
    own_key(
        "protobuf.frame_bytes_max",
        Kind::Bytes(4096.., |settings, value| {
            settings.protobuf.frame_bytes_max = value;
        }),
        "64MB",
        "The largest request that the protocol buffers server reads. \
         A larger one gets an error before memory is set aside for it. \
         Keep it above `object.size.maximum`.",
    ),
    own_key(
        "http.body_bytes_max",
        Kind::Bytes(4096.., |settings, value| {
            settings.http.body_bytes_max = value;
        }),
        "64MB",
        "The largest request body that the HTTP server reads. \
         Keep it above `object.size.maximum`.",
    ),
    key(
        "secure_referer_check",
        Kind::Flag(|settings, value| settings.http.secure_referer_check = value),
        "on",
        "Refuses HTTP requests that a web page of another site caused (by their `Referer`). Turn \
         it off if a proxy in front cannot remove that header.",
    ),
];

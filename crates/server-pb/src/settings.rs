//! Settings of the interface.

use std::time::Duration;

/// Longest frame that is accepted unless configured otherwise, in bytes: the largest object that is
/// stored by default is 50 MB, without its metadata.
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// Connections that are open at once unless configured otherwise.
const CONNECTIONS_MAX: usize = 10_000;

/// The version in replies to clients. They enable features by it and expect three dotted integers.
/// So it is the version of Riak with the same protocol, not our own.
const SERVER_VERSION: &str = "3.2.0";

/// Settings of a [`crate::Server`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The node's name in replies to clients.
    pub node_name: String,
    /// The server's version in replies to clients: dotted integers. Default: 3.2.0.
    pub server_version: String,
    /// Longest frame that is accepted, code and payload, in bytes. A connection's memory is bounded
    /// by about twice this length. Default: 64 MiB.
    pub frame_bytes_max: u32,
    /// The number of connections above which further ones are closed as soon as they are accepted.
    /// Default: 10,000.
    pub connections_max: usize,
    /// True if replies are sent at once instead of waiting for more (TCP_NODELAY). Default: true.
    pub nodelay: bool,
    /// True if idle connections are probed, so that those of lost clients end (SO_KEEPALIVE).
    /// Default: true.
    pub keepalive: bool,
    /// The time-out of index queries that name none; `None` for never. Default: never.
    pub index_timeout: Option<Duration>,
    /// The expensive requests that are served. Default: all.
    pub jobs: JobSwitches,
}

/// The classes of expensive requests that are served; Riak's job classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSwitches {
    /// Bucket listings in one reply.
    pub list_buckets: bool,
    /// Bucket listings in several replies.
    pub stream_list_buckets: bool,
    /// Key listings, which over this protocol always come in several replies.
    pub stream_list_keys: bool,
    /// Index queries in one reply.
    pub secondary_index: bool,
    /// Index queries in several replies.
    pub stream_secondary_index: bool,
    /// Map-reduce.
    pub map_reduce: bool,
}

impl ServerSettings {
    /// The defaults for a node of this name.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            server_version: SERVER_VERSION.to_owned(),
            frame_bytes_max: FRAME_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            nodelay: true,
            keepalive: true,
            index_timeout: None,
            jobs: JobSwitches::default(),
        }
    }
}

impl Default for JobSwitches {
    /// Everything is served.
    fn default() -> Self {
        Self {
            list_buckets: true,
            stream_list_buckets: true,
            stream_list_keys: true,
            secondary_index: true,
            stream_secondary_index: true,
            map_reduce: true,
        }
    }
}

//! Settings of the interface, beyond those of each request.

use std::time::Duration;

/// Settings of the HTTP interface.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The largest accepted request body, in bytes; a larger one gets 413. Objects have limits of
    /// their own; this limit bounds a request's memory.
    pub body_bytes_max: u64,
    /// True if bucket names, keys and the like are percent-decoded (`http_url_encoding = on`). When
    /// off, they are taken as received, unless the request has `X-Riak-URL-Encoding: on`.
    pub url_encoding: bool,
    /// True if a request whose `Referer` names another site is refused (`secure_referer_check`).
    pub secure_referer_check: bool,
    /// The time-out of index queries that name none; `None` for never (`secondary_index_timeout`).
    pub index_timeout: Option<Duration>,
    /// The expensive operations that are allowed.
    pub jobs: JobSwitches,
    /// The `Server` header of every answer. Characters that no header may hold are left out.
    pub server_header: String,
    /// Connections served at once; further ones wait to be accepted.
    pub connections_max: usize,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            body_bytes_max: 64 << 20,
            url_encoding: true,
            secure_referer_check: true,
            index_timeout: None,
            jobs: JobSwitches::default(),
            server_header: "Kvorum".to_owned(),
            connections_max: 10_000,
        }
    }
}

/// Operations that an operator can switch off, because they may read all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSwitches {
    /// Listing buckets in one answer.
    pub list_buckets: bool,
    /// Listing buckets in a stream.
    pub stream_list_buckets: bool,
    /// Listing keys in one answer.
    pub list_keys: bool,
    /// Listing keys in a stream.
    pub stream_list_keys: bool,
    /// Index queries in one answer.
    pub secondary_index: bool,
    /// Index queries in a stream.
    pub stream_secondary_index: bool,
    /// MapReduce.
    pub map_reduce: bool,
}

impl Default for JobSwitches {
    fn default() -> Self {
        Self {
            list_buckets: true,
            stream_list_buckets: true,
            list_keys: true,
            stream_list_keys: true,
            secondary_index: true,
            stream_secondary_index: true,
            map_reduce: true,
        }
    }
}

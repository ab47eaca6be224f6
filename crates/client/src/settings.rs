//! Settings of a connection.

use std::time::Duration;

/// Settings of a [`crate::Client`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Time to wait for the connection. Default: 10 seconds.
    pub connect_timeout: Duration,
    /// Time to wait for an answer, or for the next message of a streamed one; `None` waits forever and
    /// saves a timer for each request. Default: 65 seconds, a little above the server's own timeout, so
    /// that its error arrives first.
    pub answer_timeout: Option<Duration>,
    /// Longest frame that is accepted, in bytes. Default: 64 MiB.
    pub frame_bytes_max: u32,
}

impl Default for ClientSettings {
    fn default() -> ClientSettings {
        ClientSettings {
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Some(Duration::from_secs(65)),
            frame_bytes_max: 64 << 20,
        }
    }
}

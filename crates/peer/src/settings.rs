//! Bounds and timeouts of connections between nodes.

use std::time::Duration;

use kvorum_runtime::Room;

/// Bounds and timeouts.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// The largest message, in bytes.
    pub message_bytes_max: usize,
    /// Bytes that may wait to be sent on one connection.
    pub queued_bytes_max: usize,
    /// Requests in progress for one connection, and also messages that are still arriving.
    pub in_progress_max: usize,
    /// The messages of requests in progress for one connection, in bytes; one request is always
    /// admitted.
    pub in_progress_bytes_max: usize,
    /// Room for large arriving messages and requests in progress, of all connections together and
    /// of other users of the room. Requests of [`Lane::Control`](crate::Lane::Control) count and
    /// are not refused.
    pub room: Room,
    /// Time for connecting and the hello.
    pub connect_wait_max: Duration,
    /// The first pause after a failed attempt; each failure doubles it.
    pub retry_pause_min: Duration,
    /// The longest such pause.
    pub retry_pause_max: Duration,
    /// A connection on which nothing arrives for this long is given up.
    pub silence_max: Duration,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            message_bytes_max: 256 << 20,
            queued_bytes_max: 64 << 20,
            in_progress_max: 10_000,
            in_progress_bytes_max: 256 << 20,
            room: Room::default(),
            connect_wait_max: Duration::from_secs(5),
            retry_pause_min: Duration::from_millis(100),
            retry_pause_max: Duration::from_secs(1),
            silence_max: Duration::from_secs(10),
        }
    }
}

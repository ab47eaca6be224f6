//! Bounds and patience of connections between nodes.

use std::time::Duration;

use kvorum_runtime::Room;

/// Bounds and patience.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// The largest message, in bytes.
    pub message_bytes_max: usize,
    /// Bytes that may wait to be sent on one connection.
    pub queued_bytes_max: usize,
    /// Requests in progress for one connection; messages that are still coming as well.
    pub in_progress_max: usize,
    /// The messages of requests in progress for one connection, in bytes; one is always taken.
    pub in_progress_bytes_max: usize,
    /// Room for large messages that are coming and requests in progress, of all connections together
    /// and of its other users. Those of [`Lane::Control`](crate::Lane::Control) count and are not
    /// refused.
    pub room: Room,
    /// Time for connecting and the hello.
    pub connect_wait_max: Duration,
    /// After a failed attempt, the first pause before the next; each failure doubles it.
    pub retry_pause_min: Duration,
    /// The longest such pause.
    pub retry_pause_max: Duration,
    /// A connection on which nothing comes for this long is given up.
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

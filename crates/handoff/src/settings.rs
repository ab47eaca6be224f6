//! Settings of transfers, and the budget that limits their rate.

use std::time::Duration;

/// Settings of transfers.
#[derive(Clone, Copy, Debug)]
pub struct TransferSettings {
    /// Transfers under way at once in each direction (`transfer-limit`); with 0 none begins.
    pub transfers_max: usize,
    /// The most bytes of a page, unless its first object alone is larger.
    pub page_bytes_max: u32,
    /// The most objects of a page.
    pub page_entries_max: u32,
    /// A larger object is sent by itself, in pieces of this size, in bytes. Far below the largest
    /// message.
    pub piece_bytes_max: u32,
    /// Time to wait for an answer.
    pub answer_wait_max: Duration,
    /// The pause before the next attempt, after a failure or when the other side is not ready.
    pub retry_pause: Duration,
    /// The period at which a receiver notes its progress. A longer period costs time after a crash;
    /// each note costs a sync.
    pub cursor_period: Duration,
    /// True if this node fetches from the start on (`handoff.inbound`).
    pub is_inbound_enabled: bool,
    /// True if others may fetch from it from the start on (`handoff.outbound`).
    pub is_outbound_enabled: bool,
    /// True if stores outlive a stop. If not, all replicas may lack everything, and a repair ends
    /// even without a complete source.
    pub are_stores_kept: bool,
    /// Several replicas of a key may live on one node, as in Riak.
    pub colocated_replicas: bool,
}

impl Default for TransferSettings {
    fn default() -> Self {
        Self {
            transfers_max: 2,
            page_bytes_max: 1 << 20,
            page_entries_max: 1_000,
            piece_bytes_max: 4 << 20,
            answer_wait_max: Duration::from_secs(30),
            retry_pause: Duration::from_millis(500),
            cursor_period: Duration::from_secs(5),
            is_inbound_enabled: true,
            is_outbound_enabled: true,
            are_stores_kept: true,
            colocated_replicas: false,
        }
    }
}

/// The limit on the rate of transfers. Both sides ask it before each page and each piece.
pub trait Budget: Send + Sync {
    /// Time to wait before `bytes` may be read or written. If it is zero, they count as spent.
    fn ask(&self, bytes: u64) -> Duration;
}

/// A budget without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbounded;

impl Budget for Unbounded {
    fn ask(&self, _bytes: u64) -> Duration {
        Duration::ZERO
    }
}

//! Settings of transfers, and the budget that slows them down.

use std::time::Duration;

/// Settings of transfers.
#[derive(Clone, Copy, Debug)]
pub struct TransferSettings {
    /// Transfers under way at once in each direction (`transfer-limit`); 0 lets none begin.
    pub transfers_max: usize,
    /// A page holds no more bytes than this, unless its first object alone does.
    pub page_bytes_max: u32,
    /// A page holds no more objects than this.
    pub page_entries_max: u32,
    /// An object with more bytes travels by itself, in pieces of this size. Far below the largest
    /// message.
    pub piece_bytes_max: u32,
    /// Time to wait for an answer.
    pub answer_wait_max: Duration,
    /// After a failure, or when the other side is not ready: the pause before the next attempt.
    pub retry_pause: Duration,
    /// A receiver notes this often how far it has come. More seldom costs time after a crash, more
    /// often a sync each.
    pub cursor_period: Duration,
    /// True if this node fetches from the start on (`handoff.inbound`).
    pub is_inbound_enabled: bool,
    /// True if others may fetch from it from the start on (`handoff.outbound`).
    pub is_outbound_enabled: bool,
    /// Stores outlive a stop. Where they do not, all replicas may lack everything: a repair then ends
    /// without a source that lacks nothing.
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

/// The limit on the rate of transfers: asked before each page and each piece, on both sides.
pub trait Budget: Send + Sync {
    /// Time to wait before `bytes` may be read or written. With zero they count as spent.
    fn ask(&self, bytes: u64) -> Duration;
}

/// No bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbounded;

impl Budget for Unbounded {
    fn ask(&self, _bytes: u64) -> Duration {
        Duration::ZERO
    }
}

//! What the node knows of itself, as `/stats` `/metrics`, `/ping` and `/health` show it.

use std::borrow::Cow;

use serde_json::Value;

/// Tells what a node records about itself. Asked once for each request, on a worker thread: it must
/// not wait for a device.
pub trait NodeFacts: Send + Sync {
    /// Riak's statistics by name, in the order in which they are shown. Clients look for
    /// `riak_kv_version` (dotted numbers), `nodename`, `ring_members` and `storage_backend`.
    fn stats(&self) -> Vec<(Cow<'static, str>, Value)>;

    /// The OpenMetrics text.
    fn metrics(&self) -> String;

    /// How many of the node's vnodes serve. Who has all stores open from the start need not count.
    fn vnodes(&self) -> VnodeCounts {
        VnodeCounts::default()
    }
}

/// The node's vnodes, by whether their stores are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnodeCounts {
    /// They serve.
    pub open: usize,
    /// Their stores are being opened: the node has just started.
    pub opening: usize,
    /// Their stores could not be opened.
    pub failed: usize,
}

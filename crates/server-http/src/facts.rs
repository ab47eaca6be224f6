//! What the node knows of itself, as `/stats` and `/metrics` show it.

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
}

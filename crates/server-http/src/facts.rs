//! The node's facts about itself, as `/stats`, `/metrics`, `/ping` and `/health` show them.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The facts that a node records about itself. Methods are called once for each request, on a
/// worker thread, and must not wait for a device.
pub trait NodeFacts: Send + Sync {
    /// Riak's statistics by name, in the order in which they are shown. Clients look for
    /// `riak_kv_version` (dotted numbers), `nodename`, `ring_members` and `storage_backend`.
    fn stats(&self) -> Vec<(Cow<'static, str>, Value)>;

    /// The OpenMetrics text.
    fn metrics(&self) -> String;

    /// The backends of a node with several, as text.
    fn several_backends(&self) -> Option<String> {
        None
    }

    /// The node's ability to serve. By default, it is ready.
    fn health(&self) -> Health {
        Health::default()
    }
}

/// A node's ability to serve, and the reasons if it cannot. It contains no path of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// False when requests should go to another node.
    pub is_ready: bool,
    /// `ready`, `degraded`, or one word for the reason why the node is not ready.
    pub status: &'static str,
    /// All problems, first those that keep the node from being ready: a word for programs and a sentence.
    pub reasons: Vec<(&'static str, String)>,
    /// The node's vnodes.
    pub vnodes: VnodeCounts,
    /// Further members of the answer of `/health`.
    pub details: Map<String, Value>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            is_ready: true,
            status: "ready",
            reasons: Vec::new(),
            vnodes: VnodeCounts::default(),
            details: Map::new(),
        }
    }
}

/// Numbers of the node's vnodes: open, being opened, and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnodeCounts {
    /// Vnodes that serve.
    pub open: usize,
    /// Vnodes whose stores are being opened after a start.
    pub opening: usize,
    /// Vnodes whose stores could not be opened.
    pub failed: usize,
}

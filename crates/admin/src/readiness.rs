//! Texts about the vnodes that serve, since a node answers before all of its stores are open.

use std::fmt::Write as _;
use std::sync::Arc;

use kvorum_member::{Readiness, Unopened, VnodeTable};
use serde_json::{Value, json};

/// The state of a vnode that serves.
pub(crate) const OPEN: &str = "open";

/// The state of a vnode that does not serve.
pub(crate) fn state_of(unopened: &Unopened) -> &'static str {
    match unopened {
        Unopened::Opening { .. } => "opening",
        Unopened::Failed { .. } => "failed",
    }
}

/// The reason why a vnode does not serve, if it failed.
pub(crate) fn error_of(unopened: &Unopened) -> Option<&str> {
    match unopened {
        Unopened::Opening { .. } => None,
        Unopened::Failed { error, .. } => Some(error),
    }
}

/// The number of vnodes that serve, and each vnode that does not, as lines of text and as JSON.
pub(crate) fn describe(vnodes: &VnodeTable, text: &mut String) -> Value {
    let (readiness, unopened) = (vnodes.readiness(), vnodes.unopened());
    let (open, opening, failed) = (readiness.open, readiness.opening, readiness.failed);
    let _infallible = writeln!(text, "{open} open, {opening} opening, {failed} failed");
    let mut rows = Vec::new();
    for (partition, unopened) in unopened {
        let (id, state) = (partition.number(), state_of(&unopened));
        let error = error_of(&unopened);
        let reason = error.map_or_else(String::new, |error| format!(": {error}"));
        let _infallible = writeln!(text, "  partition {id}: {state}{reason}");
        rows.push(json!({"id": id, "state": state, "error": error}));
    }
    json!({"open": open, "opening": opening, "failed": failed, "unopened": rows})
}

/// Waits until every vnode serves, and logs it.
pub async fn announce(vnodes: Arc<VnodeTable>, node: String) {
    let mut readiness = vnodes.watch_readiness();
    if readiness.until(Readiness::is_complete).await.is_ok() {
        tracing::info!(event = "ready", node = %node, version = env!("CARGO_PKG_VERSION"));
    }
}

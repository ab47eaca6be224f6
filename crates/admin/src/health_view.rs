//! A node's health as clients of HTTP and operators see it.

use kvorum_member::{Finding, Health};
use kvorum_server_http::VnodeCounts;
use serde_json::{Map, Value, json};

/// The health for `/health` and `/ping`.
pub fn for_clients(health: &Health) -> kvorum_server_http::Health {
    let reasons = health.findings().into_iter();
    kvorum_server_http::Health {
        is_ready: health.is_ready(),
        status: health.status(),
        reasons: reasons.map(|it| (it.code, it.text)).collect(),
        vnodes: VnodeCounts {
            open: health.open,
            opening: health.opening,
            failed: health.failed.len(),
        },
        details: details(health),
    }
}

/// The health for operators' programs.
pub(crate) fn json(health: &Health) -> Value {
    let reason =
        |it: &Finding| json!({"reason": it.code, "blocking": it.is_blocking, "text": it.text});
    let reasons: Vec<Value> = health.findings().iter().map(reason).collect();
    let mut value = json!({
        "status": health.status(),
        "ready": health.is_ready(),
        "reasons": reasons,
        "open": health.open,
        "opening": health.opening,
        "failed": health.failed.len(),
    });
    if let Value::Object(members) = &mut value {
        members.extend(details(health));
    }
    value
}

fn details(health: &Health) -> Map<String, Value> {
    let mut details = Map::new();
    let mut put = |name: &str, value: Value| {
        details.insert(name.to_owned(), value);
    };
    put("member", health.membership.name().into());
    put("unwritable", health.unwritable.into());
    put("partitions_failed", health.failed.clone().into());
    put("partitions_incomplete", health.incomplete.clone().into());
    put("partitions_unserved", health.unserved.clone().into());
    put(
        "partitions_reads_refused",
        health.reads_refused.clone().into(),
    );
    put(
        "partitions_writes_refused",
        health.writes_refused.clone().into(),
    );
    put("partitions", health.partitions.into());
    details
}

//! Warnings about objects that grow: large ones, and those with many siblings.
//!
//! Such objects slow down everything that touches them long before they are refused. Each write
//! above a warning threshold is counted; the process logs a limited number of them a minute.

use std::time::Duration;

use kvorum_backend::Timestamp;
use kvorum_encoding::StorageKey;
use kvorum_object::{LimitLevel, LimitVerdict, Limits, ObjectSize};
use kvorum_runtime::LogQuota;

static LARGE: LogQuota = LogQuota::new();
static MANY_SIBLINGS: LogQuota = LogQuota::new();

/// Logs a write that is above a warning threshold.
pub(crate) fn warn(
    key: &StorageKey,
    size: ObjectSize,
    verdict: &LimitVerdict,
    limits: &Limits,
    now: Timestamp,
) {
    let now = Duration::from_micros(now.0);
    if verdict.size != LimitLevel::Within
        && let Some(left_out) = LARGE.take(now)
    {
        tracing::warn!(
            event = "object_large",
            address = place(key),
            bytes = size.bytes,
            bytes_warning = limits.size_warning_bytes,
            is_refused = verdict.refusal.is_some(),
            left_out,
        );
    }
    if verdict.siblings != LimitLevel::Within
        && let Some(left_out) = MANY_SIBLINGS.take(now)
    {
        tracing::warn!(
            event = "object_siblings_many",
            address = place(key),
            siblings = size.siblings,
            siblings_warning = limits.siblings_warning,
            is_refused = verdict.refusal.is_some(),
            left_out,
        );
    }
}

fn place(key: &StorageKey) -> String {
    match key.decode() {
        Ok(address) => address.to_string(),
        Err(_) => format!("{key:?}"),
    }
}

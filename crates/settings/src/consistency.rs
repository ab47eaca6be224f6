//! Values that have to fit each other.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::byte_size;
use crate::problem::Problem;
use crate::settings::{BucketDefaults, QuorumValue, Settings};

/// What makes it impossible to start.
pub(crate) fn conflicts(settings: &Settings) -> Vec<Problem> {
    let mut found = Vec::new();
    found.extend(quorum_conflicts(&settings.buckets));
    found.extend(address_conflicts(settings));
    if settings.buckets.last_write_wins && settings.buckets.dvv_enabled {
        found.push(
            "`buckets.default.last_write_wins = true` does not go with \
             `buckets.default.merge_strategy = 2`: set the strategy to 1"
                .to_owned(),
        );
    }
    let log = &settings.commit_log;
    if log.bytes_max < log.segment_bytes.saturating_mul(2) {
        found.push(format!(
            "`commit_log.bytes_max` is {}, which is less than two segments of {} \
             (`commit_log.segment_bytes`)",
            byte_size::render(log.bytes_max),
            byte_size::render(log.segment_bytes)
        ));
    }
    found.into_iter().map(Problem::Conflict).collect()
}

/// What is likely a mistake, though the server starts.
pub(crate) fn warnings(settings: &Settings) -> Vec<String> {
    let largest = settings.objects.size_max_bytes;
    let mut found = Vec::new();
    for (key, limit) in [
        (
            "protobuf.frame_bytes_max",
            settings.protobuf.frame_bytes_max,
        ),
        ("http.body_bytes_max", settings.http.body_bytes_max),
    ] {
        if largest >= limit {
            found.push(format!(
                "`object.size.maximum` is {}, but requests end at {} (`{key}`): \
                 objects of that size cannot be written",
                byte_size::render(largest),
                byte_size::render(limit)
            ));
        }
    }
    found
}

fn quorum_conflicts(buckets: &BucketDefaults) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in [
        ("r", buckets.r),
        ("w", buckets.w),
        ("dw", buckets.dw),
        ("rw", buckets.rw),
        ("pr", buckets.pr),
        ("pw", buckets.pw),
        ("node_confirms", QuorumValue::Count(buckets.node_confirms)),
    ] {
        if let QuorumValue::Count(count) = value
            && count > buckets.n_val
        {
            found.push(format!(
                "`buckets.default.{key}` is {count}, more than the {} replicas of \
                 `buckets.default.n_val`",
                buckets.n_val
            ));
        }
    }
    found
}

fn address_conflicts(settings: &Settings) -> Vec<String> {
    let mut taken: BTreeMap<SocketAddr, String> = BTreeMap::new();
    let mut found = Vec::new();
    let listeners = &settings.listeners;
    for (kind, addresses) in [
        ("protobuf", &listeners.protobuf),
        ("http", &listeners.http),
        ("peer", &listeners.peer),
    ] {
        for (name, address) in addresses {
            let key = format!("listener.{kind}.{name}");
            // Port 0 is a new port each time.
            if address.port() == 0 {
                continue;
            }
            if let Some(other) = taken.get(address) {
                found.push(format!("`{other}` and `{key}` both ask for {address}"));
            } else {
                taken.insert(*address, key);
            }
        }
    }
    found
}

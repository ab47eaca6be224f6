//! Values that have to fit each other.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::byte_size;
use crate::problem::Problem;
use crate::settings::{
    BucketDefaults, LeveldbSettings, MergePolicy, MultiSettings, NamedBackend, QuorumValue,
    Settings, StorageBackend,
};

/// Conflicts that prevent a start.
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
    if settings.node.storage_backend == StorageBackend::Leveldb {
        found.extend(tier_conflicts(&settings.leveldb));
    }
    if settings.node.storage_backend == StorageBackend::Multi {
        found.extend(multi_conflicts(&settings.multi));
    }
    let log = &settings.value_log;
    if log.bytes_max < log.segment_bytes.saturating_mul(2) {
        found.push(format!(
            "`value_log.bytes_max` is {}, which is less than two segments of {} \
             (`value_log.segment_bytes`)",
            byte_size::render(log.bytes_max),
            byte_size::render(log.segment_bytes)
        ));
    }
    found.into_iter().map(Problem::Conflict).collect()
}

/// Likely mistakes that do not prevent a start.
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
    found.extend(merge_window_warning(settings));
    found
}

/// An older riak.conf has hours of the machine's local time.
fn merge_window_warning(settings: &Settings) -> Option<String> {
    let (bitcask, leveled) = (&settings.bitcask, &settings.leveled);
    let (what, first, last, keys) = match settings.node.storage_backend {
        StorageBackend::Bitcask if bitcask.merge_policy == MergePolicy::Window => (
            "`bitcask.merge.window`",
            bitcask.merge_window_start_hour,
            bitcask.merge_window_end_hour,
            "`bitcask.merge.window.start` and `.end`",
        ),
        StorageBackend::Leveled => (
            "compaction of `leveled`",
            leveled.compaction_first_hour,
            leveled.compaction_last_hour,
            "`leveled.compaction_low_hour` and `leveled.compaction_top_hour`",
        ),
        _ => return None,
    };
    let is_all_day = (last + 1) % 24 == first;
    (!is_all_day).then(|| {
        format!(
            "{what} from {first}:00 to {last}:59 is UTC, where Riak goes by the machine's local time: set \
             {keys} to the hours of UTC that are meant"
        )
    })
}

/// Maximum of backends in a store of several.
const BACKENDS_MAX: usize = 32;

fn multi_conflicts(multi: &MultiSettings) -> Vec<String> {
    let names: Vec<&str> = multi.backends.iter().map(|it| &*it.name).collect();
    let mut found = Vec::new();
    if names.is_empty() || names.len() > BACKENDS_MAX {
        found.push(format!(
            "`storage_backend` is multi, and {} backends are declared: declare 1 to {BACKENDS_MAX} by \
             `multi_backend.NAME.storage_backend`",
            names.len()
        ));
    }
    for backend in &multi.backends {
        let name = &backend.name;
        // The name is also the name of a directory.
        if name.len() > 64 || name.contains('.') || name == "lost" {
            found.push(format!(
                "`multi_backend.{name}` is no name of a backend: take at most 64 letters, digits, `-` and `_`, \
                 and not `lost`"
            ));
        }
        if backend.settings.node.storage_backend == StorageBackend::Multi {
            found.push(format!(
                "`multi_backend.{name}.storage_backend` is not set to an engine: set it to the one that has \
                 its data"
            ));
        }
    }
    if !multi.default.is_empty() && !names.contains(&&*multi.default) {
        found.push(format!(
            "`multi_backend.default` is {}, and the backends are {}: set it to one of them",
            multi.default,
            names.join(", ")
        ));
    }
    if multi.goes_by_prefix {
        found.extend(prefix_conflicts(&multi.backends));
    }
    found
}

/// Prefixes of bucket names that two backends have: such buckets have no definite backend.
fn prefix_conflicts(backends: &[NamedBackend]) -> Vec<String> {
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = Vec::new();
    for backend in backends {
        for start in &backend.bucket_prefixes {
            let other = *taken.entry(start).or_insert(&backend.name);
            if other != backend.name {
                found.push(format!(
                    "`multi_backend.{other}.bucket_prefix` and `multi_backend.{}.bucket_prefix` both have \
                     `{start}`: leave it to one of them",
                    backend.name
                ));
            }
        }
    }
    found
}

fn tier_conflicts(leveldb: &LeveldbSettings) -> Vec<String> {
    let Some(level) = leveldb.tiered_from_level else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, path) in [
        ("fast", &leveldb.tiered_path_fast),
        ("slow", &leveldb.tiered_path_slow),
    ] {
        if path.is_none() {
            found.push(format!(
                "`leveldb.tiered = {level}` wants `leveldb.tiered.path.{key}`: set it to a directory of \
                 the {key} device, or `leveldb.tiered = off`"
            ));
        }
    }
    if let Some(tiers) = leveldb.tiers()
        && (tiers.fast_root.starts_with(&tiers.slow_root)
            || tiers.slow_root.starts_with(&tiers.fast_root))
    {
        found.push(format!(
            "`leveldb.tiered.path.fast` and `leveldb.tiered.path.slow` lead to {} and {}: set them to \
             two directories of which neither is in the other, or `leveldb.tiered = off`",
            tiers.fast_root.display(),
            tiers.slow_root.display()
        ));
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

/// Listeners with the same port: the later one could not be opened, or not at every address.
fn address_conflicts(settings: &Settings) -> Vec<String> {
    let mut taken: Vec<(SocketAddr, String)> = Vec::new();
    let mut found = Vec::new();
    let listeners = &settings.listeners;
    for (kind, addresses) in [
        ("protobuf", &listeners.protobuf),
        ("http", &listeners.http),
        ("peer", &listeners.peer),
    ] {
        for (name, address) in addresses {
            let key = format!("listener.{kind}.{name}");
            let other = taken.iter().find(|(other, _)| overlap(*other, *address));
            if let Some((other, other_key)) = other {
                found.push(match other == address {
                    true => format!("`{other_key}` and `{key}` both ask for {address}"),
                    false => format!(
                        "`{other_key}` asks for {other} and `{key}` for {address}, which is the same port \
                         of one address: give one of them another port"
                    ),
                });
            } else {
                taken.push((*address, key));
            }
        }
    }
    found
}

/// True if some address would belong to both listeners. Port 0 is a new port each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: SocketAddr, some: SocketAddr| {
        // A listener on all addresses of IPv6 has those of IPv4 too.
        all.ip().is_unspecified() && (all.is_ipv6() || some.is_ipv4())
    };
    let has_same_port = one.port() == other.port() && one.port() != 0;
    has_same_port && (one.ip() == other.ip() || covers(one, other) || covers(other, one))
}

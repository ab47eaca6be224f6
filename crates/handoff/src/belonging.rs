//! The test whether a key of one vnode also belongs to another.

use kvorum_cluster::ClusterState;
use kvorum_encoding::StorageKey;
use kvorum_properties::KeyFunction;
use kvorum_ring::{KeyHash, Partition, position};

use crate::transfer_id::Wanted;

/// True when a key belongs to the vnode of `target`. A key that cannot be decoded belongs to none.
pub(crate) fn is_wanted(
    state: &ClusterState,
    target: Partition,
    wanted: &Wanted,
    key: &StorageKey,
) -> bool {
    let Wanted::Owners { owners, replicas } = wanted else {
        return true;
    };
    let Ok(address) = key.decode() else {
        return false;
    };
    let properties = state.stored_properties(&address.bucket_type, &address.bucket);
    // The placement of keys of a removed type is unknown: this assumes the usual one.
    let (hash, n_val) = properties.map_or((KeyHash::Standard, u32::MAX), |it| {
        (key_hash(&it.chash_keyfun), it.n_val)
    });
    let place = position(&address.bucket_type, &address.bucket, &address.key, hash);
    let ring = state.ring();
    let owner = place.owner(ring.size());
    let n = u16::try_from(n_val).unwrap_or(u16::MAX).min(*replicas);
    // Lists make no detours where replicas share nodes on purpose.
    let is_straight = || ring.size().distance(owner, target) < n;
    owners.contains(&owner) && (ring.is_replica(owner, n, target) || is_straight())
}

fn key_hash(function: &KeyFunction) -> KeyHash {
    match function {
        KeyFunction::BucketOnly => KeyHash::BucketOnly,
        KeyFunction::Standard => KeyHash::Standard,
    }
}

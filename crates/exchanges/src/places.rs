//! The places of keys: in which tree a key is, by the properties of its bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_encoding::{Address, Bucket, BucketType, StorageKey, checksum, put_varint};
use kvorum_object::{ObjectTag, Retention};
use kvorum_properties::{BucketProperties, KeyFunction};
use kvorum_reaping::ListName;
use kvorum_ring::{KeyHash, RingSize, position};
use kvorum_vnode::{TreeName, TreePlacing};

/// Places keys by the agreed state of the moment.
pub struct KeyPlaces(Arc<dyn AgreedState>);

impl KeyPlaces {
    /// Places keys by this state.
    pub fn new(cluster: Arc<dyn AgreedState>) -> Self {
        Self(cluster)
    }
}

impl TreePlacing for KeyPlaces {
    fn tree_of(&self, key: &StorageKey) -> Option<TreeName> {
        let address = key.decode().ok()?;
        let state = self.0.look();
        Some(placed(&state, &address)?.0)
    }
}

/// The tree of a key by a state, and the properties of its bucket.
fn placed<'a>(
    state: &'a ClusterState,
    address: &Address,
) -> Option<(TreeName, &'a BucketProperties)> {
    let properties = state.stored_properties(&address.bucket_type, &address.bucket);
    let properties = properties.ok()?;
    let Placement { hash, n_val } = Placement::of(properties);
    let place = position(&address.bucket_type, &address.bucket, &address.key, hash);
    let owner = place.owner(state.ring().size());
    Some((TreeName { owner, n_val }, properties))
}

/// The preference list of a key whose tombstone may go by this state: the list has a watermark of the
/// present epoch, and no old copy of the key is anywhere else.
///
/// A journal may bring objects of some kinds back when the index over it is made again, if the removal of
/// their tombstone is not in it. Such tombstones stay.
pub fn list_to_reap(state: &ClusterState, key: &StorageKey) -> Option<ListName> {
    let address = key.decode().ok()?;
    let (TreeName { owner, n_val }, properties) = placed(state, &address)?;
    let tag = properties.object_tag.as_deref();
    let tag = tag.map_or_else(ObjectTag::default, ObjectTag::chosen);
    let may_come_back = tag.retention() == Retention::Recovr;
    if may_come_back || state.may_have_old_copies(&address.bucket_type, &address.bucket) {
        return None;
    }
    let list = ListName {
        partition: owner.number(),
        n_val,
    };
    let epoch = state.watermark(list)?.epoch;
    (state.rounds_epoch() == Some(epoch)).then_some(list)
}

/// The bucket properties that decide the trees of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placement {
    hash: KeyHash,
    n_val: u8,
}

impl Placement {
    fn of(properties: &BucketProperties) -> Self {
        Self {
            hash: match properties.chash_keyfun {
                KeyFunction::BucketOnly => KeyHash::BucketOnly,
                KeyFunction::Standard => KeyHash::Standard,
            },
            n_val: name_of_n(properties.n_val),
        }
    }

    /// Appends the number of names, each name behind its length, and the placement.
    fn put(self, out: &mut Vec<u8>, names: &[&[u8]]) {
        put_varint(out, names.len() as u64);
        for name in names {
            put_varint(out, name.len() as u64);
            out.extend_from_slice(name);
        }
        let is_by_bucket = u8::from(self.hash == KeyHash::BucketOnly);
        out.extend_from_slice(&[is_by_bucket, self.n_val]);
    }
}

/// An n_val as trees are named by it.
pub(crate) fn name_of_n(n_val: u32) -> u8 {
    u8::try_from(n_val).unwrap_or(u8::MAX)
}

/// The placements of all types, and of the buckets that have others than their types.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Placements {
    of_types: BTreeMap<BucketType, Placement>,
    of_buckets: BTreeMap<(BucketType, Bucket), Placement>,
    /// Types that were removed and created again: stores may have tombstones of them from before.
    again: BTreeSet<BucketType>,
}

impl Placements {
    pub(crate) fn of(state: &ClusterState) -> Self {
        let default_type = BucketType::default_type();
        let types = state.bucket_types().keys().chain([&default_type]);
        let of_type = |it: &BucketType| {
            let properties = state.stored_type_properties(it).ok()?;
            Some((it.clone(), Placement::of(properties)))
        };
        let of_types: BTreeMap<BucketType, Placement> = types.filter_map(of_type).collect();
        let of_bucket = |(bucket_type, bucket, _): (&BucketType, &Bucket, _)| {
            let properties = state.stored_properties(bucket_type, bucket).ok()?;
            let placement = Placement::of(properties);
            let is_own = of_types.get(bucket_type) != Some(&placement);
            is_own.then(|| ((bucket_type.clone(), bucket.clone()), placement))
        };
        let of_buckets = state.bucket_overlays().filter_map(of_bucket).collect();
        let removed = state.removed_types().iter();
        let again = removed.filter(|it| of_types.contains_key(*it)).cloned();
        Self {
            again: again.collect(),
            of_types,
            of_buckets,
        }
    }

    fn of_bucket(&self, name: &(BucketType, Bucket)) -> Option<Placement> {
        let own = self.of_buckets.get(name);
        own.or_else(|| self.of_types.get(&name.0)).copied()
    }

    /// A number that stands for the trees of all keys, over runs: a checksum over the ring's size, and over
    /// types and buckets by name, each with its placement. Whether a type was there before does not count:
    /// trees that were kept under the same placements have its tombstones too.
    pub(crate) fn fingerprint(&self, size: RingSize) -> u32 {
        let mut bytes = size.get().to_le_bytes().to_vec();
        for (bucket_type, placement) in &self.of_types {
            placement.put(&mut bytes, &[bucket_type.as_bytes()]);
        }
        for ((bucket_type, bucket), placement) in &self.of_buckets {
            let name = [bucket_type.as_bytes(), bucket.as_bytes()];
            placement.put(&mut bytes, &name);
        }
        checksum(&bytes)
    }

    /// True when later placements put keys into another tree than these. A type that was unknown has no keys,
    /// since they could not be written, unless it was removed before.
    pub(crate) fn differ_from(&self, later: &Self) -> bool {
        let of_types = self.of_types.iter();
        let types_differ = of_types
            .into_iter()
            .any(|(name, it)| later.of_types.get(name) != Some(it));
        let names = self.of_buckets.keys().chain(later.of_buckets.keys());
        let buckets_differ = names.into_iter().any(|it| {
            self.of_types.contains_key(&it.0) && self.of_bucket(it) != later.of_bucket(it)
        });
        let mut again = later.again.iter();
        let is_any_again = again.any(|name| !self.of_types.contains_key(name));
        types_differ || buckets_differ || is_any_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Placement = Placement {
        hash: KeyHash::Standard,
        n_val: 1,
    };
    const USUAL: Placement = Placement {
        hash: KeyHash::Standard,
        n_val: 3,
    };

    fn placements(types: &[(&str, Placement)], buckets: &[(&str, Placement)]) -> Placements {
        let type_of = |name: &str| BucketType::new(name.as_bytes().to_vec());
        Placements {
            of_types: types.iter().map(|(it, at)| (type_of(it), *at)).collect(),
            of_buckets: buckets
                .iter()
                .map(|(it, at)| ((type_of(it), Bucket::from("b")), *at))
                .collect(),
            again: BTreeSet::new(),
        }
    }

    #[test]
    fn a_new_type_moves_no_keys_and_a_changed_one_does() {
        let before = placements(&[("a", USUAL)], &[]);
        let with_new = placements(&[("a", USUAL), ("b", SMALL)], &[("b", USUAL)]);
        assert!(!before.differ_from(&before));
        assert!(!before.differ_from(&with_new));
        assert!(before.differ_from(&placements(&[("a", SMALL)], &[])));
        assert!(before.differ_from(&placements(&[("a", USUAL)], &[("a", SMALL)])));
        let own = placements(&[("a", USUAL)], &[("a", SMALL)]);
        assert!(own.differ_from(&before));
    }

    #[test]
    fn a_type_that_was_removed_may_have_keys_when_it_is_there_again() {
        let without = placements(&[("a", USUAL)], &[]);
        let mut again = placements(&[("a", USUAL), ("b", SMALL)], &[]);
        again.again.insert(BucketType::from("b"));
        assert!(without.differ_from(&again));
        assert!(!again.differ_from(&again));
    }

    #[test]
    fn a_fingerprint_stands_for_all_that_places_keys() {
        let size = |partitions| RingSize::new(partitions).unwrap();
        let print = |it: &Placements| it.fingerprint(size(64));
        let one = placements(&[("a", USUAL)], &[("a", SMALL)]);
        let others = [
            placements(&[("a", USUAL)], &[]),
            placements(&[("a", SMALL)], &[("a", SMALL)]),
            placements(&[("b", USUAL)], &[("b", SMALL)]),
            placements(&[("a", USUAL), ("b", SMALL)], &[]),
        ];
        assert!(others.iter().all(|it| print(it) != print(&one)));
        assert_ne!(one.fingerprint(size(128)), print(&one));
    }
}

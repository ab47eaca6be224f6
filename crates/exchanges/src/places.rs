//! The places of keys: in which tree a key is, by the properties of its bucket.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_encoding::{Bucket, BucketType, StorageKey};
use kvorum_properties::{BucketProperties, KeyFunction};
use kvorum_ring::{KeyHash, position};
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
        let properties = state
            .properties(&address.bucket_type, &address.bucket)
            .ok()?;
        let Placement { hash, n_val } = Placement::of(properties);
        let place = position(&address.bucket_type, &address.bucket, &address.key, hash);
        let owner = place.owner(state.ring().size());
        Some(TreeName { owner, n_val })
    }
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
}

impl Placements {
    pub(crate) fn of(state: &ClusterState) -> Self {
        let default_type = BucketType::default_type();
        let types = state.bucket_types().keys().chain([&default_type]);
        let of_type = |it: &BucketType| {
            let properties = state.type_properties(it).ok()?;
            Some((it.clone(), Placement::of(properties)))
        };
        let of_types: BTreeMap<BucketType, Placement> = types.filter_map(of_type).collect();
        let of_bucket = |(bucket_type, bucket, _): (&BucketType, &Bucket, _)| {
            let properties = state.properties(bucket_type, bucket).ok()?;
            let placement = Placement::of(properties);
            let is_own = of_types.get(bucket_type) != Some(&placement);
            is_own.then(|| ((bucket_type.clone(), bucket.clone()), placement))
        };
        let of_buckets = state.bucket_overlays().filter_map(of_bucket).collect();
        Self {
            of_types,
            of_buckets,
        }
    }

    fn of_bucket(&self, name: &(BucketType, Bucket)) -> Option<Placement> {
        let own = self.of_buckets.get(name);
        own.or_else(|| self.of_types.get(&name.0)).copied()
    }

    /// True when keys that were in one tree by these are in another by later ones. Keys of a type that was
    /// unknown were in none, since they could not be written.
    pub(crate) fn differ_from(&self, later: &Self) -> bool {
        let of_types = self.of_types.iter();
        let types_differ = of_types
            .into_iter()
            .any(|(name, it)| later.of_types.get(name) != Some(it));
        let names = self.of_buckets.keys().chain(later.of_buckets.keys());
        let buckets_differ = names.into_iter().any(|it| {
            self.of_types.contains_key(&it.0) && self.of_bucket(it) != later.of_bucket(it)
        });
        types_differ || buckets_differ
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
}

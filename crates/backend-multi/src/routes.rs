//! The child of each bucket, by the agreed properties of buckets and their types.
//!
//! The table is made when routes change, and each operation reads it. So its keys are encoded
//! beginnings of storage keys: no key is decoded to find a route.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_encoding::{
    Bucket, BucketType, StorageKey, bucket_prefix, prefix_lens, type_prefix, without_page_mark,
};

use crate::child::ChildNumber;

/// The child of each bucket. A rule for a prefix of a bucket's name precedes a rule for the bucket,
/// which precedes a rule for its type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// The child of all other buckets.
    default: ChildNumber,
    /// By the prefix of a bucket's name; the first match counts.
    by_name: Vec<(Bytes, ChildNumber)>,
    /// By [`bucket_prefix`].
    by_bucket: HashMap<Bytes, ChildNumber>,
    /// By [`type_prefix`].
    by_type: HashMap<Bytes, ChildNumber>,
    moving: Moving,
}

/// The buckets that have to move if they are outside of their route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Moving {
    /// Buckets whose child was chosen for them or their type.
    #[default]
    Chosen,
    /// All buckets, each by itself.
    All,
    /// All buckets together.
    Whole,
}

impl RouteTable {
    /// All buckets are in one child.
    pub fn to(default: ChildNumber) -> Self {
        Self {
            default,
            ..Self::default()
        }
    }

    /// All buckets are in one child, and data elsewhere move there.
    pub(crate) fn pinned(child: ChildNumber) -> Self {
        Self {
            moving: Moving::Whole,
            ..Self::to(child)
        }
    }

    /// The same routes; all data elsewhere move to them.
    pub(crate) fn moving_all(&self) -> Self {
        Self {
            moving: Moving::All,
            ..self.clone()
        }
    }

    /// Routes buckets whose name begins with these bytes, unless an earlier beginning matches too.
    pub fn route_names(&mut self, start: &[u8], child: ChildNumber) {
        self.by_name.push((Bytes::copy_from_slice(start), child));
    }

    /// Routes one bucket.
    pub fn route_bucket(&mut self, of_type: &BucketType, bucket: &Bucket, child: ChildNumber) {
        self.by_bucket
            .insert(bucket_prefix(of_type, bucket).into(), child);
    }

    /// Routes all buckets of a type.
    pub fn route_type(&mut self, of_type: &BucketType, child: ChildNumber) {
        self.by_type.insert(type_prefix(of_type).into(), child);
    }

    /// The child of a bucket, by a storage key or the prefix of the bucket's keys. Pages are with their
    /// objects. Other bytes are in the default child.
    pub fn child_of(&self, key: &[u8]) -> ChildNumber {
        let key = without_page_mark(key);
        let has_rules =
            !(self.by_name.is_empty() && self.by_bucket.is_empty() && self.by_type.is_empty());
        let lens = has_rules.then(|| prefix_lens(key).ok()).flatten();
        let Some((type_len, bucket_len)) = lens else {
            return self.default;
        };
        let routes = [
            self.by_start_of_name(key),
            self.by_bucket.get(&key[..bucket_len]).copied(),
            self.by_type.get(&key[..type_len]).copied(),
        ];
        routes.into_iter().flatten().next().unwrap_or(self.default)
    }

    /// The length of the beginning of a key by which its child was chosen for its bucket or its
    /// type. `None` if the beginning of the bucket's name or the default decides, unless data of
    /// these routes move too.
    pub(crate) fn chosen_scope(&self, key: &[u8]) -> Option<usize> {
        let (type_len, bucket_len) = prefix_lens(key).ok()?;
        match self.moving {
            Moving::Whole => return Some(0),
            Moving::All => return Some(bucket_len),
            Moving::Chosen if self.by_start_of_name(key).is_some() => return None,
            Moving::Chosen => {}
        }
        match self.by_bucket.contains_key(&key[..bucket_len]) {
            true => Some(bucket_len),
            false => {
                let is_by_type = self.by_type.contains_key(&key[..type_len]);
                is_by_type.then_some(type_len)
            }
        }
    }

    /// True when the child of a bucket does not depend on its type.
    pub(crate) fn is_apart_from_type(&self, key: &[u8]) -> bool {
        let is_by_bucket = || {
            let lens = prefix_lens(key).ok();
            lens.is_some_and(|(_, len)| self.by_bucket.contains_key(&key[..len]))
        };
        self.by_start_of_name(key).is_some() || is_by_bucket()
    }

    fn by_start_of_name(&self, key: &[u8]) -> Option<ChildNumber> {
        if self.by_name.is_empty() {
            return None;
        }
        let key = StorageKey::from_encoded(Bytes::copy_from_slice(key));
        let address = key.decode().ok()?;
        let name = address.bucket.as_bytes();
        let fits = |(start, _): &&(Bytes, ChildNumber)| name.starts_with(start);
        self.by_name.iter().find(fits).map(|(_, child)| *child)
    }
}

/// The source of the valid table.
pub trait Routes: Send + Sync {
    /// The version of the table. Must be cheap: each operation calls it.
    fn version(&self) -> u64;

    /// The table and its version. A later version may be the same table.
    fn table(&self) -> (u64, Arc<RouteTable>);
}

/// Routes that never change.
pub struct FixedRoutes(Arc<RouteTable>);

impl FixedRoutes {
    /// These routes.
    pub fn new(table: RouteTable) -> Self {
        Self(Arc::new(table))
    }
}

impl Routes for FixedRoutes {
    fn version(&self) -> u64 {
        0
    }

    fn table(&self) -> (u64, Arc<RouteTable>) {
        (0, self.0.clone())
    }
}

#[cfg(test)]
#[path = "routes_test.rs"]
mod tests;

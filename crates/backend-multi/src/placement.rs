//! The children with data of each bucket: that of its route, and perhaps others too.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::FoldRange;
use kvorum_encoding::{prefix_lens, without_page_mark};

use crate::child::{ChildNumber, ChildSet};
use crate::routes::RouteTable;

/// The routes, and the data outside of them.
#[derive(Clone)]
pub(crate) struct Placement {
    pub(crate) version: u64,
    pub(crate) table: Arc<RouteTable>,
    pub(crate) strays: Strays,
    children: usize,
}

/// Buckets with data in a child other than that of their route.
#[derive(Clone)]
pub(crate) enum Strays {
    /// Any bucket may be anywhere: the survey has not ended.
    Unknown,
    /// These buckets and no others, by the prefix of their keys.
    Known(Arc<HashMap<Bytes, ChildSet>>),
}

/// The children that may have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Homes {
    /// The child of the route: it has the last write, if it has the key.
    pub(crate) own: ChildNumber,
    /// The others, for keys that the child of the route lacks.
    pub(crate) others: ChildSet,
}

impl Homes {
    pub(crate) fn all(self) -> ChildSet {
        self.others.with(self.own)
    }
}

impl Placement {
    pub(crate) fn new(version: u64, table: Arc<RouteTable>, children: usize) -> Self {
        Self {
            version,
            table,
            strays: Strays::Unknown,
            children,
        }
    }

    /// Replaces the table, unless there is a later one already. The strays belong to the table.
    pub(crate) fn renew(&mut self, version: u64, table: Arc<RouteTable>) {
        if version < self.version {
            return;
        }
        // An equal table is kept, since a change is detected by identity.
        if *self.table != *table {
            self.strays = Strays::Unknown;
            self.table = table;
        }
        self.version = version;
    }

    /// The homes of a key, or of a bucket by the prefix of its keys.
    pub(crate) fn homes(&self, key: &[u8]) -> Homes {
        let own = self.table.child_of(key);
        let others = match &self.strays {
            Strays::Unknown => ChildSet::all(self.children).without(own),
            Strays::Known(strays) if strays.is_empty() => ChildSet::NONE,
            Strays::Known(strays) => {
                // Pages are in the child of their bucket.
                let key = without_page_mark(key);
                let bucket = prefix_lens(key).map_or(key, |(_, bucket_len)| &key[..bucket_len]);
                strays.get(bucket).copied().unwrap_or_default()
            }
        };
        Homes { own, others }
    }

    /// The children that may have keys of a range.
    pub(crate) fn children_of(&self, range: &FoldRange) -> ChildSet {
        match bucket_of(range) {
            Some(bucket) => self.homes(bucket).all(),
            None => ChildSet::all(self.children),
        }
    }

    /// True when successive snapshots of the children show each key once: no write moves a key from
    /// one child to another.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(&self.strays, Strays::Known(strays) if strays.is_empty())
    }
}

/// The common prefix of all keys of a range within one bucket; `None` for other ranges.
fn bucket_of(range: &FoldRange) -> Option<&[u8]> {
    let (Bound::Included(from) | Bound::Excluded(from)) = &range.from else {
        return None;
    };
    let (_, bucket_len) = prefix_lens(from).ok()?;
    let bucket = &from[..bucket_len];
    let is_within = match (&range.to, FoldRange::prefix(bucket).to) {
        (Bound::Included(to), Bound::Excluded(end)) => *to < end,
        (Bound::Excluded(to), Bound::Excluded(end)) => *to <= end,
        _ => false,
    };
    is_within.then_some(bucket)
}

#[cfg(test)]
mod tests {
    use kvorum_encoding::{Bucket, BucketType, bucket_prefix};

    use super::*;

    fn prefix(bucket: &str) -> Vec<u8> {
        bucket_prefix(
            &BucketType::default_type(),
            &Bucket::from(bucket.as_bytes().to_vec()),
        )
    }

    #[test]
    fn a_range_is_of_a_bucket_when_both_of_its_ends_are() {
        let (a, b) = (prefix("a"), prefix("b"));
        assert_eq!(bucket_of(&FoldRange::prefix(&a)), Some(&a[..]));
        let part = FoldRange {
            from: Bound::Excluded([&a[..], b"k"].concat().into()),
            to: Bound::Included([&a[..], b"x"].concat().into()),
        };
        assert_eq!(bucket_of(&part), Some(&a[..]));
        let both = FoldRange {
            from: Bound::Included(a.into()),
            to: FoldRange::prefix(&b).to,
        };
        assert_eq!(bucket_of(&both), None);
        assert_eq!(bucket_of(&FoldRange::all()), None);
    }

    #[test]
    fn a_new_table_is_surveyed_and_the_same_one_is_not() {
        let table = Arc::new(RouteTable::to(0));
        let mut placement = Placement::new(1, table, 3);
        assert_eq!(placement.homes(&prefix("a")).all(), ChildSet::all(3));
        placement.strays = Strays::Known(Arc::default());
        placement.renew(2, Arc::new(RouteTable::to(0)));
        assert!(placement.is_settled());
        assert_eq!(placement.homes(&prefix("a")).others, ChildSet::NONE);
        placement.renew(1, Arc::new(RouteTable::to(2)));
        assert!(placement.is_settled(), "it is an earlier one");
        placement.renew(3, Arc::new(RouteTable::to(1)));
        assert!(!placement.is_settled());
    }
}

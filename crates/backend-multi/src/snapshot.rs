//! A snapshot of a store: one of each child, and the routes at its time.

use std::ops::Bound;

use kvorum_backend::{
    Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Result, Sequence, Snapshot, Timestamp,
    Visitor,
};
use kvorum_encoding::StorageKey;

use crate::child::{ChildNumber, ChildSet};
use crate::key_merge::{KeyMerge, Unit};
use crate::placement::Placement;

/// See the module's description.
pub(crate) struct MultiSnapshot {
    /// In the order of the children.
    pub(crate) parts: Vec<Box<dyn Snapshot>>,
    pub(crate) placement: Placement,
}

impl MultiSnapshot {
    /// The only child that has keys of a range, if there is one only.
    fn only(&self, children: ChildSet) -> Option<&dyn Snapshot> {
        let mut children = children.iter();
        match (children.next(), children.next()) {
            (Some(only), None) => Some(&*self.parts[only]),
            _ => None,
        }
    }

    /// The child whose entry of a key counts, among the children with an entry that the fold would
    /// show. The child of the route counts first, even with an entry that the fold skips.
    fn choose(&self, key: &StorageKey, having: ChildSet) -> Result<Option<ChildNumber>> {
        let homes = self.placement.homes(key.as_bytes());
        let own = homes.own;
        if having == having.with(own) {
            return Ok(Some(own));
        }
        Ok(match self.has(own, key)? {
            true => None,
            false => having.iter().next(),
        })
    }

    /// True when a child has an entry of a key, expired or not.
    fn has(&self, child: ChildNumber, key: &StorageKey) -> Result<bool> {
        let only = FoldRange {
            from: Bound::Included(key.to_bytes()),
            to: Bound::Included(key.to_bytes()),
        };
        let of_any_age = FoldFilter::unexpired(Timestamp(0));
        let mut is_there = false;
        self.parts[child].fold(FoldDetail::Keys, &only, &of_any_age, &mut |_| {
            is_there = true;
            Flow::Stop
        })?;
        Ok(is_there)
    }
}

impl Snapshot for MultiSnapshot {
    fn sequence(&self) -> Sequence {
        Sequence(self.parts.iter().map(|it| it.sequence().0).sum())
    }

    fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        let children = self.placement.children_of(range);
        if let Some(only) = self.only(children) {
            return only.fold(detail, range, filter, visitor);
        }
        let merge = KeyMerge {
            read: &|child, range, visitor| self.parts[child].fold(detail, range, filter, visitor),
            choose: &|key, having| self.choose(key, having),
            unit: Unit::Key,
        };
        merge.run(children, range, visitor)
    }

    fn fold_buckets(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        let children = self.placement.children_of(range);
        if let Some(only) = self.only(children) {
            return only.fold_buckets(range, filter, visitor);
        }
        let merge = KeyMerge {
            read: &|child, range, visitor| self.parts[child].fold_buckets(range, filter, visitor),
            // Any key of a bucket stands for it.
            choose: &|_, having| Ok(having.iter().next()),
            unit: Unit::Bucket,
        };
        merge.run(children, range, visitor)
    }

    fn has_met_damage(&self) -> bool {
        self.parts.iter().any(|it| it.has_met_damage())
    }
}

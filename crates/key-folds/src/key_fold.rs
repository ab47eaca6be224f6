//! The question of a fold: its entries, and the requested facts about them.

use kvorum_encoding::{Bucket, BucketType, Key, SegmentFilter};

/// A question about the keys of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFold {
    /// The entries of the fold.
    pub scope: FoldScope,
    /// The question about them.
    pub kind: FoldKind,
}

/// The entries of a fold. Tombstones are entries; expired objects are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldScope {
    /// The bucket's type.
    pub bucket_type: BucketType,
    /// The bucket.
    pub bucket: Bucket,
    /// The first key and the last one, both included; `None` for all.
    pub keys: Option<(Key, Key)>,
    /// The times of entries' last changes, in seconds since the Unix epoch: the first second and the last
    /// one, both included; `None` for any time.
    pub modified_seconds: Option<(u64, u64)>,
    /// The leaves of a tree that have the entries; `None` for all.
    pub leaves: Option<LeafFilter>,
}

impl FoldScope {
    /// All of a bucket.
    pub fn bucket(bucket_type: &BucketType, bucket: &Bucket) -> Self {
        Self {
            bucket_type: bucket_type.clone(),
            bucket: bucket.clone(),
            keys: None,
            modified_seconds: None,
            leaves: None,
        }
    }

    /// True when no entry can be in it: a range ends before it begins, or there are no leaves.
    pub fn is_empty(&self) -> bool {
        let has_no_keys = self.keys.as_ref().is_some_and(|(first, last)| first > last);
        let has_no_times = self
            .modified_seconds
            .is_some_and(|(first, last)| first > last);
        let has_no_leaves = self.leaves.as_ref().is_some_and(|it| it.wanted.is_empty());
        has_no_keys || has_no_times || has_no_leaves
    }
}

/// Some leaves of a tree of a given size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafFilter {
    /// The number of the tree's leaves: a power of two.
    leaves: u32,
    /// The leaves, ascending.
    wanted: Vec<u32>,
}

impl LeafFilter {
    /// Leaves of a tree with this many leaves; `None` unless that is a power of two. Numbers beyond
    /// the last leaf are omitted, since such leaves have no entries.
    pub fn new(leaves: u32, mut wanted: Vec<u32>) -> Option<Self> {
        if !leaves.is_power_of_two() {
            return None;
        }
        wanted.retain(|leaf| *leaf < leaves);
        wanted.sort_unstable();
        wanted.dedup();
        Some(Self { leaves, wanted })
    }

    /// The number of the tree's leaves.
    pub fn leaves(&self) -> u32 {
        self.leaves
    }

    /// The leaves, ascending.
    pub fn wanted(&self) -> &[u32] {
        &self.wanted
    }

    /// The same leaves as a filter of stores.
    pub fn segments(&self) -> SegmentFilter {
        SegmentFilter::Leaves {
            leaves: self.leaves,
            wanted: self.wanted.clone(),
        }
    }
}

/// A question that a fold answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldKind {
    /// Counts, sizes and siblings of all entries, as histograms.
    ObjectStats,
    /// The keys with more siblings than this, and the number of siblings of each.
    SiblingsAbove(u64),
    /// The keys whose objects have more bytes than this, and the size of each.
    SizeAbove(u64),
    /// The keys of a class of entries, with their clocks.
    Clocks(EntryClass),
    /// The number of entries of a class.
    Count(EntryClass),
    /// A tree over all entries.
    Tree {
        /// The number of its leaves: a power of two.
        leaves: u32,
        /// The seed of newly computed hashes; `None` for the hashes of anti-entropy.
        seed: Option<u64>,
    },
}

/// A class of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryClass {
    /// All.
    Any,
    /// Entries that readers find.
    Living,
    /// Deleted entries.
    Tombstones,
}

impl EntryClass {
    /// True for an entry of the class.
    pub fn has(self, is_tombstone: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Living => !is_tombstone,
            Self::Tombstones => is_tombstone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_in_order_once_and_within_the_tree() {
        let filter = LeafFilter::new(4096, vec![7, 4096, 3, 7, 4095]).unwrap();
        assert_eq!(
            (filter.leaves(), filter.wanted()),
            (4096, &[3, 7, 4095][..])
        );
        assert_eq!(filter.segments().named(), 3);
        for leaves in [0, 3, 4097] {
            assert_eq!(LeafFilter::new(leaves, Vec::new()), None);
        }
    }

    #[test]
    fn a_scope_is_empty_when_a_range_of_it_is() {
        let whole = FoldScope::bucket(&BucketType::default_type(), &Bucket::from("b"));
        assert!(!whole.is_empty());
        let keys = |first, last| FoldScope {
            keys: Some((Key::from(first), Key::from(last))),
            ..whole.clone()
        };
        assert!(!keys("a", "a").is_empty());
        assert!(keys("b", "a").is_empty());
        let modified = |first, last| FoldScope {
            modified_seconds: Some((first, last)),
            ..whole.clone()
        };
        assert!(!modified(5, 5).is_empty());
        assert!(modified(5, 4).is_empty());
        let nowhere = FoldScope {
            leaves: LeafFilter::new(16, Vec::new()),
            ..whole.clone()
        };
        assert!(nowhere.is_empty());
    }
}

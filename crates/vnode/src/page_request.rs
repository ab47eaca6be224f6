//! A request for a part of a listing, and its answer.

use kvorum_backend::FoldRange;
use kvorum_encoding::StorageKey;
use kvorum_ring::{Epoch, KeyHash, Partition, RingSize};

/// The kind of names in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Keys.
    Keys,
    /// One key of each bucket.
    Buckets,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The vnode.
    pub partition: Partition,
    /// The partition's epoch in the asker's ring.
    pub epoch: Epoch,
    /// The kind of names.
    pub kind: PageKind,
    /// The placement of the bucket's keys.
    pub hash: KeyHash,
    /// The ring's size.
    pub size: RingSize,
    /// The owner partitions whose keys are wanted; `None` for all that the vnode has.
    pub owners: Option<Vec<Partition>>,
    /// The keys that are looked at.
    pub range: FoldRange,
    /// The most names in the answer.
    pub names_max: u32,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Keys in ascending order; of buckets, those that were looked for last come last.
    pub keys: Vec<StorageKey>,
    /// The beginning of the next part; `None` when this was the last.
    pub next: Option<StorageKey>,
}

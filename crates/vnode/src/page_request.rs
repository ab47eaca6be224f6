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
    /// No names: the number of keys.
    Count,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The vnode.
    pub partition: Partition,
    /// The partition's epoch in the sender's ring.
    pub epoch: Epoch,
    /// The kind of names.
    pub kind: PageKind,
    /// The placement of the bucket's keys.
    pub hash: KeyHash,
    /// The ring's size.
    pub size: RingSize,
    /// The owner partitions whose keys are wanted; `None` for all that the vnode has.
    pub owners: Option<Vec<Partition>>,
    /// The keys of the part.
    pub range: FoldRange,
    /// The most names in the answer; for a count, the most keys that are read.
    pub names_max: u32,
}

/// The answer to a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountPage {
    /// Keys that the vnode answers for.
    pub keys: u64,
    /// The beginning of the next part; `None` when this was the last.
    pub next: Option<StorageKey>,
}

/// The answer to a request for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Keys in ascending order; buckets whose first key is a tombstone come last.
    pub keys: Vec<StorageKey>,
    /// The beginning of the next part; `None` when this was the last.
    pub next: Option<StorageKey>,
}

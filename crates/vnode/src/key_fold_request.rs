//! A part of a fold over keys: the request and its answer.

use std::sync::Arc;

use kvorum_encoding::StorageKey;
use kvorum_key_folds::{Findings, KeyFold};
use kvorum_ring::{Epoch, KeyHash, Partition, RingSize};

/// A part of a fold over the keys of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFoldRequest {
    /// The vnode.
    pub partition: Partition,
    /// The partition's epoch in the sender's ring.
    pub epoch: Epoch,
    /// The rule by which the bucket's keys are placed.
    pub hash: KeyHash,
    /// The ring's size.
    pub size: RingSize,
    /// The owner partitions whose keys are read; `None` for all that the vnode has.
    pub owners: Option<Vec<Partition>>,
    /// The question.
    pub fold: Arc<KeyFold>,
    /// The key at which the part begins; `None` for the first.
    pub from: Option<StorageKey>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFoldPart {
    /// The findings of this part.
    pub findings: Findings,
    /// The key at which the next part begins; `None` when this was the last.
    pub next: Option<StorageKey>,
}

//! A request for a part of an index query, and its answer.

use std::ops::Bound;

use bytes::Bytes;
use kvorum_encoding::{Bucket, BucketType, Key};
use kvorum_ring::{Epoch, KeyHash, Partition, RingSize};

use crate::term_pattern::TermPattern;

/// The keys or terms to look through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexScan {
    /// The bucket's keys themselves.
    Keys {
        /// The lower bound.
        from: Bound<Bytes>,
        /// The upper bound.
        to: Bound<Bytes>,
    },
    /// Terms of an index.
    Terms {
        /// The index.
        field: Bytes,
        /// The lower bound, in order-preserving form.
        from: Bound<Bytes>,
        /// The upper bound.
        to: Bound<Bytes>,
    },
}

/// An entry that a query found, and a place to continue behind. Ordered by term and then by key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexPosition {
    /// The term in order-preserving form; empty in a scan of keys.
    pub term: Bytes,
    /// The object's key.
    pub key: Key,
}

/// A part of an index query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPageRequest {
    /// The vnode.
    pub partition: Partition,
    /// The partition's epoch in the sender's ring.
    pub epoch: Epoch,
    /// The placement of the bucket's keys.
    pub hash: KeyHash,
    /// The ring's size.
    pub size: RingSize,
    /// The owner partitions whose keys are wanted; `None` for all that the vnode has.
    pub owners: Option<Vec<Partition>>,
    /// The bucket's type.
    pub bucket_type: BucketType,
    /// The bucket.
    pub bucket: Bucket,
    /// The keys or terms to look through.
    pub scan: IndexScan,
    /// A pattern that terms must match, or keys in a scan of keys.
    pub pattern: Option<TermPattern>,
    /// The position to continue behind.
    pub after: Option<IndexPosition>,
    /// The most entries in the answer.
    pub entries_max: u32,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPage {
    /// The entries found, in order.
    pub entries: Vec<IndexPosition>,
    /// The position to continue behind; `None` when nothing is left.
    pub next: Option<IndexPosition>,
}

//! Requests of the protocols. A value that a client may leave to the bucket is an `Option`.

use std::fmt;
use std::time::Duration;

use kvorum_encoding::{Bucket, BucketType};
use kvorum_object::{Clock, Content};
use kvorum_properties::{Quorum, SyncOnWrite};
use kvorum_ring::{NodeId, Partition};
use kvorum_vnode::{Condition, Detail};

/// The longest key or name of a bucket or bucket type, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 65_536;

/// A client's options for a get.
#[derive(Clone, Debug, Default)]
pub struct GetOptions {
    /// Answers needed.
    pub r: Option<Quorum>,
    /// Primaries among them.
    pub pr: Option<Quorum>,
    /// Distinct nodes among them.
    pub node_confirms: Option<Quorum>,
    /// Give up once a majority found nothing.
    pub basic_quorum: Option<bool>,
    /// "Nothing there" counts as an answer.
    pub notfound_ok: Option<bool>,
    /// Replicas, at most the bucket's n_val.
    pub n_val: Option<u32>,
    /// Stand-ins for primaries that are down may answer; `None` means that they may.
    pub sloppy_quorum: Option<bool>,
    /// The deadline.
    pub timeout: Option<Duration>,
    /// The requested part of the object.
    pub detail: Detail,
}

/// A client's options for a put.
#[derive(Clone, Debug, Default)]
pub struct PutOptions {
    /// Replicas that must have received it.
    pub w: Option<Quorum>,
    /// Replicas that must have stored it.
    pub dw: Option<Quorum>,
    /// Primaries that must have received it.
    pub pw: Option<Quorum>,
    /// Distinct nodes that must have confirmed.
    pub node_confirms: Option<Quorum>,
    /// The replicas that sync before they confirm.
    pub sync_on_write: Option<SyncOnWrite>,
    /// Replicas, at most the bucket's n_val.
    pub n_val: Option<u32>,
    /// Stand-ins for primaries that are down may receive it; `None` means that they may.
    pub sloppy_quorum: Option<bool>,
    /// The deadline.
    pub timeout: Option<Duration>,
}

/// The kind of a put: with a new version or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutKind {
    /// The ordinary put: a replica coordinates it and gives it a dot.
    Versioned,
    /// The object is stored under the clock it comes with (`asis`).
    AsIs,
}

/// A put.
#[derive(Clone, Debug)]
pub struct PutRequest {
    /// The version that the client had seen; empty for a blind write.
    pub context: Clock,
    /// The condition of the write.
    pub condition: Condition,
    /// The content.
    pub content: Content,
    /// The kind: with a new version or not.
    pub kind: PutKind,
}

/// A client's options for a delete. `rw` stands in for both r and w if they are not given.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// The old joint quorum of reads and writes.
    pub rw: Option<Quorum>,
    /// Answers needed by the read before the delete.
    pub r: Option<Quorum>,
    /// Primaries among them.
    pub pr: Option<Quorum>,
    /// Replicas that must have received the tombstone.
    pub w: Option<Quorum>,
    /// Replicas that must have stored it.
    pub dw: Option<Quorum>,
    /// Primaries that must have received it.
    pub pw: Option<Quorum>,
    /// Replicas, at most the bucket's n_val.
    pub n_val: Option<u32>,
    /// True if other nodes may stand in for primaries that are down; the default is true.
    pub sloppy_quorum: Option<bool>,
    /// The deadline.
    pub timeout: Option<Duration>,
}

/// The result of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// There was nothing; nothing was written.
    NothingThere,
    /// The tombstone is written.
    Written,
}

/// The place of a key's replica, for clients that ask for its preference list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPlace {
    /// The partition.
    pub partition: Partition,
    /// The node that serves it.
    pub node: NodeId,
    /// The node's name.
    pub node_name: String,
    /// True on the owner of the partition.
    pub is_primary: bool,
}

/// The subject of a request without a key, for the log.
pub(crate) struct BucketOrType {
    pub(crate) bucket_type: BucketType,
    /// `None` for the type as a whole.
    pub(crate) bucket: Option<Bucket>,
}

impl BucketOrType {
    pub(crate) fn new(bucket_type: &BucketType, bucket: Option<&Bucket>) -> Self {
        Self {
            bucket_type: bucket_type.clone(),
            bucket: bucket.cloned(),
        }
    }
}

impl fmt::Display for BucketOrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bucket {
            Some(bucket) => write!(f, "{}/{bucket}", self.bucket_type),
            None => self.bucket_type.fmt(f),
        }
    }
}

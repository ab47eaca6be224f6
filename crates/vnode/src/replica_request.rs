//! A coordinator's request to one replica, and the replica's answer.
//!
//! The same values are executed inline for a vnode of this node and sent to other nodes for theirs.
//! Each request carries the epoch of its partition in the ring that its coordinator used. A vnode with
//! a higher epoch refuses, so that no former owner is written to.

use std::sync::Arc;

use kvorum_backend::{BackendError, Durability, Durable, ErrorKind};
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Content, Object, ObjectTag, Resolution};
use kvorum_ring::{Epoch, Partition};

use crate::data_type_update::DataTypeUpdate;
use crate::index_page_request::IndexPage;
use crate::key_fold_request::KeyFoldPart;
use crate::page_request::{CountPage, Page};
use crate::paged_object::PagedUpdate;
use crate::tree_request::TreeAnswer;

/// A request to one replica.
#[derive(Clone, Debug)]
pub struct ReplicaRequest {
    /// The vnode.
    pub partition: Partition,
    /// The partition's epoch in the coordinator's ring.
    pub epoch: Epoch,
    /// The operation.
    pub operation: Operation,
}

/// An operation on a replica.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Read an object.
    Get {
        /// Its key.
        key: StorageKey,
        /// The part of it.
        detail: Detail,
    },
    /// Apply a client's write and give it its dot.
    Coordinate {
        /// The key.
        key: StorageKey,
        /// The write.
        update: Arc<ClientUpdate>,
        /// The durability that counts as stored.
        durability: Durability,
    },
    /// Carry out a client's operation on a data type and give it its dot.
    Apply {
        /// The key.
        key: StorageKey,
        /// The operation.
        update: Arc<DataTypeUpdate>,
        /// The durability that counts as stored.
        durability: Durability,
    },
    /// Carry out an update of a large set that another replica made.
    Follow {
        /// The key.
        key: StorageKey,
        /// The update.
        update: Arc<PagedUpdate>,
        /// The resolution of concurrent versions in this bucket.
        resolution: Resolution,
        /// The kind of objects in this bucket.
        tag: ObjectTag,
        /// The durability that counts as stored.
        durability: Durability,
    },
    /// Merge an object that another replica made.
    Store {
        /// The key.
        key: StorageKey,
        /// The object.
        object: Arc<Object>,
        /// The resolution of concurrent versions in this bucket.
        resolution: Resolution,
        /// The kind of objects in this bucket.
        tag: ObjectTag,
        /// The durability that counts as stored.
        durability: Durability,
    },
    /// Merge an object that other replicas have into one that was found damaged here; unreadable parts
    /// are replaced.
    Mend {
        /// The key.
        key: StorageKey,
        /// The object.
        object: Arc<Object>,
        /// The resolution of concurrent versions in this bucket.
        resolution: Resolution,
        /// The kind of objects in this bucket.
        tag: ObjectTag,
    },
    /// Remove a tombstone that every replica holds, unless something else has been written since.
    Reap {
        /// The key.
        key: StorageKey,
        /// The tombstone's clock.
        clock: Clock,
    },
}

impl Operation {
    /// True when the answer has the present object, or depends on it.
    pub(crate) fn depends_on_present_object(&self) -> bool {
        match self {
            Self::Get { .. } => true,
            Self::Coordinate { update, .. } => update.condition != Condition::Always,
            Self::Apply { .. }
            | Self::Follow { .. }
            | Self::Store { .. }
            | Self::Mend { .. }
            | Self::Reap { .. } => false,
        }
    }
}

/// The part of an object that a get reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Clock and metadata; values are empty.
    Head,
    /// Everything.
    #[default]
    Whole,
}

/// A client's write, ready for the replica that coordinates it.
#[derive(Clone, Debug)]
pub struct ClientUpdate {
    /// The client's context.
    pub context: Clock,
    /// The condition on the stored object. Checked under the key's lock, so on a bucket with one
    /// replica it is exact.
    pub condition: Condition,
    /// The content to store.
    pub content: Content,
    /// The resolution of concurrent versions in this bucket.
    pub resolution: Resolution,
    /// The kind of objects in this bucket.
    pub tag: ObjectTag,
}

/// A condition on the stored object. Tombstones count as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Any stored object, or none.
    Always,
    /// Nothing may be there.
    Absent,
    /// An object of exactly this version must be there.
    Version(Clock),
    /// The stored object may have nothing that this version has not seen. For the coordinating
    /// replica after a quorum was found to hold the version: the replica itself may be behind.
    NothingBeyond(Clock),
}

/// The handling of a request.
#[derive(Debug)]
pub enum Handled {
    /// It was carried out or refused.
    Done(ReplicaReply),
    /// Memory did not suffice; nothing was done. Ask again where blocking is allowed.
    WouldBlock,
}

/// A replica's answer.
#[derive(Debug)]
pub enum ReplicaReply {
    /// The requested object; tombstones are objects.
    Found(Arc<Object>),
    /// The key has nothing.
    NotFound,
    /// The client's write is applied, and stored as `durable` reports.
    Stored {
        /// The object that is stored now.
        object: Arc<Object>,
        /// The moment at which it counts as stored.
        durable: Durable,
    },
    /// The client's operation on a large set is carried out, and stored as `durable` reports.
    Updated {
        /// The update, for the other replicas.
        update: Arc<PagedUpdate>,
        /// The moment at which it counts as stored.
        durable: Durable,
    },
    /// The update of another replica builds on more than this replica has: the whole object is needed.
    NeedsWhole,
    /// Another replica's object is merged, and the result is stored as `durable` reports.
    Received {
        /// The moment at which it counts as stored.
        durable: Durable,
    },
    /// The tombstone is gone, or stays because it was superseded or all are kept for the time being.
    Reaped,
    /// A part of a listing. Asked for by [`crate::PageRequest`], not by an operation.
    Listed(Page),
    /// A part of a count. Asked for by [`crate::PageRequest`], not by an operation.
    Counted(CountPage),
    /// A part of an index query. Asked for by [`crate::IndexPageRequest`], not by an operation.
    IndexListed(IndexPage),
    /// An answer about a tree. Asked for by [`crate::TreeRequest`], not by an operation.
    Trees(TreeAnswer),
    /// A part of a fold over keys. Asked for by [`crate::KeyFoldRequest`], not by an operation.
    Folded(Box<KeyFoldPart>),
    /// It was not done.
    Failed(ReplicaFailure),
}

/// The reason why a replica did not carry out a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaFailure {
    /// The partition has moved on: look at the present ring and ask again.
    #[error("request of epoch {got} where the vnode is at {expected}")]
    StaleEpoch {
        /// The epoch of the request.
        got: Epoch,
        /// The epoch of the vnode.
        expected: Epoch,
    },
    /// The condition was "absent" and there is an object.
    #[error("an object is there")]
    ConditionFound,
    /// The condition named a version and the object has another.
    #[error("the object has another version")]
    ConditionModified,
    /// The condition named a version and there is no object.
    #[error("there is no object")]
    ConditionAbsent,
    /// The object would be larger than allowed.
    #[error("object of {bytes} bytes where at most {bytes_max} are allowed")]
    ObjectTooLarge {
        /// Its size, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        bytes_max: u64,
    },
    /// The object would have more siblings than allowed.
    #[error("{siblings} siblings where at most {siblings_max} are allowed")]
    TooManySiblings {
        /// Their number.
        siblings: usize,
        /// The limit.
        siblings_max: usize,
    },
    /// The disk is full.
    #[error("{0}")]
    Full(String),
    /// The stored object is damaged; another replica may have it whole.
    #[error("{0}")]
    Damaged(String),
    /// The store failed.
    #[error("{0}")]
    Storage(String),
    /// A rule of our own was broken: report a bug.
    #[error("{0}")]
    Internal(String),
    /// The node has no open store for the partition: in its state of the ring, it does not own the
    /// partition yet, or no longer.
    #[error("the partition is not served here now")]
    NotServing,
    /// The store lacks data that this replica has promised to hold, and is being repaired: another
    /// replica has to be asked.
    #[error("the partition is being repaired here")]
    Incomplete,
    /// The store failed before, and takes no writes until it is opened again; nothing was done.
    #[error("{0}")]
    Unwritable(String),
    /// The node has the partition, and its store is not open.
    #[error("the store of the partition {}", if *is_failed { "could not be opened" } else { "is still being opened" })]
    NotOpen {
        /// It could not be opened; otherwise it is being opened.
        is_failed: bool,
    },
    /// The named store has no indexes.
    #[error("the backend {0} has no secondary indexes")]
    IndexesNotSupported(String),
    /// A remove without a context named a missing target. The variant's name is Riak's.
    #[error("{0}")]
    NotPresent(String),
    /// An operation on a data type was refused, for this reason.
    #[error("{0}")]
    OperationRefused(String),
}

impl ReplicaFailure {
    /// True when a write that failed with this may be stored all the same: a store may apply a
    /// batch before the sync of the log in front of it fails. A retry would make a second write.
    pub fn may_have_written(&self) -> bool {
        match self {
            Self::Full(_) | Self::Damaged(_) | Self::Storage(_) | Self::Internal(_) => true,
            Self::StaleEpoch { .. }
            | Self::ConditionFound
            | Self::ConditionModified
            | Self::ConditionAbsent
            | Self::ObjectTooLarge { .. }
            | Self::TooManySiblings { .. }
            | Self::NotServing
            | Self::Incomplete
            | Self::Unwritable(_)
            | Self::NotOpen { .. }
            | Self::IndexesNotSupported(_)
            | Self::NotPresent(_)
            | Self::OperationRefused(_) => false,
        }
    }
}

impl From<BackendError> for ReplicaFailure {
    fn from(error: BackendError) -> Self {
        let detail = error.to_string();
        match error.kind() {
            ErrorKind::Full => Self::Full(detail),
            ErrorKind::Corrupt => Self::Damaged(detail),
            ErrorKind::Misuse => Self::Internal(detail),
            // The partition has just gone to another node, or the node stops.
            ErrorKind::Closed => Self::NotServing,
            ErrorKind::TooLarge
            | ErrorKind::Failed
            | ErrorKind::Unread
            | ErrorKind::WouldBlock
            | ErrorKind::Exhausted
            | ErrorKind::NewerFormat
            | ErrorKind::Locked
            | ErrorKind::Denied => Self::Storage(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a put that reached a store while its partition was handed over failed, although
    /// another node had taken the partition.
    #[test]
    fn a_closed_store_is_a_partition_that_is_not_served_here() {
        let closed = BackendError::new(ErrorKind::Closed, "given away");
        assert_eq!(ReplicaFailure::from(closed), ReplicaFailure::NotServing);
    }
}

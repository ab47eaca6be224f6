//! What a coordinator asks of one replica, and what the replica answers.
//!
//! The same values are executed inline for a vnode of this node and, once there are peers, sent to
//! others. Each request carries the epoch of its partition in the ring that its coordinator used; a
//! vnode that knows a higher one refuses, so that nobody writes to an owner of yesterday.

use std::sync::Arc;

use kvorum_backend::{BackendError, Durability, Durable, ErrorKind};
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Content, Object, ObjectTag, Resolution};
use kvorum_ring::{Epoch, Partition};

use crate::data_type_update::DataTypeUpdate;
use crate::index_page_request::IndexPage;
use crate::key_fold_request::KeyFoldPart;
use crate::page_request::Page;
use crate::tree_request::TreeAnswer;

/// A request to one replica.
#[derive(Clone, Debug)]
pub struct ReplicaRequest {
    /// The vnode.
    pub partition: Partition,
    /// The partition's epoch in the coordinator's ring.
    pub epoch: Epoch,
    /// What to do.
    pub operation: Operation,
}

/// What a replica is asked to do.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Read an object.
    Get {
        /// Its key.
        key: StorageKey,
        /// How much of it.
        detail: Detail,
    },
    /// Apply a client's write and give it its dot.
    Coordinate {
        /// The key.
        key: StorageKey,
        /// The write.
        update: Arc<ClientUpdate>,
        /// What counts as stored.
        durability: Durability,
    },
    /// Carry out a client's operation on a data type and give it its dot.
    Apply {
        /// The key.
        key: StorageKey,
        /// The operation.
        update: Arc<DataTypeUpdate>,
        /// What counts as stored.
        durability: Durability,
    },
    /// Merge an object that another replica made.
    Store {
        /// The key.
        key: StorageKey,
        /// The object.
        object: Arc<Object>,
        /// What becomes of concurrent versions in this bucket.
        resolution: Resolution,
        /// The kind of objects in this bucket.
        tag: ObjectTag,
        /// What counts as stored.
        durability: Durability,
    },
    /// Merge an object that other replicas have into what was found damaged here; what cannot be
    /// read is replaced.
    Mend {
        /// The key.
        key: StorageKey,
        /// The object.
        object: Arc<Object>,
        /// What becomes of concurrent versions in this bucket.
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
    /// True when the answer says what is there, or depends on it.
    pub(crate) fn tells_what_is_there(&self) -> bool {
        match self {
            Self::Get { .. } => true,
            Self::Coordinate { update, .. } => update.condition != Condition::Always,
            Self::Apply { .. } | Self::Store { .. } | Self::Mend { .. } | Self::Reap { .. } => {
                false
            }
        }
    }
}

/// How much of an object a get reads.
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
    /// What the client had seen.
    pub context: Clock,
    /// What must hold of the stored object. Checked under the key's lock, so on a bucket with one
    /// replica it is exact.
    pub condition: Condition,
    /// What to store.
    pub content: Content,
    /// What becomes of concurrent versions in this bucket.
    pub resolution: Resolution,
    /// The kind of objects in this bucket.
    pub tag: ObjectTag,
}

/// A condition on what is stored. Tombstones count as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Whatever is there.
    Always,
    /// Nothing may be there.
    Absent,
    /// An object of exactly this version must be there.
    Version(Clock),
    /// Nothing may be there that this version has not seen. For the coordinating replica once a
    /// quorum has been found to hold the version: the replica itself may be behind.
    NothingBeyond(Clock),
}

/// What became of a request.
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
    /// The object asked for; tombstones are objects.
    Found(Arc<Object>),
    /// The key has nothing.
    NotFound,
    /// The client's write is applied, and stored when `durable` says so.
    Stored {
        /// What is stored now.
        object: Arc<Object>,
        /// When it counts as stored.
        durable: Durable,
    },
    /// Another replica's object is merged, and what is there now is stored when `durable` says so.
    Received {
        /// When it counts as stored.
        durable: Durable,
    },
    /// The tombstone is gone, or stays because it was superseded or all are kept for the time being.
    Reaped,
    /// A part of a listing. Asked for by [`crate::PageRequest`], not by an operation.
    Listed(Page),
    /// A part of an index query. Asked for by [`crate::IndexPageRequest`], not by an operation.
    IndexListed(IndexPage),
    /// What a tree has. Asked for by [`crate::TreeRequest`], not by an operation.
    Trees(TreeAnswer),
    /// A part of a fold over keys. Asked for by [`crate::KeyFoldRequest`], not by an operation.
    Folded(KeyFoldPart),
    /// It was not done.
    Failed(ReplicaFailure),
}

/// Why a replica did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaFailure {
    /// The partition has moved on: look at the present ring and ask again.
    #[error("request of epoch {got} where the vnode is at {expected}")]
    StaleEpoch {
        /// What the request carried.
        got: Epoch,
        /// What the vnode knows.
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
        /// How many.
        siblings: usize,
        /// The limit.
        siblings_max: usize,
    },
    /// The disk is full.
    #[error("{0}")]
    Full(String),
    /// What is stored is damaged; another replica may have it whole.
    #[error("{0}")]
    Damaged(String),
    /// The store failed.
    #[error("{0}")]
    Storage(String),
    /// A rule of our own was broken: report a bug.
    #[error("{0}")]
    Internal(String),
    /// The node has no open store for the partition: it has not learned yet that it is to have one, or
    /// has learned that it has it no more.
    #[error("the partition is not served here now")]
    NotServing,
    /// The store lacks what this replica has promised to hold, and is being repaired: another replica
    /// has to be asked.
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
    /// The store has no indexes; its name.
    #[error("the backend {0} has no secondary indexes")]
    IndexesNotSupported(String),
    /// A remove without a context named what is not there; Riak's term for it.
    #[error("{0}")]
    NotPresent(String),
    /// An operation on a data type cannot be carried out; why.
    #[error("{0}")]
    OperationRefused(String),
}

impl ReplicaFailure {
    /// True when a write that failed with this may be there all the same, and may outlive the failure:
    /// a store that has applied a batch is told afterwards that the log in front of it was not synced.
    /// Whoever makes such a write again makes a second one.
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

    /// Regression: a put that came to a store as its partition was given away failed, though another node had
    /// taken the partition over.
    #[test]
    fn a_closed_store_is_a_partition_that_is_not_served_here() {
        let closed = BackendError::new(ErrorKind::Closed, "given away");
        assert_eq!(ReplicaFailure::from(closed), ReplicaFailure::NotServing);
    }
}

//! The reasons why a request failed, in terms of both protocols.

use kvorum_vnode::ReplicaFailure;

/// A failed request. The text of [`std::fmt::Display`] is the one that Riak's protocol-buffer
/// clients match, without paths of the server. [`RequestError::explain`] is the text for people,
/// [`RequestError::in_full`] the one for logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The bucket type does not exist or is not active. Create and activate it.
    #[error("no_type")]
    UnknownBucketType,
    /// A quorum value is above the bucket's n_val. Fix the request.
    #[error("{{n_val_violation,{n_val}}}")]
    QuorumAboveN {
        /// The bucket's n_val.
        n_val: usize,
    },
    /// The request's own n_val is above the bucket's. Fix the request.
    #[error("{{n_val_violation,{requested}}}")]
    RequestNAboveBucketN {
        /// The request's n_val.
        requested: usize,
        /// The bucket's n_val.
        n_val: usize,
    },
    /// No replica can be reached. Retry later.
    #[error("all_nodes_down")]
    AllNodesDown,
    /// Fewer replicas can be reached than the request needs. Retry later.
    #[error("{{insufficient_vnodes,{got},need,{wanted}}}")]
    InsufficientVnodes {
        /// The number that the request needs.
        wanted: usize,
        /// The number that there is.
        got: usize,
    },
    /// Fewer distinct nodes can answer than `node_confirms` asks for.
    #[error("{{insufficient_nodes,{got},need,{wanted}}}")]
    InsufficientNodes {
        /// The number that the request needs.
        wanted: usize,
        /// The number that there is.
        got: usize,
    },
    /// Too few replicas answered the read.
    #[error("{{r_val_unsatisfied,{wanted},{got}}}")]
    ReadsUnsatisfied {
        /// r.
        wanted: usize,
        /// Answers.
        got: usize,
    },
    /// Too few primaries answered the read.
    #[error("{{pr_val_unsatisfied,{wanted},{got}}}")]
    PrimaryReadsUnsatisfied {
        /// pr.
        wanted: usize,
        /// Answers from primaries.
        got: usize,
    },
    /// Too few replicas received the write. It may be stored on some.
    #[error("{{w_val_unsatisfied,{wanted},{got}}}")]
    WritesUnsatisfied {
        /// w.
        wanted: usize,
        /// Replicas that received it.
        got: usize,
    },
    /// Too few replicas stored the write. It may be stored on some.
    #[error("{{dw_val_unsatisfied,{wanted},{got}}}")]
    DurableWritesUnsatisfied {
        /// dw.
        wanted: usize,
        /// Replicas that stored it.
        got: usize,
    },
    /// Too few primaries received the write. It may be stored on some.
    #[error("{{pw_val_unsatisfied,{wanted},{got}}}")]
    PrimaryWritesUnsatisfied {
        /// pw.
        wanted: usize,
        /// Primaries that received it.
        got: usize,
    },
    /// Too few distinct nodes confirmed.
    #[error("{{node_confirms_val_unsatisfied,{wanted},{got}}}")]
    NodeConfirmsUnsatisfied {
        /// node_confirms.
        wanted: usize,
        /// Distinct nodes.
        got: usize,
    },
    /// `if_none_match` was asked and there is an object.
    #[error("match_found")]
    MatchFound,
    /// `if_not_modified` was asked and the object has another version.
    #[error("modified")]
    Modified,
    /// `if_not_modified` was asked and there is no object.
    #[error("notfound")]
    ConditionNotFound,
    /// The request's deadline passed. A write may have been applied.
    #[error("timeout")]
    Timeout,
    /// The connection to a replica broke during a write, which that replica may have applied:
    /// repeated by another one, the write could be there twice. Read before writing again. Riak
    /// reports a timeout to its clients here.
    #[error("timeout")]
    OutcomeUnknown,
    /// A queue is full; nothing was done. Retry after a pause.
    #[error("overload")]
    Overload,
    /// The object would be larger than `object.size.maximum`.
    #[error("{{too_large,{bytes}}}")]
    ObjectTooLarge {
        /// Its size, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        bytes_max: u64,
    },
    /// The object would have more siblings than `object.siblings.maximum`. Resolve them.
    #[error("{{too_many_siblings,{siblings}}}")]
    TooManySiblings {
        /// Their number after the put.
        siblings: usize,
        /// The limit.
        siblings_max: usize,
    },
    /// The key, or its bucket's or bucket type's name, is longer than 65,536 bytes.
    #[error("{{key_too_large,{bytes}}}")]
    KeyTooLarge {
        /// Its length, in bytes.
        bytes: usize,
    },
    /// The vnode's partition has just changed hands. Retry shortly.
    #[error("vnode_not_ready")]
    VnodeNotReady,
    /// The vnode's store is still being opened: its node has just started. Retry shortly.
    #[error("vnode_not_ready: its store is still being opened, retry shortly")]
    VnodeOpening,
    /// The vnode's store could not be opened. Its node's log has the reason, and the node keeps trying.
    #[error("vnode_failed: its store could not be opened, see the node's log")]
    VnodeFailed,
    /// The bucket's backend, named here, has no secondary indexes. Use another backend for it.
    #[error("{{error,{{indexes_not_supported,{0}}}}}")]
    IndexesNotSupported(String),
    /// A counter in a bucket without data type that keeps only one value. Set `allow_mult`.
    #[error("\"Counters require bucket property 'allow_mult=true'\"")]
    CountersNeedSiblings,
    /// A remove without a context named a missing target. The variant's name is Riak's. Fetch, and
    /// send the context.
    #[error("{0}")]
    NotPresent(String),
    /// An operation on a data type was refused, for this reason. Fix the request.
    #[error("{0}")]
    OperationRefused(String),
    /// A validator of the bucket refused the value; the text has its name and the reason. Fix the value.
    #[error("{{precommit_fail,<<{0:?}>>}}")]
    Rejected(String),
    /// The answer to a fold over keys would be larger than this node holds in memory for it. Ask for a
    /// narrower range of keys, or for a count.
    #[error(
        "answer_too_large: it would have more than {bytes_max} bytes, ask for a narrower range"
    )]
    AnswerTooLarge {
        /// The limit, in bytes.
        bytes_max: u64,
    },
    /// The disk is full: writes are refused until there is room, reads are not.
    #[error("disk_full: the disk of a replica has no room, see its node's log; reads go on")]
    DiskFull(String),
    /// The store under the vnode failed, or holds damaged bytes; the text names the place.
    #[error("storage: a store failed, see its node's log")]
    Storage(String),
    /// A rule of our own was broken. Report a bug.
    #[error("internal: a rule of the server was broken, see its node's log")]
    Internal(String),
}

impl RequestError {
    /// The request's error for a failure of a replica.
    pub(crate) fn of_replica(failure: ReplicaFailure) -> Self {
        match failure {
            ReplicaFailure::ConditionFound => Self::MatchFound,
            ReplicaFailure::ConditionModified => Self::Modified,
            ReplicaFailure::ConditionAbsent => Self::ConditionNotFound,
            ReplicaFailure::ObjectTooLarge { bytes, bytes_max } => {
                Self::ObjectTooLarge { bytes, bytes_max }
            }
            ReplicaFailure::TooManySiblings {
                siblings,
                siblings_max,
            } => Self::TooManySiblings {
                siblings,
                siblings_max,
            },
            ReplicaFailure::Full(detail) => Self::DiskFull(detail),
            ReplicaFailure::Damaged(detail)
            | ReplicaFailure::Storage(detail)
            | ReplicaFailure::Unwritable(detail) => Self::Storage(detail),
            ReplicaFailure::Internal(detail) => Self::Internal(detail),
            ReplicaFailure::IndexesNotSupported(engine) => Self::IndexesNotSupported(engine),
            ReplicaFailure::NotPresent(term) => Self::NotPresent(term),
            ReplicaFailure::OperationRefused(detail) => Self::OperationRefused(detail),
            ReplicaFailure::NotOpen { is_failed: false } => Self::VnodeOpening,
            ReplicaFailure::NotOpen { is_failed: true } => Self::VnodeFailed,
            // The ring has changed since the request was planned: the next plan will have the new one.
            ReplicaFailure::StaleEpoch { .. }
            | ReplicaFailure::NotServing
            | ReplicaFailure::Incomplete => Self::VnodeNotReady,
        }
    }

    /// True for failures of interest to an operator: not those of a client's own condition, and not
    /// those that the vnode has logged already.
    pub fn is_logged(&self) -> bool {
        !matches!(
            self,
            Self::MatchFound
                | Self::Modified
                | Self::ConditionNotFound
                | Self::NotPresent(_)
                | Self::OperationRefused(_)
                | Self::CountersNeedSiblings
                | Self::Rejected(_)
                | Self::VnodeOpening
                | Self::VnodeFailed
        )
    }

    /// The failure in full, for logs and operators: with paths of the server, which clients do not see.
    pub fn in_full(&self) -> String {
        match self {
            Self::DiskFull(detail) => format!("disk_full: {detail}"),
            Self::Storage(detail) => format!("storage: {detail}"),
            Self::Internal(detail) => format!("internal: {detail}"),
            other => other.explain(),
        }
    }

    /// The failure for people: one lowercase sentence without a full stop and without paths of the server.
    pub fn explain(&self) -> String {
        match self {
            Self::QuorumAboveN { n_val } => {
                format!("a quorum value is above the bucket's n_val of {n_val}")
            }
            Self::RequestNAboveBucketN { requested, n_val } => {
                format!("the request's n_val of {requested} is above the bucket's of {n_val}")
            }
            Self::ObjectTooLarge { bytes, bytes_max } => {
                format!("the object has {bytes} bytes, object.size.maximum is {bytes_max}")
            }
            Self::TooManySiblings {
                siblings,
                siblings_max,
            } => format!(
                "the object would have {siblings} siblings, object.siblings.maximum is \
                 {siblings_max}; read it and write back a resolution with its vclock"
            ),
            Self::OutcomeUnknown => {
                "the connection to a replica broke during the write, which may be stored or not; \
                 read before writing again"
                    .to_owned()
            }
            Self::Rejected(detail) => {
                format!("a validator of the bucket refuses the value: {detail}")
            }
            Self::IndexesNotSupported(engine) => {
                format!("the storage backend {engine} has no secondary indexes")
            }
            other => other.to_string(),
        }
    }
}

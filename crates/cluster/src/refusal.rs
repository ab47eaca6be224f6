//! Refusals of commands, and of changes that are staged.

use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::PropertyErrors;
use kvorum_ring::{Epoch, MoveError, NodeId, Partition, RingSize};

use crate::plan::PlanError;
use crate::resolved::UnknownBucketType;
use crate::round_record::RoundRefusal;

/// The reason why a command does not fit the state.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No active bucket type has this name.
    #[error(transparent)]
    UnknownBucketType(#[from] UnknownBucketType),
    /// Properties are invalid, alone or in combination.
    #[error("Invalid bucket properties: {0}")]
    InvalidProperties(#[from] PropertyErrors),
    /// The properties of a type would contradict those of a bucket in it.
    #[error("Invalid bucket properties: bucket '{bucket}' has {errors}")]
    ContradictsBucket {
        /// The bucket.
        bucket: Bucket,
        /// The contradictions.
        errors: PropertyErrors,
    },
    /// Properties of a type that was never created.
    #[error("Invalid bucket properties: not_active")]
    TypeUndefined,
    /// Properties of a type that is not active yet.
    #[error("Invalid bucket properties: not_active")]
    TypeNotActive,
    /// A type cannot be created again once it is active.
    #[error("already_active")]
    TypeAlreadyActive,
    /// The type is being removed, and cannot be created until the removal has ended.
    #[error(
        "{bucket_type} is being removed: `kvorum admin bucket-type remove` completes that, and \
         `bucket-type activate` cancels it"
    )]
    TypeLeaving {
        /// The name.
        bucket_type: BucketType,
    },
    /// A removal was cancelled, or begun again, since its end was decided.
    #[error("the removal of {bucket_type} was cancelled meanwhile; remove it again")]
    RemovalOvertaken {
        /// The name.
        bucket_type: BucketType,
    },
    /// No bucket type is removed while partitions move: a key could move to a node that has already
    /// been asked.
    #[error("partitions move; remove it when `kvorum admin ring-status` shows that all is settled")]
    RingMoves,
    /// The default type is not removed.
    #[error("the default type cannot be removed")]
    DefaultTypeStays,
    /// Activation of a type that was never created.
    #[error("{bucket_type} is not an existing bucket type")]
    NoSuchType {
        /// The name.
        bucket_type: BucketType,
    },
    /// `default` always exists, `any` is reserved, and a name must not be empty.
    #[error("'{bucket_type}' cannot be the name of a bucket type")]
    ReservedTypeName {
        /// The name.
        bucket_type: BucketType,
    },
    /// The default type cannot be changed as a type; its defaults are configured.
    #[error("Invalid bucket properties: no_default_update")]
    DefaultType,
    /// A bucket's name must not be empty.
    #[error("Bucket cannot be zero-length")]
    EmptyBucket,
    /// The node is a member already.
    #[error("node {node} is a member already")]
    AlreadyMember {
        /// The node.
        node: NodeId,
    },
    /// The node is not a member.
    #[error("node {node} is no member of this cluster")]
    NotMember {
        /// The node.
        node: NodeId,
    },
    /// Two members would share a name.
    #[error("another member is called {name}")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A cluster or node without a name.
    #[error("a name must not be empty")]
    EmptyName,
    /// The member still owns partitions.
    #[error("node {node} still owns {partitions} partitions")]
    OwnsPartitions {
        /// The node.
        node: NodeId,
        /// Their number.
        partitions: usize,
    },
    /// A ring's size never changes.
    #[error("ring of {expected} partitions cannot become one of {got}")]
    RingSizeChange {
        /// The present size.
        expected: RingSize,
        /// The proposed size.
        got: RingSize,
    },
    /// A change cannot be staged or committed.
    #[error(transparent)]
    Staging(#[from] StagingRefusal),
    /// A step of a move does not fit.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// The partition's epoch has changed since the step was decided.
    #[error("the partition is at epoch {expected}, and the step is of epoch {got}")]
    OtherEpoch {
        /// The partition's epoch.
        expected: Epoch,
        /// The step's epoch.
        got: Epoch,
    },
    /// Another partition that could be in one preference list with this one is moving.
    #[error("partition {partition} cannot move while partition {moving} does")]
    TooClose {
        /// The partition of the step.
        partition: Partition,
        /// The moving partition.
        moving: Partition,
    },
    /// The command fitted this node's state, and was refused when it was agreed.
    #[error("{reason}")]
    Overtaken {
        /// The reason for the refusal.
        reason: String,
    },
    /// A round is not announced, or does not raise its watermark.
    #[error(transparent)]
    Round(#[from] RoundRefusal),
    /// A partition would change hands without a higher epoch, or fall back to a lower one.
    #[error("epoch of partition {partition} does not rise with its change of owner")]
    EpochNotRaised {
        /// The partition.
        partition: Partition,
    },
}

/// The reason why a change cannot be staged or committed. The texts are Riak's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StagingRefusal {
    /// The node is not a member.
    #[error("not_member")]
    NotMember,
    /// The node is leaving already.
    #[error("already_leaving")]
    AlreadyLeaving,
    /// No member would be left.
    #[error("only_member")]
    OnlyMember,
    /// The replacement is not joining, or owns partitions.
    #[error("invalid_replacement")]
    InvalidReplacement,
    /// The replacement already replaces another node.
    #[error("already_replacement")]
    AlreadyReplacement,
    /// A node of weight 0 can hold no partitions: let it leave.
    #[error("a weight must be above 0; let the node leave instead")]
    NoWeight,
    /// There is no plan to commit.
    #[error("{0}")]
    NoPlan(#[from] PlanError),
    /// The plan is not the one that the operator has seen.
    #[error("The plan has changed; look at it again")]
    PlanChanged,
}

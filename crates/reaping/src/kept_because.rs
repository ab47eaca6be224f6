//! The reasons for which tombstones stay, for status and logs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a round removed no tombstones, or not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptBecause {
    /// A replica's `delete_mode` is `keep`.
    DeleteMode,
    /// A replica has not answered.
    ReplicaDown,
    /// A replica is being repaired.
    ReplicaIncomplete,
    /// A replica's trees may lack stored entries.
    TreesInDoubt,
    /// The exchange was not complete.
    NotCompared,
    /// A member has not confirmed that its earlier requests have ended.
    RequestsUnderWay,
    /// A member has hints for the preference list.
    HintsOutstanding,
    /// A member has not reported its hints.
    HintsUnknown,
    /// A replica could not make its mark durable, or has another mark.
    NotNoted,
    /// Another round succeeded, or the replica has no watermark yet.
    OtherWatermark,
    /// The ring or the members have changed.
    OtherEpoch,
    /// A replica's store has been replaced.
    OtherReplica,
    /// The round was stopped.
    Stopped,
}

impl fmt::Display for KeptBecause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::DeleteMode => "delete_mode is keep at a replica",
            Self::ReplicaDown => "a replica did not answer",
            Self::ReplicaIncomplete => "a replica is being repaired",
            Self::TreesInDoubt => "the trees of a replica have to be built anew",
            Self::NotCompared => "the replicas have not been compared completely",
            Self::RequestsUnderWay => "a member may still have requests from before",
            Self::HintsOutstanding => "a member has hints for a replica",
            Self::HintsUnknown => "a member did not report its hints",
            Self::NotNoted => "a replica could not note its mark",
            Self::OtherWatermark => "another round went through first",
            Self::OtherEpoch => "the ring or the members have changed",
            Self::OtherReplica => "a replica has another store than before",
            Self::Stopped => "the round was stopped",
        })
    }
}

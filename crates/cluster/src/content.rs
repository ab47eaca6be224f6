//! The content of the cluster state: its agreed and stored part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{NodeId, Partition, Ring, Transition};

use crate::cluster_id::ClusterId;
use crate::round_record::Rounds;
use crate::staged_change::StagedChange;

/// A member without its identity; every field may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, such as `riak@127.0.0.1`; no two members share a name.
    pub name: String,
    /// Its addresses by the name of the service that listens there.
    pub addresses: BTreeMap<String, String>,
    /// Its status between joining and leaving.
    pub status: MemberStatus,
    /// Its share of the ring relative to the others'.
    pub weight: u32,
    /// Rack, room or zone.
    pub location: Option<String>,
}

impl Member {
    /// A valid member of this name: weight 1, no location, no addresses.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            addresses: BTreeMap::new(),
            status: MemberStatus::Valid,
            weight: 1,
            location: None,
        }
    }
}

/// Status of a member between joining and leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStatus {
    /// A member that no committed plan includes yet.
    Joining,
    /// A full member.
    Valid,
    /// Handing over its partitions.
    Leaving,
    /// Has handed over all its partitions.
    Exiting,
    /// Marked as down by an operator.
    Down,
}

/// Status of a bucket type between its creation and its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeStatus {
    /// The type is not active yet: it can be created again with other properties.
    Created,
    /// The type is in use.
    Active,
    /// The type is being removed: requests do not find it, and its properties still place its data.
    Leaving {
        /// The version of the state at which the removal began.
        since: u64,
    },
}

/// A bucket type as it was created and changed.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketTypeEntry {
    /// Its status.
    pub status: TypeStatus,
    /// The properties that were set, over the defaults of typed buckets.
    pub properties: PropertyOverlay,
}

/// The agreed and stored part of the state; [`ClusterState`](crate::ClusterState) adds the part that
/// follows from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Content {
    pub(crate) id: ClusterId,
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) members: BTreeMap<NodeId, Member>,
    pub(crate) ring: Arc<Ring>,
    /// `buckets.default.*`: agreed, since replicas with different values would differ in quorums.
    pub(crate) default_properties: PropertyOverlay,
    pub(crate) types: BTreeMap<BucketType, BucketTypeEntry>,
    /// Names of types that were removed; one of them may have been created again.
    pub(crate) removed_types: BTreeSet<BucketType>,
    /// By type and bucket; the default type is included, and no overlay is empty.
    pub(crate) buckets: BTreeMap<BucketType, BTreeMap<Bucket, PropertyOverlay>>,
    /// Changes that wait for a commit.
    pub(crate) staged: BTreeMap<NodeId, StagedChange>,
    /// The target of the last commit, until it is reached.
    pub(crate) transition: Option<Transition>,
    /// Confirmations of the present phase of a change of the number of replicas.
    pub(crate) growth_confirmed: GrowthConfirmed,
    /// The recovery of the cluster after the loss of its log's majority, if there was one.
    pub(crate) recovery: Option<Recovery>,
    /// Rounds; `None` if an earlier version founded the cluster.
    pub(crate) rounds: Option<Rounds>,
}

/// Confirmations of the present phase of a change of the number of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GrowthConfirmed {
    /// The vnodes that have received their new keys, while the change fills.
    pub(crate) filled: BTreeSet<Partition>,
    /// The nodes that have confirmed the close, while the change closes.
    pub(crate) known: BTreeSet<NodeId>,
}

/// The starting point of a recovered cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The identity before the recovery.
    pub from: ClusterId,
    /// The version of the state that the recovery began with.
    pub version: u64,
}

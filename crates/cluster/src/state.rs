//! The cluster state as a value.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::{BucketProperties, PropertyOverlay};
use kvorum_ring::{NodeId, NodeIdError, Ring, Transition};

use crate::motion::GrowthConfirmed;
use crate::recovery::Recovery;
use crate::resolved::{Resolved, UnknownBucketType};
use crate::staged::StagedChange;

/// The identity of a cluster: a UUID in the same form as a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(NodeId);

impl ClusterId {
    /// A random UUID from 16 random bytes, which the caller draws.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(NodeId::from_random(bytes))
    }

    /// The identity in the form that nodes have theirs in, as hellos carry it.
    pub const fn as_node_id(&self) -> NodeId {
        self.0
    }
}

impl From<NodeId> for ClusterId {
    fn from(id: NodeId) -> Self {
        Self(id)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ClusterId {
    type Err = NodeIdError;

    fn from_str(text: &str) -> Result<Self, NodeIdError> {
        text.parse().map(Self)
    }
}

/// What is known of a member besides its identity; all of it may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, such as `riak@127.0.0.1`; no two members share one.
    pub name: String,
    /// Its addresses by the name of the service that listens there.
    pub addresses: BTreeMap<String, String>,
    /// Where it stands between joining and leaving.
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

/// Where a member stands between joining and leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStatus {
    /// Known, but part of no committed plan.
    Joining,
    /// A full member.
    Valid,
    /// Handing over its partitions.
    Leaving,
    /// Has handed over all of them.
    Exiting,
    /// Marked as down by an operator.
    Down,
}

/// Whether a bucket type can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeStatus {
    /// Not yet: it can still be created anew with other properties.
    Created,
    /// It can, and exists for ever.
    Active,
}

/// A bucket type as it was created and changed.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketTypeEntry {
    /// Whether it can be used.
    pub status: TypeStatus,
    /// What was set, over the defaults of typed buckets.
    pub properties: PropertyOverlay,
}

/// What is agreed and kept; [`ClusterState`] adds what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Content {
    pub(crate) id: ClusterId,
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) members: BTreeMap<NodeId, Member>,
    pub(crate) ring: Arc<Ring>,
    /// `buckets.default.*`: agreed rather than each node's own, or replicas would differ in quorums.
    pub(crate) default_properties: PropertyOverlay,
    pub(crate) types: BTreeMap<BucketType, BucketTypeEntry>,
    /// By type, the default one included, and bucket; no overlay is empty.
    pub(crate) buckets: BTreeMap<BucketType, BTreeMap<Bucket, PropertyOverlay>>,
    /// What waits for a commit.
    pub(crate) staged: BTreeMap<NodeId, StagedChange>,
    /// Where the last commit leads, until it is there.
    pub(crate) transition: Option<Transition>,
    /// Who has confirmed the present phase of a change of the number of replicas.
    pub(crate) growth_confirmed: GrowthConfirmed,
    /// What the cluster went on with after it had lost its log's majority.
    pub(crate) recovery: Option<Recovery>,
}

/// The cluster state of one version.
#[derive(Clone, Debug)]
pub struct ClusterState {
    pub(crate) content: Content,
    resolved: Resolved,
}

impl PartialEq for ClusterState {
    fn eq(&self, other: &Self) -> bool {
        self.content == other.content
    }
}

impl ClusterState {
    pub(crate) fn from_content(content: Content) -> Self {
        let resolved = Resolved::new(&content);
        Self { content, resolved }
    }

    /// The state of a new cluster of one node, which owns every partition.
    pub fn found(id: ClusterId, name: &str, node: NodeId, member: Member, ring: Ring) -> Self {
        Self::from_content(Content {
            id,
            name: name.to_owned(),
            version: 1,
            members: BTreeMap::from([(node, member)]),
            ring: Arc::new(ring),
            default_properties: PropertyOverlay::default(),
            types: BTreeMap::new(),
            buckets: BTreeMap::new(),
            staged: BTreeMap::new(),
            transition: None,
            growth_confirmed: GrowthConfirmed::default(),
            recovery: None,
        })
    }

    /// The cluster's identity.
    pub fn id(&self) -> ClusterId {
        self.content.id
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.content.name
    }

    /// The number of commands that have changed the state, from 1 for its founding.
    pub fn version(&self) -> u64 {
        self.content.version
    }

    /// All members by identity.
    pub fn members(&self) -> &BTreeMap<NodeId, Member> {
        &self.content.members
    }

    /// One member.
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.content.members.get(&node)
    }

    /// The member of this name.
    pub fn member_named(&self, name: &str) -> Option<(NodeId, &Member)> {
        let named = self
            .content
            .members
            .iter()
            .find(|(_, member)| member.name == name);
        named.map(|(node, member)| (*node, member))
    }

    /// The committed ring.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.content.ring
    }

    /// What waits for a commit, besides the members that join.
    pub fn staged(&self) -> &BTreeMap<NodeId, StagedChange> {
        &self.content.staged
    }

    /// Where the last commit leads, until it is there.
    pub fn transition(&self) -> Option<&Transition> {
        self.content.transition.as_ref()
    }

    /// The largest n_val of any bucket.
    pub fn n_val_max(&self) -> u32 {
        self.resolved.n_val_max()
    }

    /// What is set for all buckets without type.
    pub fn default_properties(&self) -> &PropertyOverlay {
        &self.content.default_properties
    }

    /// All created types by name; the default type, which nobody created, is not among them.
    pub fn bucket_types(&self) -> &BTreeMap<BucketType, BucketTypeEntry> {
        &self.content.types
    }

    /// What was set for one bucket alone, if anything.
    pub fn bucket_overlay(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
    ) -> Option<&PropertyOverlay> {
        let default_type = BucketType::default_type();
        let of_type = if bucket_type.is_default() {
            &default_type
        } else {
            bucket_type
        };
        self.content.buckets.get(of_type)?.get(bucket)
    }

    /// All buckets with properties of their own.
    pub fn bucket_overlays(
        &self,
    ) -> impl Iterator<Item = (&BucketType, &Bucket, &PropertyOverlay)> {
        self.content
            .buckets
            .iter()
            .flat_map(|(bucket_type, buckets)| {
                buckets
                    .iter()
                    .map(move |(bucket, overlay)| (bucket_type, bucket, overlay))
            })
    }

    /// The properties that count for a bucket. Cheap: every request asks.
    pub fn properties(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        self.resolved.of_bucket(bucket_type, bucket)
    }

    /// The properties of buckets of a type that have none of their own.
    pub fn type_properties(
        &self,
        bucket_type: &BucketType,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        self.resolved.of_type(bucket_type)
    }
}

//! The cluster state as a value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::{BucketProperties, PropertyOverlay};
use kvorum_ring::{NodeId, Ring, Transition};

use crate::cluster_id::ClusterId;
use crate::content::{BucketTypeEntry, Content, GrowthConfirmed, Member, TypeStatus};
use crate::resolved::{Resolved, UnknownBucketType};
use crate::round_record::Rounds;
use crate::staged_change::StagedChange;

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
            removed_types: BTreeSet::new(),
            buckets: BTreeMap::new(),
            staged: BTreeMap::new(),
            transition: None,
            growth_confirmed: GrowthConfirmed::default(),
            recovery: None,
            rounds: Some(Rounds::at_founding()),
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

    /// Changes that wait for a commit, besides the members that join.
    pub fn staged(&self) -> &BTreeMap<NodeId, StagedChange> {
        &self.content.staged
    }

    /// The target of the last commit, until it is reached.
    pub fn transition(&self) -> Option<&Transition> {
        self.content.transition.as_ref()
    }

    /// The largest n_val of any bucket.
    pub fn n_val_max(&self) -> u32 {
        self.resolved.n_val_max()
    }

    /// Every n_val that a bucket has, ascending.
    pub fn n_vals(&self) -> BTreeSet<u32> {
        self.resolved.all().map(|it| it.n_val).collect()
    }

    /// The properties that are set for all buckets without type.
    pub fn default_properties(&self) -> &PropertyOverlay {
        &self.content.default_properties
    }

    /// All created types by name; the default type is not among them.
    pub fn bucket_types(&self) -> &BTreeMap<BucketType, BucketTypeEntry> {
        &self.content.types
    }

    /// Names of types that were removed. Stores may have tombstones of them, even if a type was
    /// created again.
    pub fn removed_types(&self) -> &BTreeSet<BucketType> {
        &self.content.removed_types
    }

    /// True for a type that is being removed.
    pub fn is_leaving(&self, bucket_type: &BucketType) -> bool {
        let entry = self.content.types.get(bucket_type);
        entry.is_some_and(|entry| matches!(entry.status, TypeStatus::Leaving { .. }))
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

    /// The properties of a bucket. Cheap, since every request needs them.
    pub fn properties(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        self.resolved.of_bucket(bucket_type, bucket)
    }

    /// The properties that decide how the stored objects of a bucket are placed and merged. Unlike
    /// requests, this finds a type that is being removed, so a cancelled removal has moved nothing.
    pub fn stored_properties(
        &self,
        bucket_type: &BucketType,
        bucket: &Bucket,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        self.resolved.of_stored_bucket(bucket_type, bucket)
    }

    /// Like [`ClusterState::stored_properties`], for the buckets of a type that have no properties
    /// of their own.
    pub fn stored_type_properties(
        &self,
        bucket_type: &BucketType,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        self.resolved.of_stored_type(bucket_type)
    }

    /// The properties of buckets of a type that have none of their own.
    pub fn type_properties(
        &self,
        bucket_type: &BucketType,
    ) -> Result<&Arc<BucketProperties>, UnknownBucketType> {
        self.resolved.of_type(bucket_type)
    }
}

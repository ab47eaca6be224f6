//! The cluster state as JSON: the document inside the file.
//!
//! The document has types of its own, so that the state and the file can change independently. A
//! correct checksum is not enough: a document that does not make a state is refused like a damaged
//! one.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{
    Detours, Epoch, Growth, Move, NodeId, Partition, Phase, Ring, RingSize, Transition,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::command::check_ring;
use crate::content::GrowthConfirmed;
use crate::content::Recovery;
use crate::content::{BucketTypeEntry, Content, Member, MemberStatus, TypeStatus};
use crate::file_format::{self, DecodeError};
use crate::name_text;
use crate::rounds_document::RoundsDocument;
use crate::staged_change::StagedChange;
use crate::state::ClusterState;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The node of the file; none in a snapshot, which all nodes share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    this_node: Option<String>,
    cluster_id: String,
    cluster_name: String,
    version: u64,
    members: Vec<MemberDocument>,
    ring: RingDocument,
    default_properties: Map<String, Value>,
    bucket_types: Vec<TypeDocument>,
    /// Names of types that were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed_types: Vec<String>,
    buckets: Vec<BucketDocument>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    staged: BTreeMap<String, StagedDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transition: Option<TransitionDocument>,
    /// Vnodes that have confirmed that they are filled for the present growth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    growth_filled: Vec<u16>,
    /// Nodes that have confirmed that the growth closes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    growth_known: Vec<String>,
    /// The identity that the cluster had before it lost its log's majority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovered_from: Option<String>,
    /// The version of the state that the recovery began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovered_version: Option<u64>,
    /// Rounds, which remove tombstones; none if an earlier version founded the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rounds: Option<RoundsDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransitionDocument {
    /// The future owner of each partition.
    target: Vec<String>,
    apart: u16,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StagedDocument {
    Leave,
    Replace { by: String },
    ForceRemove,
    ForceReplace { by: String },
    Location(Option<String>),
    Weight(u32),
}

pub(crate) fn staged_document(change: &StagedChange) -> StagedDocument {
    match change {
        StagedChange::Leave => StagedDocument::Leave,
        StagedChange::Replace { by } => StagedDocument::Replace { by: by.to_string() },
        StagedChange::ForceRemove => StagedDocument::ForceRemove,
        StagedChange::ForceReplace { by } => StagedDocument::ForceReplace { by: by.to_string() },
        StagedChange::Location(location) => StagedDocument::Location(location.clone()),
        StagedChange::Weight(weight) => StagedDocument::Weight(*weight),
    }
}

pub(crate) fn staged_change(document: StagedDocument) -> Result<StagedChange, DecodeError> {
    Ok(match document {
        StagedDocument::Leave => StagedChange::Leave,
        StagedDocument::Replace { by } => StagedChange::Replace {
            by: parsed(&by, "staged")?,
        },
        StagedDocument::ForceRemove => StagedChange::ForceRemove,
        StagedDocument::ForceReplace { by } => StagedChange::ForceReplace {
            by: parsed(&by, "staged")?,
        },
        StagedDocument::Location(location) => StagedChange::Location(location),
        StagedDocument::Weight(weight) => StagedChange::Weight(weight),
    })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RingDocument {
    size: u64,
    replicas_max: u16,
    /// Owner and epoch of each partition, `UUID epoch`.
    partitions: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moves: Vec<MoveDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    growth: Option<GrowthDocument>,
    /// Detours of preference lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    detours: Vec<DetourDocument>,
    /// The next detours, while they change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    next_detours: Vec<DetourDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DetourDocument {
    owner: u16,
    passed: Vec<u16>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveDocument {
    partition: u16,
    to: String,
    #[serde(with = "PhaseDocument")]
    phase: Phase,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrowthDocument {
    to: u16,
    #[serde(with = "PhaseDocument")]
    phase: Phase,
}

/// The written form of a [`Phase`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", remote = "Phase")]
enum PhaseDocument {
    Filling,
    Closing,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberDocument {
    node: String,
    name: String,
    #[serde(with = "StatusDocument")]
    status: MemberStatus,
    weight: u32,
    location: Option<String>,
    addresses: BTreeMap<String, String>,
}

/// The written form of a [`MemberStatus`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", remote = "MemberStatus")]
enum StatusDocument {
    Joining,
    Valid,
    Leaving,
    Exiting,
    Down,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeDocument {
    name: String,
    /// Also false for a type that is being removed.
    active: bool,
    /// The version of the state at which the removal began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leaving_since: Option<u64>,
    properties: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketDocument {
    bucket_type: String,
    bucket: String,
    properties: Map<String, Value>,
}

/// The file that keeps `state` on the node `this_node`.
pub(crate) fn encode(this_node: NodeId, state: &ClusterState) -> Result<Vec<u8>, DecodeError> {
    Ok(file_format::encode(&json(Some(this_node), state)?))
}

/// The node and the state that a file keeps.
pub(crate) fn decode(file: &[u8]) -> Result<(NodeId, ClusterState), DecodeError> {
    let (this_node, state) = parse(file_format::decode(file)?)?;
    let this_node = this_node.ok_or_else(|| DecodeError::damaged("this_node is missing"))?;
    if !state.content.members.contains_key(&this_node) {
        return Err(DecodeError::damaged("this_node is not among the members"));
    }
    Ok((this_node, state))
}

impl ClusterState {
    /// The state as JSON, for a snapshot or the first command of a log.
    pub fn to_json(&self) -> Result<String, DecodeError> {
        let text = String::from_utf8(json(None, self)?);
        text.map_err(|error| DecodeError::damaged(error.to_string()))
    }

    /// The state that [`ClusterState::to_json`] wrote.
    pub fn from_json(json: &str) -> Result<Self, DecodeError> {
        parse(json.as_bytes()).map(|(_, state)| state)
    }
}

fn json(this_node: Option<NodeId>, state: &ClusterState) -> Result<Vec<u8>, DecodeError> {
    let unwritable = |error: serde_json::Error| DecodeError::damaged(error.to_string());
    let document = document(this_node, &state.content);
    let mut json = serde_json::to_vec_pretty(&document).map_err(unwritable)?;
    json.push(b'\n');
    Ok(json)
}

fn parse(json: &[u8]) -> Result<(Option<NodeId>, ClusterState), DecodeError> {
    let unreadable = |error: serde_json::Error| DecodeError::damaged(error.to_string());
    let document: Document = serde_json::from_slice(json).map_err(unreadable)?;
    let this_node = document.this_node.as_deref();
    let this_node = this_node
        .map(|node| parsed(node, "this_node"))
        .transpose()?;
    Ok((this_node, ClusterState::from_content(content(document)?)))
}

fn document(this_node: Option<NodeId>, content: &Content) -> Document {
    let bucket_types = content.types.iter().map(|(name, entry)| TypeDocument {
        name: name_text::to_text(name.as_bytes()),
        active: entry.status == TypeStatus::Active,
        leaving_since: match entry.status {
            TypeStatus::Leaving { since } => Some(since),
            TypeStatus::Created | TypeStatus::Active => None,
        },
        properties: entry.properties.to_json(),
    });
    let buckets = content.buckets.iter().flat_map(|(bucket_type, buckets)| {
        buckets.iter().map(|(bucket, overlay)| BucketDocument {
            bucket_type: name_text::to_text(bucket_type.as_bytes()),
            bucket: name_text::to_text(bucket.as_bytes()),
            properties: overlay.to_json(),
        })
    });
    Document {
        this_node: this_node.map(|node| node.to_string()),
        cluster_id: content.id.to_string(),
        cluster_name: content.name.clone(),
        version: content.version,
        members: content.members.iter().map(member_document).collect(),
        ring: ring_document(&content.ring),
        default_properties: content.default_properties.to_json(),
        bucket_types: bucket_types.collect(),
        removed_types: content
            .removed_types
            .iter()
            .map(|name| name_text::to_text(name.as_bytes()))
            .collect(),
        buckets: buckets.collect(),
        staged: content
            .staged
            .iter()
            .map(|(node, change)| (node.to_string(), staged_document(change)))
            .collect(),
        transition: content.transition.as_ref().map(|transition| {
            let partitions = content.ring.size().partitions();
            TransitionDocument {
                target: partitions
                    .map(|partition| transition.target(partition).to_string())
                    .collect(),
                apart: transition.apart(),
            }
        }),
        growth_filled: content
            .growth_confirmed
            .filled
            .iter()
            .map(|partition| partition.number())
            .collect(),
        growth_known: content
            .growth_confirmed
            .known
            .iter()
            .map(ToString::to_string)
            .collect(),
        recovered_from: content.recovery.map(|it| it.from.to_string()),
        recovered_version: content.recovery.map(|it| it.version),
        rounds: content.rounds.as_ref().map(RoundsDocument::of),
    }
}

pub(crate) fn ring_document(ring: &Ring) -> RingDocument {
    let moves = ring.moves().iter().map(|(partition, moving)| MoveDocument {
        partition: partition.number(),
        to: moving.to.to_string(),
        phase: moving.phase,
    });
    let growth = ring.growth().map(|growth| GrowthDocument {
        to: growth.to,
        phase: growth.phase,
    });
    RingDocument {
        size: u64::from(ring.size().get()),
        replicas_max: ring.replicas_max(),
        partitions: ring
            .partitions()
            .map(|(_, owner, epoch)| format!("{owner} {epoch}"))
            .collect(),
        moves: moves.collect(),
        growth,
        detours: detour_documents(ring.detours()),
        next_detours: ring.next_detours().map_or_else(Vec::new, detour_documents),
    }
}

fn detour_documents(detours: &Detours) -> Vec<DetourDocument> {
    let document = |(owner, passed): (Partition, &[Partition])| DetourDocument {
        owner: owner.number(),
        passed: passed.iter().copied().map(Partition::number).collect(),
    };
    detours.passed().map(document).collect()
}

pub(crate) fn member_document((node, member): (&NodeId, &Member)) -> MemberDocument {
    MemberDocument {
        node: node.to_string(),
        name: member.name.clone(),
        status: member.status,
        weight: member.weight,
        location: member.location.clone(),
        addresses: member.addresses.clone(),
    }
}

fn content(document: Document) -> Result<Content, DecodeError> {
    let members = document
        .members
        .into_iter()
        .map(member)
        .collect::<Result<_, _>>()?;
    let ring = ring(&document.ring)?;
    check_ring(&ring, &members).map_err(|refusal| DecodeError::damaged(refusal.to_string()))?;
    let mut buckets = BTreeMap::<BucketType, BTreeMap<Bucket, PropertyOverlay>>::new();
    for entry in document.buckets {
        let bucket_type = BucketType::from(name(&entry.bucket_type)?);
        let overlay = overlay(&entry.properties)?;
        buckets
            .entry(bucket_type)
            .or_default()
            .insert(Bucket::from(name(&entry.bucket)?), overlay);
    }
    let staged = document
        .staged
        .into_iter()
        .map(|(node, change)| Ok((parsed(&node, "staged")?, staged_change(change)?)));
    let transition = document.transition.map(|it| transition(&ring, &it));
    let filled = document.growth_filled.into_iter().map(partition);
    let known = document.growth_known.iter();
    let known = known.map(|node| parsed(node, "growth_known"));
    let removed_types = document.removed_types.iter();
    let removed_types = removed_types.map(|text| name(text).map(BucketType::from));
    let growth_confirmed = GrowthConfirmed {
        filled: filled.collect::<Result<_, _>>()?,
        known: known.collect::<Result<_, _>>()?,
    };
    let recovered_from = document.recovered_from.as_deref();
    let recovered_from = recovered_from.map(|id| parsed(id, "recovered_from"));
    let recovered_from = recovered_from.transpose()?;
    Ok(Content {
        growth_confirmed,
        recovery: recovered_from
            .zip(document.recovered_version)
            .map(|(from, version)| Recovery { from, version }),
        rounds: document
            .rounds
            .map(RoundsDocument::into_rounds)
            .transpose()?,
        staged: staged.collect::<Result<_, DecodeError>>()?,
        transition: transition.transpose()?,
        id: parsed(&document.cluster_id, "cluster_id")?,
        name: document.cluster_name,
        version: document.version,
        members,
        ring: Arc::new(ring),
        default_properties: overlay(&document.default_properties)?,
        types: document
            .bucket_types
            .iter()
            .map(bucket_type)
            .collect::<Result<_, _>>()?,
        removed_types: removed_types.collect::<Result<_, _>>()?,
        buckets,
    })
}

pub(crate) fn member(document: MemberDocument) -> Result<(NodeId, Member), DecodeError> {
    let member = Member {
        name: document.name,
        addresses: document.addresses,
        status: document.status,
        weight: document.weight,
        location: document.location,
    };
    Ok((parsed(&document.node, "members")?, member))
}

pub(crate) fn ring(document: &RingDocument) -> Result<Ring, DecodeError> {
    let damaged = |error: &dyn std::fmt::Display| DecodeError::damaged(error.to_string());
    let size = RingSize::new(document.size).map_err(|error| damaged(&error))?;
    let mut owners = Vec::with_capacity(document.partitions.len());
    let mut epochs = Vec::with_capacity(document.partitions.len());
    for partition in &document.partitions {
        let (owner, epoch) = partition.split_once(' ').unwrap_or((partition, ""));
        owners.push(parsed(owner, "partitions")?);
        epochs.push(Epoch::new(parsed(epoch, "partitions")?));
    }
    let ring = Ring::new(size, owners, epochs).map_err(|error| damaged(&error))?;
    let moves = document.moves.iter().map(|it| moving(size, it));
    let growth = document.growth.as_ref().map(|growth| Growth {
        to: growth.to,
        phase: growth.phase,
    });
    let ring = ring.with_replicas_max(document.replicas_max);
    let (now, next) = (
        detours(size, &document.detours)?,
        detours(size, &document.next_detours)?,
    );
    let ring = ring.with_detours(now, next);
    Ok(ring.with_motion(moves.collect::<Result<_, _>>()?, growth))
}

fn detours(size: RingSize, documents: &[DetourDocument]) -> Result<Detours, DecodeError> {
    let partition = |number| partition_of(size, number);
    let detour = |document: &DetourDocument| {
        let passed = document.passed.iter().map(|number| partition(*number));
        Ok((
            partition(document.owner)?,
            passed.collect::<Result<Vec<Partition>, DecodeError>>()?,
        ))
    };
    let all: Result<Vec<(Partition, Vec<Partition>)>, DecodeError> =
        documents.iter().map(detour).collect();
    Ok(Detours::new(all?))
}

fn transition(ring: &Ring, document: &TransitionDocument) -> Result<Transition, DecodeError> {
    let target = document
        .target
        .iter()
        .map(|node| parsed(node, "transition"));
    let target = target.collect::<Result<Vec<NodeId>, _>>()?;
    Transition::from_parts(ring, target, document.apart)
        .map_err(|error| DecodeError::damaged(error.to_string()))
}

fn moving(size: RingSize, document: &MoveDocument) -> Result<(Partition, Move), DecodeError> {
    let partition = partition_of(size, document.partition)?;
    let to = parsed(&document.to, "moves")?;
    let phase = document.phase;
    Ok((partition, Move { to, phase }))
}

fn bucket_type(document: &TypeDocument) -> Result<(BucketType, BucketTypeEntry), DecodeError> {
    let status = match (document.leaving_since, document.active) {
        (Some(since), _) => TypeStatus::Leaving { since },
        (None, true) => TypeStatus::Active,
        (None, false) => TypeStatus::Created,
    };
    let entry = BucketTypeEntry {
        status,
        properties: overlay(&document.properties)?,
    };
    Ok((BucketType::from(name(&document.name)?), entry))
}

/// A partition by its number, for any size of ring. The state refuses a partition that its ring
/// lacks.
pub(crate) fn partition(number: u16) -> Result<Partition, DecodeError> {
    Partition::of_number(number).ok_or_else(|| no_partition(number))
}

fn partition_of(size: RingSize, number: u16) -> Result<Partition, DecodeError> {
    size.partition(number).ok_or_else(|| no_partition(number))
}

fn no_partition(number: u16) -> DecodeError {
    DecodeError::damaged(format!("no partition {number}"))
}

pub(crate) fn overlay(properties: &Map<String, Value>) -> Result<PropertyOverlay, DecodeError> {
    PropertyOverlay::from_json(properties)
        .map_err(|errors| DecodeError::damaged(format!("properties {errors}")))
}

pub(crate) fn name(text: &str) -> Result<Vec<u8>, DecodeError> {
    let not_a_name = || DecodeError::damaged(format!("{text:?} is not the text of a name"));
    name_text::from_text(text).ok_or_else(not_a_name)
}

pub(crate) fn parsed<T: std::str::FromStr>(text: &str, field: &str) -> Result<T, DecodeError> {
    text.parse()
        .map_err(|_| DecodeError::damaged(format!("{field}: {text:?} cannot be read")))
}

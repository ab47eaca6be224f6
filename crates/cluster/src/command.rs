//! The changes that a cluster state can undergo, and the rules that refuse the others.
//!
//! The displayed texts of refusals about buckets and types are those that Riak's clients get, in
//! Riak's spelling.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::{BucketProperties, PropertyOverlay};
use kvorum_reaping::{ListName, RoundName, Watermark};
use kvorum_ring::{Epoch, NodeId, Partition, Ring};

use crate::content::{BucketTypeEntry, Content, Member, MemberStatus, TypeStatus};
use crate::motion::{GrowthStep, MoveStep};
use crate::refusal::Refusal;
use crate::staged_change::StagedChange;
use crate::state::ClusterState;

/// A change to propose.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Names the cluster.
    NameCluster(String),
    /// Replaces the properties of all buckets without type (`buckets.default.*`).
    SetDefaultProperties(PropertyOverlay),
    /// Creates a type; until it is active, replaces its properties.
    CreateType {
        /// The type.
        bucket_type: BucketType,
        /// Over the defaults of typed buckets.
        properties: PropertyOverlay,
    },
    /// Makes a created type usable; nothing happens if it is already. A removal that has not ended is taken
    /// back.
    ActivateType {
        /// The type.
        bucket_type: BucketType,
    },
    /// Sets properties of an active type; the others stay.
    UpdateType {
        /// The type.
        bucket_type: BucketType,
        /// The properties to set.
        properties: PropertyOverlay,
    },
    /// Takes back properties of an active type, all that a reset can or one.
    ResetType {
        /// The type.
        bucket_type: BucketType,
        /// The one property.
        property: Option<String>,
    },
    /// Begins to remove an active type: requests no longer find it, and every partition has a higher epoch, so
    /// that vnodes refuse writes that were planned before. A type that is not active yet is removed at
    /// once. Nothing happens to a type that is being removed.
    BeginTypeRemoval {
        /// The type.
        bucket_type: BucketType,
    },
    /// Removes a type of which no node holds a key.
    FinishTypeRemoval {
        /// The type.
        bucket_type: BucketType,
        /// The version of the state at which the removal began ([`TypeStatus::Leaving`]).
        since: u64,
    },
    /// Sets properties of a bucket; the others stay.
    SetBucketProperties {
        /// The bucket's type.
        bucket_type: BucketType,
        /// The bucket.
        bucket: Bucket,
        /// The properties to set.
        properties: PropertyOverlay,
    },
    /// Takes back all that was set for a bucket; nothing happens where nothing was, or where there
    /// is no such type.
    ResetBucketProperties {
        /// The bucket's type.
        bucket_type: BucketType,
        /// The bucket.
        bucket: Bucket,
    },
    /// Adds a member. It owns nothing until a ring gives it partitions.
    AddMember {
        /// Its identity.
        node: NodeId,
        /// The member without its identity.
        member: Member,
    },
    /// Marks a member as down, or sets its name and address. The latter makes a member that was down a full
    /// member again. The proposer's state may be old: nothing else of `member` counts, and a member that
    /// joins or leaves goes on with that.
    UpdateMember {
        /// Its identity.
        node: NodeId,
        /// The new status, or name and address.
        member: Member,
    },
    /// Removes a member that owns no partition.
    RemoveMember {
        /// Its identity.
        node: NodeId,
    },
    /// Replaces the ring.
    SetRing(Ring),
    /// Stages a change of a member.
    Stage {
        /// The member.
        node: NodeId,
        /// The change.
        change: StagedChange,
    },
    /// Forgets all staged changes, and the members that were to join.
    ClearStaged,
    /// Carries out the plan of this name ([`ClusterState::plan`]).
    CommitPlan {
        /// The plan that the operator has seen.
        id: u32,
    },
    /// Takes a step of a partition's move.
    Move {
        /// The partition.
        partition: Partition,
        /// Its epoch when that was decided.
        at: Epoch,
        /// The step.
        step: MoveStep,
    },
    /// Takes a step of a change of the number of replicas.
    Grow {
        /// The number when that was decided.
        from: u16,
        /// The step.
        step: GrowthStep,
    },
    /// Announces a round of a preference list: no earlier attempt can raise its watermark any more.
    AnnounceRound {
        /// The list.
        list: ListName,
        /// The round.
        round: RoundName,
    },
    /// Raises the watermark of a preference list, if the round was announced last and the epoch is the
    /// present one.
    RaiseWatermark {
        /// The list.
        list: ListName,
        /// The watermark.
        watermark: Watermark,
    },
}

/// The state after `command`. A command that changes nothing gives the same state, version included.
pub fn apply(state: &ClusterState, command: Command) -> Result<ClusterState, Refusal> {
    let mut content = state.content.clone();
    let begins_removal = matches!(command, Command::BeginTypeRemoval { .. });
    content.apply(state, command)?;
    if content == state.content {
        return Ok(state.clone());
    }
    if !begins_removal && content.is_placed_otherwise_than(&state.content) {
        content.take_back_removals();
    }
    content.version += 1;
    let mut after = ClusterState::from_content(content);
    after.note_places_since(state);
    Ok(after)
}

/// The one spelling under which a type is kept.
fn canonical(bucket_type: BucketType) -> BucketType {
    if bucket_type.is_default() {
        BucketType::default_type()
    } else {
        bucket_type
    }
}

impl Content {
    fn apply(&mut self, state: &ClusterState, command: Command) -> Result<(), Refusal> {
        match command {
            Command::NameCluster(name) => self.name_cluster(name),
            Command::SetDefaultProperties(properties) => self.set_default_properties(properties),
            Command::CreateType {
                bucket_type,
                properties,
            } => self.create_type(bucket_type, properties),
            Command::ActivateType { bucket_type } => self.activate_type(bucket_type),
            Command::UpdateType {
                bucket_type,
                properties,
            } => self.update_type(&bucket_type, &properties),
            Command::ResetType {
                bucket_type,
                property,
            } => self.reset_type(&bucket_type, property.as_deref()),
            Command::BeginTypeRemoval { bucket_type } => self.begin_type_removal(&bucket_type),
            Command::FinishTypeRemoval { bucket_type, since } => {
                self.finish_type_removal(bucket_type, since)
            }
            Command::SetBucketProperties {
                bucket_type,
                bucket,
                properties,
            } => {
                state
                    .properties(&bucket_type, &bucket)?
                    .updated_with(&properties)?;
                self.set_bucket(canonical(bucket_type), bucket, &properties)
            }
            Command::ResetBucketProperties {
                bucket_type,
                bucket,
            } => {
                self.reset_bucket(&canonical(bucket_type), &bucket);
                Ok(())
            }
            Command::AddMember { node, member } => self.add_member(node, member),
            Command::UpdateMember { node, member } => self.update_member(node, member),
            Command::RemoveMember { node } => self.remove_member(node),
            Command::SetRing(ring) => self.set_ring(ring),
            Command::Stage { node, change } => self.stage(node, change),
            Command::ClearStaged => {
                self.clear_staged();
                Ok(())
            }
            Command::CommitPlan { id } => self.commit_plan(state, id),
            Command::Move {
                partition,
                at,
                step,
            } => self.move_step(partition, at, step),
            Command::Grow { from, step } => self.growth_step(from, step),
            Command::AnnounceRound { list, round } => Ok(self.announce_round(state, list, round)?),
            Command::RaiseWatermark { list, watermark } => {
                Ok(self.raise_watermark(list, watermark)?)
            }
        }
    }

    fn name_cluster(&mut self, name: String) -> Result<(), Refusal> {
        if name.is_empty() {
            return Err(Refusal::EmptyName);
        }
        self.name = name;
        Ok(())
    }

    fn set_default_properties(&mut self, properties: PropertyOverlay) -> Result<(), Refusal> {
        let resolved = BucketProperties::untyped_defaults().updated_with(&properties)?;
        self.check_buckets(&BucketType::default_type(), &resolved)?;
        self.default_properties = properties;
        Ok(())
    }

    fn create_type(
        &mut self,
        bucket_type: BucketType,
        properties: PropertyOverlay,
    ) -> Result<(), Refusal> {
        if bucket_type.is_default() || bucket_type.as_bytes() == b"any" {
            return Err(Refusal::ReservedTypeName { bucket_type });
        }
        match self.types.get(&bucket_type).map(|entry| entry.status) {
            Some(TypeStatus::Active) => return Err(Refusal::TypeAlreadyActive),
            Some(TypeStatus::Leaving { .. }) => return Err(Refusal::TypeLeaving { bucket_type }),
            Some(TypeStatus::Created) | None => {}
        }
        BucketProperties::typed_defaults().created_with(&properties)?;
        let entry = BucketTypeEntry {
            status: TypeStatus::Created,
            properties,
        };
        self.types.insert(bucket_type, entry);
        Ok(())
    }

    fn activate_type(&mut self, bucket_type: BucketType) -> Result<(), Refusal> {
        match self.types.get_mut(&bucket_type) {
            Some(entry) => entry.status = TypeStatus::Active,
            None if bucket_type.is_default() => {}
            None => return Err(Refusal::NoSuchType { bucket_type }),
        }
        Ok(())
    }

    fn update_type(
        &mut self,
        bucket_type: &BucketType,
        properties: &PropertyOverlay,
    ) -> Result<(), Refusal> {
        let entry = self.active_type(bucket_type)?;
        let existing = BucketProperties::typed_defaults().with(&entry.properties);
        self.check_buckets(bucket_type, &existing.type_updated_with(properties)?)?;
        if let Some(entry) = self.types.get_mut(bucket_type) {
            entry.properties = entry.properties.with(properties);
        }
        Ok(())
    }

    /// A type that can be changed.
    pub(crate) fn active_type(
        &self,
        bucket_type: &BucketType,
    ) -> Result<&BucketTypeEntry, Refusal> {
        if bucket_type.is_default() {
            return Err(Refusal::DefaultType);
        }
        let entry = self.types.get(bucket_type).ok_or(Refusal::TypeUndefined)?;
        if entry.status != TypeStatus::Active {
            return Err(Refusal::TypeNotActive);
        }
        Ok(entry)
    }

    /// Refuses properties of a type that contradict those set for one of its buckets.
    pub(crate) fn check_buckets(
        &self,
        bucket_type: &BucketType,
        of_type: &BucketProperties,
    ) -> Result<(), Refusal> {
        for (bucket, overlay) in self.buckets.get(bucket_type).into_iter().flatten() {
            let contradicts = |errors| Refusal::ContradictsBucket {
                bucket: bucket.clone(),
                errors,
            };
            of_type.updated_with(overlay).map_err(contradicts)?;
        }
        Ok(())
    }

    fn set_bucket(
        &mut self,
        bucket_type: BucketType,
        bucket: Bucket,
        properties: &PropertyOverlay,
    ) -> Result<(), Refusal> {
        if bucket.is_empty() {
            return Err(Refusal::EmptyBucket);
        }
        if properties.is_empty() {
            return Ok(());
        }
        let overlay = self
            .buckets
            .entry(bucket_type)
            .or_default()
            .entry(bucket)
            .or_default();
        *overlay = overlay.with(properties);
        Ok(())
    }

    fn reset_bucket(&mut self, bucket_type: &BucketType, bucket: &Bucket) {
        if let Some(buckets) = self.buckets.get_mut(bucket_type) {
            buckets.remove(bucket);
            if buckets.is_empty() {
                self.buckets.remove(bucket_type);
            }
        }
    }

    fn add_member(&mut self, node: NodeId, member: Member) -> Result<(), Refusal> {
        if self.members.contains_key(&node) {
            return Err(Refusal::AlreadyMember { node });
        }
        self.name_is_free(node, &member.name)?;
        self.members.insert(node, member);
        Ok(())
    }

    fn update_member(&mut self, node: NodeId, said: Member) -> Result<(), Refusal> {
        let name_is_free = self.name_is_free(node, &said.name);
        let known = self.members.get_mut(&node);
        let known = known.ok_or(Refusal::NotMember { node })?;
        let (status, from) = match said.status {
            MemberStatus::Down => (MemberStatus::Down, MemberStatus::Valid),
            _ => {
                name_is_free?;
                known.name = said.name;
                known.addresses = said.addresses;
                (MemberStatus::Valid, MemberStatus::Down)
            }
        };
        if known.status == from {
            known.status = status;
        }
        Ok(())
    }

    fn name_is_free(&self, node: NodeId, name: &str) -> Result<(), Refusal> {
        if name.is_empty() {
            return Err(Refusal::EmptyName);
        }
        let mut others = self.members.iter().filter(|(other, _)| **other != node);
        if others.any(|(_, other)| other.name == name) {
            return Err(Refusal::NameTaken {
                name: name.to_owned(),
            });
        }
        Ok(())
    }

    fn remove_member(&mut self, node: NodeId) -> Result<(), Refusal> {
        if !self.members.contains_key(&node) {
            return Err(Refusal::NotMember { node });
        }
        let partitions = self.ring.owned_by(node).count();
        if partitions > 0 {
            return Err(Refusal::OwnsPartitions { node, partitions });
        }
        self.members.remove(&node);
        Ok(())
    }

    fn set_ring(&mut self, ring: Ring) -> Result<(), Refusal> {
        check_ring(&ring, &self.members)?;
        if ring.size() != self.ring.size() {
            return Err(Refusal::RingSizeChange {
                expected: self.ring.size(),
                got: ring.size(),
            });
        }
        for (partition, owner, epoch) in ring.partitions() {
            let before = self.ring.epoch(partition);
            let stays = self.ring.owner(partition) == owner;
            if epoch < before || (epoch == before && !stays) {
                return Err(Refusal::EpochNotRaised { partition });
            }
        }
        self.ring = Arc::new(ring);
        Ok(())
    }
}

/// Refuses a ring with an owner that is not a member.
pub(crate) fn check_ring(ring: &Ring, members: &BTreeMap<NodeId, Member>) -> Result<(), Refusal> {
    match ring
        .members()
        .iter()
        .find(|owner| !members.contains_key(owner))
    {
        Some(owner) => Err(Refusal::NotMember { node: *owner }),
        None => Ok(()),
    }
}

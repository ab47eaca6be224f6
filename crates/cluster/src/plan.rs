//! The result of staged changes: the future members and ring, and the partitions that move.
//!
//! A plan follows from the state alone, so every member computes the same one. A plan has a name,
//! and a commit names the plan that its operator has seen. If the plan's decisions have changed
//! since, the names differ and nothing is committed. Other changes do not change the name: a member
//! is back or has a new address, or a move that the plan cancels takes a step.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_ring::{Claimant, Detours, NodeId, Partition, Ring, claim};

use crate::content::{Content, Member, MemberStatus};
use crate::staged_change::StagedChange;
use crate::state::ClusterState;

/// The number of consecutive partitions kept on distinct nodes if possible, even if every n_val is
/// smaller: Riak's `target_n_val`.
pub const TARGET_N_VAL: u16 = 4;

/// The result of a commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The plan's name, which the commit repeats.
    pub id: u32,
    /// The members after the commit.
    pub members: BTreeMap<NodeId, Member>,
    /// The owner of each partition after all moves.
    pub target: Ring,
    /// Partitions with their old and new owners.
    pub transfers: Vec<Transfer>,
    /// The partitions whose owner is removed by force. They change owners at once without a
    /// transfer, and have to be repaired.
    pub lost: Vec<Partition>,
    /// Partitions that will have two replicas on one node.
    pub crowded: Vec<Partition>,
}

/// A partition that will move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The partition.
    pub partition: Partition,
    /// The old owner.
    pub from: NodeId,
    /// The new owner.
    pub to: NodeId,
}

/// The reason why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing is staged.
    #[error("There are no staged changes")]
    NothingPlanned,
    /// The last commit is still being carried out.
    #[error("The ring is not ready: {partitions} partitions have still to move")]
    RingNotReady {
        /// The number of partitions that still move.
        partitions: usize,
    },
    /// No member would be left to own partitions.
    #[error("no member would be left")]
    NoNodeLeft,
}

impl Plan {
    /// The name of the plan: a checksum over staged changes, claimants, present and future owners,
    /// and crowded partitions.
    fn name(&self, content: &Content) -> u32 {
        let owners =
            |ring: &Ring| -> Vec<NodeId> { ring.partitions().map(|(_, owner, _)| owner).collect() };
        let claimants: Vec<Claimant> = self.members.iter().filter_map(claimant).collect();
        // Earlier versions refuse a plan while the number of replicas changes. Commits in the log
        // that they refused name no plan of this version. So these commits stay refused when the
        // log is read again.
        let is_growing = content.ring.growth().is_some() && !is_rescue(content);
        let growing = if is_growing { " growing" } else { "" };
        let text = format!(
            "{:?} {claimants:?} {:?} {:?} {:?}{growing}",
            content.staged,
            owners(&content.ring),
            owners(&self.target),
            self.crowded
        );
        kvorum_encoding::checksum(text.as_bytes())
    }
}

impl ClusterState {
    /// The result of a commit now.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        let content = &self.content;
        let is_joining = |member: &Member| member.status == MemberStatus::Joining;
        if content.staged.is_empty() && !content.members.values().any(is_joining) {
            return Err(PlanError::NothingPlanned);
        }
        if let Some(transition) = content.transition.as_ref().filter(|_| !is_rescue(content)) {
            let partitions = transition.due(&content.ring).count();
            return Err(PlanError::RingNotReady { partitions });
        }
        let n = self.spacing();
        let members = members_after(content);
        let target = target(content, &members, n)?;
        let changing = content
            .ring
            .partitions()
            .filter(|(partition, owner, _)| target.owner(*partition) != *owner);
        let (lost, moving): (Vec<_>, Vec<_>) =
            changing.partition(|(_, owner, _)| is_forced(content, *owner));
        let transfers = moving.into_iter().map(|(partition, from, _)| Transfer {
            partition,
            from,
            to: target.owner(partition),
        });
        let mut plan = Plan {
            id: 0,
            transfers: transfers.collect(),
            lost: lost.into_iter().map(|(partition, ..)| partition).collect(),
            crowded: self.crowded_in(&target),
            members,
            target,
        };
        plan.id = plan.name(content);
        Ok(plan)
    }

    /// Partitions with two replicas on one node, even with detours.
    fn crowded_in(&self, target: &Ring) -> Vec<Partition> {
        let n = u16::try_from(self.n_val_max()).unwrap_or(u16::MAX);
        let detours = target.detours_for(n);
        let spread = target.clone().with_detours(detours, Detours::default());
        spread.crowded(n)
    }

    /// The least distance between replicas on one node, and between simultaneous moves: the largest
    /// n_val of any bucket, and at least [`TARGET_N_VAL`].
    pub(crate) fn spacing(&self) -> u16 {
        let largest = u16::try_from(self.n_val_max()).unwrap_or(u16::MAX);
        largest.max(TARGET_N_VAL)
    }
}

/// True when the plan only removes or replaces nodes that are gone for good. Moves under way may
/// wait for such a node, so the plan does not wait for moves.
pub(crate) fn is_rescue(content: &Content) -> bool {
    let staged = &content.staged;
    let replaces = |node| staged.values().any(|it| it.replacement() == Some(node));
    let joins = |(node, member): (&NodeId, &Member)| {
        member.status == MemberStatus::Joining && !replaces(*node)
    };
    !staged.is_empty()
        && staged.values().all(StagedChange::is_forced)
        && !content.members.iter().any(joins)
}

fn is_forced(content: &Content, node: NodeId) -> bool {
    let change = content.staged.get(&node);
    change.is_some_and(StagedChange::is_forced)
}

fn members_after(content: &Content) -> BTreeMap<NodeId, Member> {
    let mut members = content.members.clone();
    for member in members.values_mut() {
        if member.status == MemberStatus::Joining {
            member.status = MemberStatus::Valid;
        }
    }
    for (node, change) in &content.staged {
        if change.is_forced() {
            members.remove(node);
        } else if let Some(member) = members.get_mut(node) {
            match change {
                StagedChange::Location(location) => member.location.clone_from(location),
                StagedChange::Weight(weight) => member.weight = *weight,
                _ => member.status = MemberStatus::Leaving,
            }
        }
    }
    members
}

/// The ring for the future members. A replaced member hands exactly its own partitions to its
/// replacement, unless other changes move them on.
fn target(
    content: &Content,
    members: &BTreeMap<NodeId, Member>,
    n: u16,
) -> Result<Ring, PlanError> {
    let replacement = |owner: NodeId| content.staged.get(&owner)?.replacement();
    let mut owners = Vec::new();
    let mut epochs = Vec::new();
    for (_, owner, epoch) in content.ring.partitions() {
        owners.push(replacement(owner).unwrap_or(owner));
        epochs.push(epoch);
    }
    let size = content.ring.size();
    let replaced = Ring::new(size, owners, epochs).map_err(|_| PlanError::NoNodeLeft)?;
    let only_replaces = |change: &StagedChange| change.replacement().is_some();
    let claimants: Vec<Claimant> = members.iter().filter_map(claimant).collect();
    let claiming: BTreeSet<NodeId> = claimants.iter().map(|claimant| claimant.node).collect();
    let owning: BTreeSet<NodeId> = replaced.members().iter().copied().collect();
    if claiming == owning && content.staged.values().all(only_replaces) {
        return Ok(replaced);
    }
    let claimed = claim(size, &claimants, n, Some(&replaced));
    claimed.map_err(|_| PlanError::NoNodeLeft)
}

/// A member's claim. A member that is marked as down keeps its partitions: it may come back.
fn claimant((node, member): (&NodeId, &Member)) -> Option<Claimant> {
    let claims = matches!(member.status, MemberStatus::Valid | MemberStatus::Down);
    (claims && member.weight > 0).then(|| Claimant {
        node: *node,
        weight: member.weight,
        location: member.location.clone(),
    })
}

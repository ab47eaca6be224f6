//! Changes that wait for a commit, and the rules of staging them.
//!
//! Operators stage changes one by one, review the resulting plan, and commit it. Nothing moves
//! before the commit. A node that joins needs no entry here: it is a member with the status
//! [`MemberStatus::Joining`] until the commit.

use std::collections::BTreeSet;

use kvorum_planted_defects::is_planted;
use kvorum_ring::{Growth, Move, NodeId, Partition, Phase, Ring, Transition};

use crate::content::{Content, GrowthConfirmed, MemberStatus};
use crate::plan::{Plan, is_rescue};
use crate::refusal::{Refusal, StagingRefusal};
use crate::staged_change::StagedChange;
use crate::state::ClusterState;

impl Content {
    pub(crate) fn stage(&mut self, node: NodeId, change: StagedChange) -> Result<(), Refusal> {
        self.check_staged(node, &change)?;
        self.staged.insert(node, change);
        Ok(())
    }

    fn check_staged(&self, node: NodeId, change: &StagedChange) -> Result<(), StagingRefusal> {
        let member = self.members.get(&node).ok_or(StagingRefusal::NotMember)?;
        if change == &StagedChange::Weight(0) {
            return Err(StagingRefusal::NoWeight);
        }
        if !change.is_departure() {
            return Ok(());
        }
        let leaves = matches!(member.status, MemberStatus::Leaving | MemberStatus::Exiting);
        // A leaving member may fail for good before it has left.
        if leaves && *change != StagedChange::ForceRemove {
            return Err(StagingRefusal::AlreadyLeaving);
        }
        if let Some(by) = change.replacement() {
            return self.check_replacement(node, by);
        }
        let departing = self
            .staged
            .iter()
            .filter(|(_, change)| change.is_departure());
        let departing: BTreeSet<NodeId> = departing.map(|(node, _)| *node).chain([node]).collect();
        let stays = |(other, member): (&NodeId, &crate::content::Member)| {
            !departing.contains(other)
                && matches!(member.status, MemberStatus::Valid | MemberStatus::Joining)
        };
        if self.members.iter().any(stays) {
            Ok(())
        } else {
            Err(StagingRefusal::OnlyMember)
        }
    }

    fn check_replacement(&self, node: NodeId, by: NodeId) -> Result<(), StagingRefusal> {
        let joins = self
            .members
            .get(&by)
            .is_some_and(|it| it.status == MemberStatus::Joining);
        if !joins || by == node || self.ring.owned_by(by).next().is_some() {
            return Err(StagingRefusal::InvalidReplacement);
        }
        let mut others = self.staged.iter().filter(|(other, _)| **other != node);
        if others.any(|(_, change)| change.replacement() == Some(by)) {
            return Err(StagingRefusal::AlreadyReplacement);
        }
        Ok(())
    }

    /// Drops all staged changes; a joining node is no longer a member.
    pub(crate) fn clear_staged(&mut self) {
        self.staged.clear();
        self.members
            .retain(|_, member| member.status != MemberStatus::Joining);
    }

    /// Carries out the plan that the operator has seen.
    pub(crate) fn commit_plan(&mut self, state: &ClusterState, id: u32) -> Result<(), Refusal> {
        let plan = state.plan().map_err(StagingRefusal::NoPlan)?;
        if plan.id != id && !is_planted!(PlanNotCompared) {
            return Err(StagingRefusal::PlanChanged.into());
        }
        let mut ring = (*self.ring).clone();
        self.call_off(&mut ring, &plan)?;
        for partition in &plan.lost {
            if !plan.members.contains_key(&ring.owner(*partition)) {
                ring.seize(*partition, plan.target.owner(*partition));
            }
        }
        self.growth_without_the_lost(&mut ring)?;
        let transition = Transition::new(&ring, &plan.target, state.spacing())?;
        self.transition = (!transition.is_done(&ring)).then_some(transition);
        self.ring = std::sync::Arc::new(ring);
        self.members = plan.members;
        self.staged.clear();
        self.see_off();
        Ok(())
    }

    /// Ends changes under way that would wait for a removed node, or that the plan would undo.
    ///
    /// A move to a removed node goes back to its source, even from its last phase: until it
    /// settles, writes also need their quorums in the old list, so the source lacks nothing. A
    /// closing move from a removed node settles: the receiver has everything, and every node
    /// refuses the source.
    fn call_off(&self, ring: &mut Ring, plan: &Plan) -> Result<(), Refusal> {
        let is_gone = |node: NodeId| !plan.members.contains_key(&node);
        let moves: Vec<(Partition, Move)> = ring.moves().iter().map(|(p, it)| (*p, *it)).collect();
        for (partition, moving) in moves {
            let source = ring.owner(partition);
            if is_gone(moving.to) {
                ring.seize(partition, source);
            } else if is_gone(source) && moving.phase == Phase::Closing {
                ring.settle_move(partition)?;
            }
        }
        // A change of the number of replicas starts again when a node is removed. The plan does not
        // wait for a change to fewer replicas: it may need the present number. All other changes
        // end before anything moves.
        let is_off = |growth: &Growth| {
            let is_fewer = growth.to < ring.replicas_max();
            growth.phase == Phase::Filling && (is_fewer || is_rescue(self))
        };
        if ring.growth().as_ref().is_some_and(is_off) {
            ring.abandon_growth()?;
        }
        Ok(())
    }

    /// Settles a closing change of the number of replicas once all remaining owners have confirmed it.
    fn growth_without_the_lost(&mut self, ring: &mut Ring) -> Result<(), Refusal> {
        let known = &self.growth_confirmed.known;
        if ring.growth().is_none() {
            self.growth_confirmed = GrowthConfirmed::default();
        } else if ring.members().iter().all(|owner| known.contains(owner)) {
            ring.settle_growth()?;
            self.growth_confirmed = GrowthConfirmed::default();
        }
        Ok(())
    }

    /// Marks a leaving member that owns and receives nothing as exiting.
    pub(crate) fn see_off(&mut self) {
        let ring = &self.ring;
        for (node, member) in &mut self.members {
            let owns = ring.owned_by(*node).next().is_some();
            let receives = ring.moves().values().any(|moving| moving.to == *node);
            if member.status == MemberStatus::Leaving && !owns && !receives {
                member.status = MemberStatus::Exiting;
            }
        }
    }
}

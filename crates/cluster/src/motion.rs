//! The steps by which a committed plan is carried out, as commands of the log.
//!
//! Each names the epoch at which it was decided: a confirmation that comes twice, or late, changes
//! nothing. What is to be done next ([`ClusterState::next_moves`], [`ClusterState::next_growth`])
//! follows from the state; somebody who leads proposes it.

use std::sync::Arc;

use kvorum_ring::{Epoch, MoveError, NodeId, Partition};

use crate::command::Refusal;
use crate::state::{ClusterState, Content, MemberStatus};

/// A step of one partition's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// It begins to fill at its target.
    Begin,
    /// Its target has everything.
    Close,
    /// Its source knows that it closes.
    Settle,
    /// It stays where it is.
    Abandon,
}

/// A step of a change of the number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthStep {
    /// It begins to change to this number.
    Begin(u16),
    /// Every new replica has everything.
    Close,
    /// Every node knows that it closes.
    Settle,
    /// It stays as it is.
    Abandon,
}

impl Content {
    /// Takes a step if the partition is still at the epoch at which it was decided.
    pub(crate) fn move_step(
        &mut self,
        partition: Partition,
        at: Epoch,
        step: MoveStep,
    ) -> Result<(), Refusal> {
        if self.ring.epoch(partition) != at {
            let expected = self.ring.epoch(partition);
            return Err(Refusal::OtherEpoch { expected, got: at });
        }
        let mut ring = (*self.ring).clone();
        match step {
            MoveStep::Begin => {
                let transition = self.transition.as_ref();
                let transition = transition.ok_or(MoveError::NotDue { partition })?;
                if let Some(moving) = transition.obstacle(&ring, partition) {
                    return Err(Refusal::TooClose { partition, moving });
                }
                ring.begin_move(partition, transition.target(partition))?;
            }
            MoveStep::Close => drop(ring.close_move(partition)?),
            MoveStep::Settle => drop(ring.settle_move(partition)?),
            MoveStep::Abandon => drop(ring.abandon_move(partition)?),
        }
        if self.transition.as_ref().is_some_and(|it| it.is_done(&ring)) {
            self.transition = None;
        }
        self.ring = Arc::new(ring);
        self.see_off();
        Ok(())
    }

    /// Takes a step if the number of replicas is still as it was decided.
    pub(crate) fn growth_step(&mut self, from: u16, step: GrowthStep) -> Result<(), Refusal> {
        if self.ring.replicas_max() != from || self.transition.is_some() {
            return Err(MoveError::OtherGrowth.into());
        }
        let mut ring = (*self.ring).clone();
        match step {
            GrowthStep::Begin(to) => ring.begin_growth(to)?,
            GrowthStep::Close => ring.close_growth()?,
            GrowthStep::Settle => ring.settle_growth()?,
            GrowthStep::Abandon => ring.abandon_growth()?,
        }
        self.ring = Arc::new(ring);
        Ok(())
    }
}

impl ClusterState {
    /// The moves that may begin now, with the epochs to name; at most `count` under way at once.
    pub fn next_moves(&self, count: usize) -> Vec<(Partition, Epoch)> {
        let ring = self.ring();
        let Some(transition) = self.transition() else {
            return Vec::new();
        };
        let room = count.saturating_sub(ring.moves().len());
        let startable = transition.startable(ring, room).into_iter();
        startable
            .map(|partition| (partition, ring.epoch(partition)))
            .collect()
    }

    /// The number of replicas to change to now, by one from the present: as many as there are members
    /// that own partitions, and as the buckets want. Only when nothing else moves.
    pub fn next_growth(&self) -> Option<u16> {
        let ring = self.ring();
        if self.transition().is_some() || ring.growth().is_some() || !ring.moves().is_empty() {
            return None;
        }
        let owners = u16::try_from(ring.members().len()).unwrap_or(u16::MAX);
        let largest = u16::try_from(self.n_val_max()).unwrap_or(u16::MAX);
        let wanted = owners.min(largest.max(1));
        let present = ring.replicas_max();
        match wanted.cmp(&present) {
            std::cmp::Ordering::Greater => Some(present + 1),
            // A smaller n_val needs no step: lists are cut by it. Fewer owners do.
            std::cmp::Ordering::Less if owners < present => Some(present - 1),
            _ => None,
        }
    }

    /// Members that have handed over everything and may be removed.
    pub fn exited(&self) -> impl Iterator<Item = NodeId> + '_ {
        let exiting = |member: &crate::state::Member| member.status == MemberStatus::Exiting;
        let members = self.members().iter();
        members
            .filter(move |(_, member)| exiting(member))
            .map(|(node, _)| *node)
    }
}

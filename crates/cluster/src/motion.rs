//! The steps that carry out a committed plan, as commands of the log.
//!
//! Each step names the epoch at which it was decided, so a repeated or late confirmation changes
//! nothing. The next step ([`ClusterState::next_moves`], [`ClusterState::next_growth`]) follows
//! from the state; the leader proposes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvorum_planted_defects::is_planted;
use kvorum_ring::{Epoch, MoveError, NodeId, Partition, Phase, Ring};

use crate::content::{Content, GrowthConfirmed, MemberStatus};
use crate::refusal::Refusal;
use crate::state::ClusterState;

/// A step of one partition's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// The partition begins to fill at its target.
    Begin,
    /// The target has all data, so the move begins to close.
    Close,
    /// The source has confirmed the closing, so the move is done.
    Settle,
    /// The partition stays where it is.
    Abandon,
}

/// A step of a change of the number of replicas, or of the detours of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowthStep {
    /// Begins the change to this number of replicas. With the present number, begins a change of
    /// the detours.
    Begin(u16),
    /// Every new replica has all data, so the change begins to close.
    Close,
    /// Every node has confirmed the closing, so the change is done.
    Settle,
    /// The change is given up.
    Abandon,
    /// One vnode has all keys of the new lists. When all vnodes have theirs, reads ask the new
    /// lists.
    Filled {
        /// The vnode.
        partition: Partition,
        /// Its epoch when it began to fill.
        at: Epoch,
    },
    /// A node has stored that reads no longer ask the old lists. When all owners of partitions
    /// have, only the new lists count.
    Known {
        /// The node.
        node: NodeId,
        /// The epoch of partition 0 in the node's state: it rises with every step.
        at: Epoch,
    },
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

    /// Takes a step if the number of replicas is still the one at which the step was decided.
    pub(crate) fn growth_step(&mut self, from: u16, step: GrowthStep) -> Result<(), Refusal> {
        let begins = matches!(step, GrowthStep::Begin(_));
        if self.ring.replicas_max() != from || (begins && self.transition.is_some()) {
            return Err(MoveError::OtherGrowth.into());
        }
        let mut ring = (*self.ring).clone();
        match step {
            GrowthStep::Begin(to) => ring.begin_growth(to)?,
            GrowthStep::Close => ring.close_growth()?,
            GrowthStep::Settle => ring.settle_growth()?,
            GrowthStep::Abandon => ring.abandon_growth()?,
            GrowthStep::Filled { partition, at } => {
                if !self.confirm_filled(&ring, partition, at)? {
                    return Ok(());
                }
                ring.close_growth()?;
            }
            GrowthStep::Known { node, at } => {
                if !self.confirm_known(&ring, node, at)? {
                    return Ok(());
                }
                ring.settle_growth()?;
            }
        }
        self.growth_confirmed = GrowthConfirmed::default();
        self.ring = Arc::new(ring);
        Ok(())
    }

    /// True when this was the last missing vnode.
    fn confirm_filled(
        &mut self,
        ring: &Ring,
        partition: Partition,
        at: Epoch,
    ) -> Result<bool, Refusal> {
        check_growth(ring, Phase::Filling, partition, at)?;
        self.growth_confirmed.filled.insert(partition);
        let filled = &self.growth_confirmed.filled;
        if is_planted!(GrowthClosedEarly) {
            return Ok(true);
        }
        Ok(ring.size().partitions().all(|it| filled.contains(&it)))
    }

    /// True when this was the last missing node.
    fn confirm_known(&mut self, ring: &Ring, node: NodeId, at: Epoch) -> Result<bool, Refusal> {
        for first in ring.size().partitions().take(1) {
            check_growth(ring, Phase::Closing, first, at)?;
        }
        if !self.members.contains_key(&node) {
            return Err(Refusal::NotMember { node });
        }
        self.growth_confirmed.known.insert(node);
        let known = &self.growth_confirmed.known;
        Ok(ring.members().iter().all(|owner| known.contains(owner)))
    }
}

/// Refuses a confirmation of another phase, or of an earlier change.
fn check_growth(ring: &Ring, phase: Phase, partition: Partition, at: Epoch) -> Result<(), Refusal> {
    if ring.growth().is_none_or(|growth| growth.phase != phase)
        || partition.number() >= ring.size().get()
    {
        return Err(MoveError::OtherGrowth.into());
    }
    let expected = ring.epoch(partition);
    if expected != at {
        return Err(Refusal::OtherEpoch { expected, got: at });
    }
    Ok(())
}

impl ClusterState {
    /// The moves that may begin now, with the epochs that their steps name; at most `count` are
    /// under way at once. No move begins while the number of replicas changes.
    pub fn next_moves(&self, count: usize) -> Vec<(Partition, Epoch)> {
        let ring = self.ring();
        let transition = self.transition().filter(|_| ring.growth().is_none());
        let Some(transition) = transition else {
            return Vec::new();
        };
        let room = count.saturating_sub(ring.moves().len());
        let startable = transition.startable(ring, room).into_iter();
        startable
            .map(|partition| (partition, ring.epoch(partition)))
            .collect()
    }

    /// The next number of replicas, one step from the present number. The goal is the number of
    /// partition owners, or the number that buckets require if this is smaller. The present number
    /// means that lists need other detours. `None` while anything moves.
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
            // Fewer owners need a step. A smaller n_val needs none: it cuts the lists.
            std::cmp::Ordering::Less if owners < present => Some(present - 1),
            _ => (ring.detours_for(present) != *ring.detours()).then_some(present),
        }
    }

    /// The vnodes that have received their new keys, while the number of replicas changes.
    pub fn growth_filled(&self) -> &BTreeSet<Partition> {
        &self.content.growth_confirmed.filled
    }

    /// The nodes that have confirmed the close, while a change of the number of replicas closes.
    pub fn growth_known(&self) -> &BTreeSet<NodeId> {
        &self.content.growth_confirmed.known
    }

    /// Members that have handed over everything and may be removed.
    pub fn exited(&self) -> impl Iterator<Item = NodeId> + '_ {
        let exiting = |member: &crate::content::Member| member.status == MemberStatus::Exiting;
        let members = self.members().iter();
        members
            .filter(move |(_, member)| exiting(member))
            .map(|(node, _)| *node)
    }
}

//! A ring on its way to another: which partitions may move now, and each one's way through its phases.
//!
//! Pure bookkeeping for the agreed log: every step is a command there, and every member that applies
//! the same commands has the same transition. Who is told, who transfers and when the gates are
//! passed is decided elsewhere.
//!
//! What holds in every state:
//! - no two partitions move whose places could stand in one preference list, so that any list differs
//!   from the one before it in one replica at most;
//! - each step of a partition raises its epoch by one;
//! - a partition that moves is owned by its source until it settles.

use std::collections::BTreeMap;

use crate::node_id::NodeId;
use crate::partition::{Partition, RingSize};
use crate::phase::Phase;
use crate::ring::{Epoch, Ring};

/// A partition that is moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Who owns it until it settles.
    pub from: NodeId,
    /// Who will own it.
    pub to: NodeId,
    /// How far it has come.
    pub phase: Phase,
}

/// A ring, the ring that it is to become, and the moves in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    ring: Ring,
    target: Box<[NodeId]>,
    moves: BTreeMap<Partition, Move>,
    /// Partitions fewer than this many steps apart do not move together.
    apart: u16,
}

/// Why a step of a transition is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// The two rings have different sizes.
    #[error("ring of {got} partitions cannot become one of {expected}")]
    SizeChange {
        /// The present ring's size.
        expected: RingSize,
        /// The other ring's size.
        got: RingSize,
    },
    /// The partition is where it belongs.
    #[error("partition {} is where it belongs", partition.number())]
    NotDue {
        /// The partition.
        partition: Partition,
    },
    /// Another partition moves that could be in one preference list with this one.
    #[error("partition {} cannot move while partition {} does", partition.number(), moving.number())]
    TooClose {
        /// The partition that was to move.
        partition: Partition,
        /// The one that moves.
        moving: Partition,
    },
    /// The partition does not move, or is in another phase than the step needs.
    #[error("partition {} is not in the phase that this step ends", partition.number())]
    OtherPhase {
        /// The partition.
        partition: Partition,
    },
}

impl Transition {
    /// From `ring` to the owners of `target`, for preference lists of up to `n_max` replicas.
    pub fn new(ring: Ring, target: &Ring, n_max: u16) -> Result<Self, TransitionError> {
        if target.size() != ring.size() {
            return Err(TransitionError::SizeChange {
                expected: ring.size(),
                got: target.size(),
            });
        }
        let owners = target.partitions().map(|(_, owner, _)| owner);
        Ok(Self {
            target: owners.collect(),
            moves: BTreeMap::new(),
            apart: n_max.clamp(1, ring.size().get()),
            ring,
        })
    }

    /// The ring as it is: a partition that moves is still its source's.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The moves in progress.
    pub fn moves(&self) -> &BTreeMap<Partition, Move> {
        &self.moves
    }

    /// The partitions that are not where they belong, those that move included.
    pub fn due(&self) -> impl Iterator<Item = Partition> + '_ {
        let owners = self.ring.partitions().zip(&self.target);
        owners
            .filter(|((_, owner, _), target)| owner != *target)
            .map(|((partition, ..), _)| partition)
    }

    /// True when nothing is left to move.
    pub fn is_done(&self) -> bool {
        self.due().next().is_none()
    }

    /// Partitions that may begin to move now, together with each other and with those that already
    /// do; at most `count`. Those come first that leave the fewest replicas on one node, so that on
    /// the way no list is more crowded than it must be.
    pub fn startable(&self, count: usize) -> Vec<Partition> {
        let mut imagined = self.clone();
        let mut chosen = Vec::new();
        while chosen.len() < count {
            let open = imagined
                .due()
                .filter(|partition| imagined.obstacle(*partition).is_none());
            let best =
                open.min_by_key(|partition| (imagined.crowding_after(*partition), *partition));
            let Some(partition) = best else { break };
            imagined.enter(partition, Phase::Filling);
            chosen.push(partition);
        }
        chosen
    }

    /// The partition begins to fill at its target.
    pub fn begin(&mut self, partition: Partition) -> Result<Epoch, TransitionError> {
        if self.ring.owner(partition) == self.target_of(partition) {
            return Err(TransitionError::NotDue { partition });
        }
        if let Some(moving) = self.obstacle(partition) {
            return Err(TransitionError::TooClose { partition, moving });
        }
        Ok(self.enter(partition, Phase::Filling))
    }

    /// The target has stored what the source had: the partition closes.
    pub fn close(&mut self, partition: Partition) -> Result<Epoch, TransitionError> {
        self.leave(partition, Phase::Filling)?;
        Ok(self.enter(partition, Phase::Closing))
    }

    /// The source knows that the partition closes: it is the target's now.
    pub fn settle(&mut self, partition: Partition) -> Result<Epoch, TransitionError> {
        self.leave(partition, Phase::Closing)?;
        self.moves.remove(&partition);
        Ok(self.ring.pass_on(partition, self.target_of(partition)))
    }

    /// The partition stays where it is. Possible while it fills: later, reads no longer ask its
    /// source, and there is nothing left to fail but the last step.
    pub fn abandon(&mut self, partition: Partition) -> Result<Epoch, TransitionError> {
        self.leave(partition, Phase::Filling)?;
        self.moves.remove(&partition);
        let owner = self.ring.owner(partition);
        self.target[partition.slot()] = owner;
        Ok(self.ring.pass_on(partition, owner))
    }

    fn target_of(&self, partition: Partition) -> NodeId {
        self.target[partition.slot()]
    }

    fn enter(&mut self, partition: Partition, phase: Phase) -> Epoch {
        let from = self.ring.owner(partition);
        let to = self.target_of(partition);
        self.moves.insert(partition, Move { from, to, phase });
        self.ring.pass_on(partition, from)
    }

    fn leave(&self, partition: Partition, phase: Phase) -> Result<(), TransitionError> {
        match self.moves.get(&partition) {
            Some(moving) if moving.phase == phase => Ok(()),
            _ => Err(TransitionError::OtherPhase { partition }),
        }
    }

    /// A partition in motion, itself included, that is too close for this one to move as well.
    fn obstacle(&self, partition: Partition) -> Option<Partition> {
        let size = self.ring.size();
        let is_close = |moving: &&Partition| {
            let apart = size
                .distance(partition, **moving)
                .min(size.distance(**moving, partition));
            apart < self.apart
        };
        self.moves.keys().find(is_close).copied()
    }

    /// How many neighbours within one preference list are on the target's node once all moves in
    /// progress and this one have settled, less those on the present owner's.
    fn crowding_after(&self, partition: Partition) -> i32 {
        let size = self.ring.size();
        let neighbours = (1..self.apart)
            .flat_map(|steps| [size.after(partition, steps), size.before(partition, steps)]);
        let (from, to) = (self.ring.owner(partition), self.target_of(partition));
        let change = neighbours.map(|neighbour| {
            let settled = self.moves.get(&neighbour).map(|moving| moving.to);
            let owner = settled.unwrap_or_else(|| self.ring.owner(neighbour));
            i32::from(owner == to) - i32::from(owner == from)
        });
        change.sum()
    }
}

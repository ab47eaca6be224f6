//! The move of one partition: its steps in the agreed log, and the node that reads ask meanwhile.
//!
//! Every step raises the partition's epoch by one. Until a move settles, the source owns the
//! partition, and the receiver serves beside it.

use std::collections::BTreeMap;

use crate::motion::Move;
use crate::node_id::NodeId;
use crate::partition::{Partition, RingSize};
use crate::phase::{List, Phase};
use crate::ring::{Epoch, Ring};

/// The reason why a step is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The partition is at this owner already.
    #[error("partition {} is already at its destination", partition.number())]
    NotDue {
        /// The partition.
        partition: Partition,
    },
    /// The partition moves already, does not move, or is not in the phase that the step ends.
    #[error("partition {} is not in the phase that this step ends", partition.number())]
    OtherPhase {
        /// The partition.
        partition: Partition,
    },
    /// The number of replicas is changing; no partition moves meanwhile.
    #[error("the number of replicas is changing")]
    Growing,
    /// Partitions are moving; the number of replicas stays meanwhile.
    #[error("{partitions} partitions are moving")]
    Moving {
        /// The number of moving partitions.
        partitions: usize,
    },
    /// The number of replicas is not changing, is not in the phase that this step ends, or has the new
    /// value already.
    #[error("the number of replicas is not in the phase that this step ends")]
    OtherGrowth,
    /// The two rings have different sizes.
    #[error("ring of {got} partitions cannot become one of {expected}")]
    SizeChange {
        /// The present ring's size.
        expected: RingSize,
        /// The other ring's size.
        got: RingSize,
    },
}

impl Ring {
    /// The partitions that move.
    pub fn moves(&self) -> &BTreeMap<Partition, Move> {
        &self.moves
    }

    /// The partition begins to fill at `to`.
    pub fn begin_move(&mut self, partition: Partition, to: NodeId) -> Result<Epoch, MoveError> {
        if self.growth.is_some() {
            return Err(MoveError::Growing);
        }
        if self.moves.contains_key(&partition) {
            return Err(MoveError::OtherPhase { partition });
        }
        if self.owner(partition) == to {
            return Err(MoveError::NotDue { partition });
        }
        let phase = Phase::Filling;
        self.moves.insert(partition, Move { to, phase });
        Ok(self.pass_on(partition, self.owner(partition)))
    }

    /// The receiver has stored the source's keys: the partition closes.
    pub fn close_move(&mut self, partition: Partition) -> Result<Epoch, MoveError> {
        let moving = self.in_phase(partition, Phase::Filling)?;
        let phase = Phase::Closing;
        self.moves.insert(partition, Move { phase, ..moving });
        Ok(self.pass_on(partition, self.owner(partition)))
    }

    /// The source has confirmed the closing: the receiver owns the partition now.
    pub fn settle_move(&mut self, partition: Partition) -> Result<Epoch, MoveError> {
        let moving = self.in_phase(partition, Phase::Closing)?;
        self.moves.remove(&partition);
        Ok(self.pass_on(partition, moving.to))
    }

    /// Cancels the move. Possible while the partition fills; afterwards reads no longer ask the
    /// source, and only the last step is left.
    pub fn abandon_move(&mut self, partition: Partition) -> Result<Epoch, MoveError> {
        self.in_phase(partition, Phase::Filling)?;
        self.moves.remove(&partition);
        Ok(self.pass_on(partition, self.owner(partition)))
    }

    /// Gives a partition at once to another owner, which has no data of it, because the present
    /// owner is gone for good. Drops the partition's move.
    pub fn seize(&mut self, partition: Partition, owner: NodeId) -> Epoch {
        self.moves.remove(&partition);
        self.pass_on(partition, owner)
    }

    /// The node that answers reads of a partition.
    pub fn reader(&self, partition: Partition) -> NodeId {
        match self.moves.get(&partition) {
            Some(moving) if moving.phase.read_list() == List::New => moving.to,
            _ => self.owner(partition),
        }
    }

    fn in_phase(&self, partition: Partition, phase: Phase) -> Result<Move, MoveError> {
        let moving = self.moves.get(&partition).copied();
        let moving = moving.filter(|moving| moving.phase == phase);
        moving.ok_or(MoveError::OtherPhase { partition })
    }
}

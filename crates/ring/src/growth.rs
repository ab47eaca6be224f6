//! The number of replicas, and its change.
//!
//! A cluster that grows from one node to three has one replica of each key until the other replicas
//! are filled. The number is agreed, and changes in the same steps as a partition's owner, for all
//! partitions at once. The old list of a key has the old number of replicas, the new list the new
//! one.
//!
//! The same steps change the detours of lists, at a constant number.

use crate::detour::Detours;
use crate::motion::Growth;
use crate::moving::MoveError;
use crate::phase::{List, Phase};
use crate::ring::Ring;

impl Ring {
    /// The agreed maximum number of replicas of a key: the new number once a change has settled.
    pub fn replicas_max(&self) -> u16 {
        self.replicas_max
    }

    /// The change in progress.
    pub fn growth(&self) -> Option<Growth> {
        self.growth
    }

    /// The same ring with another number of replicas; for a ring that is being built, not for one
    /// in use.
    #[must_use]
    pub fn with_replicas_max(mut self, replicas_max: u16) -> Self {
        self.replicas_max = replicas_max.max(1);
        self
    }

    /// Begins to change the number of replicas by one. Writes go to the longer list from now on.
    ///
    /// With the present number, begins to change the detours instead, for this many replicas on
    /// distinct nodes.
    pub fn begin_growth(&mut self, to: u16) -> Result<(), MoveError> {
        if !self.moves.is_empty() {
            let partitions = self.moves.len();
            return Err(MoveError::Moving { partitions });
        }
        if self.growth.is_some() {
            return Err(MoveError::Growing);
        }
        let mut next = self.detours.clone();
        if to == self.replicas_max {
            next = self.detours_for(to);
        }
        let changes_lists = to.abs_diff(self.replicas_max) == 1 || next != self.detours;
        if !changes_lists || to == 0 {
            return Err(MoveError::OtherGrowth);
        }
        self.next_detours = next;
        let phase = Phase::Filling;
        self.change_growth(Some(Growth { to, phase }));
        Ok(())
    }

    /// Every replica of the new lists has all keys of its range: reads ask them.
    pub fn close_growth(&mut self) -> Result<(), MoveError> {
        let growth = self.growth_in(Phase::Filling)?;
        let phase = Phase::Closing;
        self.change_growth(Some(Growth { phase, ..growth }));
        Ok(())
    }

    /// Every node has confirmed the closing: only the new lists count.
    pub fn settle_growth(&mut self) -> Result<(), MoveError> {
        let growth = self.growth_in(Phase::Closing)?;
        self.replicas_max = growth.to;
        self.detours = std::mem::take(&mut self.next_detours);
        self.change_growth(None);
        Ok(())
    }

    /// Keeps the present number. Possible while the new replicas fill.
    pub fn abandon_growth(&mut self) -> Result<(), MoveError> {
        self.growth_in(Phase::Filling)?;
        self.next_detours = Detours::default();
        self.change_growth(None);
        Ok(())
    }

    fn growth_in(&self, phase: Phase) -> Result<Growth, MoveError> {
        let growth = self.growth.filter(|growth| growth.phase == phase);
        growth.ok_or(MoveError::OtherGrowth)
    }

    fn change_growth(&mut self, growth: Option<Growth>) {
        self.growth = growth;
        self.raise_epochs();
    }

    /// The number of replicas that reads count on.
    pub(crate) fn read_replicas_max(&self) -> u16 {
        match self.growth {
            Some(growth) if growth.phase.read_list() == List::New => growth.to,
            _ => self.replicas_max,
        }
    }
}

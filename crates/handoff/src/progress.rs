//! The progress of a transfer, leg by leg.

use kvorum_encoding::StorageKey;
use kvorum_ring::Partition;

use crate::transfer_id::Leg;

/// The confirmed part of each leg: stored, read back, and durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) legs: Vec<LegProgress>,
}

/// The confirmed part of one leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegProgress {
    /// The vnode that is asked.
    pub(crate) source: Partition,
    /// The last key up to which everything is here.
    pub(crate) through: Option<StorageKey>,
    /// Everything is here.
    pub(crate) is_done: bool,
}

impl Progress {
    /// Nothing yet.
    pub(crate) fn none(legs: &[Leg]) -> Self {
        let none = |leg: &Leg| LegProgress {
            source: leg.source,
            through: None,
            is_done: false,
        };
        Self {
            legs: legs.iter().map(none).collect(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.legs.iter().all(|leg| leg.is_done)
    }

    /// The leg to go on with, from `from` on around.
    pub(crate) fn next_leg(&self, from: usize) -> Option<usize> {
        let count = self.legs.len();
        let around = (0..count).map(|step| (from + step) % count.max(1));
        around.into_iter().find(|at| !self.legs[*at].is_done)
    }
}

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
    /// The source vnode.
    pub(crate) source: Partition,
    /// The last key of the confirmed part.
    pub(crate) through: Option<StorageKey>,
    /// The whole leg is here.
    pub(crate) is_done: bool,
}

impl Progress {
    /// The progress of a transfer that has not begun.
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

    /// The next leg that is not done, searched from `from` around.
    pub(crate) fn next_leg(&self, from: usize) -> Option<usize> {
        let count = self.legs.len();
        let around = (0..count).map(|step| (from + step) % count.max(1));
        around.into_iter().find(|at| !self.legs[*at].is_done)
    }
}

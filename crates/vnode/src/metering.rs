//! Figures of a vnode's work that are more than counts: the time of some of its operations, and merges.
//!
//! A clock is read twice around an operation, which is much beside a read that memory answers. So one
//! in [`SAMPLED_EVERY`] is measured, by the vnode's own counts; they are enough for percentiles.

use std::sync::Arc;
use std::time::Duration;

use kvorum_runtime::{Clock, Moment};

use crate::replica_request::{Detail, Operation};

/// Of so many operations, one is measured.
pub const SAMPLED_EVERY: u64 = 8;

/// What a measured operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VnodeWork {
    /// A read of a whole object.
    Get,
    /// A read of a head.
    Head,
    /// A write, or the merge of another replica's object.
    Put,
    /// The merge of two objects of which neither has seen the other, within a write.
    Merge,
}

/// Where a vnode's times go.
pub trait VnodeMeter: Send + Sync {
    /// Work was done in this time.
    fn worked(&self, work: VnodeWork, took: Duration, now: Moment);
}

/// Measures.
pub(crate) struct Stopwatch {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) meter: Arc<dyn VnodeMeter>,
}

impl Stopwatch {
    /// Reports work that began then.
    pub(crate) fn stop(&self, work: VnodeWork, began: Moment) {
        let now = self.clock.now();
        self.meter.worked(work, now.since(began), now);
    }
}

/// What an operation is measured as; none for what clients do not cause.
pub(crate) fn work_of(operation: &Operation) -> Option<VnodeWork> {
    match operation {
        Operation::Get { detail, .. } => Some(match detail {
            Detail::Whole => VnodeWork::Get,
            Detail::Head => VnodeWork::Head,
        }),
        Operation::Coordinate { .. } | Operation::Store { .. } => Some(VnodeWork::Put),
        Operation::Mend { .. } | Operation::Reap { .. } => None,
    }
}

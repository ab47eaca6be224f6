//! Times of a vnode's work, besides its counts: of some of its operations, and of merges.
//!
//! A clock is read twice around an operation, which is expensive beside a read from memory. So one in
//! [`SAMPLED_EVERY`] is measured, by the vnode's own counts; they are enough for percentiles.

use std::sync::Arc;
use std::time::Duration;

use kvorum_runtime::{Clock, Moment};

use crate::replica_request::{Detail, Operation};

/// One operation in this number is measured.
pub const SAMPLED_EVERY: u64 = 8;

/// The kind of a measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VnodeWork {
    /// A read of a whole object.
    Get,
    /// A read of a head.
    Head,
    /// A write, or the merge of another replica's object.
    Put,
    /// The merge of two objects that have not seen each other, within a write.
    Merge,
}

/// Receives the times of a vnode's work.
pub trait VnodeMeter: Send + Sync {
    /// Work was done in this time.
    fn worked(&self, work: VnodeWork, took: Duration, now: Moment);
}

/// Measures times and reports them.
pub(crate) struct Stopwatch {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) meter: Arc<dyn VnodeMeter>,
}

impl Stopwatch {
    /// Reports work that began at this moment.
    pub(crate) fn stop(&self, work: VnodeWork, began: Moment) {
        let now = self.clock.now();
        self.meter.worked(work, now.since(began), now);
    }
}

/// The kind of an operation; `None` for operations that clients do not cause.
pub(crate) fn work_of(operation: &Operation) -> Option<VnodeWork> {
    match operation {
        Operation::Get { detail, .. } => Some(match detail {
            Detail::Whole => VnodeWork::Get,
            Detail::Head => VnodeWork::Head,
        }),
        Operation::Coordinate { .. } | Operation::Apply { .. } | Operation::Store { .. } => {
            Some(VnodeWork::Put)
        }
        Operation::Mend { .. } | Operation::Reap { .. } => None,
    }
}

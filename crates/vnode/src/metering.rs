//! Times of a vnode's work, besides its counts: of some of its operations, of merges, and of changes of
//! data types.
//!
//! A clock is read twice around an operation, which is expensive beside a read from memory. So one
//! in [`SAMPLED_EVERY`] is measured, by the vnode's own counts: enough for percentiles. Merges are
//! few, and a change of a data type takes much longer than two readings: all of these are measured.

use std::sync::Arc;
use std::time::Duration;

use kvorum_data_types::Kind;
use kvorum_object::{Content, Object};
use kvorum_runtime::{Clock, Moment};

use crate::replica_request::{Detail, Operation};
use crate::value_facts::ValueFacts;

/// One operation in this number is measured.
pub const SAMPLED_EVERY: u64 = 8;

/// The kind of measured work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VnodeWork {
    /// A read of a whole object.
    Get,
    /// A read of a head.
    Head,
    /// A write, or the merge of another replica's object.
    Put,
    /// The merge of two plain objects that have not seen each other, within a write.
    Merge,
    /// The same, for objects with a value of a data type.
    MergeOfType(Kind),
}

impl VnodeWork {
    /// The merge of an object into the stored one.
    pub(crate) fn merge_of(object: &Object) -> Self {
        let mut siblings = object.siblings().iter();
        let kind = siblings.find_map(|it| Kind::from_content_type(&it.metadata.content_type));
        kind.map_or(Self::Merge, Self::MergeOfType)
    }

    /// The merge of a client's write into the stored object.
    pub(crate) fn merge_of_content(content: &Content) -> Self {
        let kind = Kind::from_content_type(&content.metadata.content_type);
        kind.map_or(Self::Merge, Self::MergeOfType)
    }
}

/// Receives the times of a vnode's work.
pub trait VnodeMeter: Send + Sync {
    /// Work was done in this time.
    fn worked(&self, work: VnodeWork, took: Duration, now: Moment);

    /// An operation on a data type was carried out: the value was changed in this time. Its write
    /// is reported like any other.
    fn value_changed(&self, _value: ValueFacts, _took: Duration, _now: Moment) {}
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
        Operation::Coordinate { .. }
        | Operation::Apply { .. }
        | Operation::Follow { .. }
        | Operation::Store { .. } => Some(VnodeWork::Put),
        Operation::Mend { .. } | Operation::Reap { .. } => None,
    }
}

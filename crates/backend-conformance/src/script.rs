//! Scripts: steps on a store, as data that can be generated, shrunk and printed.
//!
//! Steps name keys, terms and snapshots by small numbers, so that each step stays meaningful when
//! others are removed.

use std::fmt;

use kvorum_backend::{Durability, FoldDetail};
use kvorum_encoding::SegmentFilter;

/// Steps on a store, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A batch; with `is_awaited`, the next step waits for it.
    Put {
        writes: Vec<PlannedWrite>,
        durability: Durability,
        is_awaited: bool,
    },
    /// Waits for all pending tickets.
    AwaitTickets,
    /// Reads every key.
    ReadAll,
    /// A fold over a fresh snapshot, or over the one in a slot.
    Fold {
        slot: Option<usize>,
        fold: PlannedFold,
    },
    /// A bucket fold over a fresh snapshot.
    FoldBuckets {
        fold: PlannedFold,
    },
    /// An index fold, continued after every `chunk` entries.
    FoldIndex {
        bucket: usize,
        field: usize,
        from: Option<usize>,
        to: Option<usize>,
        chunk: usize,
    },
    /// Takes a snapshot; without a lease in microseconds it is unlimited.
    TakeSnapshot {
        slot: usize,
        lease_micros: Option<u64>,
    },
    /// Drops a snapshot.
    DropSnapshot {
        slot: usize,
    },
    /// One step of one due task.
    Maintain {
        pick: usize,
        budget_bytes: u64,
    },
    /// All due tasks, to their end.
    MaintainAll,
    Sync,
    /// Makes a backup, if the engine can.
    Backup,
    /// Closes the store and opens it again.
    Reopen,
    /// Syncs, drops the store without closing it and opens it again over the same disk.
    DropAndReopen,
    Erase,
    /// Time passes.
    Advance {
        micros: u64,
    },
}

/// A write of a batch: a put, or a removal when there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedWrite {
    pub(crate) key: usize,
    pub(crate) value: Option<PlannedValue>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedValue {
    pub(crate) segment: u32,
    /// The time between the last modification and the put.
    pub(crate) age_micros: u64,
    /// The time between the put and the expiry.
    pub(crate) expires_in_micros: Option<u64>,
    pub(crate) tag: u8,
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: usize,
    pub(crate) terms: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedFold {
    pub(crate) detail: FoldDetail,
    /// The keys that bound it.
    pub(crate) from: PlannedBound,
    pub(crate) to: PlannedBound,
    /// Only this bucket, instead of the bounds.
    pub(crate) bucket: Option<usize>,
    /// Only entries modified at most this long before now.
    pub(crate) age_micros_max: Option<u64>,
    pub(crate) segments: Option<SegmentFilter>,
    /// Stopped and resumed after this many entries each time.
    pub(crate) chunk: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlannedBound {
    Open,
    At(usize),
    Beside(usize),
}

impl PlannedFold {
    /// Everything there is.
    pub(crate) fn all(detail: FoldDetail) -> Self {
        Self {
            detail,
            from: PlannedBound::Open,
            to: PlannedBound::Open,
            bucket: None,
            age_micros_max: None,
            segments: None,
            chunk: usize::MAX,
        }
    }
}

impl PlannedWrite {
    /// A put of a value of this size that never expires.
    pub(crate) fn put(key: usize, body_bytes: usize) -> Self {
        Self {
            key,
            value: Some(PlannedValue {
                segment: u32::try_from(key).unwrap_or(0),
                age_micros: 0,
                expires_in_micros: None,
                tag: 1,
                head_bytes: 8,
                body_bytes,
                terms: Vec::new(),
            }),
        }
    }

    pub(crate) fn remove(key: usize) -> Self {
        Self { key, value: None }
    }
}

impl Step {
    /// A put that is durable before the next step.
    pub(crate) fn put_durably(writes: Vec<PlannedWrite>) -> Self {
        Self::Put {
            writes,
            durability: Durability::Grouped,
            is_awaited: true,
        }
    }

    /// A put that becomes durable only by chance or by a later sync.
    pub(crate) fn put_buffered(writes: Vec<PlannedWrite>) -> Self {
        Self::Put {
            writes,
            durability: Durability::Buffered,
            is_awaited: false,
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            write!(f, "\n    {number}: {step:?}")?;
        }
        Ok(())
    }
}

//! Tenants: stores whose entries stay where they were logged. The calls of the log to them, and
//! theirs to the log.
//!
//! A store that keeps locations need not copy records of the log: its key directory points
//! into the log's segments, which live for as long as a store needs them. A put costs one write for
//! the whole node, and a store's own files hold only entries collected from segments that had
//! become mostly garbage.
//!
//! The log treats a record as a front and a back, each with its own checksum, and interprets
//! neither.
//!
//! # Protocol
//!
//! Opening: the log is opened first, then the stores, each from its own files. Then the log admits
//! the stores, and gives each one ([`Tenant::replay`]) the batches above [`Tenant::covered`].
//! Before that, a place in a store's files may point to a segment that is gone. If the store had
//! let go of the segment, its own files have the entry's new place. If the segment was never
//! dropped it is missing ([`ValueLog::whereabouts`](crate::ValueLog::whereabouts)), and the store
//! reports its losses.
//!
//! Putting: under the lock that orders its batches, the store appends, gets the place at once, and
//! points its key directory there. The record can be read from that moment on.
//!
//! Letting go: a segment stays for as long as [`Tenant::usage`] of any store names it. The records
//! of a segment that is mostly garbage are offered to its stores by [`Tenant::relocate`], and
//! [`Tenant::settle`] ends the offer. A segment without live records is not read for it. A segment
//! of which a store has a part in memory alone ([`SegmentUse::is_passing`]) is left to that store.
//!
//! Erasing: [`ValueLog::announce_erasure`](crate::ValueLog::announce_erasure) before the store's
//! own files are removed, [`ValueLog::forget`](crate::ValueLog::forget) after it. After a crash in
//! between, the store is either whole, or erased and kept for no longer.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use kvorum_backend::{Result, Sequence, StepBudget, StepOutcome, StoreId};
use parking_lot::Mutex;

use crate::log_segment::LogSegment;
use crate::record::LoggedRecord;

/// A store's need of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// The segment.
    pub segment: u32,
    /// Bytes to copy before the store can let go of the segment. For a closed segment this only
    /// falls; where it is zero for all stores, no record is offered to them.
    pub live_bytes: u64,
    /// Approximate bytes that [`Tenant::settle`] would write in addition.
    pub settle_bytes: u64,
    /// The store has some of it in memory alone. It will soon write that by itself, and then need
    /// less of the segment or nothing.
    pub is_passing: bool,
}

/// Segments of the log that the copy of a store needs. The store names them in its usage for as long as
/// this is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSegments {
    /// Closed segments that the store needed when it was copied.
    pub older: BTreeSet<u32>,
    /// The active segment at that time: this one and all later ones are held.
    pub from: u32,
}

impl HeldSegments {
    /// True for a segment that is held.
    pub fn holds(&self, number: u32) -> bool {
        number >= self.from || self.older.contains(&number)
    }

    /// All held segments before this one.
    pub fn before(&self, newest: u32) -> impl Iterator<Item = u32> {
        self.older.iter().copied().chain(self.from..newest)
    }
}

/// The segments that copies of a store in progress need.
#[derive(Debug, Default)]
pub struct Holds {
    held: Mutex<Vec<Weak<HeldSegments>>>,
}

impl Holds {
    /// Adds the segments of another copy, for as long as the result is kept.
    pub fn add(&self, segments: HeldSegments) -> Arc<HeldSegments> {
        let segments = Arc::new(segments);
        let mut held = self.held.lock();
        held.retain(|it| it.strong_count() > 0);
        held.push(Arc::downgrade(&segments));
        segments
    }

    /// The segments that are held now.
    pub fn all(&self) -> Vec<Arc<HeldSegments>> {
        let mut held = self.held.lock();
        held.retain(|it| it.strong_count() > 0);
        held.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The number of sequences that a store skips after losing the file with the last one: none is
/// given twice, and the gap does not count as a loss.
pub const UNKNOWN_SEQUENCES: u64 = 1 << 40;

/// A store whose entries stay in the log. All calls may block.
pub trait Tenant: Send + Sync {
    /// The identity of the entries' store: changes when the store is erased.
    fn store_id(&self) -> StoreId;

    /// The batch up to which the store's own files have all entries and places, after a crash too.
    /// It must not be ahead of the log's durable end.
    fn covered(&self) -> Sequence;

    /// The last batch that the store's own files name, right after opening.
    fn known(&self) -> Sequence;

    /// Takes a batch that was logged and is not covered, as if it were put now, but at its place.
    /// Batches come in ascending order, perhaps with gaps. Without records: a batch of the store up
    /// to this one cannot be read, and no put may get a sequence up to this one.
    fn replay(
        &self,
        segment: &Arc<LogSegment>,
        sequence: Sequence,
        records: &[LoggedRecord],
    ) -> Result<()>;

    /// Every segment that the store needs: for a live entry, for a removal that still hides something, for a
    /// batch that is not covered, or for a backup. An unbounded snapshot counts too, unless it keeps the
    /// segment's file open itself.
    ///
    /// It must wait for puts in progress: the place of a batch that was appended before the call
    /// counts.
    fn usage(&self) -> Vec<SegmentUse>;

    /// The segments that copies of the store in progress need.
    fn held(&self) -> Vec<Arc<HeldSegments>>;

    /// Approximate size of the store's own files, in bytes.
    fn own_bytes(&self) -> u64;

    /// Approximate bytes that the store has only in memory and will write to its own files.
    fn unwritten_bytes(&self) -> u64;

    /// Copies the records that the store still needs to its own files, under their sequences, and
    /// points to the copies. Returns the bytes written.
    fn relocate(&self, records: &[LoggedRecord]) -> Result<u64>;

    /// Ends the offers: all readable records of the segment were offered, or no store has one that
    /// would have to be copied. Makes the copies durable, and sets the store's remaining entries
    /// there aside as lost. When done, the store does not need the segment, except for snapshots
    /// and backups; until then this is called again.
    fn settle(&self, segment: u32, budget: StepBudget) -> Result<StepOutcome>;
}

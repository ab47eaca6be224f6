//! Tenants: stores whose entries stay where they were logged. What the log asks of them, and they of the log.
//!
//! A store that keeps locations need not copy what the log holds already: its key directory points into the
//! log's segments, which live for as long as a store needs them. A put costs one write for the whole node, and
//! a store's own files hold only what was collected from segments that had become mostly dead.
//!
//! The log sees records as a front and a back, each with its own checksum, and understands neither.
//!
//! # Protocol
//!
//! Opening: the log is opened first, then the stores, each from its own files; then the log is asked to
//! admit them, and gives each one ([`Tenant::replay`]) what lies above [`Tenant::covered`].
//! Before that, a place in a store's files may point to a segment that is gone: the store had let go
//! of it, and its own files say where the entry went. One that was never let go is missing
//! ([`ValueLog::whereabouts`](crate::ValueLog::whereabouts)), and the store says what it lost.
//!
//! Putting: under the lock that orders its batches, the store appends, gets the place at once, and
//! points its key directory there. The record can be read from that moment on.
//!
//! Letting go: a segment stays for as long as [`Tenant::usage`] of any store names it. What keeps a
//! segment with little that lives is offered to its stores by [`Tenant::relocate`], record by record,
//! and [`Tenant::settle`] says that nothing more comes. One in which nothing lives is not read for it.
//! One of which a store has something in memory alone ([`SegmentUse::is_passing`]) is left to that store.
//!
//! Erasing: [`ValueLog::announce_erasure`](crate::ValueLog::announce_erasure) before the store's own files
//! go, [`ValueLog::forget`](crate::ValueLog::forget) after it. A crash in between finds either a store that
//! is whole, or one that nobody waits for.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use kvorum_backend::{Result, Sequence, StepBudget, StepOutcome, StoreId};
use parking_lot::Mutex;

use crate::log_segment::LogSegment;
use crate::record::LoggedRecord;

/// What a store needs of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// The segment.
    pub segment: u32,
    /// What would have to be copied for the store to be able to let go of it, in bytes. Of a closed
    /// segment it only ever falls; where it is zero for all stores, nothing of it is offered to them.
    pub live_bytes: u64,
    /// What [`Tenant::settle`] would write beside that, in bytes, about.
    pub settle_bytes: u64,
    /// The store has some of it in memory alone, and will write that by itself soon, after which it needs
    /// less of the segment or nothing.
    pub is_passing: bool,
}

/// Segments of the log that the copy of a store needs. The store names them in its usage for as long as
/// this is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSegments {
    /// Closed ones that the store needed when it was copied.
    pub older: BTreeSet<u32>,
    /// The segment that was appended to then: this one and all behind it.
    pub from: u32,
}

impl HeldSegments {
    /// True for a segment that is held.
    pub fn holds(&self, number: u32) -> bool {
        number >= self.from || self.older.contains(&number)
    }

    /// All that are held before this segment.
    pub fn before(&self, newest: u32) -> impl Iterator<Item = u32> {
        self.older.iter().copied().chain(self.from..newest)
    }
}

/// What the copies of a store that are under way need of the log.
#[derive(Debug, Default)]
pub struct Holds {
    held: Mutex<Vec<Weak<HeldSegments>>>,
}

impl Holds {
    /// Adds what another copy needs, for as long as that is kept.
    pub fn add(&self, segments: HeldSegments) -> Arc<HeldSegments> {
        let segments = Arc::new(segments);
        let mut held = self.held.lock();
        held.retain(|it| it.strong_count() > 0);
        held.push(Arc::downgrade(&segments));
        segments
    }

    /// What is held now.
    pub fn all(&self) -> Vec<Arc<HeldSegments>> {
        let mut held = self.held.lock();
        held.retain(|it| it.strong_count() > 0);
        held.iter().filter_map(Weak::upgrade).collect()
    }
}

/// So many sequences a store skips when it has lost the file that says how far they went: none is given
/// twice, and the log takes the gap for no loss.
pub const UNKNOWN_SEQUENCES: u64 = 1 << 40;

/// A store whose entries stay in the log. All calls may block.
pub trait Tenant: Send + Sync {
    /// Whose entries they are: changes when the store is erased.
    fn store_id(&self) -> StoreId;

    /// The batch up to which the store's own files say what it has and where, after a crash too. It
    /// must not be ahead of what the log has made durable.
    fn covered(&self) -> Sequence;

    /// The last batch that the store's own files speak of, right after opening.
    fn known(&self) -> Sequence;

    /// Takes a batch that was logged and is not covered, as if it were put now, but where it stands.
    /// Batches come in ascending order, some perhaps missing. Without records: something of the store up to
    /// this batch cannot be read, and no put may get a sequence up to this one.
    fn replay(
        &self,
        segment: &Arc<LogSegment>,
        sequence: Sequence,
        records: &[LoggedRecord],
    ) -> Result<()>;

    /// Every segment that the store needs: because a live entry or a removal that still hides
    /// something stands there, because a batch there is not covered, or because a backup or
    /// a snapshot without an end reads it that does not keep the segment's file open itself.
    ///
    /// It must wait for puts in progress: of a batch that was appended before the call, the place
    /// counts.
    fn usage(&self) -> Vec<SegmentUse>;

    /// What copies of the store that are under way need of the log.
    fn held(&self) -> Vec<Arc<HeldSegments>>;

    /// Approximate size of the store's own files, in bytes.
    fn own_bytes(&self) -> u64;

    /// What the store has in memory alone and will write to files of its own, in bytes, about.
    fn unwritten_bytes(&self) -> u64;

    /// Copies those of the records that the store still needs to its own files, under the sequence
    /// that they have, and points to the copies. Returns the bytes written.
    fn relocate(&self, records: &[LoggedRecord]) -> Result<u64>;

    /// All readable records of the segment were offered, or no store has anything in it that would have
    /// to be copied. Makes the copies durable, and sets aside as lost what the store still has there.
    /// Once that is done it does not need the segment, except for snapshots and backups; until then it
    /// is to be asked again.
    fn settle(&self, segment: u32, budget: StepBudget) -> Result<StepOutcome>;
}

//! The node's log as a place where entries stay: what an engine asks of it, and it of the engine.
//!
//! An engine that keeps locations in memory need not copy what the node's log holds already. It
//! *adopts* the log's records: its key directory points into the log's segments, which live for as
//! long as a store needs them. What a put costs is then one write for the whole node, and an engine's
//! own files hold only what was collected from segments that had become mostly dead.
//!
//! The log sees records as a front and a back, each with its own checksum, and understands neither.
//!
//! # Protocol
//!
//! Opening: the log is opened first, then the stores, each from its own files; then the log is asked to
//! admit them, and gives each one ([`Adopting::replay`]) what lies above [`Adopting::covered`].
//! Before that, a place in a store's files may point to a segment that is gone: the store had let go
//! of it, and its own files say where the entry went. One that was never let go is missing
//! ([`SharedLog::whereabouts`]), and the store says what it lost.
//!
//! Putting: under the lock that orders its batches, the engine appends, gets the place at once, and
//! points its key directory there. The record can be read from that moment on.
//!
//! Letting go: a segment stays for as long as [`Adopting::usage`] of any store names it. What keeps a
//! segment with little that lives is offered to its stores by [`Adopting::relocate`], record by record,
//! and [`Adopting::settle`] says that nothing more comes. One in which nothing lives is not read for it.
//! One of which a store has something in memory alone ([`SegmentUse::is_passing`]) is left to that store.
//!
//! Erasing: [`SharedLog::announce_erasure`] before the store's own files go, [`SharedLog::forget`]
//! after it. A crash in between finds either a store that is whole, or one that nobody waits for.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use kvorum_disk::Headroom;
use parking_lot::Mutex;

use crate::{
    Lookup, Purpose, Reading, Result, Sequence, StepBudget, StepOutcome, StoreId, SyncTicket,
};

/// Where a record stands. The lengths may be rough: too long costs bytes read for nothing, too short a
/// second read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPlace {
    /// The segment's number. Never used again for another segment of the same log.
    pub segment: u32,
    /// Offset in the segment, in bytes; a multiple of 8, and below 8 GiB: engines keep it in 30 bits.
    pub offset: u64,
    /// Length of the record up to the end of its front, in bytes.
    pub front_end: u64,
    /// Length of the whole record, in bytes.
    pub len: u64,
}

/// The back of a record as it is stored: perhaps compressed by the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBack {
    /// The bytes as stored.
    pub bytes: Bytes,
    /// How they are compressed, in the numbering of the segment format: 0 for not at all.
    pub codec: u8,
    /// The length before compression, in bytes.
    pub raw_len: u64,
    /// The CRC-32C of `bytes`. Taken on trust when appended: a wrong one makes an unreadable record.
    pub checksum: u32,
}

/// What an engine appends.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// The engine's kind of record, below [`LogRecord::KINDS`].
    pub kind: u8,
    /// The record says that something is gone.
    pub removal: bool,
    /// [`LogRecord::PREFIX_BYTES`] bytes that the log fills in, then what the engine reads without
    /// the back.
    pub front: Vec<u8>,
    /// The rest.
    pub back: LogBack,
}

impl LogRecord {
    /// How many kinds engines may have.
    pub const KINDS: u8 = 0xf0;
    /// What the log needs in front of an engine's front.
    pub const PREFIX_BYTES: usize = 8;

    /// The start of a front that will have `len` bytes of the engine's.
    pub fn front_for(len: usize) -> Vec<u8> {
        let mut front = Vec::with_capacity(Self::PREFIX_BYTES + len);
        front.extend_from_slice(&[0; Self::PREFIX_BYTES]);
        front
    }

    /// The store in a front as the log has it, and the engine's part; `None` where it is too short.
    pub fn split_front(front: &Bytes) -> Option<(StoreId, Bytes)> {
        let store = front.first_chunk::<{ Self::PREFIX_BYTES }>()?;
        let store = StoreId(u64::from_le_bytes(*store));
        Some((store, front.slice(Self::PREFIX_BYTES..)))
    }
}

impl LogBack {
    /// No back at all.
    pub fn empty() -> Self {
        Self {
            bytes: Bytes::new(),
            codec: 0,
            raw_len: 0,
            checksum: 0,
        }
    }
}

/// The front of a record that was read, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedFront {
    /// The store that it belongs to.
    pub store: StoreId,
    /// The batch that it belongs to.
    pub sequence: Sequence,
    /// The engine's kind of record.
    pub kind: u8,
    /// The record says that something is gone.
    pub removal: bool,
    /// Where it stands, exactly.
    pub place: LogPlace,
    /// What the engine put in front.
    pub front: Bytes,
    /// The length of the back before compression, in bytes.
    pub raw_back_len: u64,
}

/// A whole record that was read, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRecord {
    /// All but the back.
    pub head: LoggedFront,
    /// The back as stored.
    pub back: LogBack,
}

/// A segment of the log. Whoever holds it may read from it, whether the log still has it or not.
pub trait SharedSegment: Send + Sync {
    /// Its number.
    fn number(&self) -> u32;

    /// Reads the front of a record. Never waits for a write or a sync of the log; with
    /// [`Reading::CachedOnly`] never for a device.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] when no whole record stands there.
    fn read_front(&self, place: LogPlace, reading: Reading) -> Result<Lookup<LoggedFront>>;

    /// Reads a whole record, likewise.
    fn read(&self, place: LogPlace, reading: Reading) -> Result<Lookup<LoggedRecord>>;

    /// True when something in it is known to be unreadable. Of a segment that was offered by
    /// [`Adopting::relocate`] from end to end, it is then not known that everything was.
    fn is_damaged(&self) -> bool;
}

/// What the ticket of a batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogPromise {
    /// The batch is with the system: a crash of this process does not lose it.
    Written,
    /// It is on the device: a power cut does not lose it either.
    Durable,
}

/// What [`SharedLog::append`] gives.
pub struct Appended {
    /// The segment of all the records.
    pub segment: Arc<dyn SharedSegment>,
    /// Where each of them stands.
    pub places: Vec<LogPlace>,
    /// Resolves when what was promised holds. Until then the batch is in this process's memory alone.
    pub ticket: SyncTicket,
    /// The device is slower than what comes in: callers that asked for no durability should wait as
    /// well.
    pub is_crowded: bool,
}

/// What became of a segment.
pub enum Whereabouts {
    /// The log has it.
    Here(Arc<dyn SharedSegment>),
    /// No store needed it any more: what a store still has a place for in it stands elsewhere, or was
    /// superseded.
    LetGo,
    /// It was never let go, and is not there: what stood in it is lost.
    Missing,
}

/// The node's log as engines see it.
pub trait SharedLog: Send + Sync {
    /// Tells this log from others. A store that refers to another log has lost what was there.
    fn log_id(&self) -> u64;

    /// Waits until there is room for what is to be appended; to be called without a lock.
    fn wait_for_room(&self) -> Result<()>;

    /// Queues a batch: its records become durable together or not at all, and without being asked if
    /// that was promised. Their place is known when
    /// this returns, and they can be read there. Batches of one store have to come in the order of
    /// their sequences, each higher than the one before.
    ///
    /// # Errors
    /// Nothing was queued: [`crate::ErrorKind::TooLarge`], [`crate::ErrorKind::Full`],
    /// [`crate::ErrorKind::Exhausted`], [`crate::ErrorKind::Failed`] after a failed sync.
    fn append(
        &self,
        store: StoreId,
        sequence: Sequence,
        records: Vec<LogRecord>,
        purpose: Purpose,
        promise: LogPromise,
    ) -> Result<Appended>;

    /// The room on the file systems of the log and of its stores, at the log's last look: at most a tenth of
    /// a second ago while the log is written to. A store's upkeep goes by it.
    fn headroom(&self) -> Headroom;

    /// Number of segments that a store's own files may lie behind the log, where it would wait for `most` of
    /// them: fewer where the disk has no room for so many.
    fn segments_behind_max(&self, most: u32) -> u32;

    /// The segment of this number, or `None` when the log has none.
    fn segment(&self, number: u32) -> Option<Arc<dyn SharedSegment>>;

    /// What became of a segment in which a store had something that was durable.
    fn whereabouts(&self, store: StoreId, number: u32) -> Whereabouts;

    /// The number of the segment that is appended to now. What a store keeps in older ones and does
    /// not cover has to be read again after a crash, segment by segment: stores should cover what lies
    /// far behind.
    fn newest_segment(&self) -> u32;

    /// The oldest segment that still has anything of a store, needed or not. A removal hides nothing
    /// in the log when all that is older is gone.
    fn oldest_segment_of(&self, store: StoreId) -> Option<u32>;

    /// Makes everything appended so far durable.
    fn sync(&self) -> Result<()>;

    /// Says that [`Adopting::usage`] of a store has shrunk without anything having been appended.
    fn usage_changed(&self);

    /// Says that a store needs this much less of the log than it has appended, as after deletes. Stores are
    /// asked for their usage again when the sum is large enough; while puts are refused for want of space,
    /// any sum is.
    fn usage_fell(&self, bytes: u64);

    /// Closes the segment that is appended to, so that [`SharedLog::link`] finds all that is there.
    fn roll(&self) -> Result<()>;

    /// Gives a closed segment a second name, for a backup. The store's usage has to name the segment
    /// until this returns.
    fn link(&self, number: u32, path: &std::path::Path) -> Result<()>;

    /// Says that a store is about to be erased. Durable when it returns.
    fn announce_erasure(&self, store: StoreId) -> Result<()>;

    /// Says that a store's contents are gone, and whose they are from now on: segments that nobody
    /// else needs are dropped at once.
    fn forget(&self, erased: StoreId, now: StoreId) -> Result<()>;
}

/// What a store needs of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// The segment.
    pub segment: u32,
    /// What would have to be copied for the store to be able to let go of it, in bytes. Of a closed
    /// segment it only ever falls; where it is zero for all stores, nothing of it is offered to them.
    pub live_bytes: u64,
    /// What [`Adopting::settle`] would write beside that, in bytes, about.
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

/// The facet of an engine whose entries stay in the log. All calls may block.
pub trait Adopting: Send + Sync {
    /// The batch up to which the store's own files say what it has and where, after a crash too. It
    /// must not be ahead of what the log has made durable.
    fn covered(&self) -> Sequence;

    /// Takes a batch that was logged and is not covered, as if it were put now, but where it stands.
    /// Batches come in ascending order, some perhaps missing. Without records: something of the store up to
    /// this batch cannot be read, and no put may get a sequence up to this one.
    fn replay(
        &self,
        segment: &Arc<dyn SharedSegment>,
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

    /// Approximate size of the store's own files, in bytes.
    fn own_bytes(&self) -> u64;

    /// Copies those of the records that the store still needs to its own files, under the sequence
    /// that they have, and points to the copies. Returns the bytes written.
    fn relocate(&self, records: &[LoggedRecord]) -> Result<u64>;

    /// All readable records of the segment were offered, or no store has anything in it that would have
    /// to be copied. Makes the copies durable, and sets aside as lost what the store still has there.
    /// Once that is done it does not need the segment, except for snapshots and backups; until then it
    /// is to be asked again.
    fn settle(&self, segment: u32, budget: StepBudget) -> Result<StepOutcome>;
}

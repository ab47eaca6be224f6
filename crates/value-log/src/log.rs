//! The log's calls for stores and the node: appends, syncs, the state of a segment, and upkeep in
//! steps.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{
    BackendError, ErrorKind, Purpose, Result, Scrubbing, Sequence, StepBudget, StepOutcome,
    StoreId, SyncTicket,
};
use kvorum_disk::{Disk, Reserve};
use kvorum_planted_defects::is_planted;
use kvorum_runtime::Runtime;
use kvorum_segment::{FILE_HEADER_BYTES, Scan};
use parking_lot::Mutex;

use crate::admission::{self, Admission};
use crate::error::from_disk;
use crate::files::{Files, Placing};
use crate::group::Group;
use crate::identity::Identity;
use crate::item::Batch;
use crate::keeper::{Keeper, KnownIdentity};
use crate::log_segment::{LOG_SEGMENT_BYTES_MAX, LogSegment};
use crate::losses::Losses;
use crate::opening::{self, ValueLogOpening};
use crate::promise::LogPromise;
use crate::record::{LogPlace, LogRecord};
use crate::settings::ValueLogSettings;
use crate::task_driver::TaskDriver;
use crate::tenant::Tenant;
use crate::upkeep::{CollectionDue, Upkeep};

/// The part of the free space that limits data in the log alone: stores will write it to files of
/// their own.
const UNCOVERED_PART: u64 = 4;

/// Figures of the log for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueLogStatus {
    /// Bytes in all segments.
    pub bytes: u64,
    /// Bytes of segments that no store needs, as of the last survey.
    pub garbage_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of segments that are kept for stores that are not open.
    pub waiting_bytes: u64,
    /// Groups committed since the start.
    pub groups: u64,
    /// Batches committed since the start.
    pub batches: u64,
    /// Searches since the start through all segments for the oldest one of a store.
    pub searches: u64,
}

/// The value log of a node. Cheap to clone.
#[derive(Clone)]
pub struct ValueLog {
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) upkeep: Arc<Upkeep>,
    pub(crate) scrub: Arc<Mutex<Scrubbing<Box<Scan>>>>,
}

impl ValueLog {
    /// Opens the log in `directory`; a missing one begins with the first append. `log_id` is drawn
    /// at random by the caller, for a log that begins now.
    ///
    /// Needs no space, so that a node on a full disk starts.
    ///
    /// # Errors
    /// Those of the disk. [`ErrorKind::NewerFormat`] for a log of a newer version.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log_id: u64,
        settings: ValueLogSettings,
    ) -> Result<(Self, ValueLogOpening)> {
        let opened = opening::open(&*disk, directory, log_id)?;
        opening::remove_orphans(&*disk, directory, &opened.segments)?;
        let found = Identity::read(&*disk, directory)?;
        let is_written = found.is_some_and(|it| it.log_id == opened.identity.log_id);
        let (known, report) = (opened.identity.clone(), opened.report.clone());
        let losses = Losses::open(disk.clone(), directory, known.log_id)?;
        let files = Files::new(disk, directory.to_owned(), settings, opened);
        let identity = KnownIdentity {
            undecided: known.erased.clone(),
            known,
            is_written,
        };
        let keeper = Arc::new(Keeper::new(files, losses, identity));
        let log = Self {
            upkeep: Arc::new(Upkeep::of(keeper.clone())),
            keeper,
            scrub: Arc::default(),
        };
        Ok((log, report))
    }

    /// Registers all existing stores, which were just opened with this log, and replays missing
    /// batches to each. Precedes their use.
    ///
    /// # Errors
    /// Those of the disk and of the stores; it may be called again.
    pub fn admit(&self, stores: &[Arc<dyn Tenant>]) -> Result<Admission> {
        let mut admission = admission::admit(&self.keeper, stores)?;
        if let Some((_, error)) = admission.failed.pop() {
            return Err(error);
        }
        self.settle_erasures();
        Ok(admission)
    }

    /// As [`ValueLog::admit`] for some of the stores, while others are being opened. The log keeps
    /// all that these may need until [`ValueLog::settle_erasures`]. A store that fails is not
    /// admitted, and does not prevent the admission of others. Several threads may admit stores at
    /// a time.
    ///
    /// # Errors
    /// Those of reading the log; it may be called again.
    pub fn admit_some(&self, stores: &[Arc<dyn Tenant>]) -> Result<Admission> {
        admission::admit(&self.keeper, stores)
    }

    /// Ends admission: the log no longer keeps data of stores whose erasure an earlier run
    /// announced and that were not opened since.
    pub fn settle_erasures(&self) {
        self.keeper.identity.lock().undecided.clear();
        self.usage_changed();
    }

    /// Commits groups until [`ValueLog::stop`], on a thread of its own. While it runs, awaiting a
    /// ticket is enough.
    pub fn drive(&self) {
        self.keeper.queue.drive();
    }

    /// Wakes the driver once the tasks that are ready have queued their batches, until
    /// [`ValueLog::stop`]; for a task among the writing ones.
    pub async fn call_driver(&self, runtime: &Runtime) {
        self.keeper.queue.call_driver(runtime).await;
    }

    /// The driver for programs without threads, such as a simulation: a task that waits until
    /// something is queued, lets as much time pass as a device would take, and commits.
    pub fn task_driver(&self) -> TaskDriver {
        TaskDriver::of(self.keeper.queue.clone())
    }

    /// Ends [`ValueLog::drive`] once everything queued is committed. A later append is committed by
    /// the thread that waits for it.
    pub fn stop(&self) {
        self.keeper.queue.stop();
    }

    /// Holds collections, or releases them; at first they are released. Segments that no store
    /// needs are removed in either state; nothing of the others is read or copied while collections
    /// are held.
    pub fn hold_collections(&self, is_held: bool) {
        self.upkeep.set_held(is_held);
    }

    /// True when [`ValueLog::upkeep_step`] has something to do.
    pub fn is_upkeep_due(&self) -> bool {
        self.is_chore_due() || self.collection_due().is_some()
    }

    /// One step of upkeep: a chore if there is one, or a part of a collection.
    ///
    /// # Errors
    /// As of the two.
    pub fn upkeep_step(&self, budget: StepBudget) -> Result<StepOutcome> {
        if self.chore_step()? {
            return Ok(StepOutcome::partial(0));
        }
        self.collection_step(budget)
    }

    /// True when [`ValueLog::chore_step`] has something to do.
    pub fn is_chore_due(&self) -> bool {
        self.upkeep.is_chore_due()
    }

    /// Makes the next segment's file, seals a closed one, or surveys usage and drops unneeded
    /// segments. Such a chore moves few bytes, and waits for the device a few times. False when
    /// none was due.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn chore_step(&self) -> Result<bool> {
        self.upkeep.do_chore()
    }

    /// The collection that is under way or due, unless collections are held.
    pub fn collection_due(&self) -> Option<CollectionDue> {
        self.upkeep.next_collection()
    }

    /// Reads a part of the segment that is being collected, and has stores copy the records they
    /// need.
    ///
    /// # Errors
    /// Those of the disk and of the stores; the segment is collected again.
    pub fn collection_step(&self, budget: StepBudget) -> Result<StepOutcome> {
        self.upkeep.collect(budget)
    }

    /// The reserve of the log's file system, and of others that are added to it. Upkeep of stores
    /// uses its last measurement: at most a tenth of a second old while the log is written to.
    pub fn reserve(&self) -> &Arc<Reserve> {
        &self.keeper.files().reserve
    }

    /// Bytes that puts can append, without the reserve. Queries the file systems.
    pub fn room_for_puts(&self) -> u64 {
        self.keeper.files().room.room_for_puts()
    }

    /// Bytes of batches appended since the start.
    pub fn appended_bytes(&self) -> u64 {
        self.keeper.appended_bytes.load(Ordering::Relaxed)
    }

    /// The error of the final sync or write failure, after which nothing is appended.
    pub fn failure(&self) -> Option<BackendError> {
        self.keeper.queue.queue.lock().failure().cloned()
    }

    /// Memory of queued batches, in bytes.
    pub fn queued_bytes(&self) -> u64 {
        self.keeper.files().placed_bytes()
    }

    /// Sizes and counts.
    pub fn status(&self) -> ValueLogStatus {
        let (groups, batches) = self.keeper.queue.queue.lock().counts();
        let (garbage_bytes, waiting_bytes) = self.upkeep.garbage_and_waiting_bytes();
        ValueLogStatus {
            bytes: self.keeper.files().bytes(),
            garbage_bytes,
            segments: self.keeper.files().segments().len() as u64,
            waiting_bytes,
            groups,
            batches,
            searches: self.keeper.searches.load(Ordering::Relaxed),
        }
    }

    /// The stores that need something in the log, as far as is known.
    pub fn holders(&self) -> BTreeSet<StoreId> {
        let segments = self.keeper.files().segments().into_iter();
        let holders = segments.flat_map(|it| it.holders());
        let needing = holders.filter(|(_, holding)| holding.is_needed);
        needing.map(|(store, _)| store).collect()
    }

    /// Damage that was found since the last call, in words.
    pub fn take_damage(&self) -> Vec<String> {
        self.keeper.take_damage()
    }

    /// Notes durably that a store has lost batches up to this one, once the node has noted that the
    /// store is incomplete. No later admission reports them.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn note_loss(&self, store: StoreId, lost_to: Sequence) -> Result<()> {
        self.keeper.losses.note(store, lost_to)
    }
}

impl ValueLog {
    /// The log's identity. A store that refers to another log has lost its entries there.
    pub fn log_id(&self) -> u64 {
        self.keeper.files().log_id
    }

    /// Waits until there is room for an append; must be called without a lock.
    ///
    /// # Errors
    /// The log takes nothing any more.
    pub fn wait_for_room(&self) -> Result<()> {
        self.keeper.queue.wait_for_room()
    }

    /// Queues a batch: its records become durable together or not at all, and without a further
    /// call if that was promised. Their places are known when this returns, and can be read.
    /// Batches of one store have to come in the order of their sequences, each higher than the one
    /// before.
    ///
    /// # Errors
    /// Nothing was queued: [`ErrorKind::TooLarge`], [`ErrorKind::Full`], [`ErrorKind::Exhausted`],
    /// [`ErrorKind::Failed`] after a failed sync.
    pub fn append(
        &self,
        store: StoreId,
        sequence: Sequence,
        records: Vec<LogRecord>,
        purpose: Purpose,
        promise: LogPromise,
    ) -> Result<Appended> {
        let batch = Batch::encode(store, sequence, records)?;
        let len = batch.stored_len();
        if len > LOG_SEGMENT_BYTES_MAX - FILE_HEADER_BYTES {
            let detail = format!("a batch of {len} bytes; a segment has {LOG_SEGMENT_BYTES_MAX}");
            return Err(BackendError::new(ErrorKind::TooLarge, detail));
        }
        if self.keeper.files().is_stalled() {
            self.keeper
                .files()
                .retry()
                .map_err(|failure| self.keeper.failed(failure))?;
        }
        let mut batch = batch;
        let appended = loop {
            self.keeper
                .files()
                .make_room(len, purpose)
                .map_err(|failure| self.keeper.failed(failure))?;
            match self.push(batch, purpose, promise)? {
                Pushing::Done(appended) => break appended,
                // Another batch took the room.
                Pushing::NoRoom(refused) => batch = refused,
            }
        };
        self.keeper.appended_bytes.fetch_add(len, Ordering::Relaxed);
        Ok(appended)
    }

    /// The number of segments that a store's own files may lie behind the log. The store allows
    /// `most`; fewer are returned where the disk has no room for as many.
    pub fn segments_behind_max(&self, most: u32) -> u32 {
        let room = self.reserve().seen().available / UNCOVERED_PART;
        let segments = room / self.keeper.files().room.segment_bytes().max(1);
        most.min(u32::try_from(segments).unwrap_or(u32::MAX)).max(1)
    }

    /// The segment of this number, or `None` when the log has none.
    pub fn segment(&self, number: u32) -> Option<Arc<LogSegment>> {
        self.keeper.files().segment(number)
    }

    /// The state of a segment in which a store had durable records.
    pub fn whereabouts(&self, store: StoreId, number: u32) -> Whereabouts {
        let files = self.keeper.files();
        match files.segment(number) {
            // The holders of a damaged segment are unknown.
            Some(segment)
                if segment.holding(store).is_some()
                    || segment.is_damaged()
                    || !files.is_lost(number) =>
            {
                Whereabouts::Here(segment)
            }
            None if !files.is_lost(number) => Whereabouts::LetGo,
            // A number may have been reused if the log's newest file was lost.
            _ => Whereabouts::Missing,
        }
    }

    /// The number of the active segment. Records in older ones that a store does not cover have to
    /// be read again after a crash, segment by segment. Stores should therefore cover those far
    /// behind.
    pub fn newest_segment(&self) -> u32 {
        self.keeper.files().newest().number
    }

    /// The oldest segment that still has records of a store, needed or not. A removal hides nothing
    /// in the log when all older records are gone.
    pub fn oldest_segment_of(&self, store: StoreId) -> Option<u32> {
        self.keeper.searches.fetch_add(1, Ordering::Relaxed);
        let segments = self.keeper.files().segments();
        let oldest = segments.iter().find(|it| it.holding(store).is_some())?;
        Some(oldest.number)
    }

    /// The segments that still have anything of a store, needed or not, ascending.
    pub fn segments_of(&self, store: StoreId) -> Vec<u32> {
        let segments = self.keeper.files().segments();
        // The holders of a damaged segment are unknown.
        let held = segments
            .iter()
            .filter(|it| it.holding(store).is_some() || it.is_damaged());
        held.map(|it| it.number).collect()
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// Those of the disk; a failed sync is final.
    pub fn sync(&self) -> Result<()> {
        self.keeper.sync()
    }

    /// Reports that [`Tenant::usage`] of a store has shrunk without an append.
    pub fn usage_changed(&self) {
        self.keeper.usage_changed();
    }

    /// Reports that a store no longer needs this much of its bytes in the log, as after deletes. A
    /// large enough sum makes upkeep survey usage again; while puts are refused for want of space,
    /// any sum does.
    pub fn usage_fell(&self, bytes: u64) {
        self.keeper.fallen_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Closes the active segment, so that [`ValueLog::link`] finds all records.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn roll(&self) -> Result<()> {
        self.keeper.close_written().map(drop)
    }

    /// Gives a closed segment a second name, for a backup. The store's usage has to name the
    /// segment until this returns.
    ///
    /// # Errors
    /// Those of the disk; [`ErrorKind::Misuse`] for a segment that is missing or not closed.
    pub fn link(&self, number: u32, path: &Path) -> Result<()> {
        let closed = self.keeper.files().closed();
        let segment = closed.iter().find(|it| it.number == number);
        let segment = segment.ok_or_else(|| {
            let detail = format!("segment {number} of the value log is not there, or not closed");
            BackendError::new(ErrorKind::Misuse, detail)
        })?;
        let linked = self.keeper.files().disk.link(&segment.path, path);
        linked.map_err(|error| from_disk(&error))
    }

    /// Announces that a store is about to be erased. Durable when it returns.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn announce_erasure(&self, store: StoreId) -> Result<()> {
        if !self.keeper.files().has_files() {
            return Ok(());
        }
        let mut identity = self.keeper.identity.lock();
        // The store is open, since it is being erased.
        identity.undecided.remove(&store);
        if !identity.known.erased.insert(store) && identity.is_written {
            return Ok(());
        }
        self.keeper.write_identity(&mut identity)
    }

    /// Reports that a store's contents are gone, and the store's new identity. Segments that no
    /// other store needs are dropped at once.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn forget(&self, erased: StoreId, now: StoreId) -> Result<()> {
        {
            let mut stores = self.keeper.stores.lock();
            if let Some(engine) = stores.remove(&erased) {
                stores.insert(now, engine);
            }
        }
        self.upkeep.release_all(erased)
    }
}

/// The result of [`ValueLog::append`].
pub struct Appended {
    /// The segment of all the records.
    pub segment: Arc<LogSegment>,
    /// The place of each record.
    pub places: Vec<LogPlace>,
    /// Resolves when the promise holds. Until then the batch is in this process's memory alone.
    pub ticket: SyncTicket,
    /// The device is slower than the appends: callers that asked for no durability should wait as
    /// well.
    pub is_crowded: bool,
}

/// The state of a segment.
pub enum Whereabouts {
    /// It exists.
    Here(Arc<LogSegment>),
    /// It was dropped, since no store needed it: an entry with a place in it was copied elsewhere
    /// or superseded.
    LetGo,
    /// It is missing without having been dropped: its contents are lost.
    Missing,
}

/// The result of queueing a batch.
enum Pushing {
    Done(Appended),
    NoRoom(Batch),
}

impl ValueLog {
    /// Queues a batch if there is a place for it.
    fn push(&self, batch: Batch, purpose: Purpose, promise: LogPromise) -> Result<Pushing> {
        let mut placed = None;
        let mut refused = None;
        let pushed = self.keeper.queue.push(promise, || {
            match self.keeper.files().place(batch, purpose)? {
                Placing::Placed(item, segment) => {
                    placed = Some((segment, item.places.clone()));
                    Ok(item)
                }
                Placing::NoRoom(batch) => {
                    refused = Some(batch);
                    let detail = "no file of the value log has space for a batch";
                    Err(BackendError::new(ErrorKind::Full, detail))
                }
            }
        });
        if let Some(batch) = refused {
            return Ok(Pushing::NoRoom(batch));
        }
        let pushed = pushed?;
        let (segment, places) = placed.ok_or_else(|| {
            BackendError::new(ErrorKind::Failed, "a batch was queued and has no place")
        })?;
        let is_early = is_planted!(AcknowledgedBeforeSync);
        let ticket = if is_early {
            let ended = Group::ended(self.keeper.queue.committing(), Ok(()));
            SyncTicket::new(Arc::new(ended), 0)
        } else {
            pushed.ticket
        };
        Ok(Pushing::Done(Appended {
            segment,
            places,
            ticket,
            is_crowded: pushed.is_crowded,
        }))
    }
}

//! The log as stores and the node see it: appends, syncs, what became of a segment, and upkeep in steps.

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

/// Data that stores have in the log alone is limited to this part of the free space: they will write it to
/// files of their own.
const UNCOVERED_PART: u64 = 4;

/// What operators see of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueLogStatus {
    /// Bytes in all segments.
    pub bytes: u64,
    /// Bytes of segments that no store needs, when they were counted last.
    pub dead_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of segments that are kept for stores that are not open.
    pub waiting_bytes: u64,
    /// Groups committed since the start.
    pub groups: u64,
    /// Batches committed since the start.
    pub batches: u64,
    /// Times since the start that all segments were looked through for the oldest of a store.
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
    /// Opens the log in `directory`; one that is not there begins with the first append. `log_id` is
    /// drawn at random by the caller, for a log that begins now.
    ///
    /// Needs no space, so that a node on a full disk comes up.
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

    /// Makes known all stores that are there, which were just opened with this log, and gives each what
    /// it lacks. To be called before they are used.
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

    /// As [`ValueLog::admit`] for some of the stores that are there, while others are being opened:
    /// until [`ValueLog::settle_erasures`] the log keeps whatever these may need. A store that fails
    /// is not admitted, and does not keep others from being. Several threads may admit stores at a time.
    ///
    /// # Errors
    /// Those of reading the log; it may be called again.
    pub fn admit_some(&self, stores: &[Arc<dyn Tenant>]) -> Result<Admission> {
        admission::admit(&self.keeper, stores)
    }

    /// All stores that are there were admitted: of those that an earlier run was about to erase, and
    /// that have not turned up, nothing is kept any more.
    pub fn settle_erasures(&self) {
        self.keeper.identity.lock().undecided.clear();
        self.usage_changed();
    }

    /// Commits groups until [`ValueLog::stop`]; for one thread of its own. While it runs, awaiting a
    /// ticket is enough.
    pub fn drive(&self) {
        self.keeper.queue.drive();
    }

    /// Wakes whoever drives once the tasks that are ready have queued what they have, until
    /// [`ValueLog::stop`]; for a task among those that write.
    pub async fn call_driver(&self, runtime: &Runtime) {
        self.keeper.queue.call_driver(runtime).await;
    }

    /// The driver for where there are no threads, as in a simulation: a task that waits until something
    /// is queued, lets as much time pass as a device would take, and commits.
    pub fn task_driver(&self) -> TaskDriver {
        TaskDriver::of(self.keeper.queue.clone())
    }

    /// Ends [`ValueLog::drive`] once everything queued is committed. What is appended later is
    /// committed by those who wait for it on a thread.
    pub fn stop(&self) {
        self.keeper.queue.stop();
    }

    /// Puts collections off, or lets them go on; at first they may. Meanwhile segments that nobody
    /// needs go all the same, and of the others nothing is read or copied.
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

    /// Makes the next segment's file, seals a closed one, or asks what is needed and drops the rest:
    /// what moves hardly any bytes, and waits for the device a few times. False when there was
    /// nothing of it to do.
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

    /// Reads on in the segment that is collected, and has stores copy what they need of it.
    ///
    /// # Errors
    /// Those of the disk and of the stores; the segment is collected anew.
    pub fn collection_step(&self, budget: StepBudget) -> Result<StepOutcome> {
        self.upkeep.collect(budget)
    }

    /// The reserve of the log's file system, and of others that are added to it. Upkeep of stores goes by what
    /// it saw last: at most a tenth of a second ago while the log is written to.
    pub fn reserve(&self) -> &Arc<Reserve> {
        &self.keeper.files().reserve
    }

    /// What puts can append, in bytes, without what is held back. Asks the file systems.
    pub fn room_for_puts(&self) -> u64 {
        self.keeper.files().room.room_for_puts()
    }

    /// Bytes of batches appended since the start.
    pub fn appended_bytes(&self) -> u64 {
        self.keeper.appended_bytes.load(Ordering::Relaxed)
    }

    /// Why the log takes nothing any more, once a sync or a write has failed for good.
    pub fn failure(&self) -> Option<BackendError> {
        self.keeper.queue.queue.lock().failure().cloned()
    }

    /// What is queued to be written, in bytes of memory.
    pub fn queued_bytes(&self) -> u64 {
        self.keeper.files().placed_bytes()
    }

    /// Sizes and counts.
    pub fn status(&self) -> ValueLogStatus {
        let (groups, batches) = self.keeper.queue.queue.lock().counts();
        let (dead_bytes, waiting_bytes) = self.upkeep.dead_and_waiting_bytes();
        ValueLogStatus {
            bytes: self.keeper.files().bytes(),
            dead_bytes,
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

    /// Damage that was found since this was asked last, in words.
    pub fn take_damage(&self) -> Vec<String> {
        self.keeper.take_damage()
    }

    /// Notes for good that a store has lost batches up to this one, once the node has noted that the store is
    /// incomplete: no admission tells of them again.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn note_loss(&self, store: StoreId, lost_to: Sequence) -> Result<()> {
        self.keeper.losses.note(store, lost_to)
    }
}

impl ValueLog {
    /// Tells this log from others. A store that refers to another log has lost what was there.
    pub fn log_id(&self) -> u64 {
        self.keeper.files().log_id
    }

    /// Waits until there is room for what is to be appended; to be called without a lock.
    ///
    /// # Errors
    /// The log takes nothing any more.
    pub fn wait_for_room(&self) -> Result<()> {
        self.keeper.queue.wait_for_room()
    }

    /// Queues a batch: its records become durable together or not at all, and without being asked if that was
    /// promised. Their place is known when this returns, and they can be read there. Batches of one store
    /// have to come in the order of their sequences, each higher than the one before.
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
                .map_err(|failure| self.keeper.told(failure))?;
        }
        let mut batch = batch;
        let appended = loop {
            self.keeper
                .files()
                .make_room(len, purpose)
                .map_err(|failure| self.keeper.told(failure))?;
            match self.push(batch, purpose, promise)? {
                Pushing::Done(appended) => break appended,
                // The room that was made went to somebody else.
                Pushing::NoRoom(refused) => batch = refused,
            }
        };
        self.keeper.appended_bytes.fetch_add(len, Ordering::Relaxed);
        Ok(appended)
    }

    /// Number of segments that a store's own files may lie behind the log, where it would wait for `most` of
    /// them: fewer where the disk has no room for so many.
    pub fn segments_behind_max(&self, most: u32) -> u32 {
        let room = self.reserve().seen().available / UNCOVERED_PART;
        let segments = room / self.keeper.files().room.segment_bytes().max(1);
        most.min(u32::try_from(segments).unwrap_or(u32::MAX)).max(1)
    }

    /// The segment of this number, or `None` when the log has none.
    pub fn segment(&self, number: u32) -> Option<Arc<LogSegment>> {
        self.keeper.files().segment(number)
    }

    /// What became of a segment in which a store had something that was durable.
    pub fn whereabouts(&self, store: StoreId, number: u32) -> Whereabouts {
        let files = self.keeper.files();
        match files.segment(number) {
            // Of a damaged one it is not known who has something in it.
            Some(segment)
                if segment.holding(store).is_some()
                    || segment.is_damaged()
                    || !files.is_lost(number) =>
            {
                Whereabouts::Here(segment)
            }
            None if !files.is_lost(number) => Whereabouts::LetGo,
            // The number may have been given out again, if the log's newest file was lost.
            _ => Whereabouts::Missing,
        }
    }

    /// The number of the segment that is appended to now. What a store keeps in older ones and does
    /// not cover has to be read again after a crash, segment by segment: stores should cover what lies
    /// far behind.
    pub fn newest_segment(&self) -> u32 {
        self.keeper.files().newest().number
    }

    /// The oldest segment that still has anything of a store, needed or not. A removal hides nothing
    /// in the log when all that is older is gone.
    pub fn oldest_segment_of(&self, store: StoreId) -> Option<u32> {
        self.keeper.searches.fetch_add(1, Ordering::Relaxed);
        let segments = self.keeper.files().segments();
        let oldest = segments.iter().find(|it| it.holding(store).is_some())?;
        Some(oldest.number)
    }

    /// The segments that still have anything of a store, needed or not, ascending.
    pub fn segments_of(&self, store: StoreId) -> Vec<u32> {
        let segments = self.keeper.files().segments();
        // Of a damaged one it is not known.
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

    /// Says that [`Tenant::usage`] of a store has shrunk without anything having been appended.
    pub fn usage_changed(&self) {
        self.keeper.usage_changed();
    }

    /// Says that a store needs this much less of the log than it has appended, as after deletes. Stores are
    /// asked for their usage again when the sum is large enough; while puts are refused for want of space,
    /// any sum is.
    pub fn usage_fell(&self, bytes: u64) {
        self.keeper.fallen_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Closes the segment that is appended to, so that [`ValueLog::link`] finds all that is there.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn roll(&self) -> Result<()> {
        self.keeper.close_written().map(drop)
    }

    /// Gives a closed segment a second name, for a backup. The store's usage has to name the segment
    /// until this returns.
    ///
    /// # Errors
    /// Those of the disk; [`ErrorKind::Misuse`] for a segment that is not there or not closed.
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

    /// Says that a store is about to be erased. Durable when it returns.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn announce_erasure(&self, store: StoreId) -> Result<()> {
        if !self.keeper.files().has_files() {
            return Ok(());
        }
        let mut identity = self.keeper.identity.lock();
        // Whoever erases it has it open.
        identity.undecided.remove(&store);
        if !identity.known.erased.insert(store) && identity.is_written {
            return Ok(());
        }
        self.keeper.write_identity(&mut identity)
    }

    /// Says that a store's contents are gone, and whose they are from now on: segments that nobody
    /// else needs are dropped at once.
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

/// What [`ValueLog::append`] gives.
pub struct Appended {
    /// The segment of all the records.
    pub segment: Arc<LogSegment>,
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
    Here(Arc<LogSegment>),
    /// No store needed it any more: what a store still has a place for in it stands elsewhere, or was
    /// superseded.
    LetGo,
    /// It was never let go, and is not there: what stood in it is lost.
    Missing,
}

/// What comes of queueing a batch.
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

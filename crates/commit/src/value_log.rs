//! The value log: the node's log for engines whose entries stay in it.
//!
//! The commit log ([`crate::CommitLog`]) holds batches until their engines have written them a second
//! time. Here nothing is written twice: an engine that keeps locations in memory points them into the
//! log's segments, and a segment lives for as long as a store needs it. What is still needed of a
//! segment that is mostly dead is copied to the stores' own files, and the segment goes. Why, and what
//! it costs, stands in `docs/decisions/0005-values-stay-in-the-commit-log.md`; the protocol between the
//! log and an engine stands in [`kvorum_backend::SharedLog`]'s module.
//!
//! It lives in one directory and goes on from run to run: segments are numbered through, a number is
//! never used twice, and a run begins with a new segment. An engine names a segment by its number.
//!
//! Where to look: `files` hands out places and writes, `log_segment` reads, `opening` finds the end
//! after a crash, `admission` brings stores up to date, `upkeep` decides what goes, and `policy` which
//! segment is collected.
//!
//! What this module must not know: which engine a store is, and what fronts and backs mean.

mod admission;
pub(crate) mod contents;
pub(crate) mod files;
pub(crate) mod identity;
mod item;
mod log_segment;
mod opening;
mod policy;
mod upkeep;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use kvorum_backend::{
    Appended, Backend, BackendError, ErrorKind, LogPromise, LogRecord, Result, Sequence, SharedLog,
    SharedSegment, StepBudget, StepOutcome, StoreId,
};
use kvorum_disk::Disk;
use kvorum_segment::{FILE_HEADER_BYTES, SEGMENT_BYTES_MAX};
use parking_lot::Mutex;

use crate::error::from_disk;
use crate::queue::{GroupFailure, Shared};
use crate::value_log::files::Files;
use crate::value_log::identity::Identity;
use crate::value_log::item::Batch;
use crate::value_log::upkeep::Upkeep;

pub use admission::Admission;
pub use opening::ValueLogOpening;

/// How the value log is laid out.
#[derive(Clone, Copy, Debug)]
pub struct ValueLogSettings {
    /// A segment is closed before it grows beyond this; a batch larger than that gets one of its own.
    /// Smaller: less is copied at once, and more files. Bytes.
    pub segment_bytes: u64,
    /// How much of the closed segments may be dead before one is collected. Lower: less space, more
    /// copying. Percent.
    pub dead_percent_max: u8,
}

/// What operators see of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueLogStatus {
    /// Bytes in all segments.
    pub bytes: u64,
    /// Bytes of closed segments that no store needs, when they were counted last.
    pub dead_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of segments that are kept for stores that are not open.
    pub waiting_bytes: u64,
    /// Groups committed since the start.
    pub groups: u64,
    /// Batches committed since the start.
    pub batches: u64,
}

/// The value log of a node. Cheap to clone.
#[derive(Clone)]
pub struct ValueLog {
    shared: Arc<Shared<Files>>,
    keeper: Arc<Keeper>,
}

/// Who needs what.
struct Keeper {
    identity: Mutex<KnownIdentity>,
    /// Weak: the log keeps no store open.
    stores: Mutex<BTreeMap<StoreId, Weak<dyn Backend>>>,
    upkeep: Mutex<Upkeep>,
}

struct KnownIdentity {
    known: Identity,
    /// The file says the same.
    is_written: bool,
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
        let is_written = Identity::read(&*disk, directory)?.is_some();
        let (known, report) = (opened.identity.clone(), opened.report.clone());
        let files = Files::new(disk, directory.to_owned(), settings, opened);
        let log = Self {
            shared: Arc::new(Shared::new(files)),
            keeper: Arc::new(Keeper {
                identity: Mutex::new(KnownIdentity { known, is_written }),
                stores: Mutex::default(),
                upkeep: Mutex::default(),
            }),
        };
        Ok((log, report))
    }

    /// Makes stores known that were just opened with this log, and gives each what it lacks. To be
    /// called before they are used, and for all stores that are there before the first upkeep.
    ///
    /// # Errors
    /// Those of the disk and of the stores; it may be called again.
    pub fn admit(&self, stores: &[Arc<dyn Backend>]) -> Result<Admission> {
        self.admit_stores(stores)
    }

    /// Commits groups until [`ValueLog::stop`]; for one thread of its own. While it runs, awaiting a
    /// ticket is enough.
    pub fn drive(&self) {
        self.shared.drive();
    }

    /// Ends [`ValueLog::drive`] once everything queued is committed. What is appended later is
    /// committed by those who wait for it on a thread.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// True when [`ValueLog::upkeep_step`] has something to do.
    pub fn is_upkeep_due(&self) -> bool {
        self.is_any_upkeep_due()
    }

    /// True when much more than allowed is dead, and upkeep comes before everything else.
    pub fn is_upkeep_pressing(&self) -> bool {
        self.is_too_much_dead()
    }

    /// One step of upkeep: makes the next segment's file, seals a closed one, drops what nobody needs,
    /// or goes on collecting a segment.
    pub fn upkeep_step(&self, budget: StepBudget) -> Result<StepOutcome> {
        self.do_upkeep(budget)
    }

    /// Sizes and counts.
    pub fn status(&self) -> ValueLogStatus {
        let (groups, batches) = self.shared.queue.lock().counts();
        let (dead_bytes, waiting_bytes) = self.dead_and_waiting_bytes();
        ValueLogStatus {
            bytes: self.files().bytes(),
            dead_bytes,
            segments: self.files().segments().len() as u64,
            waiting_bytes,
            groups,
            batches,
        }
    }

    /// Damage that was found since this was asked last, in words.
    pub fn take_damage(&self) -> Vec<String> {
        std::mem::take(&mut self.keeper.upkeep.lock().damage)
    }

    fn files(&self) -> &Files {
        &self.shared.writer
    }

    /// An open store.
    fn engine(&self, store: StoreId) -> Option<Arc<dyn Backend>> {
        self.keeper.stores.lock().get(&store)?.upgrade()
    }

    /// What cannot be promised any more ends the log.
    fn told(&self, failure: GroupFailure) -> BackendError {
        match failure {
            GroupFailure::ThisGroup(error) => error,
            GroupFailure::ForGood(error) => {
                self.shared.fail_for_good(&error);
                error
            }
        }
    }
}

impl SharedLog for ValueLog {
    fn log_id(&self) -> u64 {
        self.files().log_id
    }

    fn wait_for_room(&self) -> Result<()> {
        self.shared.wait_for_room()
    }

    fn append(
        &self,
        store: StoreId,
        sequence: Sequence,
        records: Vec<LogRecord>,
        promise: LogPromise,
    ) -> Result<Appended> {
        let batch = Batch::encode(store, sequence, records)?;
        let len = batch.stored_len();
        if len > SEGMENT_BYTES_MAX - FILE_HEADER_BYTES {
            let detail = format!("a batch of {len} bytes, and a segment has {SEGMENT_BYTES_MAX}");
            return Err(BackendError::new(ErrorKind::TooLarge, detail));
        }
        if self.files().is_stalled() {
            self.files().retry().map_err(|failure| self.told(failure))?;
        }
        self.files()
            .make_room(len)
            .map_err(|failure| self.told(failure))?;
        let mut placed = None;
        let (ticket, is_crowded) = self.shared.push(promise, || {
            let (item, segment) = self.files().place(batch)?;
            placed = Some((segment, item.places.clone()));
            Ok(item)
        })?;
        let (segment, places) = placed.ok_or_else(|| {
            BackendError::new(ErrorKind::Failed, "a batch was queued and has no place")
        })?;
        Ok(Appended {
            segment,
            places,
            ticket,
            is_crowded,
        })
    }

    fn segment(&self, number: u32) -> Option<Arc<dyn SharedSegment>> {
        let found = self.files().segment(number)?;
        Some(found)
    }

    fn newest_segment(&self) -> u32 {
        self.files().newest().number
    }

    fn oldest_segment_of(&self, store: StoreId) -> Option<u32> {
        let segments = self.files().segments();
        let oldest = segments.iter().find(|it| it.holding(store).is_some())?;
        Some(oldest.number)
    }

    fn sync(&self) -> Result<()> {
        let files = self.files();
        let appended = files.appended();
        if files.is_synced_to(appended) {
            return Ok(());
        }
        let flushed = self.shared.flush();
        if files.is_synced_to(appended) {
            return Ok(());
        }
        flushed?;
        // What a full disk refused before, and took since, belongs to no group.
        files.sync_written().map_err(|failure| self.told(failure))?;
        if files.is_synced_to(appended) {
            return Ok(());
        }
        // A failure that was final left what was queued unwritten.
        let detail = "the value log failed before, and has not written everything";
        Err(BackendError::new(ErrorKind::Failed, detail))
    }

    fn usage_changed(&self) {
        self.keeper.upkeep.lock().is_usage_new = true;
    }

    fn roll(&self) -> Result<()> {
        let next = self.files().roll()?;
        // With this, nothing is queued for an older segment.
        self.sync()?;
        self.files()
            .begin(next.number)
            .map_err(|failure| self.told(failure))?;
        while self.files().seal_one()? {}
        Ok(())
    }

    fn link(&self, number: u32, path: &Path) -> Result<()> {
        let closed = self.files().closed();
        let segment = closed.iter().find(|it| it.number == number);
        let segment = segment.ok_or_else(|| {
            let detail = format!("segment {number} of the value log is not there, or not closed");
            BackendError::new(ErrorKind::Misuse, detail)
        })?;
        let linked = self.files().disk.link(&segment.path, path);
        linked.map_err(|error| from_disk(&error))
    }

    fn announce_erasure(&self, store: StoreId) -> Result<()> {
        if !self.files().has_files() {
            return Ok(());
        }
        let mut identity = self.keeper.identity.lock();
        if !identity.known.erased.insert(store) {
            return Ok(());
        }
        self.write_identity(&mut identity)
    }

    fn forget(&self, erased: StoreId, now: StoreId) -> Result<()> {
        {
            let mut stores = self.keeper.stores.lock();
            if let Some(engine) = stores.remove(&erased) {
                stores.insert(now, engine);
            }
        }
        self.release_all(erased)
    }
}

impl ValueLog {
    fn write_identity(&self, identity: &mut KnownIdentity) -> Result<()> {
        identity.is_written = false;
        let files = self.files();
        identity.known.write(&*files.disk, &files.directory)?;
        identity.is_written = true;
        Ok(())
    }
}

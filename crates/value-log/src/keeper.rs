//! The part of the log that admissions, upkeep and callers share: its files with their queue, and its tenants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use kvorum_backend::{BackendError, ErrorKind, Result, StoreId};
use kvorum_disk::Headroom;
use kvorum_segment::Damage;
use parking_lot::Mutex;

use crate::files::{Files, GroupFailure};
use crate::identity::Identity;
use crate::log_segment::LogSegment;
use crate::losses::Losses;
use crate::queue::Shared;
use crate::tenant::Tenant;

/// Weak: the log keeps no store open.
pub(crate) type Stores = BTreeMap<StoreId, Weak<dyn Tenant>>;

/// The files of a log with their queue, its tenants, and their state.
pub(crate) struct Keeper {
    pub(crate) queue: Arc<Shared>,
    pub(crate) losses: Losses,
    pub(crate) identity: Mutex<KnownIdentity>,
    pub(crate) stores: Mutex<Stores>,
    pub(crate) appended_bytes: AtomicU64,
    pub(crate) searches: AtomicU64,
    /// Decrease of the stores' usage since they last reported it, without appends. Bytes.
    pub(crate) fallen_bytes: AtomicU64,
    /// The stores have to report their usage again.
    pub(crate) is_usage_new: AtomicBool,
    /// Damage that was not reported yet, in words.
    damage: Mutex<Vec<String>>,
}

pub(crate) struct KnownIdentity {
    pub(crate) known: Identity,
    /// Erased stores whose erasure an earlier run announced and may not have finished. Their data
    /// is kept until all stores were admitted.
    pub(crate) undecided: BTreeSet<StoreId>,
    /// The file on disk has these contents.
    pub(crate) is_written: bool,
}

impl Keeper {
    pub(crate) fn new(files: Files, losses: Losses, identity: KnownIdentity) -> Self {
        Self {
            queue: Arc::new(Shared::new(files)),
            losses,
            identity: Mutex::new(identity),
            stores: Mutex::default(),
            appended_bytes: AtomicU64::new(0),
            searches: AtomicU64::new(0),
            fallen_bytes: AtomicU64::new(0),
            is_usage_new: AtomicBool::new(false),
            damage: Mutex::default(),
        }
    }

    pub(crate) fn files(&self) -> &Files {
        &self.queue.writer
    }

    /// An open store.
    pub(crate) fn tenant(&self, store: StoreId) -> Option<Arc<dyn Tenant>> {
        self.stores.lock().get(&store)?.upgrade()
    }

    /// Converts a failure to an error; a final one ends the log.
    pub(crate) fn failed(&self, failure: GroupFailure) -> BackendError {
        match failure {
            GroupFailure::ThisGroup(error) => error,
            GroupFailure::ForGood(error) => {
                self.queue.fail_for_good(&error);
                error
            }
        }
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// Those of the disk; a failed sync is final.
    pub(crate) fn sync(&self) -> Result<()> {
        let files = self.files();
        let appended = files.appended();
        if files.is_synced_to(appended) {
            return Ok(());
        }
        let flushed = self.queue.flush();
        if files.is_synced_to(appended) {
            return Ok(());
        }
        flushed?;
        // A batch that was refused by a full disk and written later belongs to no group.
        files
            .sync_written()
            .map_err(|failure| self.failed(failure))?;
        if files.is_synced_to(appended) {
            return Ok(());
        }
        // A final failure left queued batches unwritten.
        let detail = "the value log failed before, and has not written everything";
        Err(BackendError::new(ErrorKind::Failed, detail))
    }

    /// Closes the segment that is appended to, and seals closed ones. Returns the number of the new
    /// active segment.
    pub(crate) fn close_written(&self) -> Result<u32> {
        let files = self.files();
        let next = files.roll()?.number;
        loop {
            // With this, nothing is queued for an older segment.
            self.sync()?;
            files.begin(next).map_err(|failure| self.failed(failure))?;
            if !files.is_behind(next) {
                break;
            }
            // Batches that were queued meanwhile begin the new segment.
            files
                .sync_written()
                .map_err(|failure| self.failed(failure))?;
        }
        while files.seal_one()? {}
        Ok(next)
    }

    /// Measures the room, given the space that the log and its stores take.
    pub(crate) fn measure_room(&self) {
        let own_bytes: u64 = self.tenants().map(|tenant| tenant.own_bytes()).sum();
        let files = self.files();
        files.reserve.set_own_bytes(own_bytes + files.taken_bytes());
        self.measure_headroom();
    }

    /// Measures the free space, without what stores will write.
    pub(crate) fn measure_headroom(&self) -> Headroom {
        let unwritten_bytes = self.tenants().map(|tenant| tenant.unwritten_bytes()).sum();
        let reserve = &self.files().reserve;
        reserve.set_promised_bytes(unwritten_bytes);
        reserve.measure()
    }

    fn tenants(&self) -> impl Iterator<Item = Arc<dyn Tenant>> {
        let stores: Vec<StoreId> = self.stores.lock().keys().copied().collect();
        stores.into_iter().filter_map(|store| self.tenant(store))
    }

    pub(crate) fn write_identity(&self, identity: &mut KnownIdentity) -> Result<()> {
        identity.is_written = false;
        let files = self.files();
        identity.known.write(&*files.disk, &files.directory)?;
        identity.is_written = true;
        Ok(())
    }

    /// Makes upkeep survey the usage of stores again.
    pub(crate) fn usage_changed(&self) {
        self.is_usage_new.store(true, Ordering::Release);
    }

    /// Reports damage once per segment.
    pub(crate) fn note_damage(&self, segment: &LogSegment, damage: &Damage) {
        if !segment.is_damaged() {
            let what = format!("{}: {damage}", segment.path.display());
            self.report(what);
        }
        segment.set_damaged();
    }

    /// Keeps a report of damage until it is taken.
    pub(crate) fn report(&self, what: String) {
        self.damage.lock().push(what);
    }

    pub(crate) fn take_damage(&self) -> Vec<String> {
        std::mem::take(&mut *self.damage.lock())
    }
}

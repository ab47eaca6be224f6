//! A store as a whole: its directory and settings, its notes, its list of losses, and counts since
//! opening.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{BackendError, ErrorKind, Intake, LostRange, Result, Written};
use kvorum_disk::Disk;
use kvorum_segment::SegmentError;
use kvorum_storage_errors::from_segment;
use parking_lot::{Mutex, MutexGuard};

use crate::BitcaskSettings;
use crate::expiry::Expiry;
use crate::lost::LostLog;
use crate::meta::{self, Meta};

/// An open store without its contents.
pub(crate) struct Home {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) settings: BitcaskSettings,
    pub(crate) expiry: Expiry,
    /// Its reserve is the value log's; without a value log, the node sets it.
    pub(crate) intake: Intake,
    pub(crate) counters: Counters,
    /// A copy of the identity in `meta`, whose lock is held across writes.
    identity: AtomicU64,
    meta: Mutex<Meta>,
    lost: Mutex<LostLog>,
}

/// Counts since opening.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) put_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) corrupt_reads: AtomicU64,
    pub(crate) torn_bytes: AtomicU64,
    /// Bytes appended since the last checkpoint began.
    pub(crate) unchecked_bytes: AtomicU64,
    /// Records appended since the last checkpoint began.
    pub(crate) unchecked_records: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    /// Counts records that no checkpoint covers yet.
    pub(crate) fn add_unchecked(&self, bytes: u64, records: u64) {
        Self::add(&self.unchecked_bytes, bytes);
        Self::add(&self.unchecked_records, records);
    }
}

impl Home {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        directory: &Path,
        settings: BitcaskSettings,
        intake: Intake,
        meta: Meta,
        lost: LostLog,
        counters: Counters,
    ) -> Self {
        Self {
            disk,
            directory: directory.to_owned(),
            expiry: Expiry::of(&settings),
            settings,
            intake,
            counters,
            identity: AtomicU64::new(meta.identity),
            meta: Mutex::new(meta),
            lost: Mutex::new(lost),
        }
    }

    /// The identity of the contents: an erasure changes it.
    pub(crate) fn identity(&self) -> u64 {
        self.identity.load(Ordering::Acquire)
    }

    /// Reads the data that outlive all other files.
    pub(crate) fn noted<T>(&self, look: impl FnOnce(&Meta) -> T) -> T {
        look(&self.meta.lock())
    }

    /// Changes the data that outlive all other files, on disk first. If the state of the disk is
    /// unknown, the store takes no more writes: the next opening may treat puts under the old
    /// identity as erased.
    pub(crate) fn change_meta(&self, change: impl FnOnce(&mut Meta)) -> Result<()> {
        let mut held = self.meta.lock();
        let mut changed = held.clone();
        change(&mut changed);
        changed.generation += 1;
        match meta::write(&*self.disk, &self.directory, &changed) {
            Written::Both => {}
            // The next opening writes the second copy again.
            Written::First(error) if error.kind() == ErrorKind::Full => {}
            Written::None(error) => return Err(error),
            Written::First(error) | Written::Unknown(error) => {
                return Err(self.intake.fail(&error));
            }
        }
        self.identity.store(changed.identity, Ordering::Release);
        *held = changed;
        Ok(())
    }

    /// The list of losses. Nothing is set aside while the lock is held.
    pub(crate) fn lost(&self) -> MutexGuard<'_, LostLog> {
        self.lost.lock()
    }

    pub(crate) fn note_lost(&self, range: LostRange) {
        self.lost().add(&*self.disk, range);
    }

    /// Notes damage without losses: the damaged part will be rewritten.
    pub(crate) fn note_mended(&self, file: String, len: u64, what: &str) {
        Counters::add(&self.counters.corrupt_reads, 1);
        let held = format!("{what}; nothing is lost, it is written again");
        self.note_lost(LostRange::new(file, 0, len, held));
    }

    pub(crate) fn count_corrupt(&self, error: &SegmentError) -> BackendError {
        Counters::add(&self.counters.corrupt_reads, 1);
        from_segment(error)
    }

    pub(crate) fn count_written(&self, bytes: u64) {
        Counters::add(&self.counters.written_bytes, bytes);
    }

    /// True if there is room for hints. They shorten openings but free nothing, so scarce space is
    /// left to copies and removals.
    pub(crate) fn has_room_for_hints(&self) -> bool {
        !self.intake.headroom().is_scarce()
    }
}

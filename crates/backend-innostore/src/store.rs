//! The shared parts of an open store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use kvorum_backend::{BackendError, ErrorKind, Intake, Purpose, Replays, Result, Written};
use kvorum_disk::{Disk, DiskLock};
use kvorum_page_tree::manifest::{self, Manifest};
use kvorum_value_log::{Holds, ValueLog};
use parking_lot::Mutex;

use crate::expiry::Expiry;
use crate::losses::Losses;
use crate::pins::Pins;
use crate::settings::{DrawNumber, InnostoreSettings, Shared};
use crate::version::Version;

/// The lock of a store.
pub(crate) const LOCK_NAME: &str = "lock";

/// See the module.
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) log: ValueLog,
    pub(crate) intake: Intake,
    pub(crate) settings: InnostoreSettings,
    pub(crate) shared: Shared,
    pub(crate) draw: DrawNumber,
    pub(crate) expiry: Expiry,
    pub(crate) losses: Losses,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) writer: Mutex<WriteSide>,
    /// Changed under the writer's lock only.
    pub(crate) version: ArcSwap<Version>,
    pub(crate) pins: Pins,
    pub(crate) counters: Counters,
    pub(crate) identity: AtomicU64,
    pub(crate) next_number: AtomicU64,
    /// Bytes of leaves and branches.
    pub(crate) tree_bytes: AtomicU64,
    /// The last batch that readers see.
    pub(crate) visible: AtomicU64,
    /// The sequence up to which every batch is known to be durable.
    pub(crate) durable: AtomicU64,
    pub(crate) has_extras: AtomicBool,
    /// Batches that the log gave back at the opening.
    pub(crate) replays: Replays,
    /// Segments of the log that copies of the store in progress need.
    pub(crate) holds: Holds,
    /// Released when the store is dropped or closed.
    pub(crate) lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// The state under the writer's lock.
pub(crate) struct WriteSide {
    pub(crate) last_sequence: u64,
}

/// Counts since opening.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) put_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) corrupt_reads: AtomicU64,
    pub(crate) rewrites: AtomicU64,
    pub(crate) files_left: AtomicU64,
}

impl Store {
    /// Refuses puts while there is no room to rewrite the whole tree, as scattered puts and
    /// removals may require. So removals go on, and can be moved to pages.
    pub(crate) fn check_room_to_move(&self, purpose: Purpose) -> Result<()> {
        let dirty_bytes = self.version.load().dirty_bytes();
        let wanted = self.tree_bytes.load(Ordering::Relaxed) + dirty_bytes;
        let has_room = || self.intake.headroom().for_removals() >= wanted;
        if purpose == Purpose::Free || has_room() {
            return Ok(());
        }
        self.intake.measure();
        if has_room() {
            return Ok(());
        }
        let detail = format!(
            "{} needs {wanted} bytes to rewrite its pages, and less is free",
            self.directory.display()
        );
        Err(BackendError::new(ErrorKind::Full, detail))
    }

    pub(crate) fn identity(&self) -> u64 {
        self.identity.load(Ordering::Acquire)
    }

    pub(crate) fn visible_sequence(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// The present view: a version, and the sequence up to which it is to be read.
    pub(crate) fn view(&self) -> (Arc<Version>, u64) {
        loop {
            let version = self.version.load_full();
            let sequence = self.visible_sequence();
            // A new overlay may have entries of the sequence.
            if Arc::ptr_eq(&self.version.load().overlay, &version.overlay) {
                return (version, sequence);
            }
        }
    }

    /// Makes all puts so far durable and returns the sequence up to which that holds.
    pub(crate) fn sync_all(&self) -> Result<u64> {
        self.intake.check_not_failed()?;
        let sequence = self.writer.lock().last_sequence;
        self.log.sync()?;
        self.durable.fetch_max(sequence, Ordering::AcqRel);
        Ok(sequence)
    }

    /// Changes the manifest, on disk first. After a failure it stays the same. Once the directory's
    /// lock is released, another process may own the manifest.
    pub(crate) fn change_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let mut held = self.manifest.lock();
        self.intake.check_not_failed()?;
        if self.lock.lock().is_none() {
            return Err(self.intake.closed());
        }
        let mut changed = held.clone();
        change(&mut changed);
        changed.generation += 1;
        changed.next_number = self.next_number.load(Ordering::Relaxed);
        let has_file = |number| changed.files.iter().any(|it| it.number == number);
        let doubts = &self.losses.doubts;
        let (record, doubt) = doubts.record(|name| self.losses.is_there(name, has_file));
        changed.doubts = record;
        match manifest::write(&*self.disk, &self.directory, &changed) {
            Written::Both => {}
            // The change is made; the next one rewrites the second copy.
            Written::First(error) if error.kind() == ErrorKind::Full => {}
            Written::First(error) => {
                *held = changed;
                return Err(self.intake.fail(&error));
            }
            Written::None(error) => return Err(error),
            Written::Unknown(error) => return Err(self.intake.fail(&error)),
        }
        *held = changed;
        doubts.is_written(doubt);
        Ok(())
    }

    /// Exchanges the version.
    pub(crate) fn change_version(&self, change: impl FnOnce(&mut Version)) {
        let _no_put_and_no_other_change = self.writer.lock();
        let mut version = Version::clone(&self.version.load());
        change(&mut version);
        self.version.store(Arc::new(version));
    }

    /// Removes files that no manifest lists any more. A failure costs space until the next opening.
    pub(crate) fn remove_files(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let path = self.directory.join(kvorum_page_tree::file_name(number));
            let _removed_or_left_over = self.disk.remove_file(&path);
        }
    }

    pub(crate) fn count_corrupt_read(&self) {
        self.counters.corrupt_reads.fetch_add(1, Ordering::Relaxed);
    }
}

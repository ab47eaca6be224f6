//! The engine behind the backend trait.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use kvorum_backend::{
    Backend, BackendError, Backups, Batch, Capabilities, Durability, ErrorKind, Flow, FoldDetail,
    FoldFilter, FoldRange, GroupSync, Intake, Lease, Lookup, LostRange, ReadAt, Receipt, Replayed,
    Result, Sequence, Snapshot, Status, StepBudget, StepOutcome, StoreBackup, StoreId, StoredEntry,
    StoredHead, Task, Timestamp,
};
use kvorum_disk::{Disk, Reading, Reserve, remove_if_there};
use kvorum_encoding::StorageKey;
use kvorum_segment::{Compressor, file_name};
use kvorum_storage_errors::IntoBackend;
use kvorum_value_log::ValueLog;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::BitcaskSettings;
use crate::backup;
use crate::checkpoint::CHECKPOINT_NAME;
use crate::contents::Contents;
use crate::entry::decode_front;
use crate::fingerprint::Fingerprints;
use crate::hint::hint_path;
use crate::home::{Counters, Home};
use crate::log_hint::{LogHint, log_hint_path};
use crate::log_share::LogShare;
use crate::log_use;
use crate::lost::LostLog;
use crate::meta::{self, Meta};
use crate::read_cache::ReadCache;
use crate::recovery::Recovery;
use crate::segment_files::SegmentFiles;
use crate::snapshot::BitcaskSnapshot;
use crate::store::Store;
use crate::unread::UnreadRecords;
use crate::upkeep::Upkeep;

pub use crate::store::DrawNumber;

/// The file that an open store holds a lock on.
pub const LOCK_NAME: &str = "lock";
/// Entries that are sampled before a fold decides whether a store is empty.
const SAMPLED_KEYS: usize = 16;

/// An open store.
pub struct Bitcask {
    pub(crate) store: Arc<Store>,
    /// Taken before all locks of the store.
    upkeep: Mutex<Upkeep>,
}

impl Bitcask {
    /// Opens a store, creating it if it is missing. `draw` gives random numbers, for identities and
    /// the secret of fingerprints.
    ///
    /// With a value log, puts of any durability go to the log and stay there, and the store's own
    /// files have collected entries. [`Tenant`](kvorum_value_log::Tenant) describes the steps
    /// before its use. A store with segments of its own uses the log from then on, and cannot
    /// return.
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] when another process has it open, [`ErrorKind::NewerFormat`] when a
    /// newer version wrote it, [`ErrorKind::Corrupt`] when no copy of its identity is whole and
    /// belongs to it. Other damage is listed in [`Status::lost`] and does not fail the opening.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        settings: BitcaskSettings,
        draw: DrawNumber,
        log: Option<ValueLog>,
    ) -> Result<Self> {
        kvorum_disk::create_directory_durably(&*disk, directory).into_backend()?;
        let holder = format!("pid {}\n", std::process::id());
        let lock = disk
            .lock(&directory.join(LOCK_NAME), &holder)
            .into_backend()?;
        let mut lost = LostLog::open(&*disk, directory);
        let belonging = &settings.belonging;
        let mut meta = meta::read_or_create(&*disk, directory, belonging, &*draw, &mut lost)?;
        settle_log_id(&*disk, directory, &mut meta, log.as_ref(), &mut lost)?;
        #[cfg(any(test, feature = "chosen-fingerprints"))]
        let replaced = settings.fingerprint;
        #[cfg(not(any(test, feature = "chosen-fingerprints")))]
        let replaced = None;
        let fingerprints = Fingerprints::new(meta.secret, replaced);
        let recovery = Recovery {
            disk: &*disk,
            directory,
            meta: &meta,
            fingerprints,
            lost,
            log: log.as_ref(),
        };
        let mut recovered = recovery.run()?;
        if log.is_some() {
            // Puts no longer go to the store's own files.
            let writer = &mut recovered.writer;
            writer.retiring.extend(writer.active.take());
        }
        let counters = Counters {
            torn_bytes: AtomicU64::new(recovered.torn_bytes),
            unchecked_bytes: AtomicU64::new(recovered.tail_bytes),
            unchecked_records: AtomicU64::new(recovered.tail_records),
            ..Counters::default()
        };
        let reserve = log.as_ref().map(|it| it.reserve().clone());
        let intake = Intake::new(disk.clone(), directory.to_owned(), reserve);
        let compressor = Compressor::new(settings.compression);
        let home = Home::new(
            disk,
            directory,
            settings,
            intake,
            meta,
            recovered.lost,
            counters,
        );
        let home = Arc::new(home);
        let contents = Arc::new(Contents {
            catalog: RwLock::new(recovered.catalog),
            keydir: recovered.keydir,
            fingerprints,
        });
        let (covered, hidden) = (recovered.covered, recovered.hidden);
        let log = Arc::new(LogShare::new(home.clone(), log, covered, hidden));
        let (at_home, held, logged) = (home.clone(), contents.clone(), log.clone());
        let files = Arc::new(SegmentFiles::new(at_home, held, logged, recovered.writer));
        let synced = GroupSync::of_store(Arc::downgrade(&files), SegmentFiles::sync_all);
        let store = Arc::new(Store {
            home,
            contents,
            log,
            files,
            compressor,
            draw,
            unread: UnreadRecords::default(),
            group: GroupSync::new(synced),
            cache: OnceLock::new(),
            lock: Mutex::new(Some(lock)),
        });
        Ok(Self {
            store,
            upkeep: Mutex::default(),
        })
    }

    /// Makes the store keep read entries in a cache that stores share. A second cache is ignored.
    #[must_use]
    pub fn with_cache(self, cache: Arc<ReadCache>) -> Self {
        let _first = self.store.cache.set(cache);
        self
    }

    /// Keeps puts to files of the store's own off the reserve. Has no effect on a store over the
    /// value log, which has its own reserve. A second reserve is ignored.
    #[must_use]
    pub fn with_reserve(self, reserve: Arc<Reserve>) -> Self {
        self.store.home.intake.set_reserve(reserve);
        self
    }

    /// Upkeep, for callers that write under its lock. Closing holds the lock too, and refuses
    /// callers that waited for it: the directory may be another process's.
    pub(crate) fn writable_upkeep(&self) -> Result<MutexGuard<'_, Upkeep>> {
        let upkeep = self.upkeep.lock();
        self.store.home.intake.check_writable()?;
        Ok(upkeep)
    }
}

impl Store {
    fn close(&self, upkeep: &mut Upkeep) -> Result<()> {
        {
            let _puts_wait = self.files.writer.lock();
            if self.home.intake.close() {
                return Ok(());
            }
        }
        upkeep.abandon();
        let synced = self.files.sync_all();
        let finished = synced.clone().and_then(|_| upkeep.finish(&self.files));
        *self.lock.lock() = None;
        // The log may have had no room for queued batches, which are in memory alone.
        synced?;
        match finished {
            // On a full disk the puts are durable, but the next opening reads more.
            Err(error) if error.kind() == ErrorKind::Full => Ok(()),
            finished => finished,
        }
    }

    fn erase(&self, upkeep: &mut Upkeep) -> Result<()> {
        // Puts wait for the device here, since there is no segment for them.
        let mut writer = self.files.writer.lock();
        self.home.intake.check_writable()?;
        let sequence = writer.last_sequence;
        let next_segment = writer.next_segment;
        let erased = StoreId(self.home.identity());
        if let Some(log) = &self.log.log {
            log.announce_erasure(erased)?;
        }
        self.home.change_meta(|meta| {
            meta.erased = meta.identity;
            meta.identity = (self.draw)();
            meta.sequence = sequence;
            meta.next_segment = next_segment;
            meta.retired.clear();
            // As in a new store: no checkpoint refers to the log yet, and none is missing.
            meta.value_log = 0;
        })?;
        let now = self.home.identity();
        self.log.cover(sequence);
        self.log.hidden.lock().clear();
        upkeep.forget(&self.files);
        let prepared = self.files.forget_all(&mut writer);
        let log_hints: Arc<Vec<Arc<LogHint>>>;
        let numbers = {
            let mut catalog = self.contents.catalog.write();
            self.contents.keydir.clear();
            log_hints = catalog.log_hints.clone();
            let numbers = catalog.clear();
            self.contents.keydir.show_places(&catalog.places);
            catalog.last_sequence = sequence;
            numbers.into_iter().chain(prepared)
        };
        self.files.note_durable(sequence);
        self.home.lost().clear(&*self.home.disk);
        let mut paths = vec![self.home.directory.join(CHECKPOINT_NAME)];
        for number in numbers {
            paths.push(self.home.directory.join(file_name(u64::from(number))));
            paths.push(hint_path(&self.home.directory, number));
        }
        let log_hints = log_hints.iter().map(|hint| hint.number);
        paths.extend(log_hints.map(|number| log_hint_path(&self.home.directory, number)));
        let removed = self.remove_erased(&paths);
        // Done even if files are left: the log identifies stores by their present identity.
        let forgotten = match &self.log.log {
            Some(log) => log.forget(erased, StoreId(now)),
            None => Ok(()),
        };
        removed.and(forgotten)
    }

    fn remove_erased(&self, paths: &[PathBuf]) -> Result<()> {
        for path in paths {
            remove_if_there(&*self.home.disk, path).into_backend()?;
        }
        self.home
            .disk
            .sync_directory(&self.home.directory)
            .into_backend()
    }

    /// True when one of a few entries is unexpired: then the store is not empty, and no fold is
    /// needed.
    fn has_unexpired_sample(&self, now: Timestamp) -> bool {
        let sample = self.contents.keydir.sample(SAMPLED_KEYS);
        sample.iter().any(|(slot, place)| {
            let front = place.read_front(slot.location(), Reading::MayBlock);
            front.is_ok_and(|front| {
                decode_front(&front.front)
                    .is_ok_and(|front| !self.home.expiry.is_over(&front.fields, now))
            })
        })
    }

    fn status(&self, upkeep: &Upkeep) -> Status {
        let side_bytes: u64 = [CHECKPOINT_NAME, "store-0", "store-1"]
            .iter()
            .filter_map(|name| {
                self.home
                    .disk
                    .info(&self.home.directory.join(name))
                    .ok()
                    .flatten()
            })
            .map(|info| info.len)
            .sum();
        let catalog = self.contents.catalog.read();
        let stats = || catalog.segments.values().map(|entry| entry.stats);
        let hints = catalog.segments.values();
        let hint_lens = hints.filter_map(|entry| Some(entry.segment.hint.read().as_ref()?.len()));
        let hint_lens = hint_lens.chain(catalog.log_hints.iter().map(|hint| hint.table.len()));
        let (hint_files, hint_bytes) = hint_lens.fold((0, 0), |(n, sum), len| (n + 1, sum + len));
        let segment_bytes: u64 = stats().map(|it| it.data_end).sum();
        let shared = || catalog.shared.values().map(|entry| entry.stats);
        let shared_bytes: u64 = shared().map(|it| it.data_bytes()).sum();
        let shared_live_bytes: u64 = shared().map(|it| it.live_bytes).sum();
        let counters = &self.home.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Status {
            engine: "bitcask",
            keys: self.contents.keydir.len(),
            live_bytes: stats().map(|it| it.live_bytes).sum::<u64>() + shared_live_bytes,
            garbage_bytes: stats().map(|it| it.garbage_bytes()).sum(),
            disk_bytes: segment_bytes + hint_bytes + side_bytes + shared_bytes,
            files: catalog.segments.len() as u64 + hint_files,
            memory_bytes: self.contents.keydir.memory_bytes() + catalog.memory_bytes(),
            pinned_bytes: catalog.pinned_bytes(),
            backlog_bytes: upkeep.backlog_bytes(&self.files, &catalog),
            put_bytes: read(&counters.put_bytes),
            written_bytes: read(&counters.written_bytes),
            corrupt_reads: read(&counters.corrupt_reads),
            lost: self.home.lost().ranges().to_vec(),
            details: vec![
                ("segments", catalog.segments.len().to_string()),
                (
                    "removals",
                    stats().map(|it| it.removals).sum::<u64>().to_string(),
                ),
                ("torn_tail_bytes", read(&counters.torn_bytes).to_string()),
                (
                    "bytes_since_checkpoint",
                    read(&counters.unchecked_bytes).to_string(),
                ),
                ("value_log_segments", catalog.shared.len().to_string()),
                ("value_log_bytes", shared_bytes.to_string()),
                ("log_hints", catalog.log_hints.len().to_string()),
                (
                    "unhinted_records",
                    catalog
                        .shared
                        .values()
                        .map(|entry| entry.unhinted)
                        .sum::<usize>()
                        .to_string(),
                ),
            ],
        }
    }
}

impl Backend for Bitcask {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: false,
            indexes: false,
            backups: true,
            drops_entries: self.store.home.expiry.is_by_age(),
        }
    }

    fn identity(&self) -> StoreId {
        StoreId(self.store.home.identity())
    }

    fn put(&self, batch: &Batch, durability: Durability) -> Result<Receipt> {
        self.store.put(batch, durability)
    }

    fn get(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredEntry>> {
        self.store.get(key, at)
    }

    fn head(&self, key: &StorageKey, at: ReadAt) -> Result<Lookup<StoredHead>> {
        self.store.head(key, at)
    }

    fn snapshot(&self, lease: Lease) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(BitcaskSnapshot::take(&self.store, lease)))
    }

    fn sync(&self) -> Result<Sequence> {
        self.store.files.sync_all().map(Sequence)
    }

    fn durable(&self) -> Sequence {
        Sequence(self.store.files.durable())
    }

    fn take_replayed(&self) -> Option<Replayed> {
        self.store.log.replays.take()
    }

    fn is_empty(&self, now: Timestamp) -> Result<bool> {
        if self.store.contents.keydir.len() == 0 {
            return Ok(true);
        }
        if self.store.has_unexpired_sample(now) {
            return Ok(false);
        }
        let mut is_empty = true;
        let snapshot = BitcaskSnapshot::take(&self.store, Lease::Unlimited);
        snapshot.fold(
            FoldDetail::Keys,
            &FoldRange::all(),
            &FoldFilter::unexpired(now),
            &mut |_| {
                is_empty = false;
                Flow::Stop
            },
        )?;
        Ok(is_empty)
    }

    fn status(&self) -> Status {
        self.store.status(&self.upkeep.lock())
    }

    fn maintenance_due(&self, now: Timestamp) -> Vec<Task> {
        if self.store.home.intake.check_writable().is_err() {
            return Vec::new();
        }
        self.upkeep.lock().due(&self.store.files, now)
    }

    fn maintenance_step(
        &self,
        task: &Task,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let mut upkeep = self.writable_upkeep()?;
        upkeep.step(&self.store.files, task, budget, now)
    }

    fn erase(&self) -> Result<()> {
        self.store.erase(&mut self.upkeep.lock())
    }

    fn close(&self) -> Result<()> {
        self.store.close(&mut self.upkeep.lock())
    }

    fn backups(&self) -> Option<&dyn Backups> {
        Some(self)
    }
}

impl Backups for Bitcask {
    fn backup(&self, directory: &Path) -> Result<StoreBackup> {
        let home = &self.store.home;
        home.intake.check_writable()?;
        backup::check_absent(home, directory)?;
        let mut upkeep = self.writable_upkeep()?;
        self.store.files.end_active()?;
        upkeep.seal_all(&self.store.files)?;
        let held = log_use::hold(&self.store.files);
        let files = backup::link_files(home, &self.store.contents, directory)?;
        drop(upkeep);
        home.disk.sync_directory(directory).into_backend()?;
        Ok(StoreBackup {
            files,
            held: held.map(|it| it as Arc<_>),
        })
    }
}

/// Checks that the value log is the one with the store's entries. The store notes a log with the
/// first checkpoint that refers to it; until then the log may not outlive a crash.
fn settle_log_id(
    disk: &dyn Disk,
    directory: &Path,
    meta: &mut Meta,
    log: Option<&ValueLog>,
    lost: &mut LostLog,
) -> Result<()> {
    let log_id = log.map_or(0, ValueLog::log_id);
    if meta.value_log == 0 || meta.value_log == log_id {
        return Ok(());
    }
    if log.is_none() {
        let path = directory.display();
        let detail = format!("{path} has entries in a value log, and was opened without it");
        return Err(BackendError::new(ErrorKind::Misuse, detail));
    }
    let gone = format!("{:016x}", meta.value_log);
    let held = format!("entries in the value log {gone}, which is missing; there is another one");
    let file = format!("{}{gone}", crate::shared_place::LOST_PREFIX);
    lost.add(disk, LostRange::new(file, 0, 0, held));
    meta.value_log = 0;
    meta.generation += 1;
    meta::settle(disk, directory, meta)
}

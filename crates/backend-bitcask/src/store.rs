//! The store: what its parts share, and the order of its locks.
//!
//! Locks are taken in this order and released before any wait for a device, except where a comment
//! says otherwise: the engine's upkeep, writer, catalog, shards of the key directory in ascending order. A put
//! holds the writer's lock over one append. A reader of one key takes the lock of one shard, for as
//! long as a lookup takes, and no other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use kvorum_backend::{ErrorKind, GroupSync, Intake, Result, Written};
use kvorum_disk::{Disk, DiskLock};
use kvorum_segment::{Compressor, SegmentSync, SegmentWriter, file_name};
use kvorum_storage_errors::{IntoBackend, from_segment};
use kvorum_value_log::{Holds, ValueLog};
use parking_lot::{Mutex, RwLock};

use crate::BitcaskSettings;
use crate::fingerprint::Fingerprints;
use crate::keydir::Keydir;
use crate::lost::LostLog;
use crate::meta::{self, Meta};
use crate::read_cache::ReadCache;
use crate::segment::{Segment, segment_id, segment_number};
use crate::segment_stats::SegmentStats;
use crate::segments::{Catalog, SegmentEntry, too_many_segments};
use crate::unread::UnreadRecords;

/// Draws a random number.
pub type DrawNumber = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What all parts of an open store share.
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) settings: BitcaskSettings,
    pub(crate) draw: DrawNumber,
    pub(crate) writer: Mutex<WriteSide>,
    pub(crate) catalog: RwLock<Catalog>,
    /// Changed by whoever holds the catalog for writing.
    pub(crate) keydir: Keydir,
    pub(crate) meta: Mutex<Meta>,
    pub(crate) lost: Mutex<LostLog>,
    pub(crate) unread: UnreadRecords,
    pub(crate) fingerprints: Fingerprints,
    pub(crate) compressor: Compressor,
    pub(crate) group: Arc<GroupSync>,
    pub(crate) counters: Counters,
    /// Shared by the stores of a node; there is none until the node says so.
    pub(crate) cache: OnceLock<Arc<ReadCache>>,
    /// Its reserve is the log's, or without a log unset until the node sets it.
    pub(crate) intake: Intake,
    /// The sequence up to which every batch is known to be durable.
    pub(crate) durable: AtomicU64,
    /// The value log, where entries stay that were put through it.
    pub(crate) log: Option<ValueLog>,
    /// The identity of the contents, as in `meta`, whose lock is held across writes.
    pub(crate) identity: AtomicU64,
    /// The batch up to which the store's own files say what it has.
    pub(crate) covered: AtomicU64,
    /// Removals that opening found in the store's own files, by fingerprint and check: without a
    /// checkpoint the log gives back older entries of their keys as well. Empty once it has.
    pub(crate) hidden: Mutex<BTreeMap<(u64, u64), u64>>,
    /// How long segments are to be at present, within what the settings allow. Bytes.
    pub(crate) file_bytes_aim: AtomicU64,
    /// What copies of the store that are being made need of the log.
    pub(crate) holds: Holds,
    /// The time when upkeep was last asked for, in microseconds.
    pub(crate) known_time: AtomicU64,
    /// What was known to have expired in the log when the log last asked. Bytes.
    pub(crate) expired_told_bytes: AtomicU64,
    /// Released when the store is dropped or closed.
    pub(crate) lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// What the writer's lock protects.
#[derive(Default)]
pub(crate) struct WriteSide {
    pub(crate) active: Option<SegmentWriter>,
    /// The segment that follows the active one, created ahead of time and not known to readers.
    pub(crate) prepared: Option<SegmentWriter>,
    /// Full segments that upkeep has yet to seal.
    pub(crate) retiring: Vec<SegmentWriter>,
    /// Segments that may hold records not yet durable, oldest first.
    pub(crate) unsynced: Vec<(u32, SegmentSync)>,
    pub(crate) next_segment: u32,
    pub(crate) last_sequence: u64,
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
    /// Records appended since then.
    pub(crate) unchecked_records: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

impl Store {
    pub(crate) fn log_id(&self) -> u64 {
        self.identity.load(Ordering::Acquire)
    }

    /// Syncs everything put so far and returns the sequence up to which that holds.
    pub(crate) fn sync_all(&self) -> Result<u64> {
        self.intake.check_not_failed()?;
        // Before the handles: what is counted here is in a file by now.
        let copies = self.catalog.read().unsynced_copies();
        let (handles, sequence) = {
            let writer = self.writer.lock();
            (writer.unsynced.clone(), writer.last_sequence)
        };
        for (_, handle) in &handles {
            handle
                .sync()
                .map_err(|error| self.intake.fail(&from_segment(&error)))?;
        }
        if let Some(log) = &self.log {
            log.sync()?;
            if !copies.is_empty() {
                self.catalog.write().copies_are_durable(&copies);
                log.usage_changed();
            }
        }
        self.durable.fetch_max(sequence, Ordering::AcqRel);
        self.mark_if_idle(sequence);
        Ok(sequence)
    }

    /// Leaves proof of what was synced when no later record is there to carry it.
    fn mark_if_idle(&self, sequence: u64) {
        if let Some(mut writer) = self.writer.try_lock()
            && writer.last_sequence == sequence
            && let Some(active) = &mut writer.active
        {
            // Without the mark, damage to the last group may look like a torn tail; no more.
            let _marked_or_full_disk = active.mark();
        }
    }

    /// Creates a segment and makes it known to readers. Waits for the device.
    pub(crate) fn create_segment(&self, number: u32, is_merged: bool) -> Result<SegmentWriter> {
        let writer = self.create_file(number, is_merged)?;
        self.show_segment(&writer, is_merged)?;
        Ok(writer)
    }

    /// Creates the file of a segment. Waits for the device.
    pub(crate) fn create_file(&self, number: u32, is_merged: bool) -> Result<SegmentWriter> {
        let id = segment_id(self.log_id(), number, is_merged);
        let path = self.directory.join(file_name(id.number));
        SegmentWriter::create(&*self.disk, &path, id).into_backend()
    }

    /// Makes a new segment known to readers.
    pub(crate) fn show_segment(&self, writer: &SegmentWriter, is_merged: bool) -> Result<()> {
        let mut catalog = self.catalog.write();
        let place = catalog.take_place().ok_or_else(too_many_segments)?;
        let segment = Segment::new(writer.reader(), segment_number(writer), place, is_merged);
        catalog.add_segment(SegmentEntry::new(segment, SegmentStats::default(), false));
        self.keydir.show_places(&catalog.places);
        Ok(())
    }

    /// Seals a segment that nothing is appended to any more. On a full disk it is left to be sealed
    /// later.
    pub(crate) fn seal(&self, mut writer: SegmentWriter) -> Result<()> {
        let number = segment_number(&writer);
        let seal = match writer.seal() {
            Ok(seal) => seal,
            Err(error) => {
                let error = from_segment(&error);
                if error.kind() != ErrorKind::Full {
                    return Err(self.intake.fail(&error));
                }
                self.writer.lock().retiring.push(writer);
                return Err(error);
            }
        };
        let mut write_side = self.writer.lock();
        write_side
            .unsynced
            .retain(|(unsynced, _)| *unsynced != number);
        let mut catalog = self.catalog.write();
        let entry = catalog.own_mut(number);
        entry.is_sealed = true;
        // A mark may stand behind the last record.
        entry.stats.data_end = seal.data_end;
        Ok(())
    }

    /// Changes what outlives everything else, on disk first. Where it is not known what the disk has, nothing
    /// more is written: a next opening may take what is put under the old identity for erased.
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
        *held = changed;
        Ok(())
    }
}

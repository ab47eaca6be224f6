//! The files of a store's own segments: the active segment, its successor and predecessors, and
//! their syncs.
//!
//! Locks of a store are taken in this order and released before any wait for a device, except where a comment
//! says otherwise: the engine's upkeep, writer, catalog, shards of the key directory in ascending order. A put
//! holds the writer's lock during one append. A reader of one key takes only the lock of one shard,
//! for the time of a lookup.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_segment::{SegmentSync, SegmentWriter, file_name};
use kvorum_storage_errors::{IntoBackend, from_segment};
use parking_lot::Mutex;

use crate::contents::Contents;
use crate::hint::hint_path;
use crate::home::Home;
use crate::log_share::LogShare;
use crate::segment::{Segment, segment_id, segment_number};
use crate::segment_stats::SegmentStats;
use crate::segments::{SegmentEntry, too_many_segments};
use crate::slot::OFFSET_BYTES_MAX;

/// The file set of a store, with its parts: the argument of jobs.
pub(crate) struct SegmentFiles {
    pub(crate) home: Arc<Home>,
    pub(crate) contents: Arc<Contents>,
    pub(crate) log: Arc<LogShare>,
    pub(crate) writer: Mutex<WriteSide>,
    /// The sequence up to which every batch is known to be durable.
    durable: AtomicU64,
    /// The present target for the bytes of segments, within the settings' limit.
    bytes_aim: AtomicU64,
    /// Retired segments with files that could not be removed.
    unremoved: Mutex<Vec<u32>>,
}

/// The state under the writer's lock.
#[derive(Default)]
pub(crate) struct WriteSide {
    pub(crate) active: Option<SegmentWriter>,
    /// The segment that follows the active one, created in advance and invisible to readers.
    pub(crate) prepared: Option<SegmentWriter>,
    /// Full segments that upkeep has yet to seal.
    pub(crate) retiring: Vec<SegmentWriter>,
    /// Segments that may hold records not yet durable, oldest first.
    pub(crate) unsynced: Vec<(u32, SegmentSync)>,
    pub(crate) next_segment: u32,
    pub(crate) last_sequence: u64,
}

impl WriteSide {
    /// Bytes appended and not yet synced.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        let handles = self.unsynced.iter();
        let behind = handles.map(|(_, it)| it.written_to().saturating_sub(it.synced_to()));
        behind.sum()
    }

    fn take_number(&mut self) -> u32 {
        self.next_segment += 1;
        self.next_segment - 1
    }
}

impl SegmentFiles {
    /// All records in `writer` are durable.
    pub(crate) fn new(
        home: Arc<Home>,
        contents: Arc<Contents>,
        log: Arc<LogShare>,
        writer: WriteSide,
    ) -> Self {
        let durable = contents.catalog.read().last_sequence;
        Self {
            home,
            contents,
            log,
            writer: Mutex::new(writer),
            durable: AtomicU64::new(durable),
            bytes_aim: AtomicU64::new(u64::MAX),
            unremoved: Mutex::default(),
        }
    }

    /// The sequence up to which every batch is known to be durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Notes that batches up to this one are durable.
    pub(crate) fn note_durable(&self, sequence: u64) {
        self.durable.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Syncs everything put so far, and returns the last durable sequence.
    pub(crate) fn sync_all(&self) -> Result<u64> {
        self.home.intake.check_not_failed()?;
        // Counted before the handles are taken: these copies are in files already.
        let copies = self.contents.catalog.read().unsynced_copies();
        let (handles, sequence) = {
            let writer = self.writer.lock();
            (writer.unsynced.clone(), writer.last_sequence)
        };
        for (_, handle) in &handles {
            handle
                .sync()
                .map_err(|error| self.home.intake.fail(&from_segment(&error)))?;
        }
        if let Some(log) = &self.log.log {
            log.sync()?;
            if !copies.is_empty() {
                self.contents.catalog.write().copies_are_durable(&copies);
                log.usage_changed();
            }
        }
        self.note_durable(sequence);
        self.mark_if_idle(sequence);
        Ok(sequence)
    }

    /// Writes a mark that proves the last sync, if no record was written since.
    fn mark_if_idle(&self, sequence: u64) {
        if let Some(mut writer) = self.writer.try_lock()
            && writer.last_sequence == sequence
            && let Some(active) = &mut writer.active
        {
            // Without the mark, damage to the last group may look like a torn tail.
            let _marked_or_full_disk = active.mark();
        }
    }

    /// The segment to append to: the present one, or a new one if that is full.
    pub(crate) fn active_for<'w>(
        &self,
        writer: &'w mut WriteSide,
        len: u64,
    ) -> Result<&'w mut SegmentWriter> {
        if len > OFFSET_BYTES_MAX {
            return Err(batch_too_large(len));
        }
        let has_room = |active: &mut SegmentWriter| !self.is_full_for(active, len);
        if let Some(active) = writer.active.take_if(has_room) {
            return Ok(writer.active.insert(active));
        }
        let created = self.next_active(writer)?;
        let number = segment_number(&created);
        writer.unsynced.push((number, created.sync_handle()));
        // Sealing waits for the device, so it is left to upkeep.
        let full = writer.active.take();
        writer.retiring.extend(full);
        Ok(writer.active.insert(created))
    }

    /// The segment after the active one. Upkeep prepares it; if it has not yet, after an opening or
    /// because a segment filled quickly, puts wait for the device.
    fn next_active(&self, writer: &mut WriteSide) -> Result<SegmentWriter> {
        if let Some(prepared) = writer.prepared.take() {
            self.show(&prepared, false)?;
            return Ok(prepared);
        }
        let created = self.create(writer.next_segment, false)?;
        self.show(&created, false)?;
        writer.next_segment += 1;
        Ok(created)
    }

    /// A new segment for copies, visible to readers. Waits for the device.
    pub(crate) fn begin_copies(&self) -> Result<SegmentWriter> {
        let number = self.writer.lock().take_number();
        let created = self.create(number, true)?;
        self.show(&created, true)?;
        let mut writer = self.writer.lock();
        writer.unsynced.push((number, created.sync_handle()));
        Ok(created)
    }

    /// True when there is no active segment, or one so full that the next should exist. A store
    /// over the value log needs none.
    pub(crate) fn is_next_wanted(&self) -> bool {
        let half = self.bytes_max() / 2;
        let is_half_full = |active: &SegmentWriter| active.end() > half;
        let writer = self.writer.lock();
        self.log.log.is_none()
            && writer.prepared.is_none()
            && writer.active.as_ref().is_none_or(is_half_full)
    }

    /// Creates the segment that follows the active one, if it is missing. The caller holds upkeep's
    /// lock.
    pub(crate) fn prepare_next(&self) -> Result<()> {
        let number = {
            let mut writer = self.writer.lock();
            if writer.prepared.is_some() {
                return Ok(());
            }
            writer.take_number()
        };
        let created = self.create(number, false)?;
        self.writer.lock().prepared = Some(created);
        Ok(())
    }

    /// Ends the active segment; the next put begins another. The caller holds upkeep's lock.
    pub(crate) fn end_active(&self) -> Result<()> {
        if self.writer.lock().active.is_none() {
            return Ok(());
        }
        // Otherwise the next put would wait for the file.
        self.prepare_next()?;
        let mut writer = self.writer.lock();
        let active = writer.active.take();
        writer.retiring.extend(active);
        Ok(())
    }

    /// Creates the file of a segment. Waits for the device.
    fn create(&self, number: u32, is_merged: bool) -> Result<SegmentWriter> {
        let id = segment_id(self.home.identity(), number, is_merged);
        let path = self.home.directory.join(file_name(id.number));
        SegmentWriter::create(&*self.home.disk, &path, id).into_backend()
    }

    /// Makes a new segment visible to readers.
    fn show(&self, writer: &SegmentWriter, is_merged: bool) -> Result<()> {
        let mut catalog = self.contents.catalog.write();
        let place = catalog.take_place().ok_or_else(too_many_segments)?;
        let segment = Segment::new(writer.reader(), segment_number(writer), place, is_merged);
        catalog.add_segment(SegmentEntry::new(segment, SegmentStats::default(), false));
        self.contents.keydir.show_places(&catalog.places);
        Ok(())
    }

    /// The present length at which a segment is full.
    pub(crate) fn bytes_max(&self) -> u64 {
        let bytes_max = self.home.settings.file_bytes_max.min(OFFSET_BYTES_MAX);
        bytes_max.min(self.bytes_aim.load(Ordering::Relaxed))
    }

    /// Sets the target for new segments, within the settings' limit.
    pub(crate) fn aim_at(&self, bytes: u64) {
        self.bytes_aim.store(bytes, Ordering::Relaxed);
    }

    /// True when records of this length have to go to the next segment.
    pub(crate) fn is_full_for(&self, segment: &SegmentWriter, len: u64) -> bool {
        segment.position().records > 0 && segment.end() + len > self.bytes_max()
    }

    /// Seals full segments up to `number`, oldest first, so that a seal proves all before it.
    pub(crate) fn seal_retiring(&self, number: u32) -> Result<()> {
        loop {
            let oldest = {
                let mut writer = self.writer.lock();
                writer.retiring.sort_by_key(segment_number);
                match writer.retiring.first() {
                    Some(oldest) if segment_number(oldest) <= number => writer.retiring.remove(0),
                    _ => return Ok(()),
                }
            };
            self.seal(oldest)?;
        }
    }

    /// Seals a segment without further appends. On a full disk it is left for later.
    pub(crate) fn seal(&self, mut writer: SegmentWriter) -> Result<()> {
        let number = segment_number(&writer);
        let seal = match writer.seal() {
            Ok(seal) => seal,
            Err(error) => {
                let error = from_segment(&error);
                if error.kind() != ErrorKind::Full {
                    return Err(self.home.intake.fail(&error));
                }
                self.writer.lock().retiring.push(writer);
                return Err(error);
            }
        };
        let mut write_side = self.writer.lock();
        write_side
            .unsynced
            .retain(|(unsynced, _)| *unsynced != number);
        let mut catalog = self.contents.catalog.write();
        let entry = catalog.own_mut(number);
        entry.is_sealed = true;
        // A mark may be behind the last record.
        entry.stats.data_end = seal.data_end;
        Ok(())
    }

    /// Removes the files of a segment that is noted as retired. Files that cannot be removed are
    /// tried again later, or at the next opening.
    pub(crate) fn remove_retired(&self, number: u32) {
        if self.unlink(number).is_err() {
            self.unremoved.lock().push(number);
        }
    }

    /// Retired segments whose files still exist.
    pub(crate) fn unremoved(&self) -> Vec<u32> {
        self.unremoved.lock().clone()
    }

    /// Tries again to remove the files of a retired segment.
    pub(crate) fn remove_again(&self, number: u32) -> Result<()> {
        // Other segments are in use.
        if !self.unremoved.lock().contains(&number) {
            return Ok(());
        }
        self.unlink(number).into_backend()?;
        self.unremoved.lock().retain(|it| *it != number);
        Ok(())
    }

    fn unlink(&self, number: u32) -> kvorum_disk::Result<()> {
        let directory = &self.home.directory;
        let data = directory.join(file_name(u64::from(number)));
        for path in [data, hint_path(directory, number)] {
            kvorum_disk::remove_if_there(&*self.home.disk, &path)?;
        }
        self.home.disk.sync_directory(directory)
    }

    /// Drops all segments, as in an erasure, and returns the number of the prepared one, which the
    /// catalog lacks.
    pub(crate) fn forget_all(&self, writer: &mut WriteSide) -> Option<u32> {
        self.unremoved.lock().clear();
        let prepared = writer.prepared.take();
        *writer = WriteSide {
            next_segment: writer.next_segment,
            last_sequence: writer.last_sequence,
            ..WriteSide::default()
        };
        prepared.as_ref().map(segment_number)
    }
}

fn batch_too_large(len: u64) -> BackendError {
    let detail = format!("a batch of {len} bytes, expected at most {OFFSET_BYTES_MAX}");
    BackendError::new(ErrorKind::TooLarge, detail)
}

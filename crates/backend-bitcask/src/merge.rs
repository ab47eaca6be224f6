//! Merging: what is live in one finished segment is copied elsewhere, then the segment is removed.
//!
//! Records keep their sequence, so the order of files says nothing and any subset may be merged in any
//! order. A removal goes with its segment only when no other segment can hold an older entry of its
//! key; an expired entry whose key may have older ones becomes a removal. Everything is synced before
//! the segment is noted as retired, and noted before it is unlinked: a crash at any point leaves
//! either both or what was copied.

use std::sync::Arc;

use kvorum_backend::{LostRange, Result, StepBudget, StepOutcome, Timestamp};
use kvorum_segment::{
    BatchPlace, EncodedBack, Location, Record, Scan, ScanOptions, Scanned, SegmentWriter,
    StoredRecord, file_name,
};

use crate::entry::{KIND_ENTRY, encode_removal};
use crate::error::IntoBackend;
use crate::hint::{HintFile, hint_path};
use crate::key_blocks::HintError;
use crate::key_table::KeyEntry;
use crate::segments::{Catalog, Segment};
use crate::slot::Slot;
use crate::store::{Counters, Store};
use crate::upkeep::Upkeep;
use crate::write::segment_number;

/// Copies are appended in pieces of about this size.
pub(crate) const GATHERED_BYTES: u64 = 1 << 20;

/// A merge in progress.
pub(crate) struct MergeJob {
    pub(crate) victim: Arc<Segment>,
    source: Source,
    /// Read, and left for the next step because the budget was used up.
    pending: Option<StoredRecord>,
}

enum Source {
    /// All records, in the order of the file.
    Records(Box<Scan>),
    /// The keys alone: everything has expired, and nothing needs to be copied.
    Keys { hint: Arc<HintFile>, block: usize },
}

/// What becomes of a record.
pub(crate) enum Fate {
    /// Nothing points to it any more.
    Gone,
    /// It is copied; an entry's slot follows.
    Copied(Option<Slot>),
    /// It has expired, and older entries of its key may be left.
    BecomesRemoval(Slot),
    /// It has expired, and nothing is left to be hidden.
    Expired(Slot),
}

/// Records on their way to the output.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) records: Vec<(StoredRecord, Fate)>,
    pub(crate) bytes: u64,
}

impl MergeJob {
    /// How far it has come, in bytes of the victim.
    pub(crate) fn position(&self) -> u64 {
        match &self.source {
            Source::Records(scan) => scan.read_to(),
            Source::Keys { .. } => 0,
        }
    }
}

impl Store {
    /// Does a part of merging segment `number`.
    pub(crate) fn merge_step(
        &self,
        upkeep: &mut Upkeep,
        number: u32,
        is_expiry: bool,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let under_way = upkeep
            .merge
            .take()
            .filter(|job| job.victim.number == number);
        let job = match under_way {
            Some(job) => Some(job),
            None => {
                self.end_output(upkeep, number)?;
                self.begin_merge(number, is_expiry, now)?
            }
        };
        let Some(mut job) = job else {
            upkeep.round.retain(|waiting| *waiting != number);
            return Ok(StepOutcome::nothing_left());
        };
        let mut cost_bytes = 0;
        let is_read = match &job.source {
            Source::Records(_) => {
                self.merge_records(upkeep, &mut job, budget, now, &mut cost_bytes)?
            }
            Source::Keys { .. } => self.expire_keys(&mut job, budget, now, &mut cost_bytes)?,
        };
        if !is_read {
            upkeep.merge = Some(job);
            return Ok(StepOutcome {
                cost_bytes,
                is_done: false,
            });
        }
        self.finish_merge(upkeep, &job)?;
        upkeep.round.retain(|waiting| *waiting != number);
        Ok(StepOutcome {
            cost_bytes,
            is_done: true,
        })
    }

    /// Ends the segment that copies go to, if it is this one.
    fn end_output(&self, upkeep: &mut Upkeep, number: u32) -> Result<()> {
        let is_it = |output: &mut SegmentWriter| segment_number(output) == number;
        match upkeep.output.take_if(is_it) {
            Some(output) => self.seal(output),
            None => Ok(()),
        }
    }

    fn begin_merge(
        &self,
        number: u32,
        is_expiry: bool,
        now: Timestamp,
    ) -> Result<Option<MergeJob>> {
        let catalog = self.catalog.read();
        let Some(entry) = catalog
            .segments
            .get(&number)
            .filter(|entry| entry.is_sealed)
        else {
            return Ok(None);
        };
        let victim = entry.segment.clone();
        let hint = victim.hint.read().clone();
        let oldest = self.oldest_in_log();
        let is_dropped_whole = is_expiry
            && self.is_all_collectable(&entry.stats, now)
            && self.is_droppable(&catalog, entry.stats.sequence_max, number, oldest);
        let source = match hint {
            Some(hint) if is_dropped_whole => Source::Keys { hint, block: 0 },
            _ => {
                let options = ScanOptions {
                    durable_to: u64::MAX,
                    ..ScanOptions::default()
                };
                Source::Records(Box::new(victim.reader.scan(options).into_backend()?))
            }
        };
        Ok(Some(MergeJob {
            victim,
            source,
            pending: None,
        }))
    }

    /// Goes through records until the budget is used up; true when there are no more.
    fn merge_records(
        &self,
        upkeep: &mut Upkeep,
        job: &mut MergeJob,
        budget: StepBudget,
        now: Timestamp,
        cost_bytes: &mut u64,
    ) -> Result<bool> {
        if let Source::Records(scan) = &mut job.source {
            // What is read may have to be written as well.
            scan.set_read_ahead(budget.bytes / 2);
        }
        let oldest = self.oldest_in_log();
        let mut gathered = Gathered::default();
        let is_read = loop {
            let Some(record) = self.next_record(job)? else {
                break true;
            };
            let len = record.head.location.len;
            let is_over = *cost_bytes + gathered.bytes + 2 * len > budget.bytes;
            if is_over && *cost_bytes > 0 {
                job.pending = Some(record);
                break false;
            }
            *cost_bytes += len;
            match self.fate(&record, &job.victim, now, oldest) {
                Fate::Gone => {}
                Fate::Expired(slot) => {
                    self.catalog.write().forget(&self.keydir, &slot);
                }
                fate => {
                    gathered.bytes += len;
                    gathered.records.push((record, fate));
                }
            }
            if gathered.bytes >= GATHERED_BYTES {
                *cost_bytes += gathered.bytes;
                self.append_copies(upkeep, &gathered)?;
                gathered = Gathered::default();
            }
        };
        *cost_bytes += gathered.bytes;
        self.append_copies(upkeep, &gathered)?;
        Ok(is_read)
    }

    /// The next record; damage on the way is reported once and passed over.
    fn next_record(&self, job: &mut MergeJob) -> Result<Option<StoredRecord>> {
        if let Some(pending) = job.pending.take() {
            return Ok(Some(pending));
        }
        let Source::Records(scan) = &mut job.source else {
            return Ok(None);
        };
        for scanned in scan.by_ref() {
            match scanned.into_backend()? {
                Scanned::Record(record) => return Ok(Some(record)),
                Scanned::Damage(damage) => {
                    let range = LostRange {
                        file: file_name(u64::from(job.victim.number)),
                        offset: damage.offset,
                        len: damage.len,
                        held: damage.found,
                    };
                    self.lost.lock().add(&*self.disk, range);
                }
            }
        }
        Ok(None)
    }

    fn fate(
        &self,
        record: &StoredRecord,
        victim: &Segment,
        now: Timestamp,
        oldest: Option<u32>,
    ) -> Fate {
        let Some(entry) = KeyEntry::of(&record.head) else {
            return Fate::Gone;
        };
        let catalog = self.catalog.read();
        if entry.removal {
            return if self.is_droppable(&catalog, entry.sequence, victim.number, oldest) {
                Fate::Gone
            } else {
                Fate::Copied(None)
            };
        }
        let fingerprint = self.fingerprints.of(&entry.key);
        let slot = Slot::new(fingerprint, victim.place, entry.at);
        if !self.keydir.contains(&slot) {
            return Fate::Gone;
        }
        if !self.is_collectable(&entry.fields, now) {
            return Fate::Copied(Some(slot));
        }
        if self.is_droppable(&catalog, entry.sequence, victim.number, oldest) {
            Fate::Expired(slot)
        } else {
            Fate::BecomesRemoval(slot)
        }
    }

    fn is_droppable(
        &self,
        catalog: &Catalog,
        sequence: u64,
        within: u32,
        oldest: Option<u32>,
    ) -> bool {
        #[cfg(feature = "planted-defects")]
        if self.has_defect(kvorum_backend::PlantedDefect::TombstoneDroppedTooEarly) {
            return true;
        }
        catalog.is_removal_droppable(sequence, within, oldest)
    }

    /// Appends copies to the output and points the directory to them, where nothing newer came.
    pub(crate) fn append_copies(&self, upkeep: &mut Upkeep, gathered: &Gathered) -> Result<()> {
        if gathered.records.is_empty() {
            return Ok(());
        }
        let fronts = removal_fronts(gathered);
        let removals = fronts.iter();
        let records: Vec<Record<'_>> = gathered
            .records
            .iter()
            .zip(removals)
            .map(|((stored, fate), removal)| copy_of(stored, fate, removal))
            .collect();
        let len = SegmentWriter::appended_len(&records);
        let output = self.output_for(upkeep, len)?;
        let mut locations = Vec::with_capacity(records.len());
        output.append(&records, &mut locations).into_backend()?;
        let (number, end) = (segment_number(output), output.end());
        Counters::add(&self.counters.written_bytes, len);
        self.show_copies(gathered, &locations, number, end);
        Ok(())
    }

    fn show_copies(&self, gathered: &Gathered, locations: &[Location], number: u32, end: u64) {
        // A put relies on its old slots staying where it found them.
        let _puts_wait = self.writer.lock();
        let mut catalog = self.catalog.write();
        let Some(output) = catalog.segments.get_mut(&number) else {
            return;
        };
        output.stats.data_end = end;
        let place = output.segment.place;
        for ((stored, fate), at) in gathered.records.iter().zip(locations) {
            let stored_bytes = at.len.next_multiple_of(8);
            let entry = KeyEntry::of(&stored.head);
            let fields = match fate {
                Fate::Copied(Some(_)) => entry.map(|entry| entry.fields),
                _ => None,
            };
            if let Some(stats) = catalog.stats_mut(number) {
                stats.count(stored.head.sequence, stored_bytes, fields.as_ref());
            }
            match fate {
                Fate::Copied(Some(old)) => {
                    catalog.note_copy(old);
                    let new = Slot::new(old.fingerprint(), place, *at);
                    catalog.relocate(&self.keydir, old, new);
                }
                Fate::BecomesRemoval(old) => {
                    catalog.note_copy(old);
                    catalog.forget(&self.keydir, old);
                }
                Fate::Copied(None) | Fate::Gone | Fate::Expired(_) => {}
            }
        }
    }

    /// The segment that copies go to: the present one, or a new one when it is full.
    fn output_for<'u>(&self, upkeep: &'u mut Upkeep, len: u64) -> Result<&'u mut SegmentWriter> {
        let is_full = upkeep
            .output
            .as_ref()
            .is_some_and(|output| self.is_full_for(output, len));
        if is_full && let Some(full) = upkeep.output.take() {
            self.seal(full)?;
        }
        let output = match upkeep.output.take() {
            Some(output) => output,
            None => {
                let mut writer = self.writer.lock();
                let number = writer.next_segment;
                writer.next_segment += 1;
                drop(writer);
                let created = self.create_segment(number, true)?;
                let mut writer = self.writer.lock();
                writer.unsynced.push((number, created.sync_handle()));
                created
            }
        };
        Ok(upkeep.output.insert(output))
    }

    /// Forgets expired keys without reading their records; true when there are no more.
    fn expire_keys(
        &self,
        job: &mut MergeJob,
        budget: StepBudget,
        now: Timestamp,
        cost_bytes: &mut u64,
    ) -> Result<bool> {
        let Source::Keys { hint, block } = &mut job.source else {
            return Ok(true);
        };
        let block_bytes = hint.len() / hint.index().len().max(1) as u64;
        while *block < hint.index().len() {
            if *cost_bytes > 0 && *cost_bytes + block_bytes > budget.bytes {
                return Ok(false);
            }
            let entries = match hint.read(*block) {
                Ok(entries) => entries,
                Err(HintError::Disk(error)) => return Err((&error).into()),
                Err(HintError::Unusable(_) | HintError::Newer) => {
                    // The data says the same; the next step starts over with it.
                    *job.victim.hint.write() = None;
                    let victim = job.victim.number;
                    if let Some(over) = self.begin_merge(victim, false, now)? {
                        *job = over;
                    }
                    return Ok(false);
                }
            };
            *block += 1;
            *cost_bytes += block_bytes.max(1);
            let mut catalog = self.catalog.write();
            for entry in entries.iter().filter(|entry| !entry.removal) {
                let fingerprint = self.fingerprints.of(&entry.key);
                let slot = Slot::new(fingerprint, job.victim.place, entry.at);
                catalog.forget(&self.keydir, &slot);
            }
        }
        Ok(true)
    }

    /// Makes the copies durable, then removes the segment.
    fn finish_merge(&self, upkeep: &mut Upkeep, job: &MergeJob) -> Result<()> {
        let number = job.victim.number;
        // The copies, and with them whatever superseded the records that were not copied: those were
        // dead for readers, and yet all that a crash would have left.
        self.sync_all()?;
        upkeep.mark_output();
        // Records that damage kept from being copied leave slots that would soon mean another segment.
        // Nobody points a key to a finished segment any more, so this needs no lock over all shards.
        let place = job.victim.place;
        self.keydir.retain(|it| it != place);
        let sequence_max = {
            let catalog = self.catalog.read();
            let entry = catalog.segments.get(&number);
            entry.map_or(0, |entry| entry.stats.sequence_max)
        };
        self.change_meta(|meta| {
            meta.retired.push(number);
            meta.sequence = meta.sequence.max(sequence_max);
            meta.next_segment = meta.next_segment.max(number + 1);
        })?;
        if self.unlink(number).is_err() {
            // It is noted as retired: reclaiming it can wait, for the next opening if need be.
            upkeep.unremoved.push(number);
        }
        let mut catalog = self.catalog.write();
        catalog.remove_segment(number);
        self.keydir.show_places(&catalog.places);
        drop(catalog);
        upkeep.let_go_of(number);
        let is_large = upkeep
            .output
            .as_ref()
            .is_some_and(|output| output.end() > self.file_bytes_max() / 2);
        if is_large && let Some(large) = upkeep.output.take() {
            self.seal(large)?;
        }
        Ok(())
    }

    /// Removes the files of a segment for good.
    pub(crate) fn unlink(&self, number: u32) -> kvorum_disk::Result<()> {
        let data = self.directory.join(file_name(u64::from(number)));
        for path in [data, hint_path(&self.directory, number)] {
            if self.disk.info(&path)?.is_some() {
                self.disk.remove_file(&path)?;
            }
        }
        self.disk.sync_directory(&self.directory)
    }
}

/// For each record the front of the removal that it becomes; empty for others.
fn removal_fronts(gathered: &Gathered) -> Vec<Vec<u8>> {
    let front_of = |(stored, fate): &(StoredRecord, Fate)| {
        let mut front = Vec::new();
        if let Fate::BecomesRemoval(_) = fate
            && let Some(entry) = KeyEntry::of(&stored.head)
        {
            let key = kvorum_encoding::StorageKey::from_encoded(entry.key);
            encode_removal(&mut front, &key);
        }
        front
    };
    gathered.records.iter().map(front_of).collect()
}

fn copy_of<'a>(stored: &'a StoredRecord, fate: &Fate, removal: &'a [u8]) -> Record<'a> {
    let is_turned = matches!(fate, Fate::BecomesRemoval(_));
    Record {
        sequence: stored.head.sequence,
        kind: KIND_ENTRY,
        removal: stored.head.removal || is_turned,
        batch: BatchPlace::Alone,
        front: if is_turned {
            removal
        } else {
            &stored.head.front
        },
        back: if is_turned {
            EncodedBack::empty()
        } else {
            stored.back.as_encoded()
        },
    }
}

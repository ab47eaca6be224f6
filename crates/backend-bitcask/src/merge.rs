//! Merging: what is live in one finished segment is copied elsewhere, then the segment is removed.
//!
//! Records keep their sequence, so the order of files says nothing and any subset may be merged in any
//! order. A removal goes with its segment only when no other segment can hold an older entry of its
//! key; an expired entry whose key may have older ones becomes a removal. Everything is synced before
//! the segment is noted as retired, and noted before it is unlinked: a crash at any point leaves
//! either both or what was copied.

use std::collections::VecDeque;
use std::sync::Arc;

use kvorum_backend::{LostRange, Result, StepBudget, StepOutcome, Timestamp};
use kvorum_encoding::StorageKey;
use kvorum_planted_defects::is_planted;
use kvorum_segment::{
    BatchPlace, EncodedBack, Location, Record, Scan, ScanOptions, Scanned, SegmentWriter,
    StoredFront, StoredRecord, file_name,
};
use kvorum_storage_errors::IntoBackend;

use crate::entry::{KIND_ENTRY, KIND_NOTHING, decode_fields, encode_removal};
use crate::hint::hint_path;
use crate::hint_table::{HintError, HintScan};
use crate::home::Counters;
use crate::key_table::KeyEntry;
use crate::segment::{Segment, segment_number};
use crate::segments::Catalog;
use crate::slot::Slot;
use crate::store::Store;

/// Copies are appended in pieces of about this size.
pub(crate) const GATHERED_BYTES: u64 = 1 << 20;

/// Merges: the one in progress, and what outlasts one.
#[derive(Default)]
pub(crate) struct Merging {
    pub(crate) job: Option<MergeJob>,
    /// Where merges copy to.
    pub(crate) output: Option<SegmentWriter>,
    /// Segments still to be merged in this round, best first.
    pub(crate) round: VecDeque<u32>,
}

impl Merging {
    /// Leaves proof in the segment that copies go to that they are durable: their sources go next, and no later
    /// record may come to carry it.
    pub(crate) fn mark_output(&mut self) {
        if let Some(output) = &mut self.output {
            // Without the mark, damage to the last copies may look like a torn tail; no more.
            let _marked_or_full_disk = output.mark();
        }
    }
}

/// A merge in progress.
pub(crate) struct MergeJob {
    pub(crate) victim: Arc<Segment>,
    source: Source,
}

/// Readers wait while so many keys are forgotten.
const KEYS_AT_ONCE: usize = 256;

enum Source {
    /// All records, in the order of the file.
    Records(Box<RecordSource>),
    /// The keys alone: everything has expired, and nothing needs to be copied.
    Keys(Box<HintScan>),
}

struct RecordSource {
    scan: Scan,
    /// Read, and left for the next step because the budget was used up.
    pending: Option<StoredRecord>,
    /// Some could not be read, and were listed as lost.
    has_met_damage: bool,
}

/// How far a step has come in its source.
enum Progress {
    /// The budget is used up.
    Some,
    /// There is no more.
    All,
    /// The hint is not to be believed: the segment itself says the same.
    BadHint,
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
            Source::Records(records) => records.scan.read_to(),
            Source::Keys(_) => 0,
        }
    }
}

impl Store {
    /// Does a part of merging segment `number`.
    pub(crate) fn merge_step(
        &self,
        merging: &mut Merging,
        number: u32,
        is_expiry: bool,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let under_way = merging.job.take().filter(|job| job.victim.number == number);
        let job = match under_way {
            Some(job) => Some(job),
            None => {
                self.end_output(merging, number)?;
                self.begin_merge(number, is_expiry, now)?
            }
        };
        let Some(mut job) = job else {
            merging.round.retain(|waiting| *waiting != number);
            return Ok(StepOutcome::nothing_left());
        };
        let mut cost_bytes = 0;
        let MergeJob { victim, source } = &mut job;
        let progress = match source {
            Source::Records(records) => {
                self.merge_records(merging, victim, records, budget, now, &mut cost_bytes)?
            }
            Source::Keys(keys) => self.expire_keys(victim, keys, budget, &mut cost_bytes)?,
        };
        let is_done = match progress {
            Progress::Some => {
                merging.job = Some(job);
                false
            }
            // The next step begins anew.
            Progress::BadHint => false,
            Progress::All => {
                self.finish_merge(merging, &job)?;
                merging.round.retain(|waiting| *waiting != number);
                true
            }
        };
        Ok(StepOutcome {
            cost_bytes,
            is_done,
        })
    }

    /// Ends the segment that copies go to, if it is this one.
    fn end_output(&self, merging: &mut Merging, number: u32) -> Result<()> {
        let is_it = |output: &mut SegmentWriter| segment_number(output) == number;
        match merging.output.take_if(is_it) {
            Some(output) => self.files.seal(output),
            None => Ok(()),
        }
    }

    fn begin_merge(
        &self,
        number: u32,
        is_expiry: bool,
        now: Timestamp,
    ) -> Result<Option<MergeJob>> {
        let catalog = self.contents.catalog.read();
        let Some(entry) = catalog
            .segments
            .get(&number)
            .filter(|entry| entry.is_sealed)
        else {
            return Ok(None);
        };
        let victim = entry.segment.clone();
        let hint = victim.hint.read().clone();
        let oldest = self.log.oldest();
        let is_dropped_whole = is_expiry
            && self.expiry.is_all_collectable(&entry.stats, now)
            && is_droppable(&catalog, entry.stats.sequence_max, number, oldest);
        // A scan begins with a read, and puts wait for the catalog.
        drop(catalog);
        let source = match hint {
            Some(hint) if is_dropped_whole => Source::Keys(Box::new(hint.scan())),
            _ => {
                let options = ScanOptions::durable_to(u64::MAX);
                Source::Records(Box::new(RecordSource {
                    scan: victim.reader.scan(options).into_backend()?,
                    pending: None,
                    has_met_damage: false,
                }))
            }
        };
        Ok(Some(MergeJob { victim, source }))
    }

    /// Goes through records until the budget is used up.
    fn merge_records(
        &self,
        merging: &mut Merging,
        victim: &Segment,
        source: &mut RecordSource,
        budget: StepBudget,
        now: Timestamp,
        cost_bytes: &mut u64,
    ) -> Result<Progress> {
        // What is read may have to be written as well.
        source.scan.set_read_ahead(budget.bytes / 2);
        let oldest = self.log.oldest();
        let mut gathered = Gathered::default();
        let progress = loop {
            let Some(record) = self.next_record(victim, source)? else {
                break Progress::All;
            };
            let len = record.head.location.len;
            let is_over = *cost_bytes + gathered.bytes + 2 * len > budget.bytes;
            if is_over && *cost_bytes > 0 {
                source.pending = Some(record);
                break Progress::Some;
            }
            *cost_bytes += len;
            match self.fate(&record, victim, now, oldest) {
                Fate::Gone => {}
                Fate::Expired(slot) => {
                    self.contents.forget(&slot);
                }
                fate => {
                    gathered.bytes += len;
                    gathered.records.push((record, fate));
                }
            }
            if gathered.bytes >= GATHERED_BYTES {
                *cost_bytes += gathered.bytes;
                self.append_copies(merging, &gathered)?;
                gathered = Gathered::default();
            }
        };
        *cost_bytes += gathered.bytes;
        self.append_copies(merging, &gathered)?;
        Ok(progress)
    }

    /// The next record; damage on the way is reported once and passed over.
    fn next_record(
        &self,
        victim: &Segment,
        source: &mut RecordSource,
    ) -> Result<Option<StoredRecord>> {
        if let Some(pending) = source.pending.take() {
            return Ok(Some(pending));
        }
        for scanned in source.scan.by_ref() {
            let lost = match scanned.into_backend()? {
                Scanned::Record(record) if is_understood(&record.head) => return Ok(Some(record)),
                Scanned::Record(record) => not_understood(victim.listed_name(), &record.head),
                Scanned::Damage(damage) => {
                    let (offset, len) = (damage.offset, damage.len);
                    LostRange::new(victim.listed_name(), offset, len, damage.found)
                }
            };
            source.has_met_damage = true;
            self.home.note_lost(lost);
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
        let catalog = self.contents.catalog.read();
        if entry.removal {
            return if is_droppable(&catalog, entry.sequence, victim.number, oldest) {
                Fate::Gone
            } else {
                Fate::Copied(None)
            };
        }
        let fingerprint = self.contents.fingerprints.of(&entry.key);
        let slot = Slot::new(fingerprint, victim.place, entry.at);
        if !self.contents.keydir.contains(&slot) {
            return Fate::Gone;
        }
        if !self.expiry.is_collectable(&entry.fields, now) {
            return Fate::Copied(Some(slot));
        }
        if is_droppable(&catalog, entry.sequence, victim.number, oldest) {
            Fate::Expired(slot)
        } else {
            Fate::BecomesRemoval(slot)
        }
    }

    /// Appends copies to the output and points the directory to them, where nothing newer came.
    pub(crate) fn append_copies(&self, merging: &mut Merging, gathered: &Gathered) -> Result<()> {
        if gathered.records.is_empty() {
            return Ok(());
        }
        let fronts: Vec<Vec<u8>> = gathered.records.iter().map(removal_front).collect();
        let copied = gathered.records.iter().zip(&fronts);
        let records: Vec<Record<'_>> = copied
            .map(|((stored, fate), removal)| copy_of(stored, fate, removal))
            .collect();
        let len = SegmentWriter::appended_len(&records);
        let output = self.output_for(merging, len)?;
        let mut locations = Vec::with_capacity(records.len());
        output.append(&records, &mut locations).into_backend()?;
        let (number, end) = (segment_number(output), output.end());
        self.home.count_written(len);
        self.show_copies(gathered, &locations, number, end);
        Ok(())
    }

    fn show_copies(&self, gathered: &Gathered, locations: &[Location], number: u32, end: u64) {
        let count = gathered.records.len();
        assert_eq!(
            locations.len(),
            count,
            "each copy has its place in segment {number}"
        );
        // A put relies on its old slots staying where it found them.
        let _puts_wait = self.files.writer.lock();
        let mut catalog = self.contents.catalog.write();
        let output = catalog.own_mut(number);
        assert!(
            !output.is_sealed,
            "segment {number} was sealed before the append"
        );
        output.stats.data_end = end;
        let place = output.segment.place;
        for ((stored, fate), at) in gathered.records.iter().zip(locations) {
            let stored_bytes = at.len.next_multiple_of(8);
            let fields = match fate {
                Fate::Copied(Some(_)) => Some(entry_of(&stored.head).fields),
                _ => None,
            };
            let stats = &mut catalog.own_mut(number).stats;
            stats.count(stored.head.sequence, stored_bytes, fields.as_ref());
            match fate {
                Fate::Copied(Some(old)) => {
                    catalog.note_copy(old);
                    let new = Slot::new(old.fingerprint(), place, *at);
                    catalog.relocate(&self.contents.keydir, old, new);
                }
                Fate::BecomesRemoval(old) => {
                    catalog.note_copy(old);
                    catalog.forget(&self.contents.keydir, old);
                }
                Fate::Copied(None) => {}
                Fate::Gone | Fate::Expired(_) => unreachable!("a record without use was copied"),
            }
        }
    }

    /// The segment that copies go to: the present one, or a new one when it is full.
    fn output_for<'m>(&self, merging: &'m mut Merging, len: u64) -> Result<&'m mut SegmentWriter> {
        let is_full = merging
            .output
            .as_ref()
            .is_some_and(|output| self.files.is_full_for(output, len));
        if is_full && let Some(full) = merging.output.take() {
            self.files.seal(full)?;
        }
        let output = match merging.output.take() {
            Some(output) => output,
            None => self.files.begin_copies()?,
        };
        Ok(merging.output.insert(output))
    }

    /// Forgets expired keys without reading their records.
    fn expire_keys(
        &self,
        victim: &Segment,
        keys: &mut HintScan,
        budget: StepBudget,
        cost_bytes: &mut u64,
    ) -> Result<Progress> {
        let begin = keys.bytes_read();
        while *cost_bytes == 0 || *cost_bytes < budget.bytes {
            let entries = match keys.some(KEYS_AT_ONCE) {
                Ok(entries) if entries.is_empty() => return Ok(Progress::All),
                Ok(entries) => entries,
                Err(HintError::Disk(error)) => return Err((&error).into()),
                Err(_) => {
                    *victim.hint.write() = None;
                    return Ok(Progress::BadHint);
                }
            };
            *cost_bytes = (keys.bytes_read() - begin).max(1);
            let mut catalog = self.contents.catalog.write();
            for entry in entries.iter().filter(|entry| !entry.removal) {
                let fingerprint = self.contents.fingerprints.of(&entry.key);
                let slot = Slot::new(fingerprint, victim.place, entry.at);
                catalog.forget(&self.contents.keydir, &slot);
            }
        }
        Ok(Progress::Some)
    }

    /// Makes the copies durable, then removes the segment.
    fn finish_merge(&self, merging: &mut Merging, job: &MergeJob) -> Result<()> {
        let number = job.victim.number;
        // The copies, and with them whatever superseded the records that were not copied: those were
        // dead for readers, and yet all that a crash would have left.
        self.files.sync_all()?;
        merging.mark_output();
        let stats = self.contents.catalog.write().own_mut(number).stats;
        self.forget_unmerged(job, stats.data_end);
        self.home.change_meta(|meta| {
            meta.retired.push(number);
            meta.sequence = meta.sequence.max(stats.sequence_max);
            meta.next_segment = meta.next_segment.max(number + 1);
        })?;
        self.files.remove_retired(number);
        let mut catalog = self.contents.catalog.write();
        catalog.remove_segment(number);
        self.contents.keydir.show_places(&catalog.places);
        drop(catalog);
        let is_large = merging
            .output
            .as_ref()
            .is_some_and(|output| output.end() > self.files.bytes_max() / 2);
        if is_large && let Some(large) = merging.output.take() {
            self.files.seal(large)?;
        }
        Ok(())
    }

    /// Records that damage kept from being copied leave slots that would soon mean another segment. Where no
    /// damage was met they are listed as lost here: what should not be is not to go without a word.
    fn forget_unmerged(&self, job: &MergeJob, data_end: u64) {
        // Nobody points a key to a finished segment any more, so this needs no lock over all shards.
        let place = job.victim.place;
        let left = self.contents.keydir.retain(|it| it != place);
        let has_met_damage = match &job.source {
            Source::Records(records) => records.has_met_damage,
            Source::Keys(_) => false,
        };
        if left == 0 || has_met_damage {
            return;
        }
        let held = format!("{left} records that a merge did not come to");
        let range = LostRange::new(job.victim.listed_name(), 0, data_end, held);
        self.home.note_lost(range);
    }
}

/// True of a record that copies and removals can be made of, and of one that says nothing.
pub(crate) fn is_understood(record: &StoredFront) -> bool {
    record.kind == KIND_NOTHING || record.kind == KIND_ENTRY && decode_fields(&record.front).is_ok()
}

/// A record whose checksums are right and that makes no sense.
pub(crate) fn not_understood(file: String, record: &StoredFront) -> LostRange {
    let at = record.location;
    LostRange::new(
        file,
        at.offset,
        at.len,
        "a record that cannot be understood",
    )
}

/// What a record says that has a fate.
fn entry_of(record: &StoredFront) -> KeyEntry {
    match KeyEntry::of(record) {
        Some(entry) => entry,
        None => unreachable!("the record at {:?} was understood before", record.location),
    }
}

/// The front of the removal that a record becomes; empty for others.
fn is_droppable(catalog: &Catalog, sequence: u64, within: u32, oldest: Option<u32>) -> bool {
    let is_droppable = catalog.is_removal_droppable(sequence, within, oldest);
    is_droppable || is_planted!(TombstoneDroppedTooEarly)
}

fn removal_front((stored, fate): &(StoredRecord, Fate)) -> Vec<u8> {
    let mut front = Vec::new();
    if let Fate::BecomesRemoval(_) = fate {
        let key = StorageKey::from_encoded(entry_of(&stored.head).key);
        encode_removal(&mut front, &key);
    }
    front
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

//! Merging: the live records of one finished segment are copied to another, then the segment is
//! removed.
//!
//! Records keep their sequence, so the order of files has no meaning and any subset may be merged
//! in any order. A removal is dropped with its segment only when no other segment can have an older
//! entry of its key; an expired entry that may hide older ones becomes a removal. Everything is
//! synced before the segment is noted as retired, and it is noted before it is unlinked: a crash at
//! any point leaves both the segment and the copies, or the copies.

use std::sync::Arc;

use kvorum_backend::{LostRange, Result, StepBudget, StepOutcome, Timestamp};
use kvorum_planted_defects::is_planted;
use kvorum_segment::{Scan, ScanOptions, Scanned, StoredRecord};
use kvorum_storage_errors::IntoBackend;

use crate::copies::{Copies, Fate, Gathered, is_understood, not_understood};
use crate::hint_table::{HintError, HintScan};
use crate::key_table::KeyEntry;
use crate::segment::Segment;
use crate::segment_files::SegmentFiles;
use crate::segments::Catalog;
use crate::slot::Slot;

/// Merges, one segment at a time.
#[derive(Default)]
pub(crate) struct Merges {
    job: Option<MergeJob>,
}

/// A merge in progress.
struct MergeJob {
    victim: Arc<Segment>,
    source: Source,
}

/// The number of keys that are dropped at once, while readers wait.
const KEYS_AT_ONCE: usize = 256;

enum Source {
    /// All records, in the order of the file.
    Records(Box<RecordSource>),
    /// The keys alone: all entries have expired, and none needs to be copied.
    Keys(Box<HintScan>),
}

struct RecordSource {
    scan: Scan,
    /// A record that was read and left for the next step, because the budget was used up.
    pending: Option<StoredRecord>,
    /// Some records could not be read, and were listed as lost.
    has_met_damage: bool,
}

/// The end of a step.
enum Progress {
    /// The budget is used up.
    Some,
    /// The source is at its end.
    All,
    /// The hint is damaged: the next step reads the segment itself.
    BadHint,
}

impl Merges {
    /// The segment being merged, and the position reached.
    pub(crate) fn under_way(&self) -> Option<(u32, u64)> {
        let job = self.job.as_ref()?;
        let position = match &job.source {
            Source::Records(records) => records.scan.read_to(),
            Source::Keys(_) => 0,
        };
        Some((job.victim.number, position))
    }

    pub(crate) fn abandon(&mut self) {
        self.job = None;
    }

    /// Does a part of merging segment `number`.
    pub(crate) fn step(
        &mut self,
        files: &SegmentFiles,
        copies: &mut Copies,
        number: u32,
        is_expiry: bool,
        budget: StepBudget,
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let under_way = self.job.take().filter(|job| job.victim.number == number);
        let job = match under_way {
            Some(job) => Some(job),
            None => {
                if copies.number() == Some(number) {
                    copies.end(files)?;
                }
                Self::begin(files, number, is_expiry, now)?
            }
        };
        let Some(mut job) = job else {
            return Ok(StepOutcome::nothing_left());
        };
        let mut cost_bytes = 0;
        let MergeJob { victim, source } = &mut job;
        let progress = match source {
            Source::Records(records) => {
                Self::merge_records(files, copies, victim, records, budget, now, &mut cost_bytes)?
            }
            Source::Keys(keys) => Self::expire_keys(files, victim, keys, budget, &mut cost_bytes)?,
        };
        match progress {
            Progress::Some => self.job = Some(job),
            // The next step reads the segment from its beginning.
            Progress::BadHint => {}
            Progress::All => {
                Self::finish(files, copies, &job)?;
                return Ok(StepOutcome::done(cost_bytes));
            }
        }
        Ok(StepOutcome::partial(cost_bytes))
    }

    fn begin(
        files: &SegmentFiles,
        number: u32,
        is_expiry: bool,
        now: Timestamp,
    ) -> Result<Option<MergeJob>> {
        let catalog = files.contents.catalog.read();
        let Some(entry) = catalog
            .segments
            .get(&number)
            .filter(|entry| entry.is_sealed)
        else {
            return Ok(None);
        };
        let victim = entry.segment.clone();
        let hint = victim.hint.read().clone();
        let oldest = files.log.oldest();
        let is_dropped_whole = is_expiry
            && files.home.expiry.is_all_collectable(&entry.stats, now)
            && is_droppable(&catalog, entry.stats.sequence_max, number, oldest);
        // A scan begins with a read, during which puts would wait for the catalog.
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

    /// Copies live records until the budget is used up.
    fn merge_records(
        files: &SegmentFiles,
        copies: &mut Copies,
        victim: &Segment,
        source: &mut RecordSource,
        budget: StepBudget,
        now: Timestamp,
        cost_bytes: &mut u64,
    ) -> Result<Progress> {
        // Records that are read may have to be written too.
        source.scan.set_read_ahead(budget.bytes / 2);
        let oldest = files.log.oldest();
        let mut gathered = Gathered::default();
        let progress = loop {
            let Some(record) = Self::next_record(files, victim, source)? else {
                break Progress::All;
            };
            let len = record.head.location.len;
            let is_over = *cost_bytes + gathered.bytes + 2 * len > budget.bytes;
            if is_over && *cost_bytes > 0 {
                source.pending = Some(record);
                break Progress::Some;
            }
            *cost_bytes += len;
            match Self::fate(files, &record, victim, now, oldest) {
                Fate::Gone => {}
                Fate::Expired(slot) => files.contents.forget(&slot),
                fate => *cost_bytes += copies.take(files, &mut gathered, record, fate)?,
            }
        };
        *cost_bytes += copies.append(files, &gathered)?;
        Ok(progress)
    }

    /// The next record; damage before it is reported once and skipped.
    fn next_record(
        files: &SegmentFiles,
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
            files.home.note_lost(lost);
        }
        Ok(None)
    }

    fn fate(
        files: &SegmentFiles,
        record: &StoredRecord,
        victim: &Segment,
        now: Timestamp,
        oldest: Option<u32>,
    ) -> Fate {
        let Some(entry) = KeyEntry::of(&record.head) else {
            return Fate::Gone;
        };
        let catalog = files.contents.catalog.read();
        if entry.removal {
            return if is_droppable(&catalog, entry.sequence, victim.number, oldest) {
                Fate::Gone
            } else {
                Fate::Copied(None)
            };
        }
        let fingerprint = files.contents.fingerprints.of(&entry.key);
        let slot = Slot::new(fingerprint, victim.place, entry.at);
        if !files.contents.keydir.contains(&slot) {
            return Fate::Gone;
        }
        if !files.home.expiry.is_collectable(&entry.fields, now) {
            return Fate::Copied(Some(slot));
        }
        if is_droppable(&catalog, entry.sequence, victim.number, oldest) {
            Fate::Expired(slot)
        } else {
            Fate::BecomesRemoval(slot)
        }
    }

    /// Drops expired keys without reading their records.
    fn expire_keys(
        files: &SegmentFiles,
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
            let mut catalog = files.contents.catalog.write();
            for entry in entries.iter().filter(|entry| !entry.removal) {
                let fingerprint = files.contents.fingerprints.of(&entry.key);
                let slot = Slot::new(fingerprint, victim.place, entry.at);
                catalog.forget(&files.contents.keydir, &slot);
            }
        }
        Ok(Progress::Some)
    }

    /// Makes the copies durable, then removes the segment.
    fn finish(files: &SegmentFiles, copies: &mut Copies, job: &MergeJob) -> Result<()> {
        let number = job.victim.number;
        // Syncs the copies, and the records that superseded uncopied ones: if a crash lost the
        // newer record, the uncopied one would be needed.
        files.sync_all()?;
        copies.mark();
        let stats = files.contents.catalog.write().own_mut(number).stats;
        Self::forget_unmerged(files, job, stats.data_end);
        files.home.change_meta(|meta| {
            meta.retired.push(number);
            meta.sequence = meta.sequence.max(stats.sequence_max);
            meta.next_segment = meta.next_segment.max(number + 1);
        })?;
        files.remove_retired(number);
        let mut catalog = files.contents.catalog.write();
        catalog.remove_segment(number);
        files.contents.keydir.show_places(&catalog.places);
        drop(catalog);
        copies.end_large(files)
    }

    /// Drops the slots of records that could not be copied because of damage: they would soon refer
    /// to another segment. If there was no damage, which is impossible, the records are listed as
    /// lost.
    fn forget_unmerged(files: &SegmentFiles, job: &MergeJob, data_end: u64) {
        // No key gets a slot in a finished segment, so this needs no lock over all shards.
        let place = job.victim.place;
        let left = files.contents.keydir.retain(|it| it != place);
        let has_met_damage = match &job.source {
            Source::Records(records) => records.has_met_damage,
            Source::Keys(_) => false,
        };
        if left == 0 || has_met_damage {
            return;
        }
        let held = format!("{left} records that a merge could not reach");
        let range = LostRange::new(job.victim.listed_name(), 0, data_end, held);
        files.home.note_lost(range);
    }
}

/// True when a removal with this sequence may be dropped with its segment `within`.
fn is_droppable(catalog: &Catalog, sequence: u64, within: u32, oldest: Option<u32>) -> bool {
    let is_droppable = catalog.is_removal_droppable(sequence, within, oldest);
    is_droppable || is_planted!(TombstoneDroppedTooEarly)
}

//! The store's side of the value log: what it needs of it, what it copies out of it, and what it is
//! given back after a crash.
//!
//! An entry is the same wherever its record stands: copies keep their sequence, and of two records of
//! a key the one with the higher sequence counts. So a batch may be replayed over anything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{
    LostRange, Reading, Result, Sequence, StepBudget, StepOutcome, StoreId, Timestamp,
};
use kvorum_segment::{Location, RECORD_ALIGN_BYTES};
use kvorum_value_log::{HeldSegments, LogSegment, LoggedRecord, SegmentUse, Tenant};

use crate::Bitcask;
use crate::checkpoint_steps::CheckpointJob;
use crate::entry::KIND_ENTRY;
use crate::expiry::Expired;
use crate::key_table::KeyEntry;
use crate::keydir::Change;
use crate::merge::{Fate, GATHERED_BYTES, Gathered, Merging, not_understood};
use crate::segments::Catalog;
use crate::shared::{SharedEntry, Standing};
use crate::shared_place::lost_name;
use crate::slot::Slot;
use crate::store::Store;
use crate::upkeep::Upkeep;

/// The log is told when so much more of what the store has there has expired: a part in so many.
const TOLD_PARTS: u64 = 16;

impl Store {
    /// Takes a record of a batch that was logged and is not covered.
    fn replay_record(&self, segment: &Arc<LogSegment>, record: &LoggedRecord) -> Result<()> {
        let head = &record.stored.head;
        let Some(entry) = KeyEntry::of(head) else {
            return self.count_replayed(segment, &head.location, head.sequence, None);
        };
        let fingerprint = self.contents.fingerprints.of(&entry.key);
        let check = self.contents.fingerprints.check_of(&entry.key);
        // As slots have it.
        let stored = Slot::new(fingerprint, 0, entry.at).fingerprint();
        let hidden_by = self.log.hidden.lock().get(&(stored, check)).copied();
        let old = self.slot_and_sequence_of(&entry.key, fingerprint, Reading::MayBlock)?;
        self.count_replayed(segment, &head.location, head.sequence, Some(&entry))?;
        let is_newer = |known: u64| known >= entry.sequence;
        if hidden_by.is_some_and(is_newer) || old.is_some_and(|(_, known)| is_newer(known)) {
            return Ok(());
        }
        let mut catalog = self.contents.catalog.write();
        let place = catalog.shared_mut(segment.number()).place.index;
        let new = (!entry.removal).then(|| Slot::new(fingerprint, place, entry.at));
        let old = old.map(|(slot, _)| slot);
        if old.is_some() || new.is_some() {
            catalog.change(&self.contents.keydir, &[Change { old, new }]);
        }
        Ok(())
    }

    /// Counts a record of the log that was not counted by a checkpoint.
    fn count_replayed(
        &self,
        segment: &Arc<LogSegment>,
        at: &Location,
        sequence: u64,
        entry: Option<&KeyEntry>,
    ) -> Result<()> {
        let mut catalog = self.contents.catalog.write();
        let shared = catalog.shared_entry(&self.contents.keydir, segment)?;
        let stored_bytes = at.len.next_multiple_of(RECORD_ALIGN_BYTES);
        shared.stats.data_end += stored_bytes;
        match entry {
            Some(entry) => {
                shared.stats.count_entry(entry);
                shared.stand(Standing::new(at.offset, entry.removal));
            }
            None => shared.stats.count_sequence(sequence),
        }
        catalog.note_start(segment.number(), sequence);
        self.home.counters.add_unchecked(stored_bytes, 1);
        Ok(())
    }

    pub(crate) fn needs(
        &self,
        catalog: &Catalog,
        entry: &SharedEntry,
        oldest: Option<u32>,
    ) -> bool {
        entry.stats.live_records > 0
            || entry.is_copy_unsynced()
            || entry.stats.sequence_max > self.log.covered()
            || catalog.are_removals_needed(entry, oldest)
    }

    /// What the store needs of the log; what it does not need any more it forgets.
    fn usage_of_log(&self) -> Vec<SegmentUse> {
        let Some(log) = &self.log.log else {
            return Vec::new();
        };
        let _puts_wait = self.files.writer.lock();
        let oldest = self.log.oldest();
        let newest = log.newest_segment();
        let held = self.log.holds.all();
        let is_held = |number: u32| held.iter().any(|it| it.holds(number));
        let mut catalog = self.contents.catalog.write();
        let covered = self.log.covered();
        let checkpoint_bytes = self.checkpoint_bytes(&catalog);
        let mut usage = Vec::new();
        let mut unneeded = Vec::new();
        let mut expired_bytes = 0;
        for (number, entry) in &catalog.shared {
            if is_held(*number) || self.needs(&catalog, entry, oldest) {
                let removal_bytes = if catalog.are_removals_needed(entry, oldest) {
                    entry.stats.removal_bytes
                } else {
                    0
                };
                let is_covered = entry.stats.sequence_max <= covered;
                let expired = self.expiry.expired_in(&entry.stats);
                expired_bytes += expired.bytes;
                let live_bytes = lasting_bytes(&catalog, entry, &expired, oldest);
                usage.push(SegmentUse {
                    segment: *number,
                    live_bytes: live_bytes + removal_bytes,
                    settle_bytes: if is_covered { 0 } else { checkpoint_bytes },
                    is_passing: false,
                });
            } else if *number != newest {
                unneeded.push(*number);
            }
        }
        // Those that were let go since a copy was made of the store.
        let copied = held.iter().flat_map(|it| it.before(newest));
        for segment in copied.collect::<BTreeSet<u32>>() {
            if !catalog.shared.contains_key(&segment) {
                usage.push(SegmentUse {
                    segment,
                    live_bytes: 0,
                    settle_bytes: 0,
                    is_passing: false,
                });
            }
        }
        for number in unneeded {
            self.let_go(&mut catalog, number);
        }
        let first = oldest.unwrap_or(newest);
        catalog.log_starts.retain(|number, _| *number >= first);
        self.log.told_bytes.store(expired_bytes, Ordering::Relaxed);
        usage
    }

    /// Has the log ask again when much has expired there since.
    pub(crate) fn tell_expired_in_log(&self, catalog: &Catalog) {
        let Some(log) = &self.log.log else {
            return;
        };
        let told_bytes = self.log.told_bytes.load(Ordering::Relaxed);
        let shared = || catalog.shared.values().map(|it| &it.stats);
        let expired_bytes: u64 = shared().map(|it| self.expiry.expired_in(it).bytes).sum();
        let live_bytes: u64 = shared().map(|it| it.live_bytes).sum();
        if expired_bytes > told_bytes + live_bytes / TOLD_PARTS {
            log.usage_changed();
        }
    }

    /// Forgets a segment of the log, and returns how many slots still pointed to it. The caller holds
    /// the writer.
    fn let_go(&self, catalog: &mut Catalog, number: u32) -> u64 {
        let Some(entry) = catalog.shared.get(&number) else {
            return 0;
        };
        let index = entry.place.index;
        // Every slot is counted with its change, under the catalog's lock. The directory is long.
        let left = match entry.stats.live_records {
            0 => 0,
            _ => self.contents.keydir.retain(|place| place != index),
        };
        catalog.remove_shared(number);
        self.contents.keydir.show_places(&catalog.places);
        left
    }

    /// Copies those of the records that are still needed.
    fn relocate(&self, merging: &mut Merging, records: &[LoggedRecord]) -> Result<u64> {
        // Until slots were moved, none may mean another segment.
        let _places = self.contents.catalog.write().hold_places();
        let oldest = self.log.oldest();
        let mut gathered = Gathered::default();
        let mut copied_bytes = 0;
        for record in records {
            let fate = match self.fate_of_logged(record, oldest) {
                Fate::Gone => continue,
                Fate::Expired(slot) => {
                    let number = record.segment;
                    let mut catalog = self.contents.catalog.write();
                    if let Some(shared) = catalog.shared.get_mut(&number) {
                        shared.expired.push(slot);
                    }
                    continue;
                }
                fate => fate,
            };
            let stored = record.stored.clone();
            gathered.bytes += stored.head.location.len;
            gathered.records.push((stored, fate));
            if gathered.bytes >= GATHERED_BYTES {
                copied_bytes += gathered.bytes;
                self.append_copies(merging, &gathered)?;
                gathered = Gathered::default();
            }
        }
        copied_bytes += gathered.bytes;
        self.append_copies(merging, &gathered)?;
        Ok(copied_bytes)
    }

    fn fate_of_logged(&self, record: &LoggedRecord, oldest: Option<u32>) -> Fate {
        let head = &record.stored.head;
        if head.kind != KIND_ENTRY || record.store != StoreId(self.home.identity()) {
            return Fate::Gone;
        }
        let number = record.segment;
        let Some(entry) = KeyEntry::of(head) else {
            let lost = not_understood(lost_name(number), head);
            self.home.note_lost(lost);
            return Fate::Gone;
        };
        let catalog = self.contents.catalog.read();
        let Some(shared) = catalog.shared.get(&number) else {
            return Fate::Gone;
        };
        let may_be_older = || catalog.is_older_than_in_log(entry.sequence, number, oldest);
        if entry.removal {
            return match may_be_older() {
                true => Fate::Copied(None),
                false => Fate::Gone,
            };
        }
        let fingerprint = self.contents.fingerprints.of(&entry.key);
        let slot = Slot::new(fingerprint, shared.place.index, entry.at);
        if !self.contents.keydir.contains(&slot) {
            return Fate::Gone;
        }
        if !self
            .expiry
            .is_collectable(&entry.fields, self.expiry.known_time())
        {
            return Fate::Copied(Some(slot));
        }
        match may_be_older() {
            true => Fate::BecomesRemoval(slot),
            false => Fate::Expired(slot),
        }
    }

    /// Makes copies durable and lets go of a segment of which everything readable was offered, or of which
    /// this store needs nothing.
    fn settle(&self, upkeep: &mut Upkeep, number: u32, budget: StepBudget) -> Result<StepOutcome> {
        let last = {
            let catalog = self.contents.catalog.read();
            let Some(entry) = catalog.shared.get(&number) else {
                return Ok(StepOutcome::nothing_left());
            };
            entry.stats.sequence_max
        };
        let mut cost_bytes = 0;
        if last > self.log.covered() {
            // Its batches would have to be replayed otherwise.
            let step = self.cover(upkeep, last, budget)?;
            if !step.is_done {
                return Ok(step);
            }
            cost_bytes = step.cost_bytes;
        }
        self.files.sync_all()?;
        upkeep.merging.mark_output();
        let lost = {
            let _puts_wait = self.files.writer.lock();
            let mut catalog = self.contents.catalog.write();
            let shared = catalog.shared.get_mut(&number);
            let expired = shared.map(|it| std::mem::take(&mut it.expired));
            for slot in expired.unwrap_or_default() {
                catalog.forget(&self.contents.keydir, &slot);
            }
            let live_bytes = catalog.shared.get(&number).map(|it| it.stats.live_bytes);
            let left = self.let_go(&mut catalog, number);
            (left > 0).then(|| (left, live_bytes.unwrap_or(0)))
        };
        if let Some((records, len)) = lost {
            let held = format!("{records} records in damaged parts of the value log");
            let range = LostRange::new(lost_name(number), 0, len, held);
            self.home.note_lost(range);
        }
        Ok(StepOutcome::done(cost_bytes))
    }

    /// Goes on with a checkpoint that covers a batch, or begins one, whatever is under way.
    fn cover(&self, upkeep: &mut Upkeep, last: u64, budget: StepBudget) -> Result<StepOutcome> {
        let covers = |job: &CheckpointJob| job.sequence() >= last;
        let checkpointing = &mut upkeep.checkpointing;
        checkpointing.job = checkpointing.job.take().filter(covers);
        self.checkpoint_step(checkpointing, &mut upkeep.merging, budget, false)
    }

    /// A segment of the log in which everything of this store has expired, with nothing older left
    /// that would show again.
    pub(crate) fn expired_in_log(&self, catalog: &Catalog, now: Timestamp) -> Option<u32> {
        let log = self.log.log.as_ref()?;
        let (newest, oldest) = (log.newest_segment(), self.log.oldest());
        let expired = catalog.shared.iter().find(|(number, entry)| {
            let stats = &entry.stats;
            **number != newest
                && stats.live_records > 0
                && self.expiry.is_all_collectable(stats, now)
                && oldest.is_none_or(|oldest| oldest >= **number)
                && !catalog.is_older_own(stats.sequence_max)
        });
        expired.map(|(number, _)| *number)
    }

    /// Forgets what has expired in the log.
    pub(crate) fn expire_in_log(&self, now: Timestamp) {
        let Some(log) = &self.log.log else {
            return;
        };
        {
            // A put relies on its old slots staying where it found them.
            let _puts_wait = self.files.writer.lock();
            let mut catalog = self.contents.catalog.write();
            while let Some(number) = self.expired_in_log(&catalog, now) {
                let entry = catalog.shared_mut(number);
                let index = entry.place.index;
                entry.stats.live_records = 0;
                entry.stats.live_bytes = 0;
                self.contents.keydir.retain(|place| place != index);
            }
        }
        log.usage_changed();
    }
}

/// What would have to be copied of a segment's entries. Where it says zero, nobody looks for that.
fn lasting_bytes(
    catalog: &Catalog,
    entry: &SharedEntry,
    expired: &Expired,
    oldest: Option<u32>,
) -> u64 {
    let stats = &entry.stats;
    let number = entry.place.number();
    let removal_bytes = match catalog.is_older_than_in_log(stats.sequence_max, number, oldest) {
        true => expired.removal_bytes(),
        false => 0,
    };
    let lasting_bytes = stats.live_bytes.saturating_sub(expired.bytes);
    (lasting_bytes + removal_bytes).max(stats.live_records)
}

impl Tenant for Bitcask {
    fn store_id(&self) -> StoreId {
        StoreId(self.store.home.identity())
    }

    fn covered(&self) -> Sequence {
        Sequence(self.store.log.covered())
    }

    fn known(&self) -> Sequence {
        Sequence(self.store.files.writer.lock().last_sequence)
    }

    fn replay(
        &self,
        segment: &Arc<LogSegment>,
        sequence: Sequence,
        records: &[LoggedRecord],
    ) -> Result<()> {
        let store = &self.store;
        store.home.intake.check_writable()?;
        let mut writer = store.files.writer.lock();
        for record in records {
            store.replay_record(segment, record)?;
        }
        writer.last_sequence = writer.last_sequence.max(sequence.0);
        let mut catalog = store.contents.catalog.write();
        catalog.last_sequence = catalog.last_sequence.max(sequence.0);
        store.files.note_durable(sequence.0);
        Ok(())
    }

    fn usage(&self) -> Vec<SegmentUse> {
        self.store.usage_of_log()
    }

    fn held(&self) -> Vec<Arc<HeldSegments>> {
        self.store.log.holds.all()
    }

    fn own_bytes(&self) -> u64 {
        self.store.contents.catalog.read().own_bytes()
    }

    /// What is in memory stays in the log, or is written to a checkpoint in place of another.
    fn unwritten_bytes(&self) -> u64 {
        0
    }

    fn relocate(&self, records: &[LoggedRecord]) -> Result<u64> {
        let mut upkeep = self.writable_upkeep()?;
        self.store.relocate(&mut upkeep.merging, records)
    }

    fn settle(&self, segment: u32, budget: StepBudget) -> Result<StepOutcome> {
        let mut upkeep = self.writable_upkeep()?;
        self.store.settle(&mut upkeep, segment, budget)
    }
}

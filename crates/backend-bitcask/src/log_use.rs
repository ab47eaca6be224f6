//! A store's use of the value log, and its copies of records there.
//!
//! Copies keep their sequence, and the record of a key with the highest sequence is valid. So a
//! batch may be replayed over any state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{
    LostRange, Result, StepBudget, StepOutcome, StoreId, Task, TaskKind, Timestamp,
};
use kvorum_value_log::{HeldSegments, LoggedRecord, SegmentUse};

use crate::checkpoints::{Checkpoints, checkpoint_bytes};
use crate::copies::{Copies, Fate, Gathered, not_understood};
use crate::entry::KIND_ENTRY;
use crate::expiry::Expired;
use crate::key_table::KeyEntry;
use crate::segment_files::SegmentFiles;
use crate::segments::Catalog;
use crate::shared::SharedEntry;
use crate::shared_place::lost_name;
use crate::slot::Slot;

/// The subject of expiry in the value log: no segment has this number.
pub(crate) const EXPIRES_IN_LOG: u32 = 0;
/// The log is notified when more than the live bytes divided by this have expired.
const REPORTED_PARTS: u64 = 16;

fn needs(
    files: &SegmentFiles,
    catalog: &Catalog,
    entry: &SharedEntry,
    oldest: Option<u32>,
) -> bool {
    entry.stats.live_records > 0
        || entry.is_copy_unsynced()
        || entry.stats.sequence_max > files.log.covered()
        || catalog.are_removals_needed(entry, oldest)
}

/// The store's use of the log. Segments that it no longer needs are released.
pub(crate) fn usage(files: &SegmentFiles) -> Vec<SegmentUse> {
    let Some(log) = &files.log.log else {
        return Vec::new();
    };
    let _puts_wait = files.writer.lock();
    let oldest = files.log.oldest();
    let newest = log.newest_segment();
    let held = files.log.holds.all();
    let is_held = |number: u32| held.iter().any(|it| it.holds(number));
    let mut catalog = files.contents.catalog.write();
    let covered = files.log.covered();
    let checkpoint_bytes = checkpoint_bytes(&files.contents, &catalog);
    let mut usage = Vec::new();
    let mut unneeded = Vec::new();
    let mut expired_bytes = 0;
    for (number, entry) in &catalog.shared {
        if is_held(*number) || needs(files, &catalog, entry, oldest) {
            let removal_bytes = if catalog.are_removals_needed(entry, oldest) {
                entry.stats.removal_bytes
            } else {
                0
            };
            let is_covered = entry.stats.sequence_max <= covered;
            let expired = files.home.expiry.expired_in(&entry.stats);
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
    // Segments that were dropped since a copy of the store was made.
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
        let_go(files, &mut catalog, number);
    }
    let first = oldest.unwrap_or(newest);
    catalog.log_starts.retain(|number, _| *number >= first);
    files
        .log
        .reported_bytes
        .store(expired_bytes, Ordering::Relaxed);
    usage
}

/// Makes the log survey usage again once much has expired.
pub(crate) fn report_expired(files: &SegmentFiles, catalog: &Catalog) {
    let Some(log) = &files.log.log else {
        return;
    };
    let reported_bytes = files.log.reported_bytes.load(Ordering::Relaxed);
    let shared = || catalog.shared.values().map(|it| &it.stats);
    let expired_bytes: u64 = shared()
        .map(|it| files.home.expiry.expired_in(it).bytes)
        .sum();
    let live_bytes: u64 = shared().map(|it| it.live_bytes).sum();
    if expired_bytes > reported_bytes + live_bytes / REPORTED_PARTS {
        log.usage_changed();
    }
}

/// Releases a segment of the log, and returns the number of slots that still pointed to it. The
/// caller holds the writer's lock.
fn let_go(files: &SegmentFiles, catalog: &mut Catalog, number: u32) -> u64 {
    let Some(entry) = catalog.shared.get(&number) else {
        return 0;
    };
    let index = entry.place.index;
    // Without live records no slot points there, and the walk over the whole directory is not
    // needed.
    let left = match entry.stats.live_records {
        0 => 0,
        _ => files.contents.keydir.retain(|place| place != index),
    };
    catalog.remove_shared(number);
    files.contents.keydir.show_places(&catalog.places);
    left
}

/// Copies the records that are still needed, and returns the bytes.
pub(crate) fn relocate(
    files: &SegmentFiles,
    copies: &mut Copies,
    records: &[LoggedRecord],
) -> Result<u64> {
    // Until the slots were moved, no place may be reused for another segment.
    let _places = files.contents.catalog.write().hold_places();
    let oldest = files.log.oldest();
    let mut gathered = Gathered::default();
    let mut copied_bytes = 0;
    for record in records {
        match fate_of(files, record, oldest) {
            Fate::Gone => {}
            Fate::Expired(slot) => {
                let mut catalog = files.contents.catalog.write();
                if let Some(shared) = catalog.shared.get_mut(&record.segment) {
                    shared.expired.push(slot);
                }
            }
            fate => {
                copied_bytes += copies.take(files, &mut gathered, record.stored.clone(), fate)?;
            }
        }
    }
    copied_bytes += copies.append(files, &gathered)?;
    Ok(copied_bytes)
}

fn fate_of(files: &SegmentFiles, record: &LoggedRecord, oldest: Option<u32>) -> Fate {
    let head = &record.stored.head;
    if head.kind != KIND_ENTRY || record.store != StoreId(files.home.identity()) {
        return Fate::Gone;
    }
    let number = record.segment;
    let Some(entry) = KeyEntry::of(head) else {
        let lost = not_understood(lost_name(number), head);
        files.home.note_lost(lost);
        return Fate::Gone;
    };
    let catalog = files.contents.catalog.read();
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
    let fingerprint = files.contents.fingerprints.of(&entry.key);
    let slot = Slot::new(fingerprint, shared.place.index, entry.at);
    if !files.contents.keydir.contains(&slot) {
        return Fate::Gone;
    }
    if !files
        .home
        .expiry
        .is_collectable(&entry.fields, files.home.expiry.known_time())
    {
        return Fate::Copied(Some(slot));
    }
    match may_be_older() {
        true => Fate::BecomesRemoval(slot),
        false => Fate::Expired(slot),
    }
}

/// Makes copies durable, and releases a segment whose readable records were all offered, or that
/// this store does not need.
pub(crate) fn settle(
    files: &SegmentFiles,
    checkpoints: &mut Checkpoints,
    copies: &mut Copies,
    number: u32,
    budget: StepBudget,
) -> Result<StepOutcome> {
    let last = {
        let catalog = files.contents.catalog.read();
        let Some(entry) = catalog.shared.get(&number) else {
            return Ok(StepOutcome::nothing_left());
        };
        entry.stats.sequence_max
    };
    let mut cost_bytes = 0;
    if last > files.log.covered() {
        // Otherwise its batches would have to be replayed.
        let step = checkpoints.cover(files, last, copies, budget)?;
        if !step.is_done {
            return Ok(step);
        }
        cost_bytes = step.cost_bytes;
    }
    files.sync_all()?;
    copies.mark();
    let lost = {
        let _puts_wait = files.writer.lock();
        let mut catalog = files.contents.catalog.write();
        let shared = catalog.shared.get_mut(&number);
        let expired = shared.map(|it| std::mem::take(&mut it.expired));
        for slot in expired.unwrap_or_default() {
            catalog.forget(&files.contents.keydir, &slot);
        }
        let live_bytes = catalog.shared.get(&number).map(|it| it.stats.live_bytes);
        let left = let_go(files, &mut catalog, number);
        (left > 0).then(|| (left, live_bytes.unwrap_or(0)))
    };
    if let Some((records, len)) = lost {
        let held = format!("{records} records in damaged parts of the value log");
        let range = LostRange::new(lost_name(number), 0, len, held);
        files.home.note_lost(range);
    }
    Ok(StepOutcome::done(cost_bytes))
}

/// The task of dropping expired entries in the log.
pub(crate) fn expiry_due(files: &SegmentFiles, catalog: &Catalog, now: Timestamp) -> Option<Task> {
    expired_segment(files, catalog, now)?;
    Some(Task::normal(TaskKind::Expire, u64::from(EXPIRES_IN_LOG), 0))
}

/// A segment of the log in which all entries of this store have expired, and hide no older entries.
fn expired_segment(files: &SegmentFiles, catalog: &Catalog, now: Timestamp) -> Option<u32> {
    let log = files.log.log.as_ref()?;
    let (newest, oldest) = (log.newest_segment(), files.log.oldest());
    let expired = catalog.shared.iter().find(|(number, entry)| {
        let stats = &entry.stats;
        **number != newest
            && stats.live_records > 0
            && files.home.expiry.is_all_collectable(stats, now)
            && oldest.is_none_or(|oldest| oldest >= **number)
            && !catalog.is_older_own(stats.sequence_max)
    });
    expired.map(|(number, _)| *number)
}

/// Drops expired entries in the log.
pub(crate) fn expire(files: &SegmentFiles, now: Timestamp) {
    let Some(log) = &files.log.log else {
        return;
    };
    {
        // A put relies on the places of the slots that it replaces.
        let _puts_wait = files.writer.lock();
        let mut catalog = files.contents.catalog.write();
        while let Some(number) = expired_segment(files, &catalog, now) {
            let entry = catalog.shared_mut(number);
            let index = entry.place.index;
            entry.stats.live_records = 0;
            entry.stats.live_bytes = 0;
            files.contents.keydir.retain(|place| place != index);
        }
    }
    log.usage_changed();
}

/// Keeps the segments of the value log that the store needs now.
pub(crate) fn hold(files: &SegmentFiles) -> Option<Arc<HeldSegments>> {
    let log = files.log.log.as_ref()?;
    // The query for usage takes this lock too, and puts wait: later batches go to the segment that
    // is now appended to, or behind it.
    let _puts_wait = files.writer.lock();
    let from = log.newest_segment();
    let oldest = files.log.oldest();
    let catalog = files.contents.catalog.read();
    let shared = catalog.shared.iter();
    let needed = shared.filter(|(_, entry)| needs(files, &catalog, entry, oldest));
    let older: BTreeSet<u32> = needed.map(|(number, _)| *number).collect();
    Some(files.log.holds.add(HeldSegments { older, from }))
}

/// Bytes of a segment's entries that would have to be copied. Zero means that the segment need not
/// be read.
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

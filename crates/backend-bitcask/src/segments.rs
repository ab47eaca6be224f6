//! The catalog of a store's segments, its own and those in the value log, with statistics and
//! places.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_value_log::LogSegment;

use crate::keydir::{Change, Keydir};
use crate::log_hint::LogHint;
use crate::places::{Place, Places, WeakPlace};
use crate::segment::Segment;
use crate::segment_stats::SegmentStats;
use crate::shared::SharedEntry;
use crate::shared_place::SharedPlace;
use crate::slot::{PLACES_MAX, Slot};

/// A segment of the store's own in the catalog.
pub(crate) struct SegmentEntry {
    pub(crate) segment: Arc<Segment>,
    pub(crate) stats: SegmentStats,
    /// No record is appended any more.
    pub(crate) is_sealed: bool,
    /// The end in bytes of its records with log hints.
    pub(crate) hinted_to: u64,
    /// The approximate number of these records.
    pub(crate) hinted_records: u64,
}

impl SegmentEntry {
    pub(crate) fn new(segment: Arc<Segment>, stats: SegmentStats, is_sealed: bool) -> Self {
        Self {
            segment,
            stats,
            is_sealed,
            hinted_to: 0,
            hinted_records: 0,
        }
    }
}

/// A removed segment, which may still have readers.
pub(crate) struct Removed {
    held: WeakPlace,
    place: u32,
    bytes: u64,
}

/// The segments of a store, and their places.
pub(crate) struct Catalog {
    pub(crate) segments: BTreeMap<u32, SegmentEntry>,
    /// Segments of the value log with records of the store, by number.
    pub(crate) shared: BTreeMap<u32, SharedEntry>,
    /// Hints of records in the log, oldest first.
    pub(crate) log_hints: Arc<Vec<Arc<LogHint>>>,
    /// The number of the next log hint.
    pub(crate) next_log_hint: u32,
    /// The store's first batch in each segment of the log that may still exist.
    pub(crate) log_starts: BTreeMap<u32, u64>,
    /// The table of places, which every shard of the key directory has too.
    pub(crate) places: Arc<Places>,
    /// The last batch that readers see.
    pub(crate) last_sequence: u64,
    /// Removed segments whose places are not free yet.
    removed: Vec<Removed>,
    free_places: Vec<u32>,
    /// No place from this one on was given out.
    pub(crate) next_place: u32,
    /// Alive while a checkpoint is written: it may have slots with any place given out so far.
    place_hold: Weak<PlaceHold>,
}

/// Prevents the reuse of places.
pub(crate) struct PlaceHold;

impl Catalog {
    pub(crate) fn new() -> Self {
        Self {
            segments: BTreeMap::new(),
            shared: BTreeMap::new(),
            log_hints: Arc::default(),
            next_log_hint: 1,
            log_starts: BTreeMap::new(),
            places: Arc::default(),
            last_sequence: 0,
            removed: Vec::new(),
            free_places: Vec::new(),
            next_place: 0,
            place_hold: Weak::new(),
        }
    }

    /// Counts every slot of a recovered directory as live.
    pub(crate) fn count_all_live(&mut self, keydir: &Keydir) {
        let mut live: Vec<(u64, u64)> = vec![(0, 0); self.next_place as usize];
        keydir.for_each(|slot| {
            if let Some((records, bytes)) = live.get_mut(slot.place() as usize) {
                *records += 1;
                *bytes += slot.stored_bytes();
            }
        });
        let own = self.segments.values_mut();
        let own = own.map(|it| (it.segment.place, &mut it.stats));
        let shared = self.shared.values_mut();
        let shared = shared.map(|it| (it.place.index, &mut it.stats));
        for (place, stats) in own.chain(shared) {
            let counted = live.get(place as usize).copied();
            (stats.live_records, stats.live_bytes) = counted.unwrap_or_default();
        }
    }

    /// A segment that must exist: the caller appends to it, or holds the lock for its removal.
    pub(crate) fn own_mut(&mut self, number: u32) -> &mut SegmentEntry {
        match self.segments.get_mut(&number) {
            Some(entry) => entry,
            None => unreachable!("segment {number} is in use, and not in the catalog"),
        }
    }

    /// The same for a segment of the log.
    pub(crate) fn shared_mut(&mut self, number: u32) -> &mut SharedEntry {
        match self.shared.get_mut(&number) {
            Some(entry) => entry,
            None => unreachable!("log segment {number} is in use, and not in the catalog"),
        }
    }

    /// Adds a segment. Slots may point to it once `show_places` of the directory was called.
    pub(crate) fn add_segment(&mut self, entry: SegmentEntry) {
        let segment = &entry.segment;
        self.next_place = self.next_place.max(segment.place.saturating_add(1));
        let place = Place::Own(segment.clone());
        self.places = Arc::new(self.places.with(segment.place, Some(place)));
        self.segments.insert(segment.number, entry);
    }

    /// A place that no slot refers to; `None` if all are taken.
    pub(crate) fn take_place(&mut self) -> Option<u32> {
        if self.place_hold.strong_count() == 0 {
            let free = &mut self.free_places;
            self.removed.retain(|removed| {
                let is_read = removed.held.is_held();
                if !is_read {
                    free.push(removed.place);
                }
                is_read
            });
        }
        if let Some(place) = self.free_places.pop() {
            return Some(place);
        }
        let place = self.next_place;
        self.next_place += 1;
        (place < PLACES_MAX).then_some(place)
    }

    /// Prevents the reuse of places for as long as the result lives.
    pub(crate) fn hold_places(&mut self) -> Arc<PlaceHold> {
        self.place_hold.upgrade().unwrap_or_else(|| {
            let hold = Arc::new(PlaceHold);
            self.place_hold = Arc::downgrade(&hold);
            hold
        })
    }

    /// Makes the changes of one batch: points keys to their new records, or drops keys.
    pub(crate) fn change(&mut self, keydir: &Keydir, changes: &[Change]) {
        keydir.change(changes, |change, was_there| {
            if let (Some(old), true) = (&change.old, was_there) {
                self.count_garbage(old);
            }
            if let Some(new) = &change.new {
                self.count_live(new);
            }
        });
    }

    /// Drops a key; false when its record was moved or superseded meanwhile.
    pub(crate) fn forget(&mut self, keydir: &Keydir, old: &Slot) -> bool {
        let was_there = keydir.remove(old);
        if was_there {
            self.count_garbage(old);
        }
        was_there
    }

    /// Points a key to a copy of its record; false when the record is no longer current.
    pub(crate) fn relocate(&mut self, keydir: &Keydir, old: &Slot, new: Slot) -> bool {
        if !keydir.replace(old, new) {
            return false;
        }
        self.count_garbage(old);
        self.count_live(&new);
        true
    }

    /// True when a removal of this sequence in segment `within` may be dropped: no other segment
    /// and no segment of the log can have an older entry of its key. Such an entry would be
    /// garbage, in a segment that began before the removal. `oldest` is the log's oldest segment
    /// with records of the store.
    pub(crate) fn is_removal_droppable(
        &self,
        sequence: u64,
        within: u32,
        oldest: Option<u32>,
    ) -> bool {
        if self.is_older_in_log(sequence, oldest) {
            return false;
        }
        self.segments.iter().all(|(number, entry)| {
            *number == within
                || entry.stats.sequence_min >= sequence
                || entry.stats.garbage_entries() == 0
        })
    }

    /// Removes a segment that no slot points to. Its readers continue.
    pub(crate) fn remove_segment(&mut self, number: u32) {
        let Some(entry) = self.segments.remove(&number) else {
            unreachable!("segment {number} is taken out, and is not in the catalog");
        };
        let held = WeakPlace::Own(Arc::downgrade(&entry.segment));
        self.give_up_place(entry.segment.place, held, entry.stats.data_end);
    }

    fn give_up_place(&mut self, place: u32, held: WeakPlace, bytes: u64) {
        self.places = Arc::new(self.places.with(place, None));
        self.removed.push(Removed { held, place, bytes });
    }

    /// Removes a segment of the log that no slot points to. Its readers continue.
    pub(crate) fn remove_shared(&mut self, number: u32) {
        let Some(entry) = self.shared.remove(&number) else {
            unreachable!("log segment {number} is let go of, and is not in the catalog");
        };
        let held = WeakPlace::Shared(Arc::downgrade(&entry.place));
        self.give_up_place(entry.place.index, held, 0);
    }

    /// Removes all segments and returns their numbers. None counts as pinned any more.
    pub(crate) fn clear(&mut self) -> Vec<u32> {
        let numbers: Vec<u32> = self.segments.keys().copied().collect();
        for number in &numbers {
            self.remove_segment(*number);
        }
        while let Some((number, _)) = self.shared.first_key_value() {
            self.remove_shared(*number);
        }
        self.log_starts.clear();
        self.log_hints = Arc::default();
        self.removed
            .iter_mut()
            .for_each(|removed| removed.bytes = 0);
        numbers
    }

    /// Memory for keys outside the key directory, in bytes: places of records in the log, and the
    /// indexes of hints.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let standings = self.shared.values().map(|it| it.memory_bytes() as u64);
        let hints = self.segments.values().filter_map(|entry| {
            let hint = entry.segment.hint.read();
            Some(hint.as_ref()?.memory_bytes())
        });
        let log_hints = self.log_hints.iter().map(|hint| hint.memory_bytes());
        standings.sum::<u64>() + hints.sum::<u64>() + log_hints.sum::<u64>()
    }

    /// Space of segments and hints, in bytes.
    pub(crate) fn own_bytes(&self) -> u64 {
        let hint_len = |entry: &SegmentEntry| {
            let hint = entry.segment.hint.read();
            hint.as_ref().map_or(0, |hint| hint.len())
        };
        let segments = self.segments.values();
        let segments = segments.map(|entry| entry.stats.data_end + hint_len(entry));
        let log_hints = self.log_hints.iter().map(|hint| hint.table.len());
        segments.chain(log_hints).sum()
    }

    /// Bytes of removed segments that still have readers.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let removed = self.removed.iter();
        let read = removed.filter(|removed| removed.held.is_held());
        read.map(|removed| removed.bytes).sum()
    }

    /// The entry of a segment of the log, created if it is missing.
    ///
    /// # Errors
    /// [`ErrorKind::Full`] when all places are taken.
    pub(crate) fn shared_entry(
        &mut self,
        keydir: &Keydir,
        segment: &Arc<LogSegment>,
    ) -> Result<&mut SharedEntry> {
        let number = segment.number();
        if !self.shared.contains_key(&number) {
            let index = self.take_place().ok_or_else(too_many_segments)?;
            let place = Arc::new(SharedPlace::new(index, segment.clone()));
            self.add_shared(SharedEntry::new(place, SegmentStats::default()));
            keydir.show_places(&self.places);
        }
        Ok(self.shared_mut(number))
    }

    /// True when [`Catalog::shared_entry`] certainly has a place for a put.
    pub(crate) fn has_places(&self) -> bool {
        const MARGIN: u32 = 1 << 10;
        self.next_place < PLACES_MAX - MARGIN
    }

    /// Adds a segment of the log. Slots may point to it once `show_places` of the directory was
    /// called.
    pub(crate) fn add_shared(&mut self, entry: SharedEntry) {
        let place = entry.place.clone();
        self.next_place = self.next_place.max(place.index.saturating_add(1));
        self.places = Arc::new(
            self.places
                .with(place.index, Some(Place::Shared(place.clone()))),
        );
        self.shared.insert(place.number(), entry);
    }

    /// Notes the store's first batch in a segment of the log.
    pub(crate) fn note_start(&mut self, number: u32, sequence: u64) {
        let start = self.log_starts.entry(number).or_insert(sequence);
        *start = (*start).min(sequence);
    }

    /// True when the log has an older batch of the store, needed or not. `oldest` is the log's
    /// oldest segment with records of the store.
    pub(crate) fn is_older_in_log(&self, sequence: u64, oldest: Option<u32>) -> bool {
        let Some(oldest) = oldest else {
            return false;
        };
        let first = self.log_starts.range(oldest..).next();
        first.is_some_and(|(_, start)| *start < sequence)
    }

    /// Counts a copy of a slot's record, if the record was in the log.
    pub(crate) fn note_copy(&mut self, old: &Slot) {
        let Some(Place::Shared(shared)) = self.places.get(old.place()) else {
            return;
        };
        if let Some(entry) = self.shared.get_mut(&shared.number()) {
            entry.copied += 1;
        }
    }

    /// The copies from each segment of the log that are in files, and not known to be durable.
    pub(crate) fn unsynced_copies(&self) -> Vec<(u32, u64)> {
        let unsynced = self.shared.iter().filter(|(_, it)| it.is_copy_unsynced());
        unsynced.map(|(number, it)| (*number, it.copied)).collect()
    }

    /// Notes that these copies are durable.
    pub(crate) fn copies_are_durable(&mut self, copies: &[(u32, u64)]) {
        for (number, copied) in copies {
            if let Some(entry) = self.shared.get_mut(number) {
                entry.copied_durably = entry.copied_durably.max(*copied);
            }
        }
    }

    /// True when removals of a segment of the log may still hide an entry elsewhere.
    pub(crate) fn are_removals_needed(&self, entry: &SharedEntry, oldest: Option<u32>) -> bool {
        let (sequence, number) = (entry.stats.sequence_max, entry.place.number());
        entry.stats.removals > 0 && self.is_older_than_in_log(sequence, number, oldest)
    }

    /// True when an older segment of the log, or a segment of the store's own, may have an older
    /// entry than this sequence in this segment of the log.
    pub(crate) fn is_older_than_in_log(
        &self,
        sequence: u64,
        number: u32,
        oldest: Option<u32>,
    ) -> bool {
        oldest.is_some_and(|oldest| oldest < number) || self.is_older_own(sequence)
    }

    /// True when a segment of the store's own may have an older entry, as garbage.
    pub(crate) fn is_older_own(&self, sequence: u64) -> bool {
        self.segments
            .values()
            .any(|it| it.stats.sequence_min < sequence && it.stats.garbage_entries() > 0)
    }

    fn count_garbage(&mut self, old: &Slot) {
        self.stats_of(old).remove_live(old);
    }

    fn count_live(&mut self, new: &Slot) {
        self.stats_of(new).add_live(new);
    }

    fn stats_of(&mut self, slot: &Slot) -> &mut SegmentStats {
        let number = match self.places.get(slot.place()) {
            Some(Place::Own(segment)) => segment.number,
            Some(Place::Shared(shared)) => {
                let number = shared.number();
                return &mut self.shared_mut(number).stats;
            }
            None => unreachable!("{slot:?} is or was current, and has no known place"),
        };
        &mut self.own_mut(number).stats
    }
}

/// The error when no place is left for another segment.
pub(crate) fn too_many_segments() -> BackendError {
    let detail = "the store has as many segments as it can number";
    BackendError::new(ErrorKind::Full, detail)
}

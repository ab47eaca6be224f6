//! The catalog of a store's segments, of its own and of those in the value log: statistics of each,
//! and their places.

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

/// A segment in its store.
pub(crate) struct SegmentEntry {
    pub(crate) segment: Arc<Segment>,
    pub(crate) stats: SegmentStats,
    /// Nothing is appended to it any more.
    pub(crate) is_sealed: bool,
    /// The end of its records with log hints. Bytes.
    pub(crate) hinted_to: u64,
    /// The approximate number of those records.
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

/// A segment that was taken out, and may still have readers.
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
    /// The table that every shard of the key directory has, too.
    pub(crate) places: Arc<Places>,
    /// The last batch that readers see.
    pub(crate) last_sequence: u64,
    /// Segments whose place is not free yet.
    removed: Vec<Removed>,
    free_places: Vec<u32>,
    /// No place below this was never given out.
    pub(crate) next_place: u32,
    /// Alive while a checkpoint is written, which may hold slots of any place given out so far.
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

    /// Counts every slot of a directory that was just recovered.
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

    /// A segment that cannot be gone: the caller appends to it, or holds the lock for its removal.
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

    /// Adds a segment that slots may point to as soon as `show_places` of the directory was called.
    pub(crate) fn add_segment(&mut self, entry: SegmentEntry) {
        let segment = &entry.segment;
        self.next_place = self.next_place.max(segment.place.saturating_add(1));
        let place = Place::Own(segment.clone());
        self.places = Arc::new(self.places.with(segment.place, Some(place)));
        self.segments.insert(segment.number, entry);
    }

    /// A place that no slot refers to; `None` when all are taken.
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

    /// Points keys to their new records, or drops them: the changes of one batch.
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

    /// Forgets a key. False when its record was moved or superseded meanwhile.
    pub(crate) fn forget(&mut self, keydir: &Keydir, old: &Slot) -> bool {
        let was_there = keydir.remove(old);
        if was_there {
            self.count_garbage(old);
        }
        was_there
    }

    /// Points a key to a copy of its record; false when the record is not current any more.
    pub(crate) fn relocate(&mut self, keydir: &Keydir, old: &Slot, new: Slot) -> bool {
        if !keydir.replace(old, new) {
            return false;
        }
        self.count_garbage(old);
        self.count_live(&new);
        true
    }

    /// True when a removal of this sequence in segment `within` may be dropped: no other segment
    /// can hold an older entry of its key. Such an entry would be garbage, and its segment would
    /// have begun before the removal. The log may have one as well; `oldest` is its oldest segment
    /// with anything of the store.
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

    /// Takes out a segment that no slot points to. Its readers go on.
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

    /// Lets go of a segment of the log that no slot points to. Its readers go on.
    pub(crate) fn remove_shared(&mut self, number: u32) {
        let Some(entry) = self.shared.remove(&number) else {
            unreachable!("log segment {number} is let go of, and is not in the catalog");
        };
        let held = WeakPlace::Shared(Arc::downgrade(&entry.place));
        self.give_up_place(entry.place.index, held, 0);
    }

    /// Takes out all segments and returns their numbers. None counts as held any more.
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

    /// Memory for keys beside the key directory, in bytes: places of records in the log, and the
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

    /// True when a put can be sure that [`Catalog::shared_entry`] has a place for it.
    pub(crate) fn has_places(&self) -> bool {
        const MARGIN: u32 = 1 << 10;
        self.next_place < PLACES_MAX - MARGIN
    }

    /// Adds a segment of the log that slots may point to once the directory was shown the places.
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

    /// True when the log has an older batch of the store than this, needed or not. `oldest` is its
    /// oldest segment with one.
    pub(crate) fn is_older_in_log(&self, sequence: u64, oldest: Option<u32>) -> bool {
        let Some(oldest) = oldest else {
            return false;
        };
        let first = self.log_starts.range(oldest..).next();
        first.is_some_and(|(_, start)| *start < sequence)
    }

    /// Counts a copy of a slot's record, if that was in the log.
    pub(crate) fn note_copy(&mut self, old: &Slot) {
        let Some(Place::Shared(shared)) = self.places.get(old.place()) else {
            return;
        };
        if let Some(entry) = self.shared.get_mut(&shared.number()) {
            entry.copied += 1;
        }
    }

    /// The copies of each segment of the log that are in files by now, and not known to be durable.
    pub(crate) fn unsynced_copies(&self) -> Vec<(u32, u64)> {
        let unsynced = self.shared.iter().filter(|(_, it)| it.is_copy_unsynced());
        unsynced.map(|(number, it)| (*number, it.copied)).collect()
    }

    /// Those copies are durable.
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

    /// True when there may be an older entry than one of this sequence in a segment of the log: in
    /// an older segment of the log or in one of the store's own.
    pub(crate) fn is_older_than_in_log(
        &self,
        sequence: u64,
        number: u32,
        oldest: Option<u32>,
    ) -> bool {
        oldest.is_some_and(|oldest| oldest < number) || self.is_older_own(sequence)
    }

    /// True when a segment of the store's own may have an older entry, which is garbage.
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

/// There is no place left for another segment.
pub(crate) fn too_many_segments() -> BackendError {
    let detail = "the store has as many segments as it can number";
    BackendError::new(ErrorKind::Full, detail)
}

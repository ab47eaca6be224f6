//! The segments of a store: open files, what is known of each, and how much of it is dead.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use kvorum_backend::Fields;
use kvorum_segment::{FILE_HEADER_BYTES, SegmentId, SegmentReader, file_name};
use parking_lot::RwLock;

use crate::expiries::Expiries;
use crate::hint::{HintFile, HintedSegment};
use crate::key_table::KeyEntry;
use crate::keydir::{Change, Keydir};
use crate::log_hint::LogHint;
use crate::places::{Place, Places, WeakPlace};
use crate::read_cache::CachedSegment;
use crate::shared::SharedEntry;
use crate::slot::{PLACES_MAX, Slot};

/// The kind in the header of a segment that puts are appended to.
pub(crate) const KIND_APPENDED: u8 = 1;
/// The kind in the header of a segment that merges write.
pub(crate) const KIND_MERGED: u8 = 2;

/// An open segment. Whoever holds one can read it, also after its file lost its name.
pub(crate) struct Segment {
    pub(crate) number: u32,
    /// What slots call it: its index in the store's places.
    pub(crate) place: u32,
    pub(crate) reader: SegmentReader,
    /// What the cache of entries calls it.
    pub(crate) cached: CachedSegment,
    pub(crate) is_merged: bool,
    pub(crate) hint: RwLock<Option<Arc<HintFile>>>,
    /// Some of its records cannot be read, so that it gets no hint.
    pub(crate) is_damaged: AtomicBool,
}

impl Segment {
    pub(crate) fn new(
        reader: SegmentReader,
        number: u32,
        place: u32,
        is_merged: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            place,
            reader,
            cached: CachedSegment::new(),
            is_merged,
            hint: RwLock::new(None),
            is_damaged: AtomicBool::new(false),
        })
    }

    /// What the list of what was lost calls it.
    pub(crate) fn listed_name(&self) -> String {
        file_name(u64::from(self.number))
    }
}

pub(crate) fn segment_id(log_id: u64, number: u32, is_merged: bool) -> SegmentId {
    let kind = if is_merged {
        KIND_MERGED
    } else {
        KIND_APPENDED
    };
    SegmentId {
        log_id,
        number: u64::from(number),
        kind,
    }
}

/// What is known of the records of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentStats {
    /// The end of its records, in bytes.
    pub(crate) data_end: u64,
    pub(crate) records: u64,
    pub(crate) removals: u64,
    pub(crate) removal_bytes: u64,
    /// Records that the key directory points to.
    pub(crate) live_records: u64,
    pub(crate) live_bytes: u64,
    /// 0 when there are no records.
    pub(crate) sequence_min: u64,
    pub(crate) sequence_max: u64,
    /// The latest expiry of any of its entries, in microseconds; the most there is for never.
    pub(crate) expires_by: u64,
    /// When the last of its entries was last modified, in microseconds.
    pub(crate) modified_by: u64,
    /// When those of its entries expire that do by themselves.
    pub(crate) expiries: Expiries,
}

impl Default for SegmentStats {
    fn default() -> Self {
        Self {
            data_end: FILE_HEADER_BYTES,
            records: 0,
            removals: 0,
            removal_bytes: 0,
            live_records: 0,
            live_bytes: 0,
            sequence_min: 0,
            sequence_max: 0,
            expires_by: 0,
            modified_by: 0,
            expiries: Expiries::default(),
        }
    }
}

impl SegmentStats {
    /// Counts a record that is not live yet. `fields` are those of an entry, `None` for removals.
    pub(crate) fn count(&mut self, sequence: u64, stored_bytes: u64, fields: Option<&Fields>) {
        self.count_sequence(sequence);
        match fields {
            Some(fields) => self.count_times(fields, stored_bytes),
            None => {
                self.removals += 1;
                self.removal_bytes += stored_bytes;
            }
        }
    }

    /// Counts what a scan or a hint said of a key.
    pub(crate) fn count_entry(&mut self, entry: &KeyEntry) {
        let stored_bytes = entry.at.len.next_multiple_of(8);
        let fields = (!entry.removal).then_some(&entry.fields);
        self.count(entry.sequence, stored_bytes, fields);
    }

    pub(crate) fn count_sequence(&mut self, sequence: u64) {
        self.sequence_min = match self.records {
            0 => sequence,
            _ => self.sequence_min.min(sequence),
        };
        self.sequence_max = self.sequence_max.max(sequence);
        self.records += 1;
    }

    fn count_times(&mut self, fields: &Fields, stored_bytes: u64) {
        let expiry = fields.expiry.map_or(u64::MAX, |expiry| expiry.0);
        self.expires_by = self.expires_by.max(expiry);
        if let Some(own) = fields.expiry {
            self.expiries.add(own.0, stored_bytes);
        }
        self.modified_by = self.modified_by.max(fields.last_modified.0);
    }

    pub(crate) fn add_live(&mut self, slot: &Slot) {
        self.live_records += 1;
        self.live_bytes += slot.stored_bytes();
    }

    pub(crate) fn remove_live(&mut self, slot: &Slot) {
        assert!(
            self.live_records > 0,
            "{slot:?} was current, and its segment had no current record"
        );
        self.live_records -= 1;
        self.live_bytes = self.live_bytes.saturating_sub(slot.stored_bytes());
    }

    /// Bytes of records.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_end.saturating_sub(FILE_HEADER_BYTES)
    }

    /// Entries that nothing points to. Never too few: a removal that an older removal of the same
    /// segment made needless may be counted here after an opening.
    pub(crate) fn dead_entries(&self) -> u64 {
        self.records
            .saturating_sub(self.removals)
            .saturating_sub(self.live_records)
    }

    /// Bytes that a merge frees: all but what is live and what removals take.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.data_bytes()
            .saturating_sub(self.live_bytes)
            .saturating_sub(self.removal_bytes)
    }

    /// What a hint of the segment has to be bound to.
    pub(crate) fn hinted(&self, id: &SegmentId) -> HintedSegment {
        HintedSegment {
            log_id: id.log_id,
            number: id.number,
            data_end: self.data_end,
            records: self.records,
            sequence_min: self.sequence_min,
            sequence_max: self.sequence_max,
        }
    }
}

/// A segment in its store.
pub(crate) struct SegmentEntry {
    pub(crate) segment: Arc<Segment>,
    pub(crate) stats: SegmentStats,
    /// Nothing is appended to it any more.
    pub(crate) is_sealed: bool,
    /// Log hints speak of its records that begin before this. Bytes.
    pub(crate) hinted_to: u64,
    /// How many records those are, about.
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

/// A segment that was taken out, and may still be read.
pub(crate) struct Removed {
    held: WeakPlace,
    place: u32,
    bytes: u64,
}

/// The segments of a store, and what slots call them.
pub(crate) struct Catalog {
    pub(crate) segments: BTreeMap<u32, SegmentEntry>,
    /// Segments of the node's log that hold something of the store, by number.
    pub(crate) shared: BTreeMap<u32, SharedEntry>,
    /// Hints of records in the log, oldest first.
    pub(crate) log_hints: Arc<Vec<Arc<LogHint>>>,
    /// The number of the next log hint.
    pub(crate) next_log_hint: u32,
    /// The store's first batch in each segment of the log that may still be there.
    pub(crate) log_starts: BTreeMap<u32, u64>,
    /// What every shard of the key directory has, too.
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

/// Keeps places from being given out a second time.
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

    /// A segment that cannot be gone: the caller appends to it, or holds what would remove it.
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

    /// A place that no slot means; `None` when all are taken.
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

    /// Keeps places as they are for as long as the result lives.
    pub(crate) fn hold_places(&mut self) -> Arc<PlaceHold> {
        self.place_hold.upgrade().unwrap_or_else(|| {
            let hold = Arc::new(PlaceHold);
            self.place_hold = Arc::downgrade(&hold);
            hold
        })
    }

    /// Points keys to their new records, or forgets them: the changes of one batch.
    pub(crate) fn change(&mut self, keydir: &Keydir, changes: &[Change]) {
        keydir.change(changes, |change, was_there| {
            if let (Some(old), true) = (&change.old, was_there) {
                self.count_dead(old);
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
            self.count_dead(old);
        }
        was_there
    }

    /// Points a key to a copy of its record; false when the record is not current any more.
    pub(crate) fn relocate(&mut self, keydir: &Keydir, old: &Slot, new: Slot) -> bool {
        if !keydir.replace(old, new) {
            return false;
        }
        self.count_dead(old);
        self.count_live(&new);
        true
    }

    /// True when a removal of this sequence in segment `within` may be forgotten: no other segment
    /// can hold an older entry of its key. Such an entry would be dead, and its segment would have
    /// begun before the removal.
    /// The log may have one as well; `oldest` is its oldest segment with anything of the store.
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
                || entry.stats.dead_entries() == 0
        })
    }

    /// Takes out a segment that no slot points to. Readers that hold it go on.
    pub(crate) fn remove_segment(&mut self, number: u32) {
        let Some(entry) = self.segments.remove(&number) else {
            unreachable!("segment {number} is taken out, and is not in the catalog");
        };
        let place = entry.segment.place;
        self.places = Arc::new(self.places.with(place, None));
        self.removed.push(Removed {
            held: WeakPlace::Own(Arc::downgrade(&entry.segment)),
            place,
            bytes: entry.stats.data_end,
        });
    }

    /// Lets go of a segment of the log that no slot points to. Readers that hold it go on.
    pub(crate) fn remove_shared(&mut self, number: u32) {
        let Some(entry) = self.shared.remove(&number) else {
            unreachable!("log segment {number} is let go of, and is not in the catalog");
        };
        let place = entry.place.index;
        self.places = Arc::new(self.places.with(place, None));
        self.removed.push(Removed {
            held: Place::Shared(entry.place).downgrade(),
            place,
            bytes: 0,
        });
    }

    /// Takes out all segments and returns their numbers. Nothing counts as held any more.
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

    /// What is held for keys beside the key directory, in bytes: where records stand in the log, and the
    /// indexes of hints.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let standings = self.shared.values().map(|it| it.memory_bytes() as u64);
        let hints = self.segments.values().filter_map(|entry| {
            let hint = entry.segment.hint.read();
            Some(hint.as_ref()?.index().memory_bytes())
        });
        let log_hints = self.log_hints.iter().map(|hint| hint.memory_bytes());
        standings.sum::<u64>() + hints.sum::<u64>() + log_hints.sum::<u64>()
    }

    /// Space that segments and hints take, in bytes.
    pub(crate) fn own_bytes(&self) -> u64 {
        let hint_len = |entry: &SegmentEntry| {
            let hint = entry.segment.hint.read();
            hint.as_ref().map_or(0, |hint| hint.len())
        };
        let segments = self.segments.values();
        let segments = segments.map(|entry| entry.stats.data_end + hint_len(entry));
        let log_hints = self.log_hints.iter().map(|hint| hint.len());
        segments.chain(log_hints).sum()
    }

    /// Bytes of removed segments that somebody still reads.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let removed = self.removed.iter();
        let read = removed.filter(|removed| removed.held.is_held());
        read.map(|removed| removed.bytes).sum()
    }

    fn count_dead(&mut self, old: &Slot) {
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
            None => unreachable!("{slot:?} is or was current, and its place is not known"),
        };
        &mut self.own_mut(number).stats
    }
}

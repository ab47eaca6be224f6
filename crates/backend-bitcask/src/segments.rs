//! The segments of a store: open files, what is known of each, and how much of it is dead.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use kvorum_backend::Fields;
use kvorum_segment::{FILE_HEADER_BYTES, SegmentId, SegmentReader};
use parking_lot::RwLock;

use crate::hint::{HintFile, HintedSegment};
use crate::key_table::KeyEntry;
use crate::keydir::{Keydir, Slot};

/// The kind in the header of a segment that puts are appended to.
pub(crate) const KIND_APPENDED: u8 = 1;
/// The kind in the header of a segment that merges write.
pub(crate) const KIND_MERGED: u8 = 2;

/// An open segment. Whoever holds one can read it, also after its file lost its name.
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) reader: SegmentReader,
    pub(crate) is_merged: bool,
    pub(crate) hint: RwLock<Option<Arc<HintFile>>>,
    /// Some of its records cannot be read, so that it gets no hint.
    pub(crate) is_damaged: AtomicBool,
}

impl Segment {
    pub(crate) fn new(reader: SegmentReader, number: u32, is_merged: bool) -> Arc<Self> {
        Arc::new(Self {
            number,
            reader,
            is_merged,
            hint: RwLock::new(None),
            is_damaged: AtomicBool::new(false),
        })
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
        }
    }
}

impl SegmentStats {
    /// Counts a record that is not live yet. `fields` are those of an entry, `None` for removals.
    pub(crate) fn count(&mut self, sequence: u64, stored_bytes: u64, fields: Option<&Fields>) {
        self.count_sequence(sequence);
        match fields {
            Some(fields) => self.count_times(fields),
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

    fn count_times(&mut self, fields: &Fields) {
        let expiry = fields.expiry.map_or(u64::MAX, |expiry| expiry.0);
        self.expires_by = self.expires_by.max(expiry);
        self.modified_by = self.modified_by.max(fields.last_modified.0);
    }

    pub(crate) fn add_live(&mut self, slot: &Slot) {
        self.live_records += 1;
        self.live_bytes += slot.stored_bytes();
    }

    pub(crate) fn remove_live(&mut self, slot: &Slot) {
        self.live_records = self.live_records.saturating_sub(1);
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
}

/// What readers need: where each key is, and the files.
pub(crate) struct Index {
    pub(crate) keydir: Keydir,
    pub(crate) segments: BTreeMap<u32, SegmentEntry>,
    /// Removed segments that somebody may still read, with the space they take.
    pub(crate) pinned: Vec<(Weak<Segment>, u64)>,
    /// The last batch that readers see.
    pub(crate) last_sequence: u64,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            keydir: Keydir::new(),
            segments: BTreeMap::new(),
            pinned: Vec::new(),
            last_sequence: 0,
        }
    }

    pub(crate) fn stats_mut(&mut self, number: u32) -> Option<&mut SegmentStats> {
        self.segments.get_mut(&number).map(|entry| &mut entry.stats)
    }

    /// Points a key to a new record, in place of `old` where there was one.
    pub(crate) fn point(&mut self, old: Option<&Slot>, new: Slot) {
        match old {
            Some(old) if self.keydir.replace(old, new) => self.count_dead(old),
            _ => self.keydir.insert(new),
        }
        if let Some(stats) = self.stats_mut(new.segment) {
            stats.add_live(&new);
        }
    }

    /// Forgets a key. False when its record was moved or superseded meanwhile.
    pub(crate) fn forget(&mut self, old: &Slot) -> bool {
        let was_there = self.keydir.remove(old);
        if was_there {
            self.count_dead(old);
        }
        was_there
    }

    /// Points a key to a copy of its record; false when the record is not current any more.
    pub(crate) fn relocate(&mut self, old: &Slot, new: Slot) -> bool {
        if !self.keydir.replace(old, new) {
            return false;
        }
        self.count_dead(old);
        if let Some(stats) = self.stats_mut(new.segment) {
            stats.add_live(&new);
        }
        true
    }

    /// True when a removal of this sequence in segment `within` may be forgotten: no other segment
    /// can hold an older entry of its key. Such an entry would be dead, and its segment would have
    /// begun before the removal.
    pub(crate) fn is_removal_droppable(&self, sequence: u64, within: u32) -> bool {
        self.segments.iter().all(|(number, entry)| {
            *number == within
                || entry.stats.sequence_min >= sequence
                || entry.stats.dead_entries() == 0
        })
    }

    /// Takes a segment out. Readers that hold it go on.
    pub(crate) fn remove_segment(&mut self, number: u32) {
        if let Some(removed) = self.segments.remove(&number) {
            let bytes = removed.stats.data_end;
            self.pinned.push((Arc::downgrade(&removed.segment), bytes));
        }
        self.pinned
            .retain(|(segment, _)| segment.strong_count() > 0);
    }

    fn count_dead(&mut self, old: &Slot) {
        if let Some(stats) = self.stats_mut(old.segment) {
            stats.remove_live(old);
        }
    }
}

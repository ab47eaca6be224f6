//! The segments of the node's log that a store has something in: what slots call them, what lives
//! there, and where the store's records stand.
//!
//! The log knows its segments by number and cannot list what one store has in them: the others' share
//! is most of it. So a store remembers where its records stand, in 8 bytes each, for folds, which
//! need the superseded ones and the removals as well; the fronts are read when a fold comes by.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, Result, SharedSegment};
use kvorum_segment::{Location, RECORD_ALIGN_BYTES};
use parking_lot::Mutex;

use crate::keydir::Keydir;
use crate::places::Place;
use crate::read_cache::CachedSegment;
use crate::segments::{Catalog, SegmentStats};
use crate::slot::Slot;

/// The name under which the log's segments are listed as lost.
pub(crate) const LOST_PREFIX: &str = "value_log/";

/// A segment of the log, and what slots call it.
pub(crate) struct SharedPlace {
    pub(crate) index: u32,
    pub(crate) segment: Arc<dyn SharedSegment>,
    pub(crate) cached: CachedSegment,
}

impl SharedPlace {
    pub(crate) fn new(index: u32, segment: Arc<dyn SharedSegment>) -> Self {
        Self {
            index,
            segment,
            cached: CachedSegment::new(),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.segment.number()
    }
}

/// Where a record stands, in 8 bytes: offset and length in units of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    offset: u32,
    /// The highest bit says that it is a removal.
    len: u32,
}

impl Standing {
    const REMOVAL: u32 = 1 << 31;

    pub(crate) fn new(at: Location, removal: bool) -> Self {
        let units = |bytes: u64| u32::try_from(bytes.div_ceil(RECORD_ALIGN_BYTES));
        let len = units(at.len).unwrap_or(u32::MAX).min(Self::REMOVAL - 1);
        Self {
            offset: units(at.offset).unwrap_or(u32::MAX),
            len: if removal { len | Self::REMOVAL } else { len },
        }
    }

    pub(crate) fn is_removal(self) -> bool {
        self.len & Self::REMOVAL != 0
    }

    /// Where its front may be read: a long one costs a second read.
    pub(crate) fn location(self) -> Location {
        const FRONT_BYTES_GUESSED: u64 = 256;
        let len = u64::from(self.len & !Self::REMOVAL) * RECORD_ALIGN_BYTES;
        Location {
            offset: u64::from(self.offset) * RECORD_ALIGN_BYTES,
            front_end: len.min(FRONT_BYTES_GUESSED),
            len,
        }
    }

    /// As 64 bits: the offset in the higher half.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.offset) << 32 | u64::from(self.len)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Self {
            offset: half(bits >> 32),
            len: half(bits),
        }
    }
}

/// Records in the order in which they were met; grows at its end only.
pub(crate) type Standings = Arc<Mutex<Vec<Standing>>>;

/// A segment of the log in a store.
pub(crate) struct SharedEntry {
    pub(crate) place: Arc<SharedPlace>,
    /// Of this store's records alone.
    pub(crate) stats: SegmentStats,
    pub(crate) records: Standings,
    /// How often records of it were copied to the store's own files, and how many of those copies are
    /// durable. Until all are, the segment is what a power cut leaves of them.
    pub(crate) copied: u64,
    pub(crate) copied_durably: u64,
}

impl SharedEntry {
    pub(crate) fn new(place: Arc<SharedPlace>, stats: SegmentStats) -> Self {
        Self {
            place,
            stats,
            records: Standings::default(),
            copied: 0,
            copied_durably: 0,
        }
    }

    pub(crate) fn is_copy_unsynced(&self) -> bool {
        self.copied > self.copied_durably
    }
}

/// What a checkpoint says of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoveredLog {
    pub(crate) log_id: u64,
    pub(crate) segments: BTreeMap<u32, SegmentStats>,
    /// The store's first batch in each segment.
    pub(crate) starts: BTreeMap<u32, u64>,
    /// Removals by segment.
    pub(crate) removals: Vec<(u32, Standing)>,
}

impl Catalog {
    /// The entry of a segment of the log, made when it is new.
    ///
    /// # Errors
    /// [`ErrorKind::Full`] when the store has as many segments as it can tell apart.
    pub(crate) fn shared_entry(
        &mut self,
        keydir: &Keydir,
        segment: &Arc<dyn SharedSegment>,
    ) -> Result<&mut SharedEntry> {
        let number = segment.number();
        if !self.shared.contains_key(&number) {
            let index = self.take_place().ok_or_else(too_many)?;
            let place = Arc::new(SharedPlace::new(index, segment.clone()));
            self.add_shared(SharedEntry::new(place, SegmentStats::default()));
            keydir.show_places(&self.places);
        }
        self.shared.get_mut(&number).ok_or_else(too_many)
    }

    /// True when a put can be sure that [`Catalog::shared_entry`] has a place for it.
    pub(crate) fn has_places(&self) -> bool {
        const MARGIN: u32 = 1 << 10;
        self.next_place < crate::slot::PLACES_MAX - MARGIN
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
    /// oldest segment that has any.
    pub(crate) fn is_older_in_log(&self, sequence: u64, oldest: Option<u32>) -> bool {
        let Some(oldest) = oldest else {
            return false;
        };
        let first = self.log_starts.range(oldest..).next();
        first.is_some_and(|(_, start)| *start < sequence)
    }

    /// Counts a copy of the record that a slot pointed to, if it stood in the log.
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

    /// True when removals of a segment of the log may still hide something elsewhere.
    pub(crate) fn are_removals_needed(&self, entry: &SharedEntry, oldest: Option<u32>) -> bool {
        let is_in_older = oldest.is_some_and(|oldest| oldest < entry.place.number());
        entry.stats.removals > 0 && (is_in_older || self.is_older_own(entry.stats.sequence_max))
    }

    /// True when a segment of the store's own may have an older entry, which is dead.
    pub(crate) fn is_older_own(&self, sequence: u64) -> bool {
        self.segments
            .values()
            .any(|it| it.stats.sequence_min < sequence && it.stats.dead_entries() > 0)
    }
}

fn too_many() -> BackendError {
    let detail = "the store has as many segments as it can tell apart";
    BackendError::new(ErrorKind::Full, detail)
}

/// What a lost part of the log is listed under.
pub(crate) fn lost_name(number: u32) -> String {
    format!(
        "{LOST_PREFIX}{}",
        kvorum_segment::file_name(u64::from(number))
    )
}

/// True when a lost range is a part of the log.
pub(crate) fn is_lost_name(name: &str) -> bool {
    name.starts_with(LOST_PREFIX)
}

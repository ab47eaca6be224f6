//! The segments of the value log with records of a store: statistics, and the places of all
//! records.
//!
//! The log cannot list the records of one store: most records are other stores'. So a store keeps
//! the places of its records, in three bytes each, for folds, which need superseded records and
//! removals too. A fold reads the fronts of records without a log hint ([`crate::log_hint`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_encoding::{ByteReader, VARINT_BYTES_MAX, put_varint, varint_len};
use kvorum_segment::{Location, RECORD_ALIGN_BYTES};
use parking_lot::Mutex;

use crate::segment_stats::SegmentStats;
use crate::shared_place::SharedPlace;
use crate::slot::Slot;

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The offset, in units of 8 bytes.
    offset: u32,
    removal: bool,
}

impl Standing {
    /// The bit for removals in the lower half; the offset is in the higher half.
    const REMOVAL: u32 = 1 << 31;

    pub(crate) fn new(offset: u64, removal: bool) -> Self {
        let units = u32::try_from(offset.div_ceil(RECORD_ALIGN_BYTES));
        Self {
            offset: units.unwrap_or(u32::MAX),
            removal,
        }
    }

    pub(crate) fn is_removal(self) -> bool {
        self.removal
    }

    /// The offset of the record's first byte.
    pub(crate) fn offset(self) -> u64 {
        u64::from(self.offset) * RECORD_ALIGN_BYTES
    }

    /// The place for reading the record's front: a long front costs a second read.
    pub(crate) fn location(self) -> Location {
        const FRONT_BYTES_GUESSED: u64 = 256;
        Location {
            offset: self.offset(),
            front_end: FRONT_BYTES_GUESSED,
            len: FRONT_BYTES_GUESSED,
        }
    }

    /// As 64 bits: the offset in the higher half.
    pub(crate) fn bits(self) -> u64 {
        let low = if self.removal { Self::REMOVAL } else { 0 };
        u64::from(self.offset) << 32 | u64::from(low)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self {
            offset: u32::try_from(bits >> 32).unwrap_or(u32::MAX),
            removal: bits & u64::from(Self::REMOVAL) != 0,
        }
    }
}

/// Records in the order of their arrival; the list grows only at its end. A record takes two or
/// three bytes: its distance from the previous record.
///
/// ```text
/// varint  bit 0: it is a removal; bit 1: it lies before the one before it; from bit 2 on the
///         distance, in units of 8
/// ```
#[derive(Default)]
pub(crate) struct StandingList {
    packed: Vec<u8>,
    len: usize,
    last: u32,
}

/// A position in a list.
#[derive(Clone, Copy, Default)]
pub(crate) struct StandingCursor {
    at: usize,
    last: u32,
    /// The number of records passed.
    pub(crate) passed: usize,
}

impl StandingList {
    pub(crate) fn push(&mut self, standing: Standing) {
        let is_before = standing.offset < self.last;
        let distance = u64::from(standing.offset.abs_diff(self.last));
        let packed = distance << 2 | u64::from(is_before) << 1 | u64::from(standing.removal);
        let needed = varint_len(packed);
        if self.packed.len() + needed > self.packed.capacity() {
            // Doubling could leave half of the memory unused for the segment's lifetime.
            let more = (self.packed.len() / 8).max(4 * VARINT_BYTES_MAX);
            self.packed.reserve_exact(more);
        }
        put_varint(&mut self.packed, packed);
        self.last = standing.offset;
        self.len += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The standing at a cursor, which moves forward.
    pub(crate) fn next(&self, cursor: &mut StandingCursor) -> Option<Standing> {
        let mut reader = ByteReader::new(self.packed.get(cursor.at..)?);
        let packed = reader.varint().ok()?;
        let distance = u32::try_from(packed >> 2).unwrap_or(u32::MAX);
        let offset = match packed & 2 {
            0 => cursor.last.saturating_add(distance),
            _ => cursor.last.saturating_sub(distance),
        };
        cursor.at += reader.offset();
        cursor.last = offset;
        cursor.passed += 1;
        Some(Standing {
            offset,
            removal: packed & 1 != 0,
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Standing> {
        let mut cursor = StandingCursor::default();
        std::iter::from_fn(move || self.next(&mut cursor))
    }

    /// Its memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.packed.capacity()
    }
}

/// Shared by the store and its snapshots.
pub(crate) type Standings = Arc<Mutex<StandingList>>;

/// A segment of the log in the catalog.
pub(crate) struct SharedEntry {
    pub(crate) place: Arc<SharedPlace>,
    /// Statistics of this store's records alone.
    pub(crate) stats: SegmentStats,
    pub(crate) records: Standings,
    /// The number of its records without a log hint.
    pub(crate) unhinted: usize,
    /// Some of its records are unreadable, so no log hint covers it.
    pub(crate) is_damaged: bool,
    /// The number of its records copied to the store's own files, and the number of durable copies.
    /// Until both are equal, a power cut leaves only the segment's own records.
    pub(crate) copied: u64,
    pub(crate) copied_durably: u64,
    /// Current records that a collection found expired. They stay current until the segment is
    /// dropped, since they may hide older records there.
    pub(crate) expired: Vec<Slot>,
}

impl SharedEntry {
    pub(crate) fn new(place: Arc<SharedPlace>, stats: SegmentStats) -> Self {
        Self {
            place,
            stats,
            records: Standings::default(),
            unhinted: 0,
            is_damaged: false,
            copied: 0,
            copied_durably: 0,
            expired: Vec::new(),
        }
    }

    /// Adds the place of a record.
    pub(crate) fn stand(&mut self, standing: Standing) {
        self.records.lock().push(standing);
        self.unhinted += 1;
    }

    /// The memory that the store needs for it, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        const OWN_BYTES: usize = size_of::<SharedEntry>()
            + size_of::<SharedPlace>()
            + size_of::<Mutex<StandingList>>()
            // Reference counts, and the slack of maps.
            + 64;
        let expired_bytes = self.expired.capacity() * size_of::<Slot>();
        OWN_BYTES + self.records.lock().memory_bytes() + expired_bytes
    }

    pub(crate) fn is_copy_unsynced(&self) -> bool {
        self.copied > self.copied_durably
    }
}

/// A checkpoint's rows about the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoveredLog {
    pub(crate) log_id: u64,
    pub(crate) segments: BTreeMap<u32, SegmentStats>,
    /// The store's first batch in each segment.
    pub(crate) starts: BTreeMap<u32, u64>,
    /// Removals, with their segments.
    pub(crate) removals: Vec<(u32, Standing)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standings_are_found_in_the_order_in_which_they_were_met() {
        let mut list = StandingList::default();
        let offsets = [4096, 4104, 1 << 33, 32, 0, u64::from(u32::MAX) * 8, 1 << 20];
        let expected: Vec<Standing> = (0..)
            .zip(offsets)
            .map(|(number, offset)| Standing::new(offset, number % 3 == 1))
            .collect();
        expected.iter().for_each(|standing| list.push(*standing));
        assert_eq!(list.iter().collect::<Vec<_>>(), expected);
        assert_eq!(list.len(), expected.len());
        for standing in expected {
            assert_eq!(Standing::from_bits(standing.bits()), standing);
        }
    }

    #[test]
    fn a_standing_takes_three_bytes_and_a_little() {
        let mut list = StandingList::default();
        for number in 1..1000 {
            list.push(Standing::new(number * 64 * 2100, false));
        }
        assert!(list.memory_bytes() < 3400, "{}", list.memory_bytes());
    }
}

//! An index of each key's newest entry by the key's hash. A lookup in a table replaces a search
//! that compares with a dozen keys, each in cache lines of its own.
//!
//! Tables are open-addressed and never move: a full table is followed by one of twice its size, and
//! a key stays in its first table. So readers need no lock, and no put waits for a table to be
//! rebuilt. A filter of a tenth of the tables' size excludes most absent keys.
//!
//! If many keys collide, as an attacker may arrange, no further keys are indexed, so that no lookup
//! takes long.
//!
//! A slot has the upper half of the hash, and the number of a place, counted from one; an empty
//! slot is zero. A place has a write, and the number of the key's previous place.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::key_filter::KeyFilter;
use super::piece::Written;

/// Each twice as long as the one before it.
const TABLES_MAX: usize = 26;
const SLOTS_MIN: usize = 32;
/// Places that are made at once: few, so that no put is delayed noticeably.
const CHUNK_PLACES: usize = 32;
/// Lists of chunks, each twice as long as the one before it: enough for all numbers of places.
const LISTS: usize = 28;

/// The limit of a lookup in a table, in slots, and the slots that another key of the same hash
/// counts as. Lookups of keys from no attacker are far below the limit.
const LOOK_MAX: usize = 1_024;
const STRANGER_SLOTS: usize = 64;

/// Bytes of a place, with the overhead of lists and allocator.
const PLACE_BYTES: u64 = size_of::<OnceLock<Place>>() as u64 + 2;

type Chunk = Box<[OnceLock<Place>]>;

struct Place {
    written: Written,
    /// The key's previous write.
    older: Option<u32>,
}

/// The places of each key's newest write.
pub(super) struct KeyIndex {
    filter: KeyFilter,
    tables: [OnceLock<Box<[AtomicU64]>>; TABLES_MAX],
    /// The latest table.
    last_table: AtomicUsize,
    places: Places,
    filled: Mutex<Filled>,
}

/// The used parts of the index.
#[derive(Default)]
struct Filled {
    /// Used slots of all tables.
    keys: usize,
    /// Used slots of the last table.
    slots: usize,
    places: u32,
}

/// A key's slot, and its contents.
struct Slot<'a> {
    slot: &'a AtomicU64,
    place: u32,
}

impl KeyIndex {
    /// An index for about this many keys, with room for `keys_at_first` at once.
    pub(super) fn new(keys_expected: usize, keys_at_first: usize) -> Self {
        let index = Self {
            filter: KeyFilter::new(keys_expected),
            tables: [const { OnceLock::new() }; TABLES_MAX],
            last_table: AtomicUsize::new(0),
            places: Places::default(),
            filled: Mutex::default(),
        };
        let slots = (keys_at_first + keys_at_first / 2).next_power_of_two();
        index.table(0, slots.max(SLOTS_MIN));
        index
    }

    /// Bytes of an index without entries.
    pub(super) fn bytes(&self) -> u64 {
        let tables = self.tables_from_last();
        let table_bytes: usize = tables.map(size_of_val).sum();
        (self.filter.bytes() + table_bytes) as u64
    }

    /// Keys in the index.
    pub(super) fn keys(&self) -> usize {
        self.filled.lock().keys
    }

    /// False for most hashes of keys that were never passed to [`KeyIndex::insert`].
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// Makes this the newest write of its key, and returns the bytes that it takes. `None` when the
    /// present write is newer, when too many keys collide, or when there is no room after billions
    /// of entries.
    pub(super) fn insert(&self, hash: u64, written: Written) -> Option<u64> {
        let mut filled = self.filled.lock();
        let may_be_known = self.filter.may_contain(hash);
        // Before the entry, so that no reader that may see the entry gets a "no".
        self.filter.add(hash);
        let known = may_be_known.then(|| self.slot_of(hash, written.key()));
        let known = known.flatten();
        let older = known.as_ref().map(|it| it.place);
        let newest = older.and_then(|it| self.places.get(it));
        if newest.is_some_and(|it| it.written.sequence() > written.sequence()) {
            return None;
        }
        let number = filled.places;
        self.places.put(number, Place { written, older })?;
        filled.places = number.checked_add(1)?;
        let entry = (hash >> 32 << 32) | (u64::from(number) + 1);
        let table_bytes = match known {
            Some(known) => {
                known.slot.store(entry, Ordering::Release);
                0
            }
            None => self.occupy(&mut filled, hash, entry)?,
        };
        Some(table_bytes + PLACE_BYTES)
    }

    /// Takes a slot, and returns the bytes of the table if it was made for it.
    fn occupy(&self, filled: &mut Filled, hash: u64, entry: u64) -> Option<u64> {
        let mut table = self.tables_from_last().next()?;
        let is_full = (filled.slots + 1) * 4 > table.len() * 3;
        if is_full {
            let number = self.last_table.load(Ordering::Relaxed) + 1;
            table = self.table(number, table.len() * 2)?;
            self.last_table.store(number, Ordering::Release);
            filled.slots = 0;
        }
        empty_slot(table, hash)?.store(entry, Ordering::Release);
        filled.slots += 1;
        filled.keys += 1;
        Some(if is_full {
            size_of_val(table) as u64
        } else {
            0
        })
    }

    fn table(&self, number: usize, len: usize) -> Option<&[AtomicU64]> {
        let table = self.tables.get(number)?;
        Some(table.get_or_init(|| (0..len).map(|_| AtomicU64::new(0)).collect()))
    }

    /// The last table first: it has half of all keys, or more.
    fn tables_from_last(&self) -> impl Iterator<Item = &[AtomicU64]> {
        let numbers = 0..=self.last_table.load(Ordering::Acquire);
        let tables = numbers.rev().filter_map(|it| self.tables.get(it)?.get());
        tables.map(|it| &it[..])
    }

    /// The newest write of a key up to a sequence.
    pub(super) fn find(&self, key: &[u8], hash: u64, sequence: u64) -> Option<&Written> {
        if !self.filter.may_contain(hash) {
            return None;
        }
        let mut place = self.places.get(self.slot_of(hash, key)?.place)?;
        while place.written.sequence() > sequence {
            place = self.places.get(place.older?)?;
        }
        Some(&place.written)
    }

    fn slot_of(&self, hash: u64, key: &[u8]) -> Option<Slot<'_>> {
        let is_it = |place: u32| {
            let place = self.places.get(place);
            place.is_some_and(|it| it.written.key() == key)
        };
        for table in self.tables_from_last() {
            let mut look = Look::default();
            for slot in slots_from(table, hash) {
                let entry = slot.load(Ordering::Acquire);
                let Some(place) = place_of(entry) else {
                    break;
                };
                let is_of_hash = entry >> 32 == hash >> 32;
                if is_of_hash && is_it(place) {
                    return Some(Slot { slot, place });
                }
                if !look.goes_on(is_of_hash) {
                    break;
                }
            }
        }
        None
    }
}

/// The progress of a lookup in a table, the same for puts and gets.
#[derive(Default)]
struct Look {
    passed: usize,
}

impl Look {
    /// Passes another key's slot; false when no key is behind it.
    fn goes_on(&mut self, is_of_hash: bool) -> bool {
        self.passed += if is_of_hash { STRANGER_SLOTS } else { 1 };
        self.passed < LOOK_MAX
    }
}

/// The place that a slot names; `None` in an empty one.
fn place_of(entry: u64) -> Option<u32> {
    u32::try_from(entry & u64::from(u32::MAX))
        .ok()?
        .checked_sub(1)
}

/// The slot for a key that is not in the table.
fn empty_slot(table: &[AtomicU64], hash: u64) -> Option<&AtomicU64> {
    let mut look = Look::default();
    for slot in slots_from(table, hash) {
        let entry = slot.load(Ordering::Relaxed);
        if entry == 0 {
            return Some(slot);
        }
        if !look.goes_on(entry >> 32 == hash >> 32) {
            break;
        }
    }
    None
}

/// The slots in which a hash may be, in order. At least a quarter is empty.
fn slots_from(table: &[AtomicU64], hash: u64) -> impl Iterator<Item = &AtomicU64> {
    let mask = table.len() - 1;
    let first = usize::try_from(hash & mask as u64).unwrap_or(0);
    table[first..].iter().chain(&table[..first])
}

/// Places, allocated in chunks, that never move.
#[derive(Default)]
struct Places {
    lists: [OnceLock<Box<[OnceLock<Chunk>]>>; LISTS],
}

impl Places {
    fn get(&self, number: u32) -> Option<&Place> {
        let (list, chunk, place) = address(number);
        let chunk = self.lists.get(list)?.get()?.get(chunk)?.get()?;
        chunk.get(place)?.get()
    }

    /// Fills a place that is empty.
    fn put(&self, number: u32, content: Place) -> Option<()> {
        let (list, chunk, place) = address(number);
        let chunks = || (0..1_usize << list).map(|_| OnceLock::new()).collect();
        let chunk = self.lists.get(list)?.get_or_init(chunks).get(chunk)?;
        let places = || (0..CHUNK_PLACES).map(|_| OnceLock::new()).collect();
        let place = chunk.get_or_init(places).get(place)?;
        place.set(content).ok()
    }
}

/// The list of a place, the chunk in the list, and the position in the chunk.
fn address(number: u32) -> (usize, usize, usize) {
    let number = number as usize;
    let (chunk, place) = (number / CHUNK_PLACES, number % CHUNK_PLACES);
    let list = (chunk + 1).ilog2() as usize;
    (list, chunk + 1 - (1 << list), place)
}

#[cfg(test)]
mod tests {
    use kvorum_sst::hash_key;

    use super::super::piece::Pieces;
    use super::*;

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    fn insert(index: &KeyIndex, pieces: &mut Pieces, number: u32, sequence: u64) -> Option<u64> {
        let written = pieces.cut(&key(number), sequence, None, None);
        index.insert(hash_key(&key(number)), written)
    }

    fn sequence_of(index: &KeyIndex, number: u32, sequence: u64) -> Option<u64> {
        let found = index.find(&key(number), hash_key(&key(number)), sequence)?;
        assert_eq!(found.key(), key(number));
        Some(found.sequence())
    }

    #[test]
    fn every_version_is_found_in_tables_that_were_made_for_none() {
        let (index, mut pieces) = (KeyIndex::new(0, 0), Pieces::default());
        let before = index.bytes();
        for round in 1..=3 {
            for number in 0..5_000 {
                assert!(insert(&index, &mut pieces, number, round * 10).is_some());
            }
        }
        assert!(index.bytes() > before + 8 * 5_000);
        for number in 0..5_000 {
            let at = |sequence| sequence_of(&index, number, sequence);
            assert_eq!((at(9), at(10), at(29)), (None, Some(10), Some(20)));
            assert_eq!(at(u64::MAX), Some(30));
        }
        assert!((5_000..9_000).all(|it| sequence_of(&index, it, u64::MAX).is_none()));
    }

    #[test]
    fn keys_of_one_hash_are_distinguished_and_no_more_are_taken_in_than_a_look_passes() {
        let (index, mut pieces) = (KeyIndex::new(10, 10), Pieces::default());
        let mut insert = |number: u32| {
            let written = pieces.cut(&key(number), 1 + u64::from(number), None, None);
            index.insert(7, written).is_some()
        };
        let taken: Vec<u32> = (0..5_000).filter(|it| insert(*it)).collect();
        assert_eq!(taken, (0..16).collect::<Vec<u32>>());
        for number in taken {
            let found = index.find(&key(number), 7, u64::MAX).unwrap();
            assert_eq!(found.key(), key(number));
        }
        assert!(index.find(&key(5_000), 7, u64::MAX).is_none());
    }

    #[test]
    fn keys_that_fall_together_are_not_searched_for_without_an_end() {
        let (index, mut pieces) = (KeyIndex::new(10, 4_000), Pieces::default());
        // Different tags, and the same first slot.
        let hash_of = |number: u32| u64::from(number) << 32;
        let mut taken = 0;
        for number in 0..3_000 {
            let written = pieces.cut(&key(number), 1, None, None);
            taken += u32::from(index.insert(hash_of(number), written).is_some());
        }
        assert_eq!(taken, 1_024);
        let is_found = |it: u32| index.find(&key(it), hash_of(it), u64::MAX).is_some();
        assert!((0..taken).all(is_found) && !(taken..3_000).any(is_found));
    }

    #[test]
    fn what_is_older_than_the_newest_is_refused_and_what_is_of_its_batch_replaces_it() {
        let (index, mut pieces) = (KeyIndex::new(0, 0), Pieces::default());
        assert!(insert(&index, &mut pieces, 1, 5).is_some());
        assert_eq!(insert(&index, &mut pieces, 1, 4), None);
        assert!(insert(&index, &mut pieces, 1, 5).is_some());
        assert_eq!(sequence_of(&index, 1, 5), Some(5));
    }

    #[test]
    fn places_fill_lists_one_after_the_other() {
        let mut expected = 0;
        for list in 0..6_usize {
            for chunk in 0..1 << list {
                for place in 0..CHUNK_PLACES {
                    assert_eq!(address(expected), (list, chunk, place));
                    expected += 1;
                }
            }
        }
        assert!(address(u32::MAX).0 < LISTS);
    }
}

//! The memtable: what was written last, in key order, all versions that a reader may still ask for.
//!
//! One writer at a time inserts; readers look and walk without a lock. A reader names the sequence up
//! to which it sees, so that a batch appears whole.

mod key_filter;
mod rank;

use std::cmp::Ordering as Compared;
use std::ops::Bound;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use crossbeam_skiplist::SkipMap;
use kvorum_sst::{Mark, Marks, hash_key};
use parking_lot::RwLock;

use crate::Entry;
use key_filter::KeyFilter;
use rank::{CommonPrefix, Rank};

/// What an entry costs beyond its bytes: list node, key and value structures.
const ENTRY_OVERHEAD_BYTES: u64 = 220;
/// What an entry of a store's first memtable is taken to have, in bytes, and how many such entries its
/// filter is made for at most: nothing is known yet, and many stores never have more than a few.
const ENTRY_BYTES_EXPECTED: u64 = 1_024;
const FIRST_KEYS_MAX: u64 = 16_384;

/// A key and the batch that wrote it; the newest of a key comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MemKey {
    rank: Rank,
    key: Bytes,
    sequence: u64,
}

impl Ord for MemKey {
    fn cmp(&self, other: &Self) -> Compared {
        let ranks = self.rank.cmp(&other.rank);
        let keys = || self.key.cmp(&other.key);
        let sequences = || other.sequence.cmp(&self.sequence);
        ranks.then_with(keys).then_with(sequences)
    }
}

impl PartialOrd for MemKey {
    fn partial_cmp(&self, other: &Self) -> Option<Compared> {
        Some(self.cmp(other))
    }
}

/// Entries in memory.
pub(crate) struct Memtable {
    map: SkipMap<MemKey, Entry>,
    common: CommonPrefix,
    /// Made by the first insert: most stores of a small node stay empty.
    filter: OnceLock<KeyFilter>,
    keys_expected: usize,
    has_marks: AtomicBool,
    marks: RwLock<Vec<Mark>>,
    bytes: AtomicU64,
    sealed_at: AtomicU64,
    /// The first log segment that may hold entries of it; later memtables have later ones.
    pub(crate) first_log: u64,
}

impl Memtable {
    /// The first of a store, which is to be flushed at about so many bytes.
    pub(crate) fn new(first_log: u64, bytes_expected: u64) -> Self {
        let keys = bytes_expected / (ENTRY_OVERHEAD_BYTES + ENTRY_BYTES_EXPECTED);
        let keys_expected = usize::try_from(keys.min(FIRST_KEYS_MAX)).unwrap_or(0);
        Self::expecting(CommonPrefix::default(), keys_expected, first_log)
    }

    /// The same for keys that are mostly between these two. Nothing was added yet.
    pub(crate) fn with_keys_between(self, first: &[u8], last: &[u8]) -> Self {
        Self {
            common: CommonPrefix::between(first, last),
            ..self
        }
    }

    /// Behind another one, which tells what is to be expected.
    pub(crate) fn behind(full: &Self, first_log: u64) -> Self {
        let (Some(first), Some(last)) = (full.map.front(), full.map.back()) else {
            return Self::expecting(full.common.clone(), full.keys_expected, first_log);
        };
        let common = CommonPrefix::between(&first.key().key, &last.key().key);
        Self::expecting(common, full.len(), first_log)
    }

    fn expecting(common: CommonPrefix, keys_expected: usize, first_log: u64) -> Self {
        Self {
            map: SkipMap::new(),
            common,
            filter: OnceLock::new(),
            keys_expected,
            has_marks: AtomicBool::new(false),
            marks: RwLock::default(),
            bytes: AtomicU64::new(0),
            sealed_at: AtomicU64::new(0),
            first_log,
        }
    }

    /// Adds an entry and returns what it takes, in bytes.
    pub(crate) fn insert(&self, key: Bytes, entry: Entry) -> u64 {
        let mut bytes = (key.len() + entry.payload_bytes()) as u64 + ENTRY_OVERHEAD_BYTES;
        let filter = self.filter.get_or_init(|| {
            let filter = KeyFilter::new(self.keys_expected);
            bytes += filter.bytes() as u64;
            filter
        });
        // Before the entry, so that nobody who may see the entry is told that it is not there.
        filter.add(hash_key(&key));
        let key = self.place_of(key, entry.sequence);
        self.map.insert(key, entry);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    fn place_of(&self, key: Bytes, sequence: u64) -> MemKey {
        MemKey {
            rank: self.common.rank(&key),
            key,
            sequence,
        }
    }

    /// Removes a range and returns what remembering that takes, in bytes.
    pub(crate) fn insert_mark(&self, mark: Mark) -> u64 {
        let bytes = mark.memory_bytes() as u64;
        self.marks.write().push(mark);
        self.has_marks.store(true, Ordering::Release);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Nothing is added any more: every batch up to `sequence` is here or in older places.
    pub(crate) fn seal(&self, sequence: u64) {
        self.sealed_at.store(sequence, Ordering::Release);
    }

    /// What it was sealed with.
    pub(crate) fn sealed_at(&self) -> u64 {
        self.sealed_at.load(Ordering::Acquire)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty() && !self.has_marks.load(Ordering::Acquire)
    }

    /// Versions of keys.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The newest entry of a key among those up to a sequence. `hash` is that of [`hash_key`].
    pub(crate) fn get(&self, key: &Bytes, hash: u64, sequence: u64) -> Option<Entry> {
        let is_absent = |filter: &KeyFilter| !filter.may_contain(hash);
        if self.filter.get().is_none_or(is_absent) {
            return None;
        }
        let from = self.place_of(key.clone(), sequence);
        let found = self.map.lower_bound(Bound::Included(&from))?;
        (found.key().key == *key).then(|| found.value().clone())
    }

    /// The sequence of the last removal of a range with this key, up to a sequence.
    pub(crate) fn removed_at(&self, key: &[u8], sequence: u64) -> Option<u64> {
        if !self.has_marks.load(Ordering::Acquire) {
            return None;
        }
        let marks = self.marks.read();
        let covering = marks
            .iter()
            .filter(|mark| mark.sequence <= sequence && mark.covers(key));
        covering.map(|mark| mark.sequence).max()
    }

    /// The removals of ranges up to a sequence.
    pub(crate) fn marks(&self, sequence: u64) -> Marks {
        if !self.has_marks.load(Ordering::Acquire) {
            return Marks::default();
        }
        let marks = self.marks.read();
        let seen = marks.iter().filter(|mark| mark.sequence <= sequence);
        Marks::new(seen.cloned().collect())
    }

    /// The newest entries of the next keys, up to a sequence; at most `count`.
    pub(crate) fn batch(
        &self,
        from: Bound<&Bytes>,
        sequence: u64,
        count: usize,
        out: &mut Vec<(Bytes, Entry)>,
    ) {
        let key_of = |key: &Bytes, sequence| self.place_of(key.clone(), sequence);
        // Behind all versions of a key stands its version 0, which no batch writes.
        let from = match from {
            Bound::Included(key) => Bound::Included(key_of(key, u64::MAX)),
            Bound::Excluded(key) => Bound::Excluded(key_of(key, 0)),
            Bound::Unbounded => Bound::Unbounded,
        };
        for found in self.map.range((from, Bound::Unbounded)) {
            let key = found.key();
            let is_shown = out.last().is_some_and(|(last, _)| *last == key.key);
            if key.sequence > sequence || is_shown {
                continue;
            }
            if out.len() >= count {
                break;
            }
            out.push((key.key.clone(), found.value().clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use kvorum_sst::MarkKind;

    use super::*;

    fn key(name: &'static str) -> Bytes {
        Bytes::from(name)
    }

    #[test]
    fn a_reader_sees_the_newest_version_up_to_its_sequence() {
        let memtable = Memtable::new(0, 1 << 20);
        for (name, sequence) in [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)] {
            memtable.insert(key(name), Entry::removal(sequence));
        }
        let get = |name, sequence| {
            let found = memtable.get(&key(name), hash_key(name.as_bytes()), sequence);
            found.map(|it| it.sequence)
        };
        assert_eq!(get("a", 2), Some(1));
        assert_eq!(get("a", 9), Some(3));
        assert_eq!(get("b", 1), None);
        let walk = |from: Bound<&Bytes>, sequence, count| {
            let mut out = Vec::new();
            memtable.batch(from, sequence, count, &mut out);
            let seen = out.into_iter();
            seen.map(|(_, entry)| entry.sequence).collect::<Vec<_>>()
        };
        assert_eq!(walk(Bound::Unbounded, 4, 9), [3, 2, 4]);
        assert_eq!(walk(Bound::Unbounded, 2, 9), [1, 2]);
        assert_eq!(walk(Bound::Excluded(&key("a")), 9, 1), [5]);
        assert_eq!(walk(Bound::Included(&key("b")), 9, 9), [5, 4]);
    }

    #[test]
    fn a_removed_range_counts_from_its_sequence_on() {
        let memtable = Memtable::new(0, 1 << 20);
        memtable.insert_mark(Mark {
            from: key("b"),
            to: key("d"),
            sequence: 5,
            kind: MarkKind::Removed,
            filter: Bytes::new(),
        });
        assert_eq!(memtable.removed_at(b"c", 9), Some(5));
        assert_eq!(memtable.removed_at(b"c", 4), None);
        assert_eq!(memtable.removed_at(b"d", 9), None);
        assert!(memtable.marks(4).is_empty() && !memtable.marks(5).is_empty());
    }
}

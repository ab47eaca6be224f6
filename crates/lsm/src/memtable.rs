//! The memtable: what was written last, in key order, all versions that a reader may still ask for.
//!
//! One writer at a time inserts; readers look and walk without a lock. A reader names the sequence up
//! to which it sees, so that a batch appears whole.
//!
//! Entries are in a list in key order, for walks, and in an index by hash, for gets. A walk keeps the
//! list's nodes from being freed (a guard), which costs less than counting whoever looks at each.

mod key_filter;
mod key_index;
mod page;
mod piece;
mod rank;

use std::cmp::Ordering as Compared;
use std::ops::Bound;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use crossbeam_epoch as epoch;
use crossbeam_skiplist::SkipList;
use kvorum_sst::{Mark, Marks, hash_key};
use parking_lot::{Mutex, RwLock};

use crate::{Entry, Value};
use key_index::KeyIndex;
pub(crate) use page::{Page, Paged};
use piece::{Pieces, Written};
use rank::{CommonPrefix, Rank};

/// What an entry of a store's first memtable is taken to have, in bytes, how many such entries its filter
/// is made for at most, and how many its index: nothing is known yet, and many stores never have more
/// than a few.
const ENTRY_BYTES_EXPECTED: u64 = 1_024;
const FIRST_KEYS_MAX: u64 = 16_384;
const FIRST_INDEXED_MAX: usize = 1_024;

/// A node of the list, its tower and what the allocator rounds up, in bytes.
const NODE_BYTES: u64 = size_of::<Node>() as u64 + 40;

/// What was written to a key, by key; the newest of a key comes first.
struct Node {
    rank: Rank,
    written: Written,
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Compared {
        let (one, other) = (self, other);
        let ranks = one.rank.cmp(&other.rank);
        let keys = || one.written.key().cmp(other.written.key());
        let sequences = || other.written.sequence().cmp(&one.written.sequence());
        ranks.then_with(keys).then_with(sequences)
    }
}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Compared> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Node {}

/// Entries in memory.
pub(crate) struct Memtable {
    list: SkipList<Node, ()>,
    pieces: Mutex<Pieces>,
    common: CommonPrefix,
    /// A store's first is made by the first insert: most stores of a small node stay empty.
    index: OnceLock<KeyIndex>,
    is_index_counted: AtomicBool,
    /// Something is in the list alone.
    is_index_partial: AtomicBool,
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
        let keys = bytes_expected / (NODE_BYTES + ENTRY_BYTES_EXPECTED);
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
        let guard = epoch::pin();
        let (Some(first), Some(last)) = (full.list.front(&guard), full.list.back(&guard)) else {
            return Self::expecting(full.common.clone(), full.keys_expected, first_log);
        };
        let common = CommonPrefix::between(first.key().written.key(), last.key().written.key());
        let keys = full.len();
        let fresh = Self::expecting(common, keys, first_log);
        // No put is to wait for that.
        fresh.index.get_or_init(|| KeyIndex::new(keys, keys));
        fresh
    }

    fn expecting(common: CommonPrefix, keys_expected: usize, first_log: u64) -> Self {
        Self {
            list: SkipList::new(epoch::default_collector().clone()),
            pieces: Mutex::default(),
            common,
            index: OnceLock::new(),
            is_index_counted: AtomicBool::new(false),
            is_index_partial: AtomicBool::new(false),
            keys_expected,
            has_marks: AtomicBool::new(false),
            marks: RwLock::default(),
            bytes: AtomicU64::new(0),
            sealed_at: AtomicU64::new(0),
            first_log,
        }
    }

    /// Adds an entry, without a value for a removal, and returns what it takes, in bytes.
    pub(crate) fn insert(&self, key: &[u8], sequence: u64, value: Option<&Value>) -> u64 {
        let written = self.pieces.lock().cut(key, sequence, value);
        let mut bytes = NODE_BYTES + written.payload_bytes();
        let index = self.index.get_or_init(|| {
            let keys_at_first = self.keys_expected.min(FIRST_INDEXED_MAX);
            KeyIndex::new(self.keys_expected, keys_at_first)
        });
        if !self.is_index_counted.swap(true, Ordering::Relaxed) {
            bytes += index.bytes();
        }
        match index.insert(hash_key(key), written.clone()) {
            Some(index_bytes) => bytes += index_bytes,
            None => self.is_index_partial.store(true, Ordering::Release),
        }
        let guard = epoch::pin();
        let node = self.node(written);
        self.list.insert(node, (), &guard).release(&guard);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    fn node(&self, written: Written) -> Node {
        Node {
            rank: self.common.rank(written.key()),
            written,
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
        self.list.is_empty() && !self.has_marks.load(Ordering::Acquire)
    }

    /// Versions of keys.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The newest entry of a key among those up to a sequence. `hash` is that of [`hash_key`].
    pub(crate) fn get(&self, key: &Bytes, hash: u64, sequence: u64) -> Option<Entry> {
        self.find(key, hash, sequence, Written::entry).flatten()
    }

    /// The sequence of a key's newest entry.
    pub(crate) fn newest_of(&self, key: &Bytes, hash: u64) -> Option<u64> {
        self.find(key, hash, u64::MAX, Written::sequence)
    }

    fn find<T>(
        &self,
        key: &Bytes,
        hash: u64,
        sequence: u64,
        take: impl Fn(&Written) -> T,
    ) -> Option<T> {
        if !self.is_index_partial.load(Ordering::Acquire) {
            return self.index.get()?.find(key, hash, sequence).map(take);
        }
        let from = self.node(Written::asked(key, sequence));
        let guard = epoch::pin();
        let found = self.list.lower_bound(Bound::Included(&from), &guard)?;
        let written = &found.key().written;
        (written.key() == &key[..]).then(|| take(written))
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
    pub(crate) fn page(&self, from: Bound<&Bytes>, sequence: u64, count: usize) -> Page {
        let asked = |key, sequence| self.node(Written::asked(key, sequence));
        // Behind all versions of a key stands its version 0, which no batch writes.
        let from = match from {
            Bound::Included(key) => Bound::Included(asked(key, u64::MAX)),
            Bound::Excluded(key) => Bound::Excluded(asked(key, 0)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let guard = epoch::pin();
        let mut page = Page::with_room_for(count);
        for found in self.list.range((from, Bound::Unbounded), &guard) {
            let written = &found.key().written;
            let is_shown = page.last_key() == Some(written.key());
            if written.sequence() > sequence || is_shown {
                continue;
            }
            if page.len() >= count {
                break;
            }
            page.push(written);
        }
        page.finish()
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
            memtable.insert(name.as_bytes(), sequence, None);
        }
        let get = |name, sequence| {
            let found = memtable.get(&key(name), hash_key(name.as_bytes()), sequence);
            found.map(|it| it.sequence)
        };
        assert_eq!(get("a", 2), Some(1));
        assert_eq!(get("a", 9), Some(3));
        assert_eq!(get("b", 1), None);
        let walk = |from: Bound<&Bytes>, sequence, count| {
            let mut page = memtable.page(from, sequence, count);
            let sequence_of = |paged| match paged {
                Paged::Bytes(bytes) => Entry::decode(&bytes).unwrap().sequence,
                Paged::Entry(entry) => entry.sequence,
            };
            let seen = (0..page.len()).map(|at| sequence_of(page.take(at).unwrap()));
            seen.collect::<Vec<_>>()
        };
        assert_eq!(walk(Bound::Unbounded, 4, 9), [3, 2, 4]);
        assert_eq!(walk(Bound::Unbounded, 2, 9), [1, 2]);
        assert_eq!(walk(Bound::Excluded(&key("a")), 9, 1), [5]);
        assert_eq!(walk(Bound::Included(&key("b")), 9, 9), [5, 4]);
    }

    #[test]
    fn what_comes_out_of_order_is_found_by_a_search() {
        let memtable = Memtable::new(0, 1 << 20);
        for sequence in [7, 3, 5] {
            memtable.insert(b"a", sequence, None);
        }
        let newest_to = |sequence| {
            let found = memtable.get(&key("a"), hash_key(b"a"), sequence);
            found.map(|it| it.sequence)
        };
        assert_eq!((newest_to(9), newest_to(6)), (Some(7), Some(5)));
        assert_eq!((newest_to(4), newest_to(2)), (Some(3), None));
        assert_eq!(memtable.newest_of(&key("a"), hash_key(b"a")), Some(7));
        assert_eq!(memtable.newest_of(&key("b"), hash_key(b"b")), None);
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

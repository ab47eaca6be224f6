//! The memtable: the latest writes in key order, with all versions that a reader may still need.
//!
//! One writer at a time inserts. A reader reads up to a sequence, so that a batch appears whole.
//!
//! Entries are in leaves in key order, for walks, and in an index by hash, for gets. A walk locks a
//! leaf while it copies from it; no thread waits for longer.

mod key_filter;
mod key_index;
mod leaves;
mod page;
mod piece;
mod rank;

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use kvorum_sst::{Mark, MarkKind, Marks, hash_key};
use parking_lot::{Mutex, RwLock};

use kvorum_value_log::{LogPlace, LogSegment};

use crate::keeping::Keeping;
use crate::{Body, Entry, LoggedPlace, Op, Value};
use key_index::KeyIndex;
use leaves::Leaves;
pub(crate) use page::{Page, Paged};
use piece::{Pieces, Written};

/// The assumed bytes of an entry in a store's first memtable, and the most entries for which its
/// filter and its index are made. The real sizes are unknown, and many stores never have more than
/// a few entries.
const ENTRY_BYTES_EXPECTED: u64 = 1_024;
const FIRST_KEYS_MAX: u64 = 16_384;
const FIRST_INDEXED_MAX: usize = 1_024;

/// Entries in memory.
pub(crate) struct Memtable {
    leaves: Leaves,
    pieces: Mutex<Pieces>,
    /// In a store's first memtable, the first insert makes the index: most stores of a small node
    /// stay empty.
    index: OnceLock<KeyIndex>,
    /// Bytes of an index that was made in advance, for entries that may never come.
    prepared_bytes: u64,
    /// Some entries are in the leaves alone, and not in the index.
    is_index_partial: AtomicBool,
    keys_expected: usize,
    has_marks: AtomicBool,
    marks: RwLock<Vec<Mark>>,
    bytes: AtomicU64,
    /// Keys and values, in bytes.
    payload_bytes: AtomicU64,
    sealed_at: AtomicU64,
    /// The first log segment that may hold its entries; later memtables have later ones.
    pub(crate) first_log: u64,
    /// The segments of the value log in which its entries have bodies.
    segments: RwLock<BTreeMap<u32, Arc<LogSegment>>>,
}

impl Memtable {
    /// A store's first memtable, which is flushed at about this many bytes.
    pub(crate) fn new(first_log: u64, bytes_expected: u64) -> Self {
        let keys = bytes_expected / (leaves::NODE_BYTES_EXPECTED + ENTRY_BYTES_EXPECTED);
        let keys_expected = usize::try_from(keys.min(FIRST_KEYS_MAX)).unwrap_or(0);
        Self::expecting(keys_expected, first_log)
    }

    /// The memtable after another one, from which it takes the expected sizes.
    pub(crate) fn behind(full: &Self, first_log: u64) -> Self {
        let keys = full.index.get().map_or(0, KeyIndex::keys);
        // A memtable that was flushed early is no measure for the next one.
        let keys_expected = keys.max(full.keys_expected / 2);
        let mut fresh = Self::expecting(keys_expected, first_log);
        // Made now, so that no put waits for it.
        let prepared = || KeyIndex::new(keys_expected, keys);
        fresh.prepared_bytes = fresh.index.get_or_init(prepared).bytes();
        fresh
    }

    fn expecting(keys_expected: usize, first_log: u64) -> Self {
        Self {
            leaves: Leaves::new(),
            pieces: Mutex::default(),
            index: OnceLock::new(),
            prepared_bytes: 0,
            is_index_partial: AtomicBool::new(false),
            keys_expected,
            has_marks: AtomicBool::new(false),
            marks: RwLock::default(),
            bytes: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
            sealed_at: AtomicU64::new(0),
            first_log,
            segments: RwLock::default(),
        }
    }

    /// Applies one write of a batch, and returns the bytes that it takes.
    pub(crate) fn apply(&self, op: &Op, sequence: u64) -> u64 {
        match op {
            Op::Put { key, value } => self.insert(key, sequence, Some(value)),
            Op::Remove { key } => self.insert(key, sequence, None),
            Op::RemoveRange { from, to } => self.insert_mark(Mark {
                from: from.clone(),
                to: to.clone(),
                sequence,
                kind: MarkKind::Removed,
                filter: Bytes::new(),
            }),
        }
    }

    /// Applies a write that was logged at this place. Of a body that stays there, only the place is
    /// kept.
    pub(crate) fn apply_logged(
        &self,
        op: &Op,
        sequence: u64,
        at: &LogPlace,
        keeping: Keeping,
    ) -> u64 {
        match op {
            Op::Put { key, value } => match &value.body {
                Body::Inline(body) if keeping.keeps(key, body.len()) => {
                    let len = body.len() as u64;
                    let value = value.with_body_at(LoggedPlace { at: *at, len });
                    self.insert(key, sequence, Some(&value))
                }
                _ => self.apply(op, sequence),
            },
            Op::Remove { key } if keeping.journals(key) => {
                let written = self.pieces.lock().cut(key, sequence, None, Some(*at));
                self.insert_written(hash_key(key), written)
            }
            op => self.apply(op, sequence),
        }
    }

    /// Adds an entry, without a value for a removal, and returns the bytes that it takes.
    pub(crate) fn insert(&self, key: &[u8], sequence: u64, value: Option<&Value>) -> u64 {
        self.insert_hashed(key, hash_key(key), sequence, value)
    }

    fn insert_hashed(&self, key: &[u8], hash: u64, sequence: u64, value: Option<&Value>) -> u64 {
        let written = self.pieces.lock().cut(key, sequence, value, None);
        self.insert_written(hash, written)
    }

    fn insert_written(&self, hash: u64, written: Written) -> u64 {
        let mut bytes = written.payload_bytes();
        self.payload_bytes.fetch_add(bytes, Ordering::Relaxed);
        let index = self.index.get_or_init(|| {
            let keys_at_first = self.keys_expected.min(FIRST_INDEXED_MAX);
            let index = KeyIndex::new(self.keys_expected, keys_at_first);
            bytes += index.bytes();
            index
        });
        match index.insert(hash, written.clone()) {
            Some(index_bytes) => bytes += index_bytes,
            None => self.is_index_partial.store(true, Ordering::Release),
        }
        bytes += self.leaves.insert(written);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Removes a range and returns the bytes of its mark.
    pub(crate) fn insert_mark(&self, mark: Mark) -> u64 {
        let bytes = mark.memory_bytes() as u64;
        self.marks.write().push(mark);
        self.has_marks.store(true, Ordering::Release);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Keeps a segment of the value log, before the first entry that names it is added. A reader of
    /// the memtable finds the bodies through the same version.
    pub(crate) fn keep_segment(&self, segment: &Arc<LogSegment>) {
        let number = segment.number();
        if !self.segments.read().contains_key(&number) {
            self.segments.write().insert(number, segment.clone());
        }
    }

    /// A segment of the value log, if entries may have a body in it.
    pub(crate) fn segment(&self, number: u32) -> Option<Arc<LogSegment>> {
        self.segments.read().get(&number).cloned()
    }

    /// All segments that it keeps.
    pub(crate) fn segments(&self) -> BTreeMap<u32, Arc<LogSegment>> {
        self.segments.read().clone()
    }

    /// Ends the memtable: no batch is added, and every batch up to `sequence` is here or in older
    /// layers.
    pub(crate) fn seal(&self, sequence: u64) {
        self.sealed_at.store(sequence, Ordering::Release);
    }

    /// The sequence at which it was sealed.
    pub(crate) fn sealed_at(&self) -> u64 {
        self.sealed_at.load(Ordering::Acquire)
    }

    /// Memory of the entries to flush; 0 for an empty memtable.
    pub(crate) fn bytes(&self) -> u64 {
        match self.bytes.load(Ordering::Relaxed) {
            0 => 0,
            bytes => bytes + self.prepared_bytes,
        }
    }

    /// Approximate bytes that a flush of it writes.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload_bytes.load(Ordering::Relaxed)
    }

    /// Its whole memory, even if it is empty.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) + self.prepared_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && !self.has_marks.load(Ordering::Acquire)
    }

    /// Versions of keys.
    pub(crate) fn len(&self) -> usize {
        self.leaves.len()
    }

    /// The newest entry of a key up to a sequence. `hash` is the result of [`hash_key`].
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
        let index = self.index.get()?;
        if !self.is_index_partial.load(Ordering::Acquire) {
            return index.find(key, hash, sequence).map(take);
        }
        if !index.may_contain(hash) {
            return None;
        }
        let from = Written::asked(key, sequence);
        let mut found = None;
        self.leaves.walk(Bound::Included(from), |written| {
            found = (written.key() == &key[..]).then(|| take(written));
            ControlFlow::Break(())
        });
        found
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

    /// Mean memory of an entry, in bytes, nodes and index included.
    fn entry_bytes(&self) -> usize {
        let entries = self.len().max(1);
        usize::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(usize::MAX) / entries
    }

    /// The newest entries of the next keys, up to a sequence: at most `count`, and fewer if they
    /// take many bytes.
    pub(crate) fn page(&self, from: Bound<&Bytes>, sequence: u64, count: usize) -> Page {
        // Sequence 0, which no batch has, follows all versions of a key.
        let from = match from {
            Bound::Included(key) => Bound::Included(Written::asked(key, u64::MAX)),
            Bound::Excluded(key) => Bound::Excluded(Written::asked(key, 0)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut page = Page::with_room_for(count, self.entry_bytes());
        self.leaves.walk(from, |written| {
            if written.sequence() > sequence {
                return ControlFlow::Continue(());
            }
            if page.last_key() == Some(written.key()) {
                page.pass(written);
                return ControlFlow::Continue(());
            }
            if page.len() >= count || page.is_long() {
                return ControlFlow::Break(());
            }
            page.push(written);
            ControlFlow::Continue(())
        });
        page.finish()
    }
}

#[cfg(test)]
mod tests {
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

    fn of_keys(memtable: &Memtable, numbers: std::ops::Range<u32>) {
        for number in numbers {
            memtable.insert(&number.to_be_bytes(), u64::from(number) + 1, None);
        }
    }

    #[test]
    fn keys_of_one_hash_are_all_found() {
        let memtable = Memtable::new(0, 1 << 20);
        let key = |number: u32| Bytes::copy_from_slice(&number.to_be_bytes());
        for number in 0..2_000 {
            memtable.insert_hashed(&key(number), 7, u64::from(number) + 1, None);
        }
        for number in 0..2_000 {
            let found = memtable.get(&key(number), 7, u64::MAX);
            assert_eq!(found.map(|it| it.sequence), Some(u64::from(number) + 1));
        }
        assert_eq!(memtable.get(&key(2_000), 7, u64::MAX), None);
        assert_eq!(memtable.get(&key(3), hash_key(b"other"), u64::MAX), None);
    }

    #[test]
    fn behind_a_memtable_that_was_flushed_early_absent_keys_are_still_reported() {
        let full = Memtable::new(0, 1 << 20);
        of_keys(&full, 0..10_000);
        let nearly_empty = Memtable::behind(&full, 1);
        of_keys(&nearly_empty, 0..1);
        let next = Memtable::behind(&nearly_empty, 2);
        of_keys(&next, 0..5_000);
        let index = next.index.get().unwrap();
        let is_wrong = |it: &u32| index.may_contain(hash_key(&it.to_be_bytes()));
        let wrong = (5_000..15_000).filter(is_wrong).count();
        assert!(wrong < 500, "{wrong} of 10,000 absent keys");
    }

    #[test]
    fn room_is_made_for_as_many_keys_and_not_for_as_many_versions() {
        let full = Memtable::new(0, 1 << 20);
        for sequence in 1..10_000 {
            full.insert(b"counter", sequence, None);
        }
        let (next, first) = (Memtable::behind(&full, 1), Memtable::new(0, 1 << 20));
        first.insert(b"counter", 1, None);
        assert_eq!((next.bytes(), next.len()), (0, 0));
        assert!(next.held_bytes() > 0 && next.held_bytes() < first.bytes());
    }

    #[test]
    fn a_page_of_long_keys_ends_early_and_the_next_one_goes_on() {
        let memtable = Memtable::new(0, 1 << 20);
        let key = |number: u8| Bytes::from(vec![number; 30_000]);
        (0..20).for_each(|it| _ = memtable.insert(&key(it), 1, None));
        let (mut seen, mut from) = (Vec::new(), Bound::Unbounded);
        loop {
            let page = memtable.page(from.as_ref(), 9, 64);
            let Some(last) = page.end() else { break };
            assert!(page.len() <= 3, "{} entries", page.len());
            seen.extend((0..page.len()).map(|at| page.key(at)[0]));
            from = Bound::Excluded(last);
        }
        assert!(seen.into_iter().eq(0..20));
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

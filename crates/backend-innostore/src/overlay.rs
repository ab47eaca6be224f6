//! Puts that are in no tree yet: entries and removals by key, newest first, in memory.
//!
//! Overwritten entries stay as long as the overlay, since a snapshot may see them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_encoding::successor;
use kvorum_page_tree::{Change, Entry};
use parking_lot::{Mutex, RwLock};

use crate::change::Op;

/// Approximate memory of an entry in addition to its bytes.
const OVERHEAD_BYTES: u64 = 200;
/// Keys that a cursor copies at a time.
const KEYS_AT_ONCE: usize = 64;

type Slot = (Bytes, Reverse<u64>);

/// An entry, or a removal.
pub(crate) type Held = Option<Entry>;

/// See the module.
#[derive(Default)]
pub(crate) struct Overlay {
    held: RwLock<BTreeMap<Slot, Held>>,
    bytes: AtomicU64,
    payload_bytes: AtomicU64,
    /// The last batch, 0 for none.
    last_sequence: AtomicU64,
    /// Bytes of its batches in each segment of the log.
    segments: Mutex<BTreeMap<u32, u64>>,
}

impl Overlay {
    /// Applies the changes of a batch, which may be empty. Later changes of a key replace earlier
    /// ones.
    pub(crate) fn apply(&self, ops: &[Op], sequence: u64) {
        self.last_sequence.fetch_max(sequence, Ordering::AcqRel);
        let mut held = self.held.write();
        for op in ops {
            let entry = op.entry.clone().map(|entry| Entry { sequence, ..entry });
            held.insert((op.key.clone(), Reverse(sequence)), entry);
            let payload = op.payload_bytes();
            self.payload_bytes.fetch_add(payload, Ordering::Relaxed);
            self.bytes
                .fetch_add(payload + OVERHEAD_BYTES, Ordering::Relaxed);
        }
    }

    /// Counts the bytes of a batch in the log.
    pub(crate) fn count_logged(&self, segment: u32, bytes: u64) {
        *self.segments.lock().entry(segment).or_default() += bytes;
    }

    /// Segments with its batches, and the batches' bytes.
    pub(crate) fn segments(&self) -> BTreeMap<u32, u64> {
        self.segments.lock().clone()
    }

    /// The oldest segment with one of its batches.
    pub(crate) fn oldest_segment(&self) -> Option<u32> {
        self.segments.lock().keys().next().copied()
    }

    /// Its approximate memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of keys, heads and bodies.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload_bytes.load(Ordering::Relaxed)
    }

    /// Entries and removals, overwritten ones included.
    pub(crate) fn entries(&self) -> u64 {
        self.held.read().len() as u64
    }

    /// The last batch, 0 for none.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Ordering::Acquire)
    }

    /// True when it has no batch, not even one without writes.
    pub(crate) fn is_empty(&self) -> bool {
        self.last_sequence() == 0
    }

    /// The newest entry of a key up to this sequence.
    pub(crate) fn get(&self, key: &Bytes, sequence: u64) -> Option<Held> {
        let held = self.held.read();
        let from = (key.clone(), Reverse(sequence));
        let ((found, _), entry) = held.range(from..).next()?;
        (found == key).then(|| entry.clone())
    }

    /// The batch that wrote a key last.
    pub(crate) fn newest_of(&self, key: &Bytes) -> Option<u64> {
        let held = self.held.read();
        let from = (key.clone(), Reverse(u64::MAX));
        let ((found, Reverse(sequence)), _) = held.range(from..).next()?;
        (found == key).then_some(*sequence)
    }

    /// The newest entries, up to this sequence, of some keys from this one on, and the first key
    /// behind them.
    fn some_from(&self, from: &Bytes, sequence: u64) -> (VecDeque<(Bytes, Held)>, Option<Bytes>) {
        let mut taken: VecDeque<(Bytes, Held)> = VecDeque::new();
        let held = self.held.read();
        let seen = held
            .range((from.clone(), Reverse(u64::MAX))..)
            .filter(|((_, Reverse(written)), _)| *written <= sequence);
        for ((key, _), entry) in seen {
            if taken.back().is_some_and(|(last, _)| last == key) {
                continue;
            }
            if taken.len() == KEYS_AT_ONCE {
                let next = taken.back().map(|(last, _)| successor(last));
                return (taken, next);
            }
            taken.push_back((key.clone(), entry.clone()));
        }
        (taken, None)
    }
}

/// A walk over an overlay in key order, up to a sequence.
pub(crate) struct Cursor {
    overlay: Arc<Overlay>,
    sequence: u64,
    taken: VecDeque<(Bytes, Held)>,
    next: Option<Bytes>,
}

impl Cursor {
    pub(crate) fn new(overlay: Arc<Overlay>, sequence: u64, from: Bytes) -> Self {
        Self {
            overlay,
            sequence,
            taken: VecDeque::new(),
            next: Some(from),
        }
    }

    /// The next key.
    pub(crate) fn peek(&mut self) -> Option<&Bytes> {
        if self.taken.is_empty()
            && let Some(from) = self.next.take()
        {
            (self.taken, self.next) = self.overlay.some_from(&from, self.sequence);
        }
        self.taken.front().map(|(key, _)| key)
    }
}

impl Iterator for Cursor {
    type Item = (Bytes, Held);

    fn next(&mut self) -> Option<(Bytes, Held)> {
        self.peek()?;
        self.taken.pop_front()
    }
}

/// The changes of an overlay to the tree below it.
pub(crate) fn changes_of(overlay: Arc<Overlay>) -> impl Iterator<Item = (Bytes, Change)> + Send {
    let cursor = Cursor::new(overlay, u64::MAX, Bytes::new());
    cursor.map(|(key, held)| (key, held.map_or(Change::Remove, Change::Put)))
}

#[cfg(test)]
mod tests {
    use kvorum_backend::Fields;
    use kvorum_page_tree::Body;

    use super::*;

    fn put(key: &str, head: &'static str) -> Op {
        let entry = Entry {
            sequence: 0,
            fields: Fields::default(),
            extra: Bytes::new(),
            head: Bytes::from_static(head.as_bytes()),
            body: Body::Inline(Bytes::new()),
        };
        Op {
            key: Bytes::copy_from_slice(key.as_bytes()),
            entry: Some(entry),
        }
    }

    fn remove(key: &str) -> Op {
        Op {
            entry: None,
            ..put(key, "")
        }
    }

    fn heads(overlay: &Arc<Overlay>, sequence: u64) -> Vec<(String, Option<String>)> {
        let cursor = Cursor::new(overlay.clone(), sequence, Bytes::new());
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let all = cursor.map(|(key, held)| (text(&key), held.map(|it| text(&it.head))));
        all.collect()
    }

    fn seen(key: &str, head: Option<&str>) -> (String, Option<String>) {
        (key.to_owned(), head.map(str::to_owned))
    }

    #[test]
    fn each_sequence_sees_what_was_put_up_to_it_and_the_last_write_of_a_batch() {
        let overlay = Arc::new(Overlay::default());
        overlay.apply(&[put("b", "1"), put("a", "1")], 1);
        overlay.apply(&[put("b", "2"), put("b", "3")], 2);
        overlay.apply(&[remove("a"), put("b\0", "4")], 3);
        assert_eq!(heads(&overlay, 0), []);
        let first = [seen("a", Some("1")), seen("b", Some("1"))];
        assert_eq!(heads(&overlay, 1), first);
        let second = [seen("a", Some("1")), seen("b", Some("3"))];
        assert_eq!(heads(&overlay, 2), second);
        let third = [
            seen("a", None),
            seen("b", Some("3")),
            seen("b\0", Some("4")),
        ];
        assert_eq!(heads(&overlay, 3), third);
        let key = Bytes::from_static(b"b");
        assert_eq!(overlay.newest_of(&key), Some(2));
        assert_eq!(overlay.get(&key, 0), None);
        assert_eq!(overlay.get(&Bytes::from_static(b"a"), 3), Some(None));
    }

    #[test]
    fn a_cursor_comes_by_every_key_of_many_once() {
        let overlay = Arc::new(Overlay::default());
        let keys: Vec<String> = (0..5 * KEYS_AT_ONCE).map(|it| format!("{it:05}")).collect();
        for (sequence, key) in keys.iter().enumerate() {
            let sequence = 1 + sequence as u64;
            overlay.apply(&[put(key, "x")], sequence);
            overlay.apply(&[put(&keys[0], "y")], sequence);
        }
        let all: Vec<String> = heads(&overlay, u64::MAX)
            .into_iter()
            .map(|it| it.0)
            .collect();
        assert_eq!(all, keys);
    }
}

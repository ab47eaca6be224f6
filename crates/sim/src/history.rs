//! The history of one key for its clients: its writes, and the writes that each replaced.
//!
//! Values are unique, so that a value read names the write that made it. A write replaces the value
//! that its client had read, and everything that this value had replaced. Objects are judged by
//! values and not by their clocks: a clock that covers a write that no client has seen is the
//! defect to be found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fixedbitset::FixedBitSet;
use kvorum_object::{Clock, Dot, Object, Sibling, Timestamp};

/// The effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Writes a value.
    Put,
    /// Deletes the value that its client had read.
    Delete,
}

/// A write with any outcome.
#[derive(Clone, Debug)]
struct Write {
    change: Change,
    /// The writes that it replaces if all writes of its client's view were applied.
    replaces_at_most: FixedBitSet,
    /// The writes that it replaces for certain.
    replaces_at_least: FixedBitSet,
    /// The time of its acknowledgement.
    acknowledged: Option<Duration>,
    /// True if only primaries count.
    is_strict: bool,
}

impl Write {
    /// True if a read must show the write, according to a rule on the time of its acknowledgement
    /// and on its strictness.
    fn must_show(&self, rule: impl Fn(Duration, bool) -> bool) -> bool {
        self.acknowledged.is_some_and(|at| rule(at, self.is_strict))
    }
}

/// A client's view of a key after a read. Its next write replaces this view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) clock: Clock,
    at_most: FixedBitSet,
    at_least: FixedBitSet,
}

/// The key by which [`Resolution::NewestWins`](kvorum_object::Resolution::NewestWins) orders concurrent
/// versions.
type Stamp = (Timestamp, bool, Dot);

/// The history of one key.
#[derive(Debug, Default)]
pub(crate) struct History {
    writes: Vec<Write>,
    dots: BTreeMap<usize, Dot>,
    values: BTreeMap<(u64, u64), usize>,
    /// The stamp of each seen write, from its coordinator.
    stamps: BTreeMap<usize, Stamp>,
    /// The writes that any delete replaces: tombstones do not name their deletes.
    replaced_by_deletes: FixedBitSet,
    /// True if tombstones are removed: an object need not show deletes from before its first write.
    is_reaped: bool,
}

/// The value of a write: its key and number, then padding up to its length.
pub(crate) fn value_of(key: &str, write: usize, bytes: usize) -> Vec<u8> {
    let mut value = format!("{key}#{write}#").into_bytes();
    value.resize(value.len().max(bytes), b'.');
    value
}

/// The write that a value of the key names; `None` for a value of no client.
fn write_of(key: &str, value: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(value).ok()?;
    let (number, filling) = text.strip_prefix(key)?.strip_prefix('#')?.split_once('#')?;
    let is_whole = filling.bytes().all(|byte| byte == b'.');
    number.parse().ok().filter(|_| is_whole)
}

fn stamp_of(sibling: &Sibling) -> Stamp {
    let metadata = &sibling.metadata;
    (metadata.last_modified, !metadata.deleted, sibling.dot)
}

impl History {
    /// A history without writes.
    pub(crate) fn new(is_reaped: bool) -> Self {
        Self {
            is_reaped,
            ..Self::default()
        }
    }

    /// Records a write that is about to be sent; returns its number.
    pub(crate) fn begin(&mut self, change: Change, is_strict: bool, seen: &Seen) -> usize {
        if change == Change::Delete {
            self.replaced_by_deletes.union_with(&seen.at_most);
        }
        self.writes.push(Write {
            change,
            replaces_at_most: seen.at_most.clone(),
            replaces_at_least: seen.at_least.clone(),
            acknowledged: None,
            is_strict,
        });
        self.writes.len() - 1
    }

    pub(crate) fn acknowledge(&mut self, write: usize, at: Duration) {
        if let Some(write) = self.writes.get_mut(write) {
            write.acknowledged = Some(at);
        }
    }

    /// The view of an object, or the violation in the object itself.
    pub(crate) fn see(&mut self, key: &str, object: &Object) -> Result<Seen, String> {
        let mut seen = Seen {
            clock: object.clock().clone(),
            ..Seen::default()
        };
        let mut numbers = BTreeSet::new();
        for sibling in object.siblings() {
            if sibling.metadata.deleted {
                seen.at_most.union_with(&self.replaced_by_deletes);
                continue;
            }
            let write = write_of(key, &sibling.value).filter(|it| *it < self.writes.len());
            let Some(number) = write else {
                return Err(format!(
                    "{key}: a value that no client wrote: {:?}",
                    sibling.value
                ));
            };
            let first = *self.dots.entry(number).or_insert(sibling.dot);
            if first != sibling.dot {
                let second = sibling.dot;
                return Err(format!(
                    "{key}: write {number} has two dots: {first:?}, {second:?}"
                ));
            }
            let dot = (sibling.dot.actor.0, sibling.dot.counter);
            let earlier = *self.values.entry(dot).or_insert(number);
            if earlier != number {
                return Err(format!(
                    "{key}: writes {earlier} and {number} have the same dot {dot:?}"
                ));
            }
            if !numbers.insert(number) {
                return Err(format!("{key}: write {number} stands there twice"));
            }
            self.stamps.entry(number).or_insert(stamp_of(sibling));
            let write = &self.writes[number];
            seen.at_most.union_with(&write.replaces_at_most);
            seen.at_least.union_with(&write.replaces_at_least);
            seen.at_most.grow_and_insert(number);
            seen.at_least.grow_and_insert(number);
        }
        if self.is_reaped {
            seen.at_most.union_with(&self.replaced_by_deletes);
        }
        Ok(seen)
    }

    /// The view of a missing object: at most, everything was deleted.
    pub(crate) fn nothing(&self) -> Seen {
        Seen {
            at_most: self.replaced_by_deletes.clone(),
            ..Seen::default()
        }
    }

    /// An acknowledged write that an object has lost: it is neither present nor replaced.
    pub(crate) fn lost(
        &self,
        seen: &Seen,
        must_show: impl Fn(Duration, bool) -> bool,
    ) -> Option<usize> {
        (0..self.writes.len()).find(|number| {
            let write = &self.writes[*number];
            let is_required = write.must_show(&must_show);
            // A lost delete is visible in the values that it deleted.
            is_required && write.change == Change::Put && !seen.at_most.contains(*number)
        })
    }

    /// A value that is present although an acknowledged write replaced it, with that write.
    pub(crate) fn back_again(
        &self,
        key: &str,
        object: &Object,
        must_show: impl Fn(Duration, bool) -> bool,
    ) -> Option<(usize, usize)> {
        let there = object.siblings().iter().filter(|it| !it.metadata.deleted);
        let there: Vec<usize> = there.filter_map(|it| write_of(key, &it.value)).collect();
        self.writes.iter().enumerate().find_map(|(number, write)| {
            let is_required = write.must_show(&must_show);
            let back = there
                .iter()
                .find(|it| write.replaces_at_least.contains(**it));
            back.filter(|_| is_required).map(|value| (*value, number))
        })
    }

    /// The violation of a read without the last write that it must show, if siblings are not kept
    /// and each key has one writer. Two other writes may appear instead. One is a write with an
    /// unknown outcome: the clocks decide which write is later. The other is a write that the last
    /// write had not seen, because a node had been reset to an older copy of its data: the check of
    /// the read before the last write reports it.
    pub(crate) fn not_the_last(
        &self,
        key: &str,
        object: Option<&Object>,
        must_show: impl Fn(Duration, bool) -> bool,
    ) -> Option<String> {
        let mut writes = self.writes.iter();
        let last = writes.rposition(|write| write.must_show(&must_show))?;
        let siblings = object.map(Object::siblings).unwrap_or_default();
        let is_deleted =
            self.writes[last].change == Change::Delete || self.replaced_by_deletes.contains(last);
        if self.is_reaped && siblings.is_empty() && is_deleted {
            return None;
        }
        let [only] = siblings else {
            let (count, last) = (siblings.len(), self.describe(last));
            return Some(format!("{key} has {count} values instead of one: {last}"));
        };
        let shown = write_of(key, &only.value)?;
        let is_known = self.writes[shown].acknowledged.is_some();
        let is_replaced = self.writes[last].replaces_at_most.contains(shown);
        (is_known && is_replaced).then(|| {
            let (shown, last) = (self.describe(shown), self.describe(last));
            format!("{key} shows {shown} instead of {last}")
        })
    }

    /// The violation of an object if siblings are not kept and any client writes any key: it has
    /// more than one value, or lacks a newer required write that was not replaced. Only this check
    /// uses the database's stamps, which such buckets compare.
    pub(crate) fn not_the_newest(
        &self,
        key: &str,
        object: Option<&Object>,
        seen: &Seen,
        must_show: impl Fn(Duration, bool) -> bool,
    ) -> Option<String> {
        let siblings = object.map(Object::siblings).unwrap_or_default();
        if siblings.len() > 1 {
            return Some(format!(
                "{key} has {} values instead of one",
                siblings.len()
            ));
        }
        let shown = siblings.first().map(stamp_of);
        let is_replaced = |number: usize| {
            let mut writes = self.writes.iter();
            writes.any(|write| write.replaces_at_most.contains(number))
        };
        let newer = self.stamps.iter().find(|(number, stamp)| {
            let write = &self.writes[**number];
            let is_required = write.must_show(&must_show);
            let is_missed = !seen.at_most.contains(**number) && Some(**stamp) > shown;
            is_required && is_missed && !is_replaced(**number)
        });
        newer.map(|(number, stamp)| {
            let newer = self.describe(*number);
            format!("{key} shows {shown:?} instead of {stamp:?}, {newer}")
        })
    }

    /// A write as a sentence.
    pub(crate) fn describe(&self, number: usize) -> String {
        self.writes.get(number).map_or_else(String::new, |write| {
            let at = write.acknowledged.map(|at| at.as_millis());
            let strict = if write.is_strict { "strict" } else { "sloppy" };
            format!(
                "{:?} {number} ({strict}, acknowledged at {at:?} ms)",
                write.change
            )
        })
    }
}

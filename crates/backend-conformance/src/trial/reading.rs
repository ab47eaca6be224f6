//! Reads and folds, compared with the model.

use std::ops::Bound;

use bytes::Bytes;
use kvorum_backend::{
    Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, IndexRange, Lease, Lookup, Reading, Sequence,
    Snapshot, StoredEntry, StoredHead, Timestamp,
};
use kvorum_encoding::StorageKey;

use super::{HeldSnapshot, SLOTS, Trial};
use crate::model::{Entry, Seen, State};
use crate::names;
use crate::script::{PlannedBound, PlannedFold};
use crate::violation::{MustSucceed, ensure};
use crate::{Checked, Violation};

impl Trial<'_> {
    /// Reads all contents in every way.
    pub(crate) fn check_all(&self) -> Checked {
        for key in names::keys() {
            self.check_key(&key)?;
        }
        self.fold_now(&PlannedFold::all(FoldDetail::Entries))?;
        self.check_emptiness()?;
        let live = self.live() as u64;
        let keys = self.store()?.status().keys;
        if keys < live || keys > self.state.entries.len() as u64 {
            return Err(Violation::of_method(format!(
                "the status counts {keys} keys, {live} are there and {} were not removed",
                self.state.entries.len()
            )));
        }
        Ok(())
    }

    pub(crate) fn check_emptiness(&self) -> Checked {
        let is_empty = self.store()?.is_empty(self.now).must("is_empty")?;
        if is_empty != (self.live() == 0) {
            return Err(Violation::of_method(format!(
                "is_empty() is {is_empty} with {} unexpired entries",
                self.live()
            )));
        }
        Ok(())
    }

    fn live(&self) -> usize {
        let entries = self.state.entries.values();
        entries
            .filter(|entry| !entry.fields.is_expired(self.now))
            .count()
    }

    /// Gets and heads of one key, cached and not.
    pub(crate) fn check_key(&self, key: &StorageKey) -> Checked {
        let expected = self.state.get(key, self.now);
        for reading in [Reading::CachedOnly, Reading::MayBlock] {
            let entry = self.store()?.get(key, self.at(reading)).must("get")?;
            let head = self.store()?.head(key, self.at(reading)).must("head")?;
            check_waiting(reading, &entry)?;
            check_waiting(reading, &head)?;
            check_entry(key, &entry, expected, self.now)?;
            check_head(key, &head, expected)?;
        }
        Ok(())
    }

    pub(super) fn take_snapshot(&mut self, slot: usize, lease_micros: Option<u64>) -> Checked {
        let lease = match lease_micros {
            Some(micros) => Lease::Until(Timestamp(self.now.0 + micros)),
            None => Lease::Unlimited,
        };
        let snapshot = self.store()?.snapshot(lease).must("snapshot")?;
        // Right after an erasure, an engine may restart its count or continue it.
        let is_new = self.last_sequence == Sequence(0);
        let sees_last = snapshot.sequence() == self.last_sequence;
        ensure(is_new || sees_last, 14, || {
            format!(
                "a snapshot taken at {:?} claims the sequence {:?}",
                self.last_sequence,
                snapshot.sequence()
            )
        })?;
        self.snapshots[slot % SLOTS] = Some(HeldSnapshot {
            snapshot,
            state: self.state.clone(),
            lease,
            is_erased: false,
        });
        Ok(())
    }

    pub(super) fn fold_now(&self, fold: &PlannedFold) -> Checked {
        let snapshot = self.store()?.snapshot(Lease::Unlimited).must("snapshot")?;
        self.check_fold(&*snapshot, &self.state, fold)
    }

    pub(super) fn fold_held(&self, slot: usize, fold: &PlannedFold) -> Checked {
        let Some(held) = &self.snapshots[slot % SLOTS] else {
            return Ok(());
        };
        if held.is_erased || held.lease.is_over(self.now) {
            self.check_over(held, fold)
        } else {
            self.check_fold(&*held.snapshot, &held.state, fold)
        }
    }

    fn check_fold(&self, snapshot: &dyn Snapshot, state: &State, fold: &PlannedFold) -> Checked {
        let (range, filter) = (self.range(fold), self.filter(fold));
        let expected = state.fold(fold.detail, &range, &filter);
        let mut seen = Vec::new();
        let mut range = range;
        // Each round visits an entry or ends, so more rounds than entries mean a loop.
        for _ in 0..=expected.len() {
            let before = seen.len();
            let end = collect(snapshot, fold, &range, &filter, &mut seen)?;
            match end {
                FoldEnd::Complete => return compare(&seen, &expected),
                FoldEnd::LeaseExpired(_) => {
                    return Err(Violation::of(14, "a fold ended although its lease had not"));
                }
                FoldEnd::Stopped(resume) => {
                    let last = seen.last().map(|it| &it.key);
                    ensure(seen.len() > before && last < Some(&resume), 2, || {
                        format!("a fold stopped behind {last:?} resumes at {resume:?}")
                    })?;
                    range = range.resumed_at(&resume);
                }
            }
        }
        if seen.len() == expected.len() {
            // Stopped behind its last entry; an engine need not detect that this is the end.
            return compare(&seen, &expected);
        }
        Err(Violation::of(2, format!("a fold never ends; saw {seen:?}")))
    }

    /// A fold over an expired lease stops, and the entries that it shows before that are right.
    fn check_over(&self, held: &HeldSnapshot, fold: &PlannedFold) -> Checked {
        let (range, filter) = (self.range(fold), self.filter(fold));
        let expected = held.state.fold(fold.detail, &range, &filter);
        let mut seen = Vec::new();
        let whole = PlannedFold {
            chunk: usize::MAX,
            ..fold.clone()
        };
        let end = collect(&*held.snapshot, &whole, &range, &filter, &mut seen)?;
        let count = seen.len();
        ensure(expected.starts_with(&seen), 14, || {
            format!("a fold over an expired lease saw {seen:?} of {expected:?}")
        })?;
        match end {
            FoldEnd::LeaseExpired(resume) => {
                let skipped = expected.get(count).is_some_and(|next| next.key < resume);
                ensure(!skipped, 14, || {
                    format!("an expired fold resumes at {resume:?}, behind what it did not visit")
                })
            }
            FoldEnd::Complete if expected.is_empty() => Ok(()),
            FoldEnd::Complete if held.is_erased => compare(&seen, &expected),
            end => Err(Violation::of(
                14,
                format!("a fold over an expired lease ended with {end:?}"),
            )),
        }
    }

    pub(super) fn fold_buckets(&self, fold: &PlannedFold) -> Checked {
        let (range, filter) = (self.range(fold), self.filter(fold));
        let mut expected: Vec<StorageKey> = Vec::new();
        for seen in self.state.fold(FoldDetail::Keys, &range, &filter) {
            let is_new = expected
                .last()
                .is_none_or(|last| bucket(last) != bucket(&seen.key));
            if is_new {
                expected.push(seen.key);
            }
        }
        let snapshot = self.store()?.snapshot(Lease::Unlimited).must("snapshot")?;
        let mut seen: Vec<StorageKey> = Vec::new();
        let mut rest = range.clone();
        for _ in 0..=expected.len() {
            let before = seen.len();
            let end = snapshot
                .fold_buckets(&rest, &filter, &mut |visited| {
                    seen.push(visited.key.clone());
                    flow(seen.len() - before, fold.chunk)
                })
                .must("fold_buckets")?;
            match end {
                FoldEnd::Stopped(resume) => rest = rest.resumed_at(&resume),
                FoldEnd::Complete => break,
                FoldEnd::LeaseExpired(_) => {
                    return Err(Violation::of(14, "a fold ended although its lease had not"));
                }
            }
        }
        let buckets = |keys: &[StorageKey]| -> Vec<Bytes> { keys.iter().map(bucket).collect() };
        let is_inside = seen.iter().all(|key| range.contains(key.as_bytes()));
        ensure(is_inside && buckets(&seen) == buckets(&expected), 2, || {
            format!("fold_buckets saw {seen:?} instead of {expected:?}")
        })
    }

    pub(super) fn fold_index(
        &self,
        bucket: usize,
        field: usize,
        bounds: (Option<usize>, Option<usize>),
        chunk: usize,
    ) -> Checked {
        let store = self.store()?;
        let Some(indexes) = store.indexes() else {
            return Ok(());
        };
        let bound = |number: Option<usize>| {
            number.map_or(Bound::Unbounded, |number| {
                Bound::Included(names::index_term(number))
            })
        };
        let mut range = IndexRange {
            bucket_prefix: names::prefix(bucket),
            field: names::index_field(field),
            from: bound(bounds.0),
            to: bound(bounds.1),
            after: None,
        };
        let expected = self.state.fold_index(&range, self.now);
        let mut seen: Vec<(Bytes, StorageKey)> = Vec::new();
        for _ in 0..=expected.len() {
            let before = seen.len();
            let end = indexes
                .fold_index(&range, Lease::Unlimited, self.now, &mut |term, key| {
                    seen.push((term.clone(), key.clone()));
                    flow(seen.len() - before, chunk)
                })
                .must("fold_index")?;
            if end == FoldEnd::Complete || seen.len() == before {
                break;
            }
            range.after = seen.last().cloned();
        }
        ensure(seen == expected, 3, || {
            format!("an index fold saw {seen:?} instead of {expected:?}")
        })
    }

    fn range(&self, fold: &PlannedFold) -> FoldRange {
        if let Some(bucket) = fold.bucket {
            return FoldRange::prefix(&names::prefix(bucket));
        }
        FoldRange {
            from: bound(fold.from),
            to: bound(fold.to),
        }
    }

    fn filter(&self, fold: &PlannedFold) -> FoldFilter {
        FoldFilter {
            last_modified: fold
                .age_micros_max
                .map(|age| Timestamp(self.now.0 - age)..=self.now),
            segments: fold.segments.clone(),
            ..FoldFilter::unexpired(self.now)
        }
    }
}

fn bound(planned: PlannedBound) -> Bound<Bytes> {
    match planned {
        PlannedBound::Open => Bound::Unbounded,
        PlannedBound::At(key) => Bound::Included(names::key(key).to_bytes()),
        PlannedBound::Beside(key) => Bound::Excluded(names::key(key).to_bytes()),
    }
}

fn bucket(key: &StorageKey) -> Bytes {
    let len = key.bucket_prefix_len().unwrap_or(0);
    key.to_bytes().slice(..len)
}

/// One fold, stopped after the planned number of entries.
fn collect(
    snapshot: &dyn Snapshot,
    fold: &PlannedFold,
    range: &FoldRange,
    filter: &FoldFilter,
    seen: &mut Vec<Seen>,
) -> Checked<FoldEnd> {
    let before = seen.len();
    snapshot
        .fold(fold.detail, range, filter, &mut |visited| {
            seen.push(Seen::visited(visited));
            flow(seen.len() - before, fold.chunk)
        })
        .must("fold")
}

/// The answer to a visit: a page ends after this many.
fn flow(shown: usize, chunk: usize) -> Flow {
    match shown < chunk {
        true => Flow::Continue,
        false => Flow::Stop,
    }
}

fn compare(seen: &[Seen], expected: &[Seen]) -> Checked {
    if seen == expected {
        return Ok(());
    }
    let at = seen
        .iter()
        .zip(expected)
        .take_while(|(seen, expected)| seen == expected)
        .count();
    let sentence = if seen.is_sorted_by(|a, b| a.key < b.key) {
        14
    } else {
        2
    };
    Err(Violation::of(
        sentence,
        format!(
            "a fold saw {} entries instead of {}; at {at} it saw {:?} instead of {:?}",
            seen.len(),
            expected.len(),
            seen.get(at),
            expected.get(at)
        ),
    ))
}

fn check_waiting<T>(reading: Reading, lookup: &Lookup<T>) -> Checked {
    let waits = matches!(lookup, Lookup::WouldBlock);
    ensure(!waits || reading == Reading::CachedOnly, 11, || {
        "a read that may block returned WouldBlock".to_owned()
    })
}

fn check_entry(
    key: &StorageKey,
    lookup: &Lookup<StoredEntry>,
    expected: Option<&Entry>,
    now: Timestamp,
) -> Checked {
    let holds = match (lookup, expected) {
        (Lookup::WouldBlock, _) | (Lookup::Absent, None) => true,
        (Lookup::Found(found), Some(expected)) => {
            expected.sequence.is_none_or(|it| it == found.sequence)
                && (found.fields, &found.head, &found.body)
                    == (expected.fields, &expected.head, &expected.body)
        }
        _ => false,
    };
    let expired = matches!(lookup, Lookup::Found(found) if found.fields.is_expired(now));
    let sentence = if expired { 13 } else { 10 };
    ensure(holds, sentence, || {
        let found = match lookup {
            Lookup::Found(it) => format!(
                "{:?} of {} bytes, {:?}",
                it.sequence,
                it.body.len(),
                it.fields
            ),
            other => format!("{other:?}"),
        };
        format!("get of {key:?} is {found} instead of {}", brief(expected))
    })
}

fn check_head(key: &StorageKey, lookup: &Lookup<StoredHead>, expected: Option<&Entry>) -> Checked {
    let holds = match (lookup, expected) {
        (Lookup::WouldBlock, _) | (Lookup::Absent, None) => true,
        (Lookup::Found(found), Some(expected)) => {
            expected.sequence.is_none_or(|it| it == found.sequence)
                && (found.fields, &found.head, found.body_len)
                    == (expected.fields, &expected.head, expected.body.len() as u64)
        }
        _ => false,
    };
    ensure(holds, 12, || {
        format!(
            "head of {key:?} is {lookup:?} instead of {}",
            brief(expected)
        )
    })
}

/// An entry without its bytes, for stories.
fn brief(entry: Option<&Entry>) -> String {
    entry.map_or("nothing".to_owned(), |it| {
        format!(
            "{:?} of {} bytes, {:?}",
            it.sequence,
            it.body.len(),
            it.fields
        )
    })
}

//! The calls to a store and their acknowledgements, and the check of its contents against them.
//!
//! After a crash each batch that was not acknowledged as durable may be present or not. A state is
//! correct when some choice of these, played in order with all acknowledged ones, leads to it.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_backend::{
    Batch, FoldDetail, FoldFilter, FoldRange, IndexRange, Sequence, Timestamp, Write,
};
use kvorum_encoding::StorageKey;

use crate::model::{Seen, State};
use crate::names;

/// With more undecided batches than this only prefixes are tried; with fewer, all of up to 2^12 states.
const UNDECIDED_MAX: usize = 12;

/// A batch that was put.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) batch: Batch,
    /// `None` when the put failed.
    pub(crate) sequence: Option<Sequence>,
    /// Acknowledged as durable.
    pub(crate) is_durable: bool,
    /// Its store ended without a proper close: unless it is durable, it may be lost, since buffered
    /// batches have no promise.
    pub(crate) is_forgettable: bool,
}

/// All batches in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) attempts: Vec<Attempt>,
    /// An erasure began and failed: any of the earlier contents may be present, or nothing.
    pub(crate) is_erasing: bool,
}

/// The terms and keys that an index fold visited.
pub(crate) type IndexFold = Vec<(Bytes, StorageKey)>;

/// The contents that a store shows. A key that could not be read is in neither map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) present: BTreeMap<StorageKey, Seen>,
    pub(crate) absent: Vec<StorageKey>,
    /// Index entries by bucket and field; `None` when they could not be folded.
    pub(crate) index: Option<Vec<Option<IndexFold>>>,
}

/// The batches that have to be present.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Required {
    /// Those acknowledged as durable, and those up to this sequence.
    Durable { up_to: Sequence },
    /// Those whose put succeeded: the store is still open, or was closed.
    Accepted,
}

impl History {
    /// Marks the batches that a sync covered.
    pub(crate) fn synced(&mut self, up_to: Sequence) {
        for attempt in &mut self.attempts {
            attempt.is_durable |= attempt.sequence.is_some_and(|it| it <= up_to);
        }
    }

    /// Notes that the store was closed: all of its contents are durable.
    pub(crate) fn closed(&mut self) {
        for attempt in &mut self.attempts {
            attempt.is_durable |= attempt.sequence.is_some() && !attempt.is_forgettable;
        }
    }

    /// Notes that the store could not be closed, and was dropped.
    pub(crate) fn not_closed(&mut self) {
        for attempt in &mut self.attempts {
            attempt.is_forgettable |= !attempt.is_durable;
        }
    }

    /// Notes the sequence of a batch. No earlier batch that still exists has this sequence or a higher one.
    pub(crate) fn given(&mut self, sequence: Sequence) {
        for attempt in &mut self.attempts {
            if attempt.is_forgettable && attempt.sequence.is_some_and(|it| it >= sequence) {
                attempt.sequence = None;
            }
        }
    }

    /// The highest sequence up to which all accepted batches were acknowledged as durable.
    pub(crate) fn durable_floor(&self) -> Sequence {
        let accepted = self.attempts.iter().filter(|it| it.sequence.is_some());
        let durable = accepted.take_while(|it| it.is_durable);
        durable
            .last()
            .and_then(|it| it.sequence)
            .unwrap_or_default()
    }

    /// True when any batch ever stored this entry under its key.
    pub(crate) fn has_put(&self, seen: &Seen) -> bool {
        self.attempts.iter().any(|attempt| attempt.leaves(seen))
    }

    /// A state that agrees with the observation, or the reason why there is none.
    pub(crate) fn explain(
        &self,
        observed: &Observation,
        required: Required,
        now: Timestamp,
    ) -> Result<State, String> {
        if self.is_erasing {
            return self.explain_erasing(observed);
        }
        let needed: Vec<bool> = self.attempts.iter().map(|it| required.needs(it)).collect();
        let shown: Vec<Option<bool>> = self.shown_by(observed);
        let undecided: Vec<usize> = (0..needed.len())
            .filter(|at| !needed[*at] && shown[*at].is_none())
            .collect();
        let needed: Vec<bool> = (0..needed.len())
            .map(|at| needed[at] || shown[at] == Some(true))
            .collect();
        // Logs lose their tails, so a prefix is the likeliest answer.
        for kept in (0..=undecided.len()).rev() {
            let state = self.state(|at| needed[at] || undecided[..kept].contains(&at));
            if agrees(&state, observed, now) {
                return Ok(state);
            }
        }
        if undecided.len() <= UNDECIDED_MAX {
            for choice in 0..1usize << undecided.len() {
                let is_chosen = |at| {
                    let bit = undecided.iter().position(|it| *it == at);
                    bit.is_some_and(|bit| choice >> bit & 1 == 1)
                };
                let state = self.state(|at| needed[at] || is_chosen(at));
                if agrees(&state, observed, now) {
                    return Ok(state);
                }
            }
        }
        Err(self.story(observed, &needed))
    }

    /// Evidence of the existing entries for each batch: true if it wrote one of them, false if it
    /// came later and would have overwritten one.
    fn shown_by(&self, observed: &Observation) -> Vec<Option<bool>> {
        let mut shown = vec![None; self.attempts.len()];
        for seen in observed.present.values() {
            let writer = self.attempts.iter().rposition(|it| it.leaves(seen));
            let Some(writer) = writer else { continue };
            for (at, attempt) in self.attempts.iter().enumerate().skip(writer + 1) {
                if attempt.batch.writes.iter().any(|it| it.key() == &seen.key) {
                    shown[at] = Some(false);
                }
            }
        }
        for seen in observed.present.values() {
            if let Some(writer) = self.attempts.iter().rposition(|it| it.leaves(seen)) {
                shown[writer] = Some(true);
            }
        }
        shown
    }

    fn explain_erasing(&self, observed: &Observation) -> Result<State, String> {
        match observed.present.values().find(|seen| !self.has_put(seen)) {
            None => Ok(State::default()),
            Some(seen) => Err(format!("{seen:?} was never put")),
        }
    }

    fn state(&self, is_there: impl Fn(usize) -> bool) -> State {
        let mut state = State::default();
        for (at, attempt) in self.attempts.iter().enumerate() {
            if is_there(at) {
                state.apply(&attempt.batch, attempt.sequence);
            }
        }
        state
    }

    fn story(&self, observed: &Observation, needed: &[bool]) -> String {
        let mut story = String::from("no choice of the undecided batches explains what is there:");
        for (attempt, needed) in self.attempts.iter().zip(needed) {
            let keys = attempt.batch.writes.iter().map(|write| {
                let kind = match write {
                    Write::Put { .. } => "put",
                    Write::Remove { .. } => "remove",
                };
                format!("{kind} {:?}", write.key())
            });
            let word = if *needed { "required" } else { "undecided" };
            let keys = keys.collect::<Vec<_>>().join(", ");
            story.push_str(&format!("\n    {word} {:?}: {keys}", attempt.sequence));
        }
        for seen in observed.present.values() {
            let origin = if self.has_put(seen) {
                ""
            } else {
                ", which was NEVER PUT"
            };
            let (key, sequence) = (&seen.key, seen.sequence);
            story.push_str(&format!("\n    there: {key:?} of {sequence:?}{origin}"));
        }
        story.push_str(&format!("\n    absent: {:?}", observed.absent));
        story
    }
}

impl Attempt {
    /// True when the batch leaves this entry under the key.
    fn leaves(&self, seen: &Seen) -> bool {
        let mut writes = self.batch.writes.iter().rev();
        match writes.find(|write| write.key() == &seen.key) {
            Some(Write::Put {
                fields, head, body, ..
            }) => (fields, head, body) == (&seen.fields, &seen.head, &seen.body),
            _ => false,
        }
    }
}

impl Required {
    fn needs(self, attempt: &Attempt) -> bool {
        match self {
            Self::Accepted => attempt.sequence.is_some() && !attempt.is_forgettable,
            Self::Durable { up_to } => {
                attempt.is_durable || attempt.sequence.is_some_and(|it| it <= up_to)
            }
        }
    }
}

fn agrees(state: &State, observed: &Observation, now: Timestamp) -> bool {
    let filter = FoldFilter::unexpired(now);
    let visible = state.fold(FoldDetail::Entries, &FoldRange::all(), &filter);
    let is_unread = |seen: &&Seen| {
        !observed.present.contains_key(&seen.key) && !observed.absent.contains(&seen.key)
    };
    let readable = visible.iter().filter(|seen| !is_unread(seen));
    let entries_agree = readable.clone().count() == observed.present.len()
        && readable
            .zip(observed.present.values())
            .all(|(expected, seen)| {
                // The sequence of a failed put is unknown.
                let sequence =
                    expected.sequence == Sequence(0) || expected.sequence == seen.sequence;
                sequence
                    && (&expected.key, expected.fields) == (&seen.key, seen.fields)
                    && (&expected.head, &expected.body) == (&seen.head, &seen.body)
            });
    let index_agrees = observed.index.as_ref().is_none_or(|seen| {
        let expected = index_ranges().map(|range| state.fold_index(&range, now));
        expected
            .zip(seen)
            .all(|(expected, seen)| seen.as_ref().is_none_or(|seen| *seen == expected))
    });
    entries_agree && index_agrees
}

/// Ranges that together hold every index entry of the scripts.
pub(crate) fn index_ranges() -> impl Iterator<Item = IndexRange> {
    (0..names::BUCKETS_USED).flat_map(|bucket| {
        (0..2).map(move |field| IndexRange {
            bucket_prefix: names::prefix(bucket),
            field: names::index_field(field),
            from: std::ops::Bound::Unbounded,
            to: std::ops::Bound::Unbounded,
            after: None,
        })
    })
}

#[cfg(test)]
mod tests {
    use kvorum_backend::Fields;

    use super::*;

    const NOW: Timestamp = Timestamp(1);

    fn put(key: usize, value: &'static str) -> Write {
        let value = Bytes::from_static(value.as_bytes());
        Write::put(names::key(key), Fields::default(), value.clone(), value)
    }

    /// Batches with sequences from 1; the first `durable` of them are durable.
    fn history(batches: Vec<Vec<Write>>, durable: usize) -> History {
        let attempts = batches.into_iter().enumerate().map(|(at, writes)| Attempt {
            batch: Batch { writes },
            sequence: Some(Sequence(at as u64 + 1)),
            is_durable: at < durable,
            is_forgettable: false,
        });
        History {
            attempts: attempts.collect(),
            is_erasing: false,
        }
    }

    fn showing(entries: &[(usize, &'static str, u64)]) -> Observation {
        let mut observation = Observation {
            absent: names::keys().collect(),
            ..Observation::default()
        };
        for (key, value, sequence) in entries {
            let key = names::key(*key);
            let bytes = Bytes::from_static(value.as_bytes());
            observation.absent.retain(|it| it != &key);
            let seen = Seen {
                key: key.clone(),
                sequence: Sequence(*sequence),
                fields: Fields::default(),
                head: bytes.clone(),
                body: bytes,
            };
            observation.present.insert(key, seen);
        }
        observation
    }

    fn is_right(history: &History, entries: &[(usize, &'static str, u64)]) -> bool {
        let required = Required::Durable { up_to: Sequence(0) };
        history.explain(&showing(entries), required, NOW).is_ok()
    }

    #[test]
    fn undecided_batches_may_be_there_or_not_but_only_whole() {
        let batches = vec![
            vec![put(1, "a")],
            vec![put(1, "b"), put(2, "b")],
            vec![put(3, "c")],
        ];
        let history = history(batches, 1);
        assert!(is_right(&history, &[(1, "a", 1)]));
        assert!(is_right(&history, &[(1, "b", 2), (2, "b", 2)]));
        assert!(is_right(&history, &[(1, "a", 1), (3, "c", 3)]));
        assert!(!is_right(&history, &[]));
        assert!(!is_right(&history, &[(1, "b", 2)]));
        assert!(!is_right(&history, &[(1, "a", 1), (2, "b", 2)]));
        assert!(!is_right(&history, &[(1, "x", 2), (2, "b", 2)]));
        assert!(!is_right(&history, &[(1, "a", 2)]));
    }

    #[test]
    fn a_removed_key_is_not_explained_by_what_was_before() {
        let remove = Write::remove(names::key(1));
        let batches = vec![vec![put(1, "a")], vec![remove]];
        assert!(is_right(&history(batches.clone(), 1), &[(1, "a", 1)]));
        assert!(is_right(&history(batches.clone(), 1), &[]));
        assert!(!is_right(&history(batches, 2), &[(1, "a", 1)]));
    }

    #[test]
    fn a_hole_among_many_undecided_batches_is_found() {
        let values = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut batches: Vec<Vec<Write>> = (0..40)
            .map(|at| vec![put(1 + at % 3, values[at % values.len()])])
            .collect();
        batches[20] = vec![put(9, "gone")];
        let history = history(batches, 0);
        // The last writes of keys 1, 2 and 3; the batch that wrote key 9 is missing.
        let shown = [(1, "h", 40), (2, "f", 38), (3, "g", 39)];
        assert!(is_right(&history, &shown));
    }
}

//! The anti-entropy segments of the entries that a log replayed to a store at its opening.
//!
//! If a summary of a store was written some batches before the store's end, it lacks exactly these batches.
//! They can update it if no other batch came since. The numbers of batches, which have no gaps, show this.
//! If a number is missing, or a batch cannot be read, nothing is reported, and a new summary is made.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::Sequence;

/// The most segments that are kept: looking up more costs more than a new summary.
const SEGMENTS_MAX: usize = 1 << 16;

/// The segments of all entries that a run of batches wrote or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The batch before the first one.
    pub from: Sequence,
    /// The last batch.
    pub to: Sequence,
    /// The segments, ascending.
    pub segments: Vec<u32>,
}

/// Collects the segments of replayed batches.
pub struct Replays {
    /// The anti-entropy segment of the entry under an engine's key; `None` for a key of another kind.
    segment_of: fn(&[u8]) -> Option<u32>,
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    Run {
        from: Sequence,
        to: Sequence,
        segments: BTreeSet<u32>,
    },
    /// Some batch is unknown, or there were too many.
    Broken,
}

impl Replays {
    /// No batch was replayed yet.
    pub fn new(segment_of: fn(&[u8]) -> Option<u32>) -> Self {
        Self {
            segment_of,
            state: Mutex::default(),
        }
    }

    /// Notes a batch with writes to these keys. `covered` is the last batch that the store's own
    /// files had before; it counts only with the first batch.
    pub fn note<'a>(
        &self,
        covered: Sequence,
        sequence: Sequence,
        keys: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let mut state = self.state.lock();
        if matches!(*state, State::Nothing) {
            *state = State::begun_at(covered);
        }
        let State::Run { to, segments, .. } = &mut *state else {
            return;
        };
        if sequence <= *to {
            return;
        }
        let is_next = sequence.0 == to.0.saturating_add(1);
        *to = sequence;
        segments.extend(keys.into_iter().filter_map(self.segment_of));
        if !is_next || segments.len() > SEGMENTS_MAX {
            *state = State::Broken;
        }
    }

    /// Notes a batch with unknown keys.
    pub fn note_unknown(&self) {
        *self.state.lock() = State::Broken;
    }

    /// The replayed batches; `None` when there were none, or not all of them are known. They are
    /// returned once: no later call needs them.
    pub fn take(&self) -> Option<Replayed> {
        match std::mem::take(&mut *self.state.lock()) {
            State::Run { from, to, segments } => Some(Replayed {
                from,
                to,
                segments: segments.into_iter().collect(),
            }),
            State::Nothing | State::Broken => None,
        }
    }
}

impl State {
    fn begun_at(covered: Sequence) -> Self {
        Self::Run {
            from: covered,
            to: covered,
            segments: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys are their segments; an empty one is none.
    fn first_byte(key: &[u8]) -> Option<u32> {
        key.first().map(|it| u32::from(*it))
    }

    fn replays(batches: &[(u64, &[u8])]) -> Replays {
        let replays = Replays::new(first_byte);
        for (sequence, keys) in batches {
            let keys: Vec<[u8; 1]> = keys.iter().map(|it| [*it]).collect();
            let keys = keys.iter().map(|it| &it[..]);
            replays.note(Sequence(10), Sequence(*sequence), keys);
        }
        replays
    }

    #[test]
    fn a_run_without_gaps_is_reported_once() {
        let replays = replays(&[(11, &[7, 3]), (12, &[]), (13, &[7, 9])]);
        let expected = Replayed {
            from: Sequence(10),
            to: Sequence(13),
            segments: vec![3, 7, 9],
        };
        assert_eq!(replays.take(), Some(expected));
        assert_eq!(replays.take(), None);
    }

    #[test]
    fn a_batch_that_comes_twice_counts_once() {
        let replayed = replays(&[(11, &[1]), (12, &[2]), (11, &[3])])
            .take()
            .unwrap();
        assert_eq!(
            (replayed.to, &replayed.segments[..]),
            (Sequence(12), &[1, 2][..])
        );
    }

    #[test]
    fn nothing_is_reported_without_batches_or_with_a_gap_or_an_unknown_one() {
        assert_eq!(replays(&[]).take(), None);
        assert_eq!(replays(&[(12, &[1])]).take(), None);
        assert_eq!(replays(&[(11, &[1]), (13, &[2])]).take(), None);
        let unknown = replays(&[(11, &[1])]);
        unknown.note_unknown();
        unknown.note(Sequence(10), Sequence(12), []);
        assert_eq!(unknown.take(), None);
    }

    #[test]
    fn keys_of_something_else_have_no_segment() {
        let replays = Replays::new(first_byte);
        replays.note(Sequence(0), Sequence(1), [&b""[..], b"\x05"]);
        assert_eq!(replays.take().unwrap().segments, [5]);
    }

    #[test]
    fn too_many_segments_are_not_kept() {
        let replays = Replays::new(|key| key.first_chunk::<4>().map(|it| u32::from_le_bytes(*it)));
        for number in 0..=65_536u32 {
            let sequence = Sequence(1 + u64::from(number));
            replays.note(Sequence(0), sequence, [&number.to_le_bytes()[..]]);
        }
        assert_eq!(replays.take(), None);
    }
}

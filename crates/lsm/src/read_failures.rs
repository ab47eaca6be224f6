//! Tables that a device fails to read, and how merges treat them.
//!
//! A get of such a key returns the device's error each time: a device may fail for a while, and
//! gets give up no data for that. A merge cannot wait for ever. It would read the same tables again
//! and again up to the same sector, level 0 would grow, and a few bad keys would stop a store of
//! millions. So other merges go first, and a table that has failed often and long enough is merged
//! without the unreadable blocks. They are reported as lost, like damaged blocks, and their file is
//! moved to `lost/`.
//!
//! No merge gives blocks up while the device fails as a whole: the manifest has to be readable, and
//! the output of a merge has to reach the device before the inputs are removed.

use std::collections::BTreeMap;

use kvorum_backend::{LastingFailures, Timestamp};

use crate::policy::Pick;
use crate::version::Version;

/// The tables of merges that failed, by number.
#[derive(Default)]
pub(crate) struct ReadFailures {
    tables: BTreeMap<u64, LastingFailures>,
}

impl ReadFailures {
    /// Notes that a merge of these tables failed.
    pub(crate) fn failed(&mut self, tables: &[u64], now: Timestamp) {
        for table in tables {
            let known = self.tables.entry(*table);
            known.or_insert(LastingFailures::none()).count(now);
        }
    }

    /// The same for a merge that a put paid for. Puts are frequent and have no clock: they leave
    /// these tables to upkeep, and give no data up.
    pub(crate) fn failed_for_writer(&mut self, tables: &[u64]) {
        for table in tables {
            self.tables.entry(*table).or_insert(LastingFailures::none());
        }
    }

    /// Drops tables that no longer exist.
    pub(crate) fn keep(&mut self, version: &Version) {
        if !self.tables.is_empty() {
            let is_there = |number: &u64| version.tables().any(|it| it.number == *number);
            self.tables.retain(|number, _| is_there(number));
        }
    }

    /// The next merge: merges without failures go first.
    pub(crate) fn next(&self, picks: Vec<Pick>) -> Option<Pick> {
        self.sound_first(picks).into_iter().next()
    }

    /// The same picks, with the ones that have not failed first.
    pub(crate) fn sound_first(&self, mut picks: Vec<Pick>) -> Vec<Pick> {
        picks.sort_by_key(|it| !self.is_sound(it));
        picks
    }

    /// The next merge that a put may pay for: one without failures.
    pub(crate) fn next_sound(&self, picks: Vec<Pick>) -> Option<Pick> {
        self.next(picks).filter(|pick| self.is_sound(pick))
    }

    /// True when no merge of these tables has failed.
    pub(crate) fn is_sound(&self, pick: &Pick) -> bool {
        self.of(pick).is_none()
    }

    /// True when a merge has to continue without the unreadable blocks.
    pub(crate) fn is_lasting(&self, pick: &Pick, now: Timestamp) -> bool {
        self.of(pick).is_some_and(|it| it.are_enough(now))
    }

    /// The longest-lasting failures among a merge's tables.
    fn of(&self, pick: &Pick) -> Option<LastingFailures> {
        let tables = pick.inputs.iter().chain(&pick.below);
        let known = tables.filter_map(|it| self.tables.get(it).copied());
        known.max_by_key(LastingFailures::number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtable;
    use crate::policy::Reason;

    const FAILURES_MIN: u32 = LastingFailures::COUNT_MIN;
    const TIME_MICROS_MIN: u64 = LastingFailures::TIME_MICROS_MIN;

    fn pick(inputs: &[u64]) -> Pick {
        Pick {
            reason: Reason::Size,
            score_percent: 100,
            level: 1,
            inputs: inputs.to_vec(),
            output: 2,
            below: Vec::new(),
            bytes: 1,
            is_move: false,
        }
    }

    #[test]
    fn what_has_not_failed_goes_first_and_what_has_is_still_tried() {
        let mut read_failures = ReadFailures::default();
        read_failures.failed(&[1, 2], Timestamp(5));
        let next = |inputs: [&[u64]; 2]| read_failures.next(inputs.map(pick).into());
        assert_eq!(next([&[2, 3], &[4]]).unwrap().inputs, [4]);
        assert_eq!(next([&[2, 3], &[1]]).unwrap().inputs, [2, 3]);
        assert!(read_failures.next(Vec::new()).is_none());
    }

    #[test]
    fn it_takes_many_failures_and_a_long_time_to_give_something_up() {
        let long = TIME_MICROS_MIN;
        for (failures, at, expected) in [
            (FAILURES_MIN, long, true),
            (FAILURES_MIN - 1, long, false),
            (FAILURES_MIN, long - 1, false),
        ] {
            let mut read_failures = ReadFailures::default();
            (0..failures).for_each(|_| read_failures.failed(&[1], Timestamp(0)));
            let is_lasting = read_failures.is_lasting(&pick(&[7, 1]), Timestamp(at));
            assert_eq!(is_lasting, expected, "{failures} {at}");
        }
    }

    #[test]
    fn what_writers_see_of_it_is_neither_counted_nor_timed() {
        let mut read_failures = ReadFailures::default();
        let long = 10 * TIME_MICROS_MIN;
        (0..FAILURES_MIN).for_each(|_| read_failures.failed_for_writer(&[1]));
        (0..FAILURES_MIN).for_each(|_| read_failures.failed(&[1], Timestamp(long)));
        assert!(!read_failures.is_lasting(&pick(&[1]), Timestamp(long + 1)));
        (0..FAILURES_MIN).for_each(|_| read_failures.failed_for_writer(&[1]));
        assert!(read_failures.is_lasting(&pick(&[1]), Timestamp(long + TIME_MICROS_MIN)));
        read_failures.failed_for_writer(&[2]);
        let next = read_failures.next([&[2][..], &[3]].map(pick).into());
        assert_eq!(next.unwrap().inputs, [3]);
        assert!(
            read_failures
                .next_sound([&[2][..], &[1]].map(pick).into())
                .is_none()
        );
    }

    #[test]
    fn a_table_that_is_gone_is_forgotten() {
        let mut read_failures = ReadFailures::default();
        read_failures.failed(&[1], Timestamp(0));
        read_failures.keep(&Version::empty(4, Memtable::new(1, 0)));
        assert!(read_failures.tables.is_empty());
    }
}

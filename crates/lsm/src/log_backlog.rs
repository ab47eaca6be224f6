//! Batches of the store in the value log that are in no table yet. The log keeps their segments for
//! the next opening, which reads them.
//!
//! Batches are counted for each memtable: a flush covers a memtable as a whole, so that no batch is
//! counted twice or left out.

use std::collections::{BTreeMap, BTreeSet};

/// Segments with batches that are not in tables yet.
#[derive(Default)]
pub(crate) struct LogBacklog {
    /// The number of the present memtable.
    memtable: u64,
    /// By segment and memtable.
    batches: BTreeMap<(u32, u64), Batches>,
}

/// Batches of a memtable in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Batches {
    /// The last batch.
    last: u64,
    bytes: u64,
}

impl LogBacklog {
    /// Counts a batch.
    pub(crate) fn add(&mut self, segment: u32, sequence: u64, bytes: u64) {
        let batches = self.batches.entry((segment, self.memtable)).or_default();
        batches.last = batches.last.max(sequence);
        batches.bytes += bytes;
    }

    /// Starts the count of another memtable.
    pub(crate) fn seal(&mut self) {
        self.memtable += 1;
    }

    /// Notes that the batches up to this one are in tables.
    pub(crate) fn cover(&mut self, sequence: u64) {
        self.batches.retain(|_, batches| batches.last > sequence);
    }

    /// The oldest segment with a batch that is in no table.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.batches.keys().next().map(|(segment, _)| *segment)
    }

    /// The last batch in a segment that is in no table.
    pub(crate) fn last_in(&self, segment: u32) -> Option<u64> {
        let batches = self.batches.range((segment, 0)..=(segment, u64::MAX));
        batches.map(|(_, it)| it.last).max()
    }

    /// Segments with such batches, and the batches' bytes; a segment may come several times.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let batches = self.batches.iter();
        batches.map(|((segment, _), it)| (*segment, it.bytes))
    }

    /// The segments alone.
    pub(crate) fn segments(&self) -> BTreeSet<u32> {
        self.batches.keys().map(|(segment, _)| *segment).collect()
    }

    /// Removes all counts, as after an erasure.
    pub(crate) fn clear(&mut self) {
        self.batches.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_counts_for_as_long_and_as_much_as_memtables_have_of_it() {
        let mut uncovered = LogBacklog::default();
        for (segment, sequence) in [(3, 1), (3, 2)] {
            uncovered.add(segment, sequence, 100);
        }
        uncovered.seal();
        uncovered.add(3, 3, 10);
        uncovered.add(4, 4, 100);
        // A memtable is covered as a whole.
        uncovered.cover(1);
        let all: Vec<_> = uncovered.iter().collect();
        assert_eq!(all, [(3, 200), (3, 10), (4, 100)]);
        assert_eq!(uncovered.last_in(3), Some(3));
        uncovered.cover(2);
        let rest: Vec<_> = uncovered.iter().collect();
        assert_eq!(rest, [(3, 10), (4, 100)]);
        assert_eq!(uncovered.oldest(), Some(3));
        assert_eq!(uncovered.segments(), BTreeSet::from([3, 4]));
        uncovered.cover(4);
        assert_eq!((uncovered.oldest(), uncovered.last_in(3)), (None, None));
    }
}

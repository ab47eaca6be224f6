//! Sets of segment numbers as ranges: the segments dropped in a log's life are many numbers with
//! few gaps.

use std::collections::BTreeMap;

/// A set of numbers from 1 on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The last number of each range by its first. No two ranges touch.
    ranges: BTreeMap<u32, u32>,
}

impl Numbers {
    /// Adds a range; a range that ends before it begins is empty.
    pub(crate) fn insert(&mut self, mut first: u32, mut last: u32) {
        if first > last {
            return;
        }
        // The ranges that touch this one are merged with it.
        while let Some((known_first, known_last)) = self.last_up_to(last.saturating_add(1)) {
            if known_last < first.saturating_sub(1) {
                break;
            }
            self.ranges.remove(&known_first);
            first = first.min(known_first);
            last = last.max(known_last);
        }
        self.ranges.insert(first, last);
    }

    /// The last range that begins at `number` or before.
    fn last_up_to(&self, number: u32) -> Option<(u32, u32)> {
        let found = self.ranges.range(..=number).next_back();
        found.map(|(first, last)| (*first, *last))
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        let range = self.last_up_to(number);
        range.is_some_and(|(_, last)| number <= last)
    }

    /// True when a number behind `from` and before `to` is in it.
    pub(crate) fn has_any_between(&self, from: u32, to: u32) -> bool {
        let Some(before) = to.checked_sub(1) else {
            return false;
        };
        self.last_up_to(before).is_some_and(|(_, last)| last > from)
    }

    /// The highest number; 0 for none.
    pub(crate) fn highest(&self) -> u32 {
        self.ranges.values().next_back().copied().unwrap_or(0)
    }

    /// First and last number of each range, ascending.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u32, u32)> {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    /// Numbers in either set.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        other
            .ranges()
            .for_each(|(first, last)| both.insert(first, last));
        both
    }

    /// Numbers from 1 to `newest` that are not in the set.
    pub(crate) fn complement(&self, newest: u32) -> Self {
        let mut gaps = Self::default();
        let mut next = 1;
        for (first, last) in self.ranges() {
            gaps.insert(next, first.saturating_sub(1).min(newest));
            match last.checked_add(1) {
                Some(behind) => next = behind,
                None => return gaps,
            }
        }
        gaps.insert(next, newest);
        gaps
    }

    /// Numbers that are not in the other set.
    pub(crate) fn without(&self, other: &Self) -> Self {
        self.complement(u32::MAX).and(other).complement(u32::MAX)
    }
}

impl FromIterator<u32> for Numbers {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> Self {
        let mut all = Self::default();
        for number in numbers {
            all.insert(number, number);
        }
        all
    }
}

/// Text for a range of missing segments.
pub fn in_words((first, last): (u32, u32)) -> String {
    if first == last {
        format!("segment {first} is missing")
    } else {
        format!("segments {first} to {last} are missing")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const NEWEST: u32 = 24;

    fn listed(numbers: &Numbers) -> BTreeSet<u32> {
        numbers
            .ranges()
            .flat_map(|(first, last)| first..=last)
            .collect()
    }

    proptest! {
        #[test]
        fn sets_of_ranges_are_sets(
            one in proptest::collection::vec((1..=NEWEST, 0..5_u32), 0..8),
            other in proptest::collection::btree_set(1..=NEWEST, 0..20),
        ) {
            let mut ranges = Numbers::default();
            let mut expected = BTreeSet::new();
            for (first, more) in one {
                let last = (first + more).min(NEWEST);
                ranges.insert(first, last);
                expected.extend(first..=last);
            }
            prop_assert_eq!(listed(&ranges), expected.clone());
            let touching = ranges.ranges().zip(ranges.ranges().skip(1));
            for ((_, last), (first, _)) in touching {
                prop_assert!(last + 1 < first);
            }
            for number in 1..=NEWEST {
                prop_assert_eq!(ranges.contains(number), expected.contains(&number));
            }
            let numbers: Numbers = other.iter().copied().collect();
            prop_assert_eq!(listed(&ranges.and(&numbers)), &expected | &other);
            prop_assert_eq!(listed(&ranges.without(&numbers)), &expected - &other);
            let all: BTreeSet<u32> = (1..=NEWEST).collect();
            prop_assert_eq!(listed(&ranges.complement(NEWEST)), &all - &expected);
        }
    }

    #[test]
    fn the_highest_numbers_are_numbers_like_others() {
        let all = Numbers::default().complement(u32::MAX);
        assert_eq!(all.ranges().collect::<Vec<_>>(), [(1, u32::MAX)]);
        assert_eq!(all.complement(u32::MAX), Numbers::default());
        let some = [u32::MAX, u32::MAX - 1].into_iter().collect::<Numbers>();
        assert_eq!(
            all.without(&some).ranges().collect::<Vec<_>>(),
            [(1, u32::MAX - 2)]
        );
    }

    #[test]
    fn ranges_are_reported_in_words() {
        assert_eq!(in_words((3, 3)), "segment 3 is missing");
        assert_eq!(in_words((3, 5)), "segments 3 to 5 are missing");
    }
}

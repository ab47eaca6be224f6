//! Segments of the value log that may still have older records of a key, for a store with a
//! journal.
//!
//! A removal stays in the journal while an older put of its key is there: after a loss of its
//! ledger, the store would mistake that put for the newest. So a merge that drops an older entry
//! notes the older one's segment in the newer entry of the key. If there are many ranges,
//! neighbours are merged: a removal may then stay longer than necessary, but is never dropped too
//! early.

use kvorum_encoding::{ByteReader, Truncated, put_varint};

/// If there are more ranges, the nearest are merged.
const RANGES_MAX: usize = 16;

/// Ranges of segments, ascending and not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Older {
    /// First and last segment of each, both included.
    ranges: Vec<(u32, u32)>,
}

impl FromIterator<u32> for Older {
    fn from_iter<I: IntoIterator<Item = u32>>(segments: I) -> Self {
        let mut older = Self::default();
        segments.into_iter().for_each(|it| older.add(it));
        older
    }
}

impl Older {
    /// True when no older record may be left.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds a segment.
    pub(crate) fn add(&mut self, segment: u32) {
        self.add_range(segment, segment);
    }

    /// Adds another key's segments.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (first, last) in &other.ranges {
            self.add_range(*first, *last);
        }
    }

    /// Keeps the ranges for which the test is true.
    pub(crate) fn retain(&mut self, has_any: impl Fn(u32, u32) -> bool) {
        self.ranges.retain(|(first, last)| has_any(*first, *last));
    }

    fn add_range(&mut self, first: u32, last: u32) {
        let touches = |(from, to): &(u32, u32)| {
            *from <= last.saturating_add(1) && first <= to.saturating_add(1)
        };
        let touched: Vec<(u32, u32)> = self.ranges.extract_if(.., |it| touches(it)).collect();
        let first = touched.iter().map(|it| it.0).fold(first, u32::min);
        let last = touched.iter().map(|it| it.1).fold(last, u32::max);
        let at = self.ranges.partition_point(|it| it.0 < first);
        self.ranges.insert(at, (first, last));
        if self.ranges.len() > RANGES_MAX {
            self.merge_nearest();
        }
    }

    fn merge_nearest(&mut self) {
        let gap = |at: &usize| self.ranges[at + 1].0 - self.ranges[*at].1;
        if let Some(at) = (0..self.ranges.len() - 1).min_by_key(gap) {
            let behind = self.ranges.remove(at + 1);
            self.ranges[at].1 = behind.1;
        }
    }

    /// Appends varints: the number of ranges, and for each the segments between the previous range
    /// and its first segment, and the segments behind its first.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.ranges.len() as u64);
        let mut behind = 0;
        for (first, last) in &self.ranges {
            put_varint(out, u64::from(first - behind));
            put_varint(out, u64::from(last - first));
            behind = *last;
        }
    }

    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        let mut ranges = Vec::new();
        let mut behind = 0_u32;
        for _ in 0..reader.varint_len()? {
            let offset = reader.offset();
            let (skipped, more) = (reader.varint()?, reader.varint()?);
            let first = u32::try_from(skipped)
                .ok()
                .and_then(|it| behind.checked_add(it));
            let more = u32::try_from(more).ok();
            let range = first.and_then(|first| Some((first, first.checked_add(more?)?)));
            let range = range.ok_or(Truncated { offset })?;
            behind = range.1;
            ranges.push(range);
        }
        Ok(Self { ranges })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn of(segments: impl IntoIterator<Item = u32>) -> Older {
        segments.into_iter().collect()
    }

    #[test]
    fn neighbours_are_one_range_whatever_their_order() {
        for order in [[1, 2, 3, 7], [7, 3, 1, 2], [2, 7, 1, 3]] {
            assert_eq!(of(order).ranges, [(1, 3), (7, 7)]);
        }
        let mut both = of([1, 2]);
        both.add_all(&of([3, 9]));
        assert_eq!(both.ranges, [(1, 3), (9, 9)]);
        both.retain(|first, last| (first..=last).contains(&9));
        assert_eq!(both.ranges, [(9, 9)]);
    }

    #[test]
    fn of_many_the_nearest_are_merged_and_none_is_left_out() {
        let segments: Vec<u32> = (0..40).map(|it| it * it).collect();
        let older = of(segments.clone());
        assert_eq!(older.ranges.len(), RANGES_MAX);
        for segment in segments {
            let has_it = |(from, to): &(u32, u32)| (*from..=*to).contains(&segment);
            assert!(older.ranges.iter().any(has_it), "segment {segment}");
        }
        // The widest gaps come last.
        assert_eq!(older.ranges[15], (39 * 39, 39 * 39));
    }

    #[test]
    fn what_was_encoded_comes_back_and_nonsense_is_refused() {
        for older in [of([]), of([0]), of([5, 6, 9, u32::MAX])] {
            let mut out = Vec::new();
            older.encode(&mut out);
            assert_eq!(Older::decode(&mut ByteReader::new(&out)), Ok(older));
        }
        let mut out = vec![1];
        put_varint(&mut out, u64::from(u32::MAX));
        put_varint(&mut out, 1);
        assert!(Older::decode(&mut ByteReader::new(&out)).is_err());
        assert!(Older::decode(&mut ByteReader::new(&[3, 1])).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_make_ranges_to_go_on_with(
            bytes in vec(any::<u8>(), 0..60),
            more in vec(any::<u32>(), 0..40),
        ) {
            let Ok(mut older) = Older::decode(&mut ByteReader::new(&bytes)) else {
                return Ok(());
            };
            for segment in more {
                older.add(segment);
                prop_assert!(older.ranges.iter().any(|it| it.0 <= segment && segment <= it.1));
            }
            prop_assert!(older.ranges.is_sorted());
            let mut out = Vec::new();
            older.encode(&mut out);
            prop_assert_eq!(Older::decode(&mut ByteReader::new(&out)), Ok(older));
        }
    }
}

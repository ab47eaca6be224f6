//! Filters of folds by anti-entropy segment: whole segments, or leaves of a tree.

use crate::tree_position::{folded_segment, tree_position};

/// The entries that a fold visits, by the segments stored beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentFilter {
    /// Entries of these segments, ascending.
    Segments(Vec<u32>),
    /// Entries of these leaves of a tree.
    Leaves {
        /// The number of the tree's leaves: a power of two.
        leaves: u32,
        /// The leaves, ascending.
        wanted: Vec<u32>,
    },
}

/// A [`SegmentFilter`] cut to the 16 bits of segments in sorted tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedFilter {
    mask: u16,
    wanted: Vec<u16>,
}

impl SegmentFilter {
    /// True for an entry of this segment.
    pub fn admits(&self, segment: u32) -> bool {
        match self {
            Self::Segments(wanted) => wanted.binary_search(&segment).is_ok(),
            Self::Leaves { leaves, wanted } => {
                let leaf = tree_position(segment) & leaves.saturating_sub(1);
                wanted.binary_search(&leaf).is_ok()
            }
        }
    }

    /// The number of segments or leaves in the filter.
    pub fn named(&self) -> usize {
        match self {
            Self::Segments(wanted) | Self::Leaves { wanted, .. } => wanted.len(),
        }
    }

    /// The filter for folded segments. It admits at least the same entries.
    pub fn folded(&self) -> FoldedFilter {
        let (mask, wanted) = match self {
            Self::Segments(wanted) => (
                u16::MAX,
                wanted.iter().map(|it| folded_segment(*it)).collect(),
            ),
            Self::Leaves { leaves, wanted } => {
                let mask = low_half(leaves.saturating_sub(1));
                (mask, wanted.iter().map(|it| low_half(*it) & mask).collect())
            }
        };
        let mut wanted: Vec<u16> = wanted;
        wanted.sort_unstable();
        wanted.dedup();
        FoldedFilter { mask, wanted }
    }
}

impl FoldedFilter {
    /// True when an entry of this folded segment may be wanted.
    pub fn admits(&self, folded: u16) -> bool {
        self.wanted.binary_search(&(folded & self.mask)).is_ok()
    }
}

fn low_half(bits: u32) -> u16 {
    u16::try_from(bits & 0xffff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folded_filter_admits_all_that_the_whole_one_does_and_little_else() {
        let segments: Vec<u32> = (0..20_000u32)
            .map(|it| crate::checksum(&it.to_le_bytes()))
            .collect();
        let mut named = segments[..20].to_vec();
        named.sort_unstable();
        let leaves_of = |leaves: u32| {
            let mut wanted: Vec<u32> = segments[..20]
                .iter()
                .map(|it| tree_position(*it) & (leaves - 1))
                .collect();
            wanted.sort_unstable();
            SegmentFilter::Leaves { leaves, wanted }
        };
        for filter in [
            SegmentFilter::Segments(named),
            leaves_of(1 << 12),
            leaves_of(1 << 16),
            leaves_of(1 << 22),
        ] {
            let folded = filter.folded();
            let (mut whole, mut part) = (0, 0);
            for segment in &segments {
                let (is_wanted, may_be) = (
                    filter.admits(*segment),
                    folded.admits(folded_segment(*segment)),
                );
                assert!(!is_wanted || may_be, "{filter:?} {segment}");
                whole += usize::from(is_wanted);
                part += usize::from(may_be);
            }
            assert!((20..=250).contains(&whole), "{filter:?} {whole}");
            assert!(part <= whole + 20, "{filter:?} {part} {whole}");
        }
        assert!(leaves_of(1 << 12).named() >= 19);
        assert!(!SegmentFilter::Segments(Vec::new()).admits(0));
    }
}

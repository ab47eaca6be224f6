//! The six sizes of trees, under Riak's names and numbers.

use kvorum_encoding::tree_position;

/// The number of leaves of every branch.
pub const LEAVES_A_BRANCH: usize = 256;

/// The average number of keys of a leaf above which the tree has to be larger.
const KEYS_A_LEAF: u64 = 4;

/// The size of a tree: its number of branches, each of [`LEAVES_A_BRANCH`] leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TreeSize {
    /// 16 branches, 4096 leaves, 16 KB.
    XxSmall,
    /// 64 branches, 16384 leaves, 64 KB.
    XSmall,
    /// 256 branches, 65536 leaves, 256 KB.
    Small,
    /// 1024 branches, 262144 leaves, 1 MB.
    Medium,
    /// 4096 branches, 1048576 leaves, 4 MB.
    Large,
    /// 16384 branches, 4194304 leaves, 16 MB.
    XLarge,
}

impl TreeSize {
    /// All sizes, ascending.
    pub const ALL: [Self; 6] = [
        Self::XxSmall,
        Self::XSmall,
        Self::Small,
        Self::Medium,
        Self::Large,
        Self::XLarge,
    ];

    /// The number of branches.
    pub const fn branches(self) -> usize {
        16 << (2 * self as u32)
    }

    /// The number of leaves.
    pub const fn leaves(self) -> u32 {
        (16 << (2 * self as u32)) * 256
    }

    /// The size for this many keys: the smallest one whose leaves have four keys or fewer on average.
    pub fn for_keys(keys: u64) -> Self {
        let fits = |size: &Self| keys <= KEYS_A_LEAF * u64::from(size.leaves());
        Self::ALL.into_iter().find(fits).unwrap_or(Self::XLarge)
    }

    /// The size's number in Riak's messages: 0 to 5.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The size with a number in Riak's messages.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The size's name in Riak's URLs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::XxSmall => "xxsmall",
            Self::XSmall => "xsmall",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
            Self::XLarge => "xlarge",
        }
    }

    /// The size with a name in Riak's URLs.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The leaf of entries with a stored segment. Leaves are numbered branch by branch.
    pub fn leaf_of(self, segment: u32) -> u32 {
        tree_position(segment) & (self.leaves() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_by_fours_and_have_riaks_numbers() {
        let branches = TreeSize::ALL.map(TreeSize::branches);
        assert_eq!(branches, [16, 64, 256, 1024, 4096, 16384]);
        for size in TreeSize::ALL {
            assert_eq!(size.leaves() as usize, size.branches() * LEAVES_A_BRANCH);
            assert_eq!(TreeSize::from_number(size.number()), Some(size));
            assert_eq!(TreeSize::from_name(size.name()), Some(size));
        }
        assert_eq!(TreeSize::from_number(6), None);
        assert_eq!(TreeSize::from_name("huge"), None);
        assert_eq!(
            TreeSize::XLarge.leaves(),
            1 << kvorum_encoding::POSITION_BITS
        );
    }

    #[test]
    fn a_size_holds_four_keys_a_leaf() {
        assert_eq!(TreeSize::for_keys(0), TreeSize::XxSmall);
        assert_eq!(TreeSize::for_keys(16_384), TreeSize::XxSmall);
        assert_eq!(TreeSize::for_keys(16_385), TreeSize::XSmall);
        assert_eq!(TreeSize::for_keys(1_000_000), TreeSize::Medium);
        assert_eq!(TreeSize::for_keys(u64::MAX), TreeSize::XLarge);
    }

    #[test]
    fn a_leaf_of_a_smaller_tree_has_those_of_a_larger_one() {
        for segment in (0..50_000u32).map(|it| it.wrapping_mul(0x9e37_79b9)) {
            for pair in TreeSize::ALL.windows(2) {
                let large = pair[1].leaf_of(segment);
                assert_eq!(large & (pair[0].leaves() - 1), pair[0].leaf_of(segment));
            }
        }
    }
}

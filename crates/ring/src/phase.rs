//! The phases of a partition's move, and the lists whose answers count in each.
//!
//! Coordinators may apply the phases of a move late. Quorums of two neighbouring phases always
//! overlap. Epochs and the gates of [`Phase`] exclude requests of phases further apart. The proof
//! is in decision 7. A search over all interleavings of a small cluster (`tests/it/stale_reads.rs`)
//! confirms it, and shows that each rule is necessary.

/// The phase of a move.
///
/// Gates: the source takes the snapshot for filling after it has applied the beginning of the move.
/// Closing begins when the receiver has stored that snapshot. The move settles after the source has
/// applied the beginning of closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The receiver stores the source's keys. Reads ask the old list, writes both lists.
    Filling,
    /// The receiver has everything. Reads ask the new list, writes both lists.
    Closing,
}

/// A preference list while one of its partitions moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// The list with the source in the partition's place.
    Old,
    /// The list with the receiver in the partition's place.
    New,
}

impl Phase {
    /// The lists in which a write needs its quorums, counted separately. An answer counts in every
    /// list that has its replica.
    pub const fn write_lists(self) -> [List; 2] {
        match self {
            Self::Filling | Self::Closing => [List::Old, List::New],
        }
    }

    /// The list in which a read needs its quorum.
    pub const fn read_list(self) -> List {
        match self {
            Self::Filling => List::Old,
            Self::Closing => List::New,
        }
    }
}

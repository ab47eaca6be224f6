//! The phases of a partition's move, and the lists whose answers count in each.
//!
//! Coordinators learn of a move late and in any order. The phases are chosen so that quorums of two
//! neighbouring ones always meet. Epochs and the two gates that [`Phase`] documents keep phases further
//! apart from meeting. The proof stands in decision 7; a search over all interleavings of a small
//! cluster (`tests/it/stale_reads.rs`) confirms it, and shows that none of its parts can be left out.

/// The phase of a move.
///
/// Gates: a move begins to fill from a snapshot that its source takes once it has learned of the move;
/// it closes when the receiver has stored that snapshot; it settles when the source has learned that it
/// is closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The receiver takes in the source's keys. Reads ask the old list, writes both.
    Filling,
    /// The receiver has everything. Reads ask the new list, writes both.
    Closing,
}

/// A preference list while one of its partitions moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// The source stands in the partition's place.
    Old,
    /// The receiver does.
    New,
}

impl Phase {
    /// The lists in which a write needs its quorums, each by itself; an answer counts in every list
    /// that its replica is in.
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
